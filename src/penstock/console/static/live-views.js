// Views that follow the news: what the application does now.

import { askText } from "./api.js";
import { lineChart, timeline } from "./charts.js";
import { bar, h, number, s, seconds, table, time } from "./dom.js";

const LINES = 12;

export function overviewView() {
  const element = h("div");
  return { element, update: (known) => element.replaceChildren(...overview(known)) };
}

function overview(known) {
  const { overview: found, seconds: done } = known;
  const per = (name, scale = 1) => filled(done, name, scale, known.now);
  const tile = (label, value) => h("div", { class: "tile" }, h("dt", {}, label), h("dd", {}, value));
  const dropped = Object.entries(found.dropped);
  return [
    h("dl", { class: "tiles" },
      tile("records read", number(found.records)),
      tile("records written", number(found.outputs)),
      tile("lag", number(known.lags.at(-1)?.value)),
      tile("tasks", number(found.tasks.length)),
      tile("instances", number(found.instances.length)),
      tile("rebalances", number(found.rebalances)),
      tile("dropped", number(dropped.reduce((sum, [, count]) => sum + count, 0))),
      tile("guarantee", found.processing_guarantee.replaceAll("_", " "))),
    h("div", { class: "charts" },
      lineChart({ title: "Throughput", unit: "records/s", points: per("records") }),
      lineChart({ title: "Slowest batch", unit: "ms", points: per("slowest", 1000) }),
      lineChart({ title: "Lag", unit: "records", points: known.lags }),
      lineChart({ title: "Memory", unit: "MiB", points: known.memory })),
    table("Instances", ["instance", "host", "active", "standby", "warm-up", "memory"], found.instances.map((each) => [
      each.name, `${each.host}, process ${each.pid}${each.is_away ? ", away" : ""}`,
      number(each.active), number(each.standby), number(each.warm_up),
      each.memory_bytes ? `${number(each.memory_bytes / 2 ** 20)} MiB` : "?"])),
    table("Dropped and dead-lettered records", ["reason", "records"],
      dropped.map(([reason, count]) => [reason, number(count)])),
    h("h3", {}, "Latest"),
    lines(known.happenings.slice(-LINES)),
  ];
}

// Seconds in which no batch ended are not told of: they are zeros, up to the last whole second.
function filled(done, name, scale, now) {
  if (done.length === 0) return [];
  const values = new Map(done.map((second) => [second.at, second[name] * scale]));
  const points = [];
  for (let at = done[0].at; at < Math.floor(now / 1000); at += 1) points.push({ at: at * 1000, value: values.get(at) ?? 0 });
  return points;
}

export function lines(happenings) {
  if (happenings.length === 0) return h("p", { class: "quiet" }, "Nothing has happened yet.");
  return h("ol", { class: "log" }, [...happenings].reverse().map((each) => h("li", { class: each.kind },
    h("time", { datetime: new Date(each.at_ms).toISOString() }, time(each.at_ms)), " ",
    h("span", { class: "kind" }, each.kind), " ", each.text)));
}

export function tasksView() {
  const element = h("div");
  return { element, update: ({ overview: found }) => element.replaceChildren(...tasks(found)) };
}

function tasks(found) {
  const names = found.instances.map((each) => each.name);
  const restoring = found.tasks.flatMap((task) => task.restores.map((restore) => ({ task, restore })));
  const copies = found.tasks.flatMap((task) => task.copies.filter((copy) => copy.lag !== 0)
    .map((copy) => ({ task, copy })));
  return [
    table("Tasks and where they are", ["task", "state", "lag", "commits", "epoch", ...names], found.tasks.map((task) => [
      h("th", { scope: "row" }, `${task.task} `, h("span", { class: "quiet" }, task.sub_topology)),
      h("td", { class: `task-${task.state}` }, task.state),
      number(task.lag), number(task.commits), task.epoch.join("."),
      ...names.map((name) => role(task, name))])),
    table("Restores under way", ["task", "store", "progress"], restoring.map(({ task, restore }) => [
      task.task, restore.store,
      bar(Math.max(0, restore.offset + 1 - restore.start), restore.end - restore.start, `restore of ${restore.store}`)])),
    table("Copies that are behind", ["task", "instance", "role", "lacks"], copies.map(({ task, copy }) => [
      task.task, copy.instance, copy.role, copy.lag < 0 ? "not known yet" : `${number(copy.lag)} records`])),
  ];
}

function role(task, name) {
  if (task.owner === name) return h("td", { class: "role active" }, "active");
  const copy = task.copies.find((each) => each.instance === name);
  return copy ? h("td", { class: "role copy" }, copy.role) : h("td", {}, "");
}

export function timelineView() {
  const picture = h("div", { class: "scroll" });
  const steps = h("div");
  const moves = h("div");
  return {
    element: h("div", {}, h("p", { class: "quiet" }, "Bars are batches, lines across are rebalances."), picture, steps,
      h("h3", {}, "Rebalances"), moves),
    update(known) {
      const rebalances = known.happenings.filter((each) => each.kind === "rebalance");
      picture.replaceChildren(timeline({ batches: known.batches, rebalances, now: known.now }));
      steps.replaceChildren(table("Latest batches", ["ended", "sub-topology", "records", "written", "took", "by step"],
        known.batches.slice(-LINES).reverse().map((batch) => [
          time(batch.at_ms), batch.sub_topology, number(batch.records), number(batch.outputs), seconds(batch.seconds),
          Object.entries(batch.steps ?? {}).map(([step, took]) => `${step} ${seconds(took)}`).join(", ")])));
      moves.replaceChildren(lines(rebalances));
    },
  };
}

// The picture comes once; its shapes bear names, by which rates and sizes are written onto it.
export function topologyView() {
  const place = h("div", { class: "scroll topology" }, h("p", { class: "quiet" }, "drawing"));
  let picture = null;
  askText("/v1/console/topology.svg").then((text) => {
    // Its own style is for pages that have none; labels are escaped, so that this is the only one.
    const bare = text.replace(/<style>[^]*?<\/style>/, "");
    picture = document.importNode(new DOMParser().parseFromString(bare, "image/svg+xml").documentElement, true);
    place.replaceChildren(picture);
  }).catch((error) => place.replaceChildren(h("p", { class: "bad" }, error.message)));
  return {
    element: place,
    update(known) {
      if (picture) decorate(picture, known);
    },
  };
}

function decorate(picture, { rates, overview }) {
  for (const old of picture.querySelectorAll(".live")) old.remove();
  for (const shape of picture.querySelectorAll("[data-key]")) {
    const [kind, ...rest] = shape.dataset.key.split(":");
    const name = rest.join(":");
    let words = "";
    if (kind === "step" && rates[name]) words = `${number(rates[name])}/s`;
    if (kind === "store" && overview.stores?.[name]) words = `${number(overview.stores[name].entries)} entries`;
    if (!words) continue;
    const box = shape.getBBox();
    const label = s("text", { class: "live", x: box.x + box.width, y: box.y - 4, "text-anchor": "end" });
    label.textContent = words;
    picture.append(label);
  }
  for (const edge of picture.querySelectorAll("[data-from]")) {
    const rate = rates[edge.dataset.from.replace(/^step:/, "")] ?? rates[edge.dataset.to.replace(/^step:/, "")] ?? 0;
    edge.classList.toggle("flows", rate > 0);
  }
}
