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

// Shows what was made, a picture or a clip: { address, type }, or the text `otherwise` without one.
export function show(frame, made, alt, otherwise) {
  frame.replaceChildren(made ? shown(made, alt) : otherwise);
}

function shown({ address, type }, alt) {
  if (!type.startsWith("video/")) return element("img", { src: address, alt });
  return element("video", { src: address, "aria-label": alt, controls: "", loop: "", preload: "auto" });
}
