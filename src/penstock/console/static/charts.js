// Lines over time, drawn as SVG; the latest number is said in words too.

import { h, number, s, time } from "./dom.js";

const WIDTH = 640;
const HEIGHT = 160;
const LEFT = 64;
const BELOW = 20;

export function lineChart({ title, unit, points }) {
  const last = points.at(-1);
  const figure = h("figure", { class: "chart" },
    h("figcaption", {}, h("b", {}, title), " ",
      h("span", { class: "figure" }, last ? `${number(last.value)} ${unit}` : "no figures yet")));
  if (points.length > 1) figure.append(drawn(title, unit, points));
  return figure;
}

function drawn(title, unit, points) {
  const first = points[0].at;
  const span = Math.max(1, points.at(-1).at - first);
  const top = Math.max(1, ...points.map((point) => point.value));
  const x = (at) => LEFT + ((at - first) / span) * (WIDTH - LEFT - 8);
  const y = (value) => 8 + (1 - value / top) * (HEIGHT - BELOW - 8);
  const path = points.map((point, i) => `${i ? "L" : "M"}${x(point.at).toFixed(1)} ${y(point.value).toFixed(1)}`).join("");
  const ground = y(0).toFixed(1);
  const area = `${path}L${x(points.at(-1).at).toFixed(1)} ${ground}L${LEFT} ${ground}z`;
  const text = (dx, dy, anchor, words) => {
    const element = s("text", { x: dx, y: dy, "text-anchor": anchor });
    element.textContent = words;
    return element;
  };
  const name = s("title");
  name.textContent = `${title} in ${unit} from ${time(first)} to ${time(points.at(-1).at)}`;
  return s("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img" }, name,
    s("line", { class: "axis", x1: LEFT, x2: WIDTH - 8, y1: ground, y2: ground }),
    s("line", { class: "axis", x1: LEFT, x2: WIDTH - 8, y1: y(top), y2: y(top) }),
    s("path", { class: "area", d: area }),
    s("path", { class: "line", d: path }),
    text(LEFT - 6, Number(ground), "end", "0"),
    text(LEFT - 6, y(top) + 8, "end", number(top)),
    text(LEFT, HEIGHT - 4, "start", time(first)),
    text(WIDTH - 8, HEIGHT - 4, "end", time(points.at(-1).at)));
}

// Batches as bars over the last two minutes, a row for each sub-topology; rebalances as marks across.
export function timeline({ batches, rebalances, now, spanMs = 120000 }) {
  const names = [...new Set(batches.map((batch) => batch.sub_topology))].sort();
  const row = 22;
  const height = names.length * row + 30;
  const x = (ms) => LEFT + ((ms - (now - spanMs)) / spanMs) * (WIDTH - LEFT - 8);
  const label = (dx, dy, anchor, words) => {
    const element = s("text", { x: dx, y: dy, "text-anchor": anchor });
    element.textContent = words;
    return element;
  };
  const title = (words) => {
    const element = s("title");
    element.textContent = words;
    return element;
  };
  const marks = rebalances.filter((each) => each.at_ms > now - spanMs).map((each) => s("line", {
    class: "rebalance", x1: x(each.at_ms), x2: x(each.at_ms), y1: 0, y2: height - 20,
  }, title(each.text)));
  const bars = batches.filter((batch) => batch.at_ms > now - spanMs).map((batch) => {
    const from = Math.max(LEFT, x(batch.at_ms - batch.seconds * 1000));
    return s("rect", {
      class: "batch", x: from, y: names.indexOf(batch.sub_topology) * row + 4,
      width: Math.max(1, x(batch.at_ms) - from), height: row - 8,
    }, title(`${number(batch.records)} records in ${(batch.seconds * 1000).toFixed(0)} ms, ended ${time(batch.at_ms)}`));
  });
  const rows = names.map((name, i) => label(LEFT - 6, i * row + 16, "end", name));
  return s("svg", { class: "timeline", viewBox: `0 0 ${WIDTH} ${height}`, role: "img" },
    title("Batches and rebalances of the last two minutes"), ...rows, ...bars, ...marks,
    label(LEFT, height - 4, "start", time(now - spanMs)), label(WIDTH - 8, height - 4, "end", time(now)));
}
