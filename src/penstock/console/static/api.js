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

// Kafka's longs have 64 bits and a browser's numbers 53: whole numbers that it would round stay the text that they are.
function parsed(text) {
  const isRounded = (token) => /^-?\d+$/.test(token) && !Number.isSafeInteger(Number(token));
  const parts = [];
  for (let at = 0; at < text.length;) {
    const quote = text.indexOf('"', at);
    const start = quote < 0 ? text.length : quote;
    parts.push(text.slice(at, start).replace(/-?\d[\d.eE+-]*/g, (token) => (isRounded(token) ? `"${token}"` : token)));
    at = endOfText(text, start);
    parts.push(text.slice(start, at));
  }
  return JSON.parse(parts.join(""));
}

// Not by an expression: those have a stack, and anybody may write values that are longer.
function endOfText(text, start) {
  for (let at = start + 1; at < text.length; at += 1) {
    if (text[at] === "\\") at += 1;
    else if (text[at] === '"') return at + 1;
  }
  return text.length;
}

export async function ask(path, options) {
  return parsed(await (await asked(path, options)).text()).data;
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
