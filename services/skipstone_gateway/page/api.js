// Calls to the gateway. Namespace and token are those of the form, where a call names no namespace.

const form = () => document.querySelector("#request");

export const namespace = () => form().elements.namespace.value.trim();

function headers(more = {}) {
  const token = form().elements.token.value.trim();
  return token ? { ...more, Authorization: `Bearer ${token}` } : more;
}

async function checked(response) {
  if (response.ok) return response;
  let message = `${response.status} ${response.statusText}`;
  try {
    message = (await response.json()).error.message;
  } catch { /* the answer is no JSON: its status must do */ }
  throw new Error(message);
}

export async function get(path, query = {}) {
  const search = new URLSearchParams({ namespace: namespace(), ...query });
  return (await checked(await fetch(`${path}?${search}`, { headers: headers() }))).json();
}

export async function send(method, path, body, space = namespace()) {
  const search = new URLSearchParams({ namespace: space });
  const request = { method, headers: headers(body ? { "Content-Type": "application/json" } : {}) };
  if (body) request.body = JSON.stringify(body);
  return (await checked(await fetch(`${path}?${search}`, request))).json();
}

// What was made for an entry, as a blob, or null when the gateway has nothing of it.
export async function picture(entryId, space = namespace()) {
  const search = new URLSearchParams({ namespace: space });
  const path = `api/entries/${encodeURIComponent(entryId)}/picture?${search}`;
  const response = await fetch(path, { headers: headers() });
  return response.ok ? response.blob() : null;
}

// Calls onEvent with every server-sent event of a generation.
export async function stream(body, onEvent, signal) {
  const response = await checked(await fetch("v1/images/generations", {
    method: "POST",
    headers: headers({ "Content-Type": "application/json" }),
    body: JSON.stringify(body),
    signal,
  }));
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value.replaceAll("\r\n", "\n");
    for (let end = text.indexOf("\n\n"); end >= 0; end = text.indexOf("\n\n")) {
      const data = text.slice(0, end).split("\n").filter((line) => line.startsWith("data:"));
      text = text.slice(end + 2);
      if (data.length) onEvent(JSON.parse(data.map((line) => line.slice(5).trimStart()).join("\n")));
    }
  }
}
