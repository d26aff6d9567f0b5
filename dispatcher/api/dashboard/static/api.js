// Client of the REST interface: requests with the API key, errors, the live stream.

let key = "";
try { key = sessionStorage.getItem("edn-key") || ""; } catch { /* storage may be disabled */ }

let onKeyRequired = () => {};

export class Problem extends Error {
  constructor(status, problem) {
    super(problem.detail || problem.title || `HTTP status ${status}`);
    this.status = status;
    this.pointer = problem.errors?.[0]?.pointer;
  }
}

// `ask` gets the reason why the current key was refused, or "" if there is none.
export function whenKeyIsRequired(ask) { onKeyRequired = ask; }
export const hasKey = () => key !== "";

export function useKey(given) {
  key = given.trim();
  try { sessionStorage.setItem("edn-key", key); } catch { /* storage may be disabled */ }
}

function headers(more = {}) {
  return key ? { ...more, authorization: `Bearer ${key}` } : more;
}

async function refuse(response) {
  let problem = {};
  try { problem = await response.json(); } catch { /* a proxy may not send JSON */ }
  const refusal = new Problem(response.status, problem);
  if (response.status === 401) onKeyRequired(hasKey() ? refusal.message : "");
  throw refusal;
}

export async function call(method, path, body) {
  const options = { method, headers: headers() };
  if (body !== undefined) {
    options.headers["content-type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  const response = await fetch(path, options);
  if (!response.ok) await refuse(response);
  return response.status === 204 ? null : response.json();
}

export const get = (path) => call("GET", path);
export const post = (path, body) => call("POST", path, body);

// States after a refusal that a retry would not change.
const REFUSALS = { 401: "locked", 403: "limited", 404: "elsewhere" };

// Reads server-sent events with fetch, as an EventSource cannot send a key, and calls `on[event](data)`. Reconnects
// until it is refused: another key or address reloads the page.
export async function watch(path, on, state) {
  for (let pause = 500; ; pause = Math.min(pause * 2, 10000)) {
    try {
      const response = await fetch(path, { headers: headers({ accept: "text/event-stream" }) });
      if (!response.ok) await refuse(response);
      state("live");
      pause = 500;
      await read(response.body.getReader(), on);
      state("lost", "stream ended");
    } catch (error) {
      const refused = REFUSALS[error.status];
      if (refused) return state(refused, refused === "elsewhere" ? error.message : "");
      state("lost", error.message);
    }
    await new Promise((resolve) => setTimeout(resolve, pause));
  }
}

async function read(reader, on) {
  const decoder = new TextDecoder();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    text += decoder.decode(value, { stream: true });
    for (let end = text.indexOf("\n\n"); end >= 0; end = text.indexOf("\n\n")) {
      const fields = {};
      for (const line of text.slice(0, end).split("\n")) {
        const colon = line.indexOf(": ");
        fields[line.slice(0, colon)] = line.slice(colon + 2);
      }
      text = text.slice(end + 2);
      if (fields.data && on[fields.event]) on[fields.event](JSON.parse(fields.data));
    }
  }
}
