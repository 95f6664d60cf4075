// The form: generate with progress, explain, and what came of it.

import { send, stream } from "./api.js";
import { byId, element, number, tier } from "./elements.js";
import { add, clear } from "./results.js";

let running = null;

function options() {
  const fields = byId("request").elements;
  const chosen = { namespace: fields.namespace.value.trim() };
  if (fields.seed.value !== "") chosen.seed = Number(fields.seed.value);
  if (fields.steps.value !== "") chosen.steps = Number(fields.steps.value);
  if (fields.num_frames.value !== "") chosen.num_frames = Number(fields.num_frames.value);
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

function started(event, place) {
  const count = event.num_inference_steps;
  byId("steps").replaceChildren(...Array.from({ length: count }, (_, step) =>
    element("li", { class: step < event.skip_steps ? "skipped" : "" })));
  byId("state").textContent = place + (event.skip_steps
    ? `${event.tier}: ${event.skip_steps} of ${count} steps are skipped`
    : `${event.tier}: all ${count} steps are run`);
}

function stepped(event, place) {
  const dot = byId("steps").children[event.step_index];
  if (dot) dot.className = event.block_cache_reused ? "reused" : "done";
  byId("state").textContent = `${place}step ${event.step_index + 1} of ${event.num_inference_steps}`;
}

function completed(event, prompt) {
  const bytes = Uint8Array.from(atob(event.b64_json), (sign) => sign.charCodeAt(0));
  return { blob: new Blob([bytes], { type: event.media_type }), told: event.skipstone, prompt };
}

const stepsText = (made) => {
  const sum = (count) => made.reduce((all, { told }) => all + told[count], 0);
  return `${sum("executed_steps")} of ${sum("num_inference_steps")} steps were run`;
};

async function generate(onDone) {
  const prompt = byId("prompt").value.trim();
  const count = Number(byId("request").elements.count.value || 1);
  const body = { prompt, n: count, stream: true, skipstone: options() };
  const made = [];
  const place = (event) => (count > 1 ? `Picture ${event.index + 1} of ${count}: ` : "");
  running = new AbortController();
  byId("stop").hidden = false;
  begin();
  try {
    await stream(body, (event) => {
      switch (event.type) {
        case "image_generation.started": started(event, place(event)); break;
        case "image_generation.progress": stepped(event, place(event)); break;
        case "image_generation.completed":
          made.push(completed(event, prompt));
          if (made.length === 1) clear();
          add(made[made.length - 1], count);
          break;
        case "error": throw new Error(event.error.message);
        default: break;
      }
    }, running.signal);
    byId("state").textContent = `Done: ${stepsText(made)}`;
  } catch (error) {
    byId("state").textContent = made.length ? `Stopped after ${made.length} of ${count}` : "Stopped";
    trouble(error.name === "AbortError" ? null : error);
  } finally {
    running = null;
    byId("stop").hidden = true;
    if (made.length) onDone(made.map(({ told }) => told.saved_entry_id).filter(Boolean));
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
