// Views that follow the news: what the application does now.

import { askText } from "./api.js";
import { STEPS, lasted, legend, lineChart, numbers, stacks, timeline } from "./charts.js";
import { bar, duration, h, number, redraw, s, seconds, size, table, time, whole } from "./dom.js";

const LINES = 12;
const READABLE = 0.6;
const BELOW_STORE = 12;
const NAMED = 4;
const MINUTE_MS = 60000;

export function overviewView() {
  const above = h("div");
  const below = h("div");
  const throughput = lineChart({ title: "Throughput", unit: "records/s" });
  const latency = lineChart({ title: "Mean latency from a record's time to commit", unit: "ms", say: duration });
  const lag = lineChart({ title: "Lag", unit: "records" });
  const memory = lineChart({ title: "Memory of driver and instances", unit: "MiB" });
  const charts = [throughput, latency, lag, memory].map((chart) => chart.element);
  return {
    element: h("div", {}, above, h("div", { class: "charts" }, charts), below),
    update(known) {
      redraw(above, standing(known), tiles(known));
      const span = { from: firstMoment(known), to: known.now };
      throughput.update(filled(known, "records"), span);
      latency.update(known.seconds.filter((each) => each.timed > 0 && each.at * 1000 >= span.from)
        .map((each) => ({ at: each.at * 1000, value: Math.max(0, each.latency_ms / each.timed) })), span);
      lag.update(points(known.samples, (each) => each.lag), span);
      memory.update(points(known.samples, (each) => (each.memory_bytes ? each.memory_bytes / 2 ** 20 : null)), span);
      redraw(below, ...who(known));
    },
  };
}

// What is read first: that all is well, or what is not.
function standing(known) {
  const wrong = troubles(known);
  const items = [...(wrong.length > 0 ? wrong : [["good", wellWords(known)]]), ...lately(known)];
  return h("ul", { class: "standing", "aria-label": "How it stands" }, items.map(([kind, words]) => h("li", { class: kind }, words)));
}

// Why tasks moved, if they did within minutes: who looks now looks because of that.
function lately({ happenings, now }) {
  const last = happenings.findLast((each) => each.kind === "rebalance");
  return last && now - last.at_ms < 10 * MINUTE_MS ? [["note", `${time(last.at_ms)} ${last.text}`]] : [];
}

const isServed = (task) => task.state === "ready" || task.state === "running";
const isAre = (count) => (count === 1 ? "is" : "are");
const counted = (count, word) => `${number(count)} ${word}${count === 1 ? "" : "s"}`;

function troubles({ overview: found, isLost, now }) {
  const { state, waits_for: waits, kafka_silent_seconds: silent, tasks } = found;
  const left = tasks.filter((task) => !isServed(task));
  const away = found.instances.filter((each) => each.is_away).map((each) => each.name);
  const named = left.slice(0, NAMED).map(whyNotServed).join("; ");
  const more = left.length > NAMED ? `; and ${number(left.length - NAMED)} more, in Tasks` : "";
  return [
    isLost && ["bad", `No news since ${time(now)}. All below is as of then.`],
    silent > 0 && ["bad", `Kafka has not answered for ${Math.round(silent)} s: nothing is read or written.`],
    state !== "running" && [state === "rebalancing" ? "warn" : "bad", `Not running: its state is ${state}${waits ? ` (${waits})` : ""}.`],
    found.is_paused && ["warn", "It is paused: nothing is read until somebody resumes it."],
    left.length > 0 && ["warn", `${number(left.length)} of ${counted(tasks.length, "task")} ${isAre(left.length)} not served: ${named}${more}.`],
    away.length > 0 && ["warn", `Away: ${away.join(", ")}. Tasks of an instance that is away wait for it, until its session times out.`],
  ].filter(Boolean);
}

function whyNotServed(task) {
  if (task.state === "unowned") return `${task.task} has no owner`;
  const all = sum(task.restores.map((each) => each.end - each.start));
  const done = sum(task.restores.map((each) => Math.max(0, each.offset + 1 - each.start)));
  const share = all > 0 ? `, and has restored ${Math.floor((100 * done) / all)} % of its state` : "";
  return `${task.task} is being opened on ${task.owner}${share}`;
}

// How much is left says little; whether it gets less says more.
function wellWords({ overview: found, samples, now }) {
  const lag = found.tasks.some((task) => task.lag < 0) ? null : sum(found.tasks.map((task) => task.lag));
  const before = samples.findLast((each) => each.at_ms <= now - MINUTE_MS && each.lag !== null)?.lag;
  const change = lag !== null && before !== undefined ? lag - before : 0;
  const than = change === 0 ? "" : `, ${number(Math.abs(change))} ${change > 0 ? "more" : "fewer"} than a minute ago`;
  const left = { null: "How much is left to read is not known.", 0: "Nothing is left to read." }[lag]
    ?? `${counted(lag, "record")} ${isAre(lag)} left to read${than}.`;
  const who = found.tasks.length === 1 ? "Its task is served" : `All ${number(found.tasks.length)} tasks are served`;
  return `${who} by ${counted(found.instances.length, "instance")}. ${left}`;
}

function tiles(known) {
  const { overview: found } = known;
  const served = found.tasks.filter(isServed).length;
  const tile = (label, value, isOdd = false) => h("div", { class: isOdd ? "tile odd" : "tile" }, h("dt", {}, label), h("dd", {}, value));
  return h("dl", { class: "tiles" },
    tile("records read", number(found.records)),
    tile("records written", number(found.outputs)),
    tile("lag", found.tasks.some((task) => task.lag < 0) ? "?" : number(sum(found.tasks.map((task) => task.lag)))),
    tile("tasks served", served === found.tasks.length ? number(served) : `${number(served)} of ${number(found.tasks.length)}`,
      served < found.tasks.length),
    tile("instances", number(found.instances.length)),
    tile("rebalances", number(found.rebalances)),
    tile("dropped", number(sum(Object.values(found.dropped))), Object.keys(found.dropped).length > 0),
    tile("guarantee", found.processing_guarantee.replaceAll("_", " ")));
}

function who({ overview: found, happenings }) {
  return [
    table("Instances", ["instance", "host", "active", "standby", "warm-up", "memory"], found.instances.map((each) => [
      each.name, `${each.host}, process ${each.pid}${each.is_away ? ", away" : ""}`,
      number(each.active), number(each.standby), number(each.warm_up),
      each.memory_bytes ? `${number(each.memory_bytes / 2 ** 20)} MiB` : "?"]), { folds: true }),
    table("Dropped and dead-lettered records", ["reason", "records"],
      Object.entries(found.dropped).map(([reason, count]) => [reason, number(count)])),
    h("h3", {}, "Latest"),
    lines(happenings.slice(-LINES)),
  ];
}

const sum = (values) => values.reduce((all, value) => all + value, 0);

// What samples say of something; moments at which it was not known are left out.
function points(samples, value) {
  return samples.map((each) => ({ at: each.at_ms, value: value(each) })).filter((point) => point.value !== null);
}

// When the first was that something is known of, within what charts show: batches may be hours apart.
function firstMoment({ seconds: done, samples, now, kept }) {
  const first = Math.min(now, (done[0]?.at ?? Infinity) * 1000, samples[0]?.at_ms ?? Infinity);
  return Math.max(first, now - kept.seconds * 1000);
}

// Seconds in which no batch ended are not told of: they are zeros, up to the last whole second.
function filled(known, name) {
  const { seconds: done, now } = known;
  const first = Math.ceil(firstMoment(known) / 1000);
  const values = new Map(done.map((second) => [second.at, second[name]]));
  const points = [];
  for (let at = first; at < Math.floor(now / 1000); at += 1) points.push({ at: at * 1000, value: values.get(at) ?? 0 });
  return points;
}

function lines(happenings) {
  if (happenings.length === 0) return h("p", { class: "quiet" }, "Nothing has happened yet.");
  return h("ol", { class: "log" }, [...happenings].reverse().map((each) => h("li", { class: each.kind },
    h("time", { datetime: new Date(each.at_ms).toISOString() }, time(each.at_ms)), " ",
    h("span", { class: "kind" }, each.kind), " ", each.text)));
}

// Fills an element with lines, and not again while they are the same: one can mark them, and copy them.
export function steadyLines(element) {
  let before = null;
  return (happenings) => {
    const last = happenings.at(-1);
    const now = JSON.stringify([happenings.length, last?.number, last?.at_ms]);
    if (now !== before) element.replaceChildren(lines(happenings));
    before = now;
  };
}

export function tasksView() {
  const element = h("div");
  const most = new Map();
  return { element, update: ({ overview: found }) => redraw(element, ...tasks(found, most)) };
}

// How far a copy has come since it was seen to lack most: where it began is not told.
function warming(most, task, copy) {
  const key = JSON.stringify([task.task, copy.instance]);
  const from = Math.max(most.get(key) ?? 0, copy.lag);
  most.set(key, from);
  return bar(from - copy.lag, from, `${copy.role} of ${task.task} on ${copy.instance}`);
}

function tasks(found, most) {
  const names = found.instances.map((each) => each.name);
  const restoring = found.tasks.flatMap((task) => task.restores.map((restore) => ({ task, restore })));
  const copies = found.tasks.flatMap((task) => task.copies.filter((copy) => copy.lag !== 0)
    .map((copy) => ({ task, copy })));
  return [
    table("Tasks and where they are", ["task", "state", ...names, "lag", "commits", "epoch"], found.tasks.map((task) => [
      h("th", { scope: "row" }, `${task.task} `, h("span", { class: "quiet" }, task.sub_topology)),
      h("td", { class: `task-${task.state}` }, task.state),
      ...names.map((name) => role(task, name)),
      number(task.lag), number(task.commits), task.epoch.join(".")])),
    table("Restores under way", ["task", "store", "progress"], restoring.map(({ task, restore }) => [
      task.task, restore.store,
      bar(Math.max(0, restore.offset + 1 - restore.start), restore.end - restore.start, `restore of ${restore.store}`)])),
    table("Copies that are behind", ["task", "instance", "role", "lacks", "progress"], copies.map(({ task, copy }) => [
      task.task, copy.instance, copy.role, copy.lag < 0 ? "not known yet" : `${number(copy.lag)} record${copy.lag === 1 ? "" : "s"}`,
      copy.lag < 0 ? "" : warming(most, task, copy)])),
  ];
}

function role(task, name) {
  if (task.owner === name) return h("td", { class: "role active" }, "active");
  const copy = task.copies.find((each) => each.instance === name);
  return copy ? h("td", { class: "role copy" }, copy.role) : h("td", {}, "");
}

export function timelineView() {
  const picture = h("div", { class: "scroll" });
  const key = h("div");
  const bars = h("div", { class: "scroll" });
  const steps = h("div");
  const moves = h("div");
  const showMoves = steadyLines(moves);
  return {
    element: h("div", {}, h("p", { class: "quiet" }, "Bars are batches, colours their steps; lines across are rebalances. "
      + "Steps of slices that ran side by side share the time of their batch."), key, picture,
      h("h3", {}, "Latest batches"), bars, steps, h("h3", {}, "Rebalances"), moves),
    update(known) {
      const rebalances = known.happenings.filter((each) => each.kind === "rebalance");
      const latest = known.batches.slice(-LINES).reverse();
      const met = new Set(known.batches.flatMap((batch) => Object.keys(batch.steps)));
      key.replaceChildren(legend(met));
      const isFirst = picture.children.length === 0;
      // Quick ones fill what is kept in less: what was before the first of them is not known.
      const [oldest] = known.batches;
      const first = known.batches.length < known.kept.batches ? 0 : oldest.at_ms - lasted(oldest) * 1000;
      const spanMs = Math.max(1000, Math.min(120000, known.now - first));
      picture.replaceChildren(timeline({ batches: known.batches, rebalances, now: known.now, spanMs }));
      // On a phone it is wider than the page: what happened last is to the right.
      if (isFirst) picture.scrollLeft = picture.scrollWidth;
      bars.replaceChildren(latest.length ? stacks(latest) : h("p", { class: "quiet" }, "No batch has ended yet."));
      redraw(steps, stepTable(latest, Object.keys(STEPS).filter((step) => met.has(step))));
      showMoves(rebalances);
    },
  };
}

function stepTable(batches, steps) {
  const took = (batch, step) => (step in batch.steps ? seconds(batch.steps[step]) : "");
  return table("Batches by step", ["ended", "sub-topology", "records", "written", "took", ...steps],
    batches.map((batch) => [
      time(batch.at_ms), batch.sub_topology, number(batch.records), number(batch.outputs), whole(seconds(lasted(batch))),
      ...steps.map((step) => whole(took(batch, step)))]));
}

const RATES = "Numbers on edges are records a second. A sub-topology that runs record by record counts those "
  + "between its inner steps with metrics_recording_level=DEBUG only: such edges have no number here.";

// The picture comes once; its shapes bear names, by which rates and sizes are written onto it.
export function topologyView() {
  const place = h("div", { class: "scroll topology", tabindex: 0, role: "region", "aria-label": "The graph" },
    h("p", { class: "quiet" }, "drawing"));
  let picture = null;
  let rates = { steps: {}, edges: [] };
  let stores = {};
  askText("/v1/console/topology.svg").then((text) => {
    // Its own style is for pages that have none; labels are escaped, so that this is the only one.
    const bare = text.replace(/<style>[^]*?<\/style>/, "");
    picture = document.importNode(new DOMParser().parseFromString(bare, "image/svg+xml").documentElement, true);
    fit(picture);
    place.replaceChildren(picture);
  }).catch((error) => place.replaceChildren(h("p", { class: "bad" }, error.message)));
  const rows = () => edgesOf(picture, rates).map(({ from, to, rate }) => [
    plain(from), plain(to), rate === undefined ? "not counted" : perSecond(rate)]);
  const sizes = () => Object.entries(stores).map(([name, { entries, bytes }]) => [
    name, number(entries), bytes ? whole(size(bytes)) : "not kept by RocksDB"]);
  return {
    element: h("div", {}, h("p", { class: "quiet" }, RATES), place,
      numbers(() => h("div", {}, table("Edges", ["from", "to", "records a second"], picture ? rows() : []),
        table("Stores", ["store", "entries, about", "in files and write buffers"], sizes())))),
    update(known) {
      rates = known.rates;
      stores = known.overview.stores ?? {};
      if (picture) decorate(picture, known);
    },
  };
}

// As wide as the page, as long as one can read it; what is wider still is scrolled.
function fit(picture) {
  const { width } = picture.viewBox.baseVal;
  picture.style.maxWidth = `${width}px`;
  picture.style.minWidth = `${Math.round(width * READABLE)}px`;
}

const plain = (key) => key.slice(key.indexOf(":") + 1);
const kindOf = (key) => key.slice(0, key.indexOf(":"));
const perSecond = (rate) => (rate > 0 && rate < 10 ? rate.toFixed(1) : number(rate));

// Every edge with its rate, as far as somebody counts it: workers those between steps, or else a source or a sink.
function edgesOf(picture, { steps, edges }) {
  const found = [...picture.querySelectorAll("[data-from]")].map((path) => ({
    path, from: path.dataset.from, to: path.dataset.to }));
  const counted = new Map(edges.map((edge) => [JSON.stringify([edge.from, edge.to]), edge.rate]));
  const into = (to) => found.filter((edge) => edge.to === to).length;
  const reads = new Set(found.filter((edge) => kindOf(edge.from) === "input").map((edge) => edge.to));
  const writes = new Set(found.filter((edge) => kindOf(edge.to) === "output").map((edge) => edge.from));
  const rate = ({ from, to }) => {
    if (kindOf(from) === "input") return into(to) === 1 ? steps[plain(to)] : undefined;
    if (kindOf(to) === "output") return steps[plain(from)];
    const known = counted.get(JSON.stringify([plain(from), plain(to)]));
    if (known !== undefined) return known;
    if (reads.has(from)) return steps[plain(from)];
    return writes.has(to) && into(to) === 1 ? steps[plain(to)] : undefined;
  };
  return found.map((edge) => ({ ...edge, rate: rate(edge) }));
}

function decorate(picture, { rates, overview }) {
  for (const old of picture.querySelectorAll(".live")) old.remove();
  const write = (x, y, anchor, words) => {
    const label = s("text", { class: "live", x, y, "text-anchor": anchor });
    label.textContent = words;
    picture.append(label);
  };
  for (const shape of picture.querySelectorAll("[data-key]")) {
    const known = kindOf(shape.dataset.key) === "store" && overview.stores?.[plain(shape.dataset.key)];
    if (!known) continue;
    const box = shape.getBBox();
    // Below it there is always room; beside it may be the next step.
    const words = [`≈${number(known.entries)} ${known.entries === 1 ? "entry" : "entries"}`, ...(known.bytes ? [size(known.bytes)] : [])];
    write(box.x, box.y + box.height + BELOW_STORE, "start", words.join(", "));
  }
  for (const { path, rate } of edgesOf(picture, rates)) {
    path.classList.toggle("flows", rate > 0);
    if (rate === undefined) continue;
    const middle = path.getPointAtLength(path.getTotalLength() / 2);
    write(middle.x, middle.y - 4, "middle", `${perSecond(rate)}/s`);
  }
}
