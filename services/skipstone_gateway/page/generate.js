// The form: generate with progress, explain, and what came of it.

import { picture, send, stream } from "./api.js";
import { byId, element, facts, number, show, tier } from "./elements.js";

let running = null;

function options() {
  const fields = byId("request").elements;
  const chosen = { namespace: fields.namespace.value.trim() };
  if (fields.seed.value !== "") chosen.seed = Number(fields.seed.value);
  if (fields.steps.value !== "") chosen.steps = Number(fields.steps.value);
  if (fields.cache_mode.value) chosen.cache_mode = fields.cache_mode.value;
  return chosen;
}

function trouble(error) {
  byId("trouble").hidden = !error;
  byId("trouble").textContent = error ? error.message : "";
}

function begin() {
  trouble(null);
  byId("explanation").hidden = true;
  byId("run").hidden = false;
  byId("state").textContent = "Looking for something to reuse …";
  byId("steps").replaceChildren();
}

function started(event) {
  const count = event.num_inference_steps;
  byId("steps").replaceChildren(...Array.from({ length: count }, (_, step) =>
    element("li", { class: step < event.skip_steps ? "skipped" : "" })));
  byId("state").textContent = event.skip_steps
    ? `${event.tier}: ${event.skip_steps} of ${count} steps are skipped`
    : `${event.tier}: all ${count} steps are run`;
}

function stepped(event) {
  const dot = byId("steps").children[event.step_index];
  if (dot) dot.className = event.block_cache_reused ? "reused" : "done";
  byId("state").textContent = `Step ${event.step_index + 1} of ${event.num_inference_steps}`;
}

async function completed(event, prompt) {
  const told = event.skipstone;
  byId("state").textContent = `Done: ${told.executed_steps} of ${told.num_inference_steps} steps were run`;
  byId("result").hidden = false;
  const address = `data:${event.media_type};base64,${event.b64_json}`;
  show(byId("result-picture"), { address, type: event.media_type }, prompt, "");
  byId("result-caption").textContent = `Result: ${prompt}`;
  byId("donor-picture").replaceChildren(told.donor_entry_id ? "loading" : "none: drawn from noise");
  byId("donor-caption").textContent = told.donor_prompt ? `Donor: ${told.donor_prompt}` : "Donor";
  const times = Object.entries(told.stage_times_s)
    .map(([stage, seconds]) => `${stage} ${(1000 * seconds).toFixed(0)} ms`).join(", ");
  byId("provenance").replaceChildren(...facts([
    ["tier", tier(told.tier)],
    ["reason", told.reason],
    ["steps run", `${told.executed_steps} of ${told.num_inference_steps}`],
    ["steps skipped", String(told.skip_steps)],
    ["seed", String(told.seed)],
    ["similarity", number(told.similarity)],
    ["gate", number(told.rerank_score)],
    ["reuse", told.reuse_kind],
    ["policy", told.policy_version],
    ["times", times],
    ["fallbacks", told.fallbacks.map((f) => `${f.stage}: ${f.service} ${f.reason}`).join("; ")],
    ["donor", told.donor_entry_id],
    ["saved as", told.saved_entry_id],
    ["request", told.request_id],
  ]));
  if (told.donor_entry_id) {
    const donor = await picture(told.donor_entry_id);
    show(byId("donor-picture"), donor, told.donor_prompt, "its picture was made elsewhere");
  }
}

async function generate(onDone) {
  const prompt = byId("prompt").value.trim();
  const body = { prompt, stream: true, skipstone: options() };
  running = new AbortController();
  byId("stop").hidden = false;
  begin();
  try {
    await stream(body, (event) => {
      switch (event.type) {
        case "image_generation.started": started(event); break;
        case "image_generation.progress": stepped(event); break;
        case "image_generation.completed":
          completed(event, prompt);
          onDone(event.skipstone.saved_entry_id);
          break;
        case "error": throw new Error(event.error.message);
        default: break;
      }
    }, running.signal);
  } catch (error) {
    byId("state").textContent = "Stopped";
    trouble(error.name === "AbortError" ? null : error);
  } finally {
    running = null;
    byId("stop").hidden = true;
  }
}

async function explain() {
  trouble(null);
  const prompt = byId("prompt").value.trim();
  if (!prompt) return byId("prompt").focus();
  try {
    const told = await send("POST", "api/explain", { prompt, skipstone: options() });
    const decision = told.decision;
    const rows = decision.candidates.map((candidate) => element("tr", {},
      element("td", {}, candidate.entry.prompt),
      element("td", {}, number(candidate.similarity)),
      element("td", {}, number(candidate.rerank_score)),
      element("td", {}, String(candidate.skip_steps)),
      element("td", {}, candidate.explanation || candidate.reason)));
    const head = element("tr", {}, ...["Candidate", "Similarity", "Gate", "Skip", "Why"]
      .map((name) => element("th", {}, name)));
    byId("explanation").replaceChildren(
      element("p", {}, tier(decision.tier), ` ${told.explanation}`),
      element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows)));
    byId("explanation").hidden = false;
  } catch (error) {
    trouble(error);
  }
}

export function setUp(onDone) {
  byId("request").addEventListener("submit", (event) => {
    event.preventDefault();
    if (!running) generate(onDone);
  });
  byId("prompt").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) byId("request").requestSubmit();
  });
  byId("explain").addEventListener("click", explain);
  byId("stop").addEventListener("click", () => running?.abort());
}
