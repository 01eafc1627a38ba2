// The frame: which view is shown, and the news that all views live on.

import { Refused, listen, setToken, takeTokenFromAddress } from "./api.js";
import { h } from "./dom.js";
import { overviewView, tasksView, timelineView, topologyView } from "./live-views.js";
import { configurationView, logView, storesView, topicsView } from "./state-views.js";

const VIEWS = {
  "": ["Overview", overviewView],
  topology: ["Topology", topologyView],
  tasks: ["Tasks", tasksView],
  timeline: ["Timeline", timelineView],
  stores: ["Stores", storesView],
  topics: ["Topics", topicsView],
  configuration: ["Configuration", configurationView],
  log: ["Log", logView],
};
const KEPT_SECONDS = 900;
const KEPT_LINES = 500;
const AGAIN_MS = 2000;

// What is known of the application; views read it and never change it.
export const known = {
  now: 0, overview: null, rates: { steps: {}, edges: [] }, happenings: [], batches: [], seconds: [], samples: [],
};
let current = null;

function hear(event) {
  known.now = event.now;
  known.overview = event.overview;
  known.rates = event.rates;
  known.happenings = [...known.happenings, ...event.news.happenings].slice(-KEPT_LINES);
  known.batches = [...known.batches, ...event.news.batches].slice(-KEPT_LINES);
  const fresh = new Set(event.news.seconds.map((second) => second.at));
  known.seconds = [...known.seconds.filter((second) => !fresh.has(second.at)), ...event.news.seconds]
    .slice(-KEPT_SECONDS);
  known.samples = [...known.samples, ...event.news.samples].slice(-KEPT_SECONDS);
  connection("live", false);
  showHead();
  current?.update?.(known);
}

function showHead() {
  const { application_id: id, state, is_paused: paused, kafka_silent_seconds: silent, waits_for: waits } = known.overview;
  document.title = `${id} · ${state}`;
  document.getElementById("application").textContent = id;
  const badge = document.getElementById("state");
  const parts = [waits ? `${state}: ${waits}` : state, paused && "paused", silent && `Kafka has not answered for ${Math.round(silent)} s`];
  badge.textContent = parts.filter(Boolean).join(", ");
  badge.dataset.state = state;
}

function connection(text, isBad) {
  const element = document.getElementById("connection");
  if (element.textContent !== text) element.textContent = text;
  element.classList.toggle("bad", isBad);
}

function show() {
  const name = location.hash.replace(/^#\/?/, "").split("/")[0];
  const [title, view] = VIEWS[name] ?? VIEWS[""];
  for (const link of document.querySelectorAll("#nav a")) {
    if (link.textContent === title) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const main = document.getElementById("view");
  current = view();
  main.replaceChildren(h("h2", {}, title), current.element);
  if (known.overview) current.update?.(known);
}

async function follow() {
  for (;;) {
    try {
      // A new stream tells everything again.
      Object.assign(known, { happenings: [], batches: [], seconds: [], samples: [] });
      await listen("/v1/console/events", hear);
      connection("the application ended, or closed the connection; trying again", true);
    } catch (error) {
      if (error instanceof Refused && (error.status === 401 || error.status === 403)) {
        await signIn(error);
        continue;
      }
      connection(`not reachable (${error.message}); trying again`, true);
    }
    await new Promise((done) => setTimeout(done, AGAIN_MS));
  }
}

function signIn(error) {
  const dialog = document.getElementById("sign-in");
  document.getElementById("sign-in-error").textContent = sessionStorage.length ? error.message : "";
  connection("waits for a token", true);
  dialog.showModal();
  return new Promise((done) => {
    document.getElementById("sign-in-form").addEventListener("submit", () => {
      setToken(document.getElementById("token").value.trim());
      document.getElementById("token").value = "";
      connection("connecting", false);
      show();
      done();
    }, { once: true });
  });
}

function switchTheme() {
  const root = document.documentElement;
  const dark = root.dataset.theme
    ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  localStorage.setItem("penstock-theme", root.dataset.theme);
}

function start() {
  const theme = localStorage.getItem("penstock-theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  document.getElementById("theme").addEventListener("click", switchTheme);
  document.getElementById("nav").append(...Object.entries(VIEWS).map(
    ([name, [title]]) => h("a", { href: `#/${name}` }, title)));
  // Not by its address: that names a view here.
  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault();
    document.getElementById("view").focus();
  });
  takeTokenFromAddress();
  addEventListener("hashchange", show);
  show();
  follow();
}

start();
