// Live charts of what the replica counts.

import { get } from "./api.js";
import { byId, element, number } from "./elements.js";

const PERIOD_MS = 2000;
const KEPT = 150;
const SERIES = {
  tiers: [["exact", "--exact"], ["approximate", "--approximate"], ["miss", "--miss"]],
  saved: [["skipped", "--skipped"], ["run", "--run"]],
};

const samples = [];

function svg(name, attributes) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

// Stacked areas of counts since the first sample.
function draw(id, valuesOf) {
  const series = SERIES[id];
  const first = valuesOf(samples[0]);
  const rows = samples.map((sample) => valuesOf(sample).map((value, i) => value - first[i]));
  const top = Math.max(1, ...rows.map((row) => row.reduce((a, b) => a + b, 0)));
  const x = (i) => (samples.length < 2 ? 0 : (100 * i) / (samples.length - 1));
  const y = (value) => 98 - (96 * value) / top;
  const chart = byId(id);
  chart.setAttribute("viewBox", "0 0 100 100");
  chart.setAttribute("preserveAspectRatio", "none");
  const areas = series.map(([, colour], place) => {
    const below = (row) => row.slice(0, place).reduce((a, b) => a + b, 0);
    const upper = rows.map((row, i) => `${x(i)},${y(below(row) + row[place])}`);
    const lower = rows.map((row, i) => `${x(i)},${y(below(row))}`).reverse();
    const area = svg("polygon", { points: [...upper, ...lower].join(" ") });
    area.style.fill = `var(${colour})`;
    return area;
  });
  chart.replaceChildren(...areas);
  const last = rows[rows.length - 1];
  chart.setAttribute("aria-label", series.map(([name], i) => `${name} ${last[i]}`).join(", "));
  byId(`${id}-legend`).replaceChildren(...series.map(([name, colour], i) => {
    const mark = element("i");
    mark.style.background = `var(${colour})`;
    return element("span", {}, mark, `${name} ${last[i]}`);
  }));
}

// Of each tier the mean of its audits as a bar and their bound as a line, against what is accepted.
function drawDrift(drift) {
  const tiers = (drift?.tiers ?? []).filter((tier) => tier.mean !== null);
  const chart = byId("drift-chart");
  chart.parentElement.hidden = !tiers.length;
  if (!tiers.length) return;
  const top = 1.1 * Math.max(drift.max_drift, ...tiers.map((tier) => tier.bound ?? tier.mean));
  const x = (value) => (100 * value) / top;
  const height = 100 / tiers.length;
  const marks = tiers.flatMap((tier, place) => {
    const bar = svg("rect", { x: 0, y: place * height + 0.2 * height, width: x(tier.mean), height: 0.6 * height });
    bar.style.fill = `var(${tier.closed ? "--bad" : "--approximate"})`;
    return tier.bound === null ? [bar] : [bar, line(x(tier.bound), place * height, height, "--ink")];
  });
  chart.setAttribute("viewBox", "0 0 100 100");
  chart.setAttribute("preserveAspectRatio", "none");
  chart.replaceChildren(...marks, line(x(drift.max_drift), 0, 100, "--bad"));
  const told = tiers.map((tier) =>
    `${tier.tier}: mean ${number(tier.mean)}, bound ${number(tier.bound) || "unknown"}`);
  chart.setAttribute("aria-label", `Drift by tier, accepted up to ${drift.max_drift}: ${told.join("; ")}`);
  byId("drift-legend").textContent =
    `Bars: mean of the audits, in the order of the table. Thin lines: upper bounds. Red line: ${drift.max_drift}, up to which a tier stays open.`;
}

function line(at, from, length, colour) {
  const made = svg("line", { x1: at, x2: at, y1: from, y2: from + length, "vector-effect": "non-scaling-stroke" });
  made.style.stroke = `var(${colour})`;
  made.style.strokeWidth = "2px";
  return made;
}

function rowsOf(table, rows) {
  byId(table).tBodies[0].replaceChildren(...rows.map((cells) =>
    element("tr", {}, ...cells.map((cell) => element("td", {}, cell)))));
}

function update(stats) {
  samples.push(stats);
  if (samples.length > KEPT) samples.splice(1, 1);  // the first one is where counting began
  draw("tiers", (s) => SERIES.tiers.map(([name]) => s.tiers[name] ?? 0));
  draw("saved", (s) => [s.skipped_steps, s.executed_steps]);
  const steps = stats.executed_steps + stats.skipped_steps;
  const share = steps ? Math.round((100 * stats.skipped_steps) / steps) : 0;
  byId("totals").textContent =
    `Since the replica's start: ${share} % of ${steps} steps skipped, ${stats.saved_count} saved, ` +
    `${stats.entry_count < 0 ? "unknown" : stats.entry_count} entries here`;
  drawDrift(stats.drift);
  rowsOf("drift", (stats.drift?.tiers ?? []).map((tier) => [
    tier.tier, String(tier.audits), number(tier.mean), number(tier.bound), tier.closed ? "closed" : "open",
  ]));
  rowsOf("services", stats.services.map((s) => [s.service, s.breaker, s.last_error]));
}

export function setUp(onStats) {
  const poll = async () => {
    try {
      const stats = await get("api/stats");
      byId("model").textContent = stats.capabilities.model_id;
      update(stats);
      onStats(stats);
    } catch (error) {
      byId("totals").textContent = error.message;
    }
    window.setTimeout(poll, PERIOD_MS);
  };
  poll();
}
