// The cache as a gallery: search, pin, delete.

import { get, namespace, picture, send } from "./api.js";
import { byId, element, release, show } from "./elements.js";

let entries = [];
let nextPage = "";
let canPin = false;
const cards = new Map();  // by namespace and id: entries of two namespaces may have one id
let space = "";  // of the entries that are shown; what the form says may be another one by now

export function allowPins(allowed) {
  if (allowed === canPin) return;
  canPin = allowed;
  keepCards([]);
  draw();
}

function keepCards(kept) {
  const keys = new Set(kept.map(keyOf));
  for (const [key, { frame }] of cards) {
    if (keys.has(key)) continue;
    release(frame);
    cards.delete(key);
  }
}

const keyOf = (entry) => `${space}/${entry.entry_id}`;

async function remove(entry, item) {
  if (!window.confirm(`Delete the entry of "${entry.prompt}"?`)) return;
  try {
    await send("DELETE", `api/entries/${encodeURIComponent(entry.entry_id)}`, null, space);
    entries = entries.filter((other) => other.entry_id !== entry.entry_id);
    keepCards(entries);
    const following = item.nextElementSibling ?? item.previousElementSibling;
    item.remove();
    count();
    (following?.querySelector("button") ?? byId("search")).focus();
  } catch (error) {
    byId("count").textContent = error.message;
  }
}

async function pin(entry, button) {
  const path = `api/entries/${encodeURIComponent(entry.entry_id)}/pin`;
  try {
    entry.pinned = (await send(entry.pinned ? "DELETE" : "PUT", path, null, space)).pinned;
    label(entry, button);
  } catch (error) {
    byId("count").textContent = error.message;
  }
}

function label(entry, button) {
  button.textContent = entry.pinned ? "Unpin" : "Pin";
  button.setAttribute("aria-pressed", String(Boolean(entry.pinned)));
}

// The card of an entry: made once, so that its picture is fetched once.
function card(entry) {
  const key = keyOf(entry);
  if (!cards.has(key)) cards.set(key, makeCard(entry));
  const made = cards.get(key);
  if (entry.has_picture && !made.asked) {
    made.asked = true;
    picture(entry.entry_id, space).then((blob) => {
      if (cards.get(key) === made) show(made.frame, blob, entry.prompt, NO_PICTURE);
    });
  }
  return made.item;
}

function makeCard(entry) {
  const frame = element("div", { class: "frame" }, NO_PICTURE);
  const made = new Date(1000 * entry.create_time).toLocaleString();
  const steps = entry.snapshots.map((snapshot) => snapshot.step_index).join(", ");
  const item = element("li", {}, frame, element("p", {}, entry.prompt),
    element("p", { class: "quiet" }, `seed ${entry.seed}, snapshots at ${steps}, ${made}`));
  const buttons = element("div", { class: "buttons" });
  if (canPin) {
    const button = element("button", { type: "button", onclick: () => pin(entry, button) });
    label(entry, button);
    buttons.append(button);
  }
  buttons.append(element("button", { type: "button", onclick: () => remove(entry, item) }, "Delete"));
  item.append(buttons);
  return { item, frame, asked: false };
}

const sought = () => byId("search").value.toLowerCase().split(/\s+/).filter(Boolean);

function matching() {
  const words = sought();
  return entries.filter((entry) => words.every((word) => entry.prompt.toLowerCase().includes(word)));
}

function count() {
  const shown = matching().length;
  const all = nextPage ? `the first ${entries.length}` : String(entries.length);
  byId("count").textContent = shown === entries.length ? `${all} entries` : `${shown} of ${all} entries`;
}

function draw() {
  byId("entries").replaceChildren(...matching().map(card));
  byId("more").hidden = !nextPage;
  count();
}

const NO_PICTURE = "no picture kept";
const PAGE = 100;
const LARGE_PAGE = 1000;
const MOST_SOUGHT = 20_000;
const TRIES = 20;
const PAUSE_MS = 500;

let lists = 0;  // lists that were begun; an answer to one before the last comes too late

async function load(token, size = PAGE) {
  if (!token) lists += 1;
  const list = lists;
  const asked = token ? space : namespace();
  try {
    const query = { namespace: asked, page_size: size, page_token: token };
    const page = await get("api/entries", query);
    if (list !== lists || (token && token !== nextPage)) return;
    space = asked;
    entries = token ? [...entries, ...page.entries] : page.entries;
    nextPage = page.next_page_token;
    keepCards(entries);
    draw();
  } catch (error) {
    byId("count").textContent = error.message;
  }
}

export const reload = () => load("");

let searching = false;

// Draws what matches of what is here, and fetches the rest: a search is of the whole cache.
async function search() {
  draw();
  if (searching) return;
  searching = true;
  while (sought().length && nextPage && entries.length < MOST_SOUGHT) {
    const before = entries.length;
    await load(nextPage, LARGE_PAGE);
    if (entries.length === before) break;
  }
  searching = false;
}

// Results are saved behind their answer: looks until their entries can be found.
export async function reloadUntil(entryIds) {
  for (let tries = 0; tries < TRIES; tries += 1) {
    await reload();
    const found = new Set(entries.map((entry) => entry.entry_id));
    if (nextPage || entryIds.every((entryId) => found.has(entryId))) return;
    await new Promise((resolve) => window.setTimeout(resolve, PAUSE_MS));
  }
}

export function setUp() {
  byId("search").addEventListener("input", search);
  byId("reload").addEventListener("click", reload);
  byId("more").addEventListener("click", () => load(nextPage));
  reload();
}
