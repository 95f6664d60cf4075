// Building pieces of the page. Text is always set as text: prompts are other people's words.

export const byId = (id) => document.getElementById(id);

export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "class") made.className = value;
    else if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

export function facts(rows) {
  return rows.filter(([, value]) => value !== null && value !== undefined && value !== "")
    .flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]);
}

export function tier(name) {
  return element("span", { class: `tier ${name}` }, name);
}

export const number = (value, digits = 3) =>
  value === null || value === undefined ? "" : Number(value).toFixed(digits);

// A blob stays in memory as long as it has an address: one for each frame, until it shows another.
const addresses = new WeakMap();

export function release(frame) {
  if (addresses.has(frame)) URL.revokeObjectURL(addresses.get(frame));
  addresses.delete(frame);
}

// Shows what was made, a picture or a clip, or the text `otherwise` where there is no blob.
export function show(frame, blob, alt, otherwise = "") {
  release(frame);
  if (!blob) return frame.replaceChildren(otherwise);
  const address = URL.createObjectURL(blob);
  addresses.set(frame, address);
  frame.replaceChildren(shown(address, blob.type, alt));
}

function shown(address, type, alt) {
  if (!type.startsWith("video/")) return element("img", { src: address, alt });
  return element("video", { src: address, "aria-label": alt, controls: "", loop: "", preload: "auto" });
}
