// What a request made: one result beside its donor, and all of them to choose from.

import { picture } from "./api.js";
import { byId, element, facts, number, release, show, tier } from "./elements.js";

const STAGES = ["build_query", "lookup", "rerank", "resume", "denoise", "decode", "save", "total"];

let chosen = null;  // by the reader; else the newest is shown
let shown = null;

export function clear() {
  for (const frame of byId("results").querySelectorAll(".frame")) release(frame);
  byId("results").replaceChildren();
  chosen = shown = null;
}

// Adds a result, one of `count`.
export function add(result, count) {
  const place = byId("results").children.length + 1;
  const frame = element("div", { class: "frame" });
  const button = element("button", {
    type: "button",
    "aria-label": `Picture ${place}, ${result.told.tier}`,
    onclick: () => {
      chosen = result;
      select(result);
    },
  }, frame, tier(result.told.tier));
  show(frame, result.blob, "");
  // A button plays nothing: the clip is seen at its first frame here, and plays in its place.
  frame.firstChild.removeAttribute("controls");
  result.button = button;
  byId("results").append(element("li", {}, button));
  byId("results").hidden = count < 2;
  if (!chosen) select(result);
}

function select(result) {
  shown?.button.setAttribute("aria-pressed", "false");
  result.button.setAttribute("aria-pressed", "true");
  shown = result;
  const { blob, prompt, told } = result;
  byId("result").hidden = false;
  show(byId("result-picture"), blob, prompt);
  byId("result-caption").textContent = `Result: ${prompt}`;
  byId("provenance").replaceChildren(...provenance(told));
  showDonor(result);
}

async function showDonor(result) {
  const { donor_entry_id: entryId, donor_prompt: prompt } = result.told;
  byId("donor-caption").textContent = prompt ? `Donor: ${prompt}` : "Donor";
  show(byId("donor-picture"), null, "", entryId ? "loading" : "none: drawn from noise");
  if (!entryId) return;
  const blob = await picture(entryId);
  if (shown === result) show(byId("donor-picture"), blob, prompt, "its picture was made elsewhere");
}

function provenance(told) {
  const place = ([stage]) => (STAGES.includes(stage) ? STAGES.indexOf(stage) : STAGES.length);
  const times = Object.entries(told.stage_times_s)
    .sort((a, b) => place(a) - place(b))  // in the answer they have no order
    .map(([stage, seconds]) => `${stage} ${(1000 * seconds).toFixed(0)} ms`).join(", ");
  return facts([
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
  ]);
}
