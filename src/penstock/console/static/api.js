// Talking to the service: the token, questions, and the stream of news.

const KEY = "penstock-token";

// An address may bring the token behind "#", which no browser sends anywhere.
export function takeTokenFromAddress() {
  const found = /[#&]token=([^&]+)/.exec(location.hash);
  if (found) {
    sessionStorage.setItem(KEY, decodeURIComponent(found[1]));
    history.replaceState(null, "", location.pathname + "#/");
  }
}

export function setToken(token) {
  sessionStorage.setItem(KEY, token);
}

export class Refused extends Error {
  constructor(status, message, hint) {
    super(message);
    this.status = status;
    this.hint = hint;
  }
}

async function asked(path, options = {}) {
  const headers = { authorization: `Bearer ${sessionStorage.getItem(KEY) ?? ""}` };
  if (options.body) headers["content-type"] = "application/json";
  const response = await fetch(path, { ...options, headers, cache: "no-store" });
  if (response.ok) return response;
  let error = {};
  try {
    error = (await response.json()).error ?? {};
  } catch {
    // Whatever it was, it was not ours; the status must do.
  }
  throw new Refused(response.status, error.message ?? `the service says ${response.status}`, error.hint ?? "");
}

export async function ask(path, options) {
  return (await (await asked(path, options)).json()).data;
}

export async function askText(path) {
  return (await asked(path)).text();
}

// Calls `hear` with each event for as long as the connection holds; ends when it ends.
export async function listen(path, hear) {
  const response = await asked(path);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let waiting = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const events = (waiting + value).split("\n\n");
    waiting = events.pop();
    for (const event of events) {
      if (event.startsWith("data: ")) hear(JSON.parse(event.slice(6)));
    }
  }
}
