// Figures drawn as SVG. The same numbers stand in a table: behind "numbers", or beside the figure.

import { h, number, s, seconds, table, time } from "./dom.js";

const PHONE = matchMedia("(max-width: 40rem)");
const LONG = 960;
const HEIGHT = 160;
const LEFT = 64;
const LETTER = 7.3;
const NAME = 30;
const BELOW = 20;
const GAP_MS = 3000;

// The steps of a batch, in their order, and what each is; without metrics there is only `job`.
export const STEPS = {
  plan: "planning in the driver",
  spark: "Spark: planning the job, starting its tasks, gathering their results",
  read: "waiting for the records from Kafka",
  process: "the steps of the topology",
  state: "waiting for state from instances",
  commit: "waiting for instances to commit",
  job: "the whole job, where metrics are off",
};

function label(x, y, anchor, words) {
  const element = s("text", { x, y, "text-anchor": anchor });
  element.textContent = words;
  return element;
}

// Room to the left for the longest of these words, and no less than charts have beside each other.
function roomFor(words) {
  return Math.max(LEFT, Math.max(0, ...words.map((each) => each.length)) * LETTER + 12);
}

// A name that leaves room for what it names: the middle of a long one is left out.
function cut(name) {
  return name.length <= NAME ? name : `${name.slice(0, NAME / 2 - 1)}…${name.slice(-NAME / 2)}`;
}

function title(words) {
  const element = s("title");
  element.textContent = words;
  return element;
}

// A table that is made when it is opened, and stays as it is then: one can read it in peace.
export function numbers(make) {
  const place = h("div", { class: "numbers", tabindex: 0 });
  const element = h("details", { ontoggle: () => { if (element.open) place.replaceChildren(make()); } },
    h("summary", {}, "numbers"), place);
  return element;
}

// A line over time; `update` gives it new points. `say` is how a value is said, with its unit.
export function lineChart({ title: name, unit, say = null }) {
  let points = [];
  const figure = h("span", { class: "figure" }, "no figures yet");
  const picture = h("div");
  const rows = () => [...points].reverse().map((point) => [time(point.at), (say ?? number)(point.value)]);
  return {
    element: h("figure", { class: "chart" }, h("figcaption", {}, h("b", {}, name), " ", figure), picture,
      numbers(() => table(`${name}, newest first`, ["time", say ? "value" : unit], rows()))),
    // `span` is from when to when: charts beside each other have the same.
    update(fresh, span) {
      points = fresh;
      if (points.length === 0) return;
      const { at, value } = points.at(-1);
      // What was long ago is not said to be now.
      figure.textContent = `${say ? say(value) : `${number(value)} ${unit}`}${span.to - at > GAP_MS ? `, at ${time(at)}` : ""}`;
      picture.replaceChildren(drawn({ name, unit, say: say ?? number }, points, span));
    },
  };
}

// Points that follow each other: where nothing was known for a while there is no line.
function stretches(points) {
  const found = [];
  for (const point of points) {
    if (found.length > 0 && point.at - found.at(-1).at(-1).at <= GAP_MS) found.at(-1).push(point);
    else found.push([point]);
  }
  return found;
}

function drawn({ name, unit, say }, points, { from: first, to: last }) {
  const span = Math.max(1, last - first);
  // Letters are as large as the figure: on a phone it is drawn for a phone.
  const WIDTH = PHONE.matches ? 340 : 640;
  const top = Math.max(1, ...points.map((point) => point.value));
  const left = roomFor([say(top)]);
  const x = (at) => left + ((at - first) / span) * (WIDTH - left - 8);
  const y = (value) => 8 + (1 - value / top) * (HEIGHT - BELOW - 8);
  const ground = y(0).toFixed(1);
  const lines = stretches(points).map((stretch) => {
    const path = stretch.map((point, i) => `${i ? "L" : "M"}${x(point.at).toFixed(1)} ${y(point.value).toFixed(1)}`).join("");
    const [from, to] = [stretch[0], stretch.at(-1)].map((point) => x(point.at).toFixed(1));
    if (stretch.length === 1) return [s("circle", { class: "dot", cx: from, cy: y(stretch[0].value).toFixed(1), r: 2.5 })];
    return [s("path", { class: "area", d: `${path}L${to} ${ground}L${from} ${ground}z` }), s("path", { class: "line", d: path })];
  });
  return s("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img" },
    title(`${name} in ${unit} from ${time(first)} to ${time(last)}`),
    s("line", { class: "axis", x1: left, x2: WIDTH - 8, y1: ground, y2: ground }),
    s("line", { class: "axis", x1: left, x2: WIDTH - 8, y1: y(top), y2: y(top) }),
    ...lines.flat(),
    label(left - 6, Number(ground), "end", "0"),
    label(left - 6, y(top) + 8, "end", say(top)),
    label(left, HEIGHT - 4, "start", time(first)),
    label(WIDTH - 8, HEIGHT - 4, "end", time(last)));
}

// How long a batch took in all: planning it, and its job.
export function lasted(batch) {
  return Math.max(batch.seconds, Object.values(batch.steps).reduce((sum, took) => sum + took, 0));
}

// A batch as parts that lie side by side, one for each step.
function stack(batch, { from, to, y, height }) {
  const all = lasted(batch) || 1;
  let at = from;
  const parts = Object.keys(STEPS).filter((step) => batch.steps[step] > 0).map((step) => {
    const width = Math.max(0, (batch.steps[step] / all) * (to - from));
    const part = s("rect", { class: `step-${step}`, x: at, y, width, height },
      title(`${step} ${seconds(batch.steps[step])}`));
    at += width;
    return part;
  });
  return s("g", { class: "batch" },
    title(`${number(batch.records)} records in ${seconds(lasted(batch))}, ended ${time(batch.at_ms)}`), ...parts);
}

// Batches over the last two minutes, a row for each sub-topology; rebalances as marks across.
export function timeline({ batches, rebalances, now, spanMs }) {
  const names = [...new Set(batches.map((batch) => batch.sub_topology))].sort();
  const row = 22;
  const height = names.length * row + 30;
  const left = roomFor(names.map(cut));
  const x = (ms) => left + ((ms - (now - spanMs)) / spanMs) * (LONG - left - 8);
  const marks = rebalances.filter((each) => each.at_ms > now - spanMs).map((each) => s("line", {
    class: "rebalance", x1: x(each.at_ms), x2: x(each.at_ms), y1: 0, y2: height - 20,
  }, title(each.text)));
  const bars = batches.filter((batch) => batch.at_ms > now - spanMs).map((batch) => {
    const to = x(batch.at_ms);
    const from = Math.min(Math.max(left, x(batch.at_ms - lasted(batch) * 1000)), to - 1);
    return stack(batch, { from, to, y: names.indexOf(batch.sub_topology) * row + 4, height: row - 8 });
  });
  const rows = names.map((name, i) => {
    const element = label(left - 6, i * row + 16, "end", cut(name));
    element.append(title(name));
    return element;
  });
  return s("svg", { class: "timeline", viewBox: `0 0 ${LONG} ${height}`, role: "img" },
    title(`Batches and rebalances from ${time(now - spanMs)} to ${time(now)}`),
    s("line", { class: "axis", x1: left, x2: LONG - 8, y1: height - 20, y2: height - 20 }), ...rows, ...bars, ...marks,
    label(left, height - 4, "start", time(now - spanMs)), label(LONG - 8, height - 4, "end", time(now)));
}

// The latest batches below each other, as long as they took.
export function stacks(batches) {
  const row = 18;
  const longest = Math.max(0.001, ...batches.map(lasted));
  const right = LONG - 64;
  const bars = batches.flatMap((batch, i) => {
    const to = LEFT + (lasted(batch) / longest) * (right - LEFT);
    return [label(LEFT - 6, i * row + 13, "end", time(batch.at_ms)),
      stack(batch, { from: LEFT, to, y: i * row + 3, height: row - 6 }),
      label(to + 6, i * row + 13, "start", seconds(lasted(batch)))];
  });
  return s("svg", { class: "timeline stacks", viewBox: `0 0 ${LONG} ${batches.length * row + 4}`, role: "img" },
    title("How long each of the latest batches took, by step; the table below has the numbers"), ...bars);
}

export function legend(steps) {
  return h("ul", { class: "legend" }, Object.keys(STEPS).filter((step) => steps.has(step)).map((step) => h("li", {},
    s("svg", { class: "swatch", viewBox: "0 0 10 10", "aria-hidden": "true" },
      s("rect", { class: `step-${step}`, width: 10, height: 10 })),
    h("b", {}, step), ` ${STEPS[step]}`)));
}
