// Views that ask when they are opened: stores, topics, configuration, and the log.

import { ask } from "./api.js";
import { duration, h, moment, number, redraw, seconds, shown, size, table, time, whole } from "./dom.js";
import { steadyLines } from "./live-views.js";

function failed(error) {
  return h("p", { class: "bad", role: "alert" }, error.message, error.hint ? ` ${error.hint}.` : "");
}

const latestOf = new WeakMap();

// Fills an element with what `make` gives, or with why it gives nothing.
async function fill(element, make) {
  const own = {};
  latestOf.set(element, own);
  element.setAttribute("aria-busy", "true");
  let found;
  try {
    found = [await make()].flat();
  } catch (error) {
    found = [failed(error)];
  }
  // An answer that comes after somebody asked something else is not that to the other question.
  if (latestOf.get(element) !== own) return;
  redraw(element, ...found);
  element.removeAttribute("aria-busy");
}

const ASKED = {
  key_value: ["get", "range", "prefix", "all"],
  versioned: ["get", "as_of", "all"],
  window: ["fetch", "fetch_all", "all"],
  session: ["fetch", "all"],
};
const ASKED_WORDS = {
  get: "a key", as_of: "a key, as of a time", range: "keys from and to", prefix: "keys that begin with", all: "everything",
  fetch: "windows of a key", fetch_all: "windows of all keys",
};

// A time as answers show it, or as a number; without a zone it is UTC, as theirs.
function milliseconds(text) {
  if (/^\d+$/.test(text)) return Number(text);
  const isBare = /\d[T ]\d/.test(text) && !/(Z|[+-]\d\d:?\d\d)$/i.test(text);
  const found = Date.parse(isBare ? `${text}Z` : text);
  if (Number.isNaN(found)) throw new Error(`${text} is no time: write 2026-01-31T00:00:00Z, or milliseconds since 1970.`);
  return found;
}

export function storesView() {
  const element = h("div");
  fill(element, async () => {
    const { stores } = await ask("/v1/stores");
    return stores.length ? browser(stores) : h("p", { class: "quiet" }, "This application has no stores.");
  });
  return { element };
}

function browser(stores) {
  const answer = h("div", { id: "answer", "aria-live": "polite" });
  const option = (value) => h("option", { value }, ASKED_WORDS[value]);
  const store = h("select", { id: "store" }, stores.map((each) => h("option", { value: each.name }, each.name)));
  const kind = h("select", { id: "kind" });
  const field = (id, label) => h("label", { for: id, id: `${id}-label` }, label, " ", h("input", { id, autocomplete: "off" }));
  const fields = {
    key: field("key", "Key"), lower: field("lower", "From key"), upper: field("upper", "To key"),
    prefix: field("prefix", "Prefix"), start: field("start", "From time"), end: field("end", "To time"),
    as_of: field("as-of", "As of time"),
  };
  const wanted = {
    get: ["key"], as_of: ["key", "as_of"], range: ["lower", "upper"], prefix: ["prefix"], all: [],
    fetch: ["key", "start", "end"], fetch_all: ["start", "end"],
  };
  const chosen = () => stores.find((each) => each.name === store.value);
  const showFields = () => {
    for (const [name, element] of Object.entries(fields)) element.hidden = !wanted[kind.value].includes(name);
  };
  const showKinds = () => {
    kind.replaceChildren(...ASKED[chosen().kind].map(option));
    showFields();
  };
  const stale = h("input", { type: "checkbox", id: "stale" });
  const value = (name) => fields[name].querySelector("input").value;
  const question = () => {
    const body = { kind: kind.value, as_text: true, stale: stale.checked, limit: 50 };
    for (const name of wanted[kind.value]) {
      if (value(name) === "") continue;
      if (name === "key") body.keys = [value(name)];
      else body[name] = ["start", "end", "as_of"].includes(name) ? milliseconds(value(name)) : value(name);
    }
    return body;
  };
  const put = (make) => fill(answer, async () => {
    const body = make();
    const began = performance.now();
    const found = await ask(`/v1/stores/${encodeURIComponent(store.value)}/query`, {
      method: "POST", body: JSON.stringify(body),
    });
    return answered(found, (performance.now() - began) / 1000, () => put(() => ({ ...body, page: found.next_page })));
  });
  store.addEventListener("change", showKinds);
  kind.addEventListener("change", showFields);
  showKinds();
  const form = h("form", {
    class: "question", onsubmit: (event) => { event.preventDefault(); put(question); },
  },
  h("label", { for: "store" }, "Store ", store), h("label", { for: "kind" }, "Ask ", kind), ...Object.values(fields),
  h("label", { for: "stale" }, stale, " a standby may answer"), h("button", { type: "submit" }, "Ask"));
  return [form, answer, table("All stores", ["store", "kind", "partitions", "key", "value", "changelog"], stores.map((each) => [
    each.name, each.is_global ? `global ${each.kind}` : each.kind, each.partitions, each.key, each.value,
    each.logged ? "yes" : "no"]))];
}

function answered(found, took, more) {
  const windows = found.rows.some((row) => row.start !== null);
  const from = found.sources.map((source) => `partition ${source.partition} from ${source.instance} (${source.role}, `
    + `${source.position === null ? "no position" : `position ${source.position}`}${source.age_ms ? `, ${source.age_ms} ms old` : ""})`);
  return [
    h("p", { class: "quiet" }, `Answered in ${seconds(took)}: ${from.join("; ") || "by nobody"}.`),
    table("Answer", ["key", ...(windows ? ["window"] : []), "value", "timestamp"], found.rows.map((row) => [
      h("td", { class: "data" }, shown(row.key)),
      ...(windows ? [row.end === null ? `from ${moment(row.start)}` : `${moment(row.start)} to ${moment(row.end)}`] : []),
      h("td", { class: "data" }, row.value === null ? h("i", {}, "nothing") : shown(row.value, 2000)),
      row.timestamp === null ? "" : moment(row.timestamp)])),
    found.next_page ? h("button", { type: "button", onclick: more }, "More") : null,
  ].filter(Boolean);
}

// A setting as Kafka has it, and what its number means.
function setting([name, value]) {
  const say = { ms: duration, bytes: size }[name.split(".").at(-1)];
  const meaning = say && Number(value) > 0 && Number.isSafeInteger(Number(value)) ? ` (${say(Number(value))})` : "";
  return `${name}=${value}${meaning}`;
}

// How often the group is asked about again while it is looked at: each time is a question to Kafka.
const AGAIN_MS = 5000;

export function topicsView() {
  const element = h("div");
  const records = h("div", { "aria-live": "polite" });
  const group = h("div");
  let asked = 0;
  const askGroup = () => {
    asked = Date.now();
    return fill(group, async () => table("Consumer group", ["topic", "partition", "position", "end", "lag"],
      (await ask("/v1/console/groups")).map((each) => [
        each.topic, each.partition, number(each.position), number(each.end), number(each.lag)])));
  };
  askGroup();
  fill(element, async () => {
    const topics = await ask("/v1/console/topics");
    const look = (topic) => h("button", {
      type: "button", onclick: () => fill(records, () => latest(topic, 0, records)), "aria-label": `latest records of ${topic.name}`,
    }, "look");
    return [
      table("All topics", ["topic", "role", "partitions", "offsets", "size", "settings", "records"], topics.map((topic) => [
        h("th", { scope: "row" }, topic.name), topic.role, topic.partitions, number(topic.records), whole(size(topic.bytes)),
        h("td", { class: "data" }, Object.entries(topic.configs).map(setting).join(", ")),
        look(topic)]), { folds: true }),
      h("p", { class: "quiet" }, "Offsets are records and the markers of transactions. A size is that of one replica on "
        + "the brokers' disks; it is not known where brokers do not tell the application."),
      records,
      group,
    ];
  });
  return {
    element,
    update() {
      if (Date.now() - asked >= AGAIN_MS && !group.hasAttribute("aria-busy")) askGroup();
    },
  };
}

// Of so many partitions at once: each is a question to Kafka of its own.
const AT_ONCE = 8;

async function latest(topic, first, place) {
  const count = Math.min(topic.partitions - first, AT_ONCE);
  const found = await Promise.all(Array.from({ length: count }, (_, i) => ask(
    `/v1/console/topics/${encodeURIComponent(topic.name)}/records?partition=${first + i}&limit=5`)));
  const rows = found.flat().sort((one, other) => other.timestamp - one.timestamp);
  const which = topic.partitions > AT_ONCE ? `, partitions ${first} to ${first + count - 1} of ${topic.partitions}` : "";
  const step = (words, to) => (to < 0 || to >= topic.partitions ? null : h("button", {
    type: "button", onclick: () => fill(place, () => latest(topic, to, place)),
  }, words));
  return [
    table(`Latest records of ${topic.name}${which}`, ["partition", "offset", "time", "key", "value"], rows.map((row) => [
      row.partition, row.offset, time(row.timestamp), h("td", { class: "data" }, shown(row.key)),
      h("td", { class: "data" }, row.value === null ? h("i", {}, "nothing") : shown(row.value, 500))])),
    step("Partitions before", first - AT_ONCE), step("Partitions after", first + AT_ONCE),
  ].filter(Boolean);
}

// What stands between backticks is a name.
function asCode(text) {
  return text.split("`").map((part, i) => (i % 2 ? h("code", {}, part) : part));
}

// An option's value, with what a large number means.
function optionText({ name, value }) {
  const text = shown(value);
  const [, digits, isTime] = /^(\d+)( ms)?$/.exec(text) ?? [];
  if (isTime && digits >= 1000) return `${text} (${duration(Number(digits))})`;
  if (digits > 0 && name.includes("bytes")) return `${text} (${size(Number(digits))})`;
  return text === "()" ? "" : text;
}

export function configurationView() {
  const element = h("div");
  fill(element, async () => table("Options", ["option", "value", "what it does"],
    (await ask("/v1/console/configuration")).map((each) => [
      h("th", { scope: "row" }, each.name), h("td", { class: "data" }, optionText(each)), h("td", {}, asCode(each.doc))]), { folds: true }));
  return { element };
}

export function logView() {
  const element = h("div");
  const show = steadyLines(element);
  return { element, update: (known) => show(known.happenings) };
}
