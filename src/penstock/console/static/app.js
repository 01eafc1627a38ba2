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
const AGAIN_MS = 2000;
const SILENT_MS = 5000;
// Each run has an address of its own, unless it is told one.
const AGAIN = "trying again. Started anew, it may have another address: penstock console prints it";

// What is known of the application; views read it and never change it.
export const known = {
  now: 0, isLost: false, kept: {}, overview: null, rates: { steps: {}, edges: [] }, happenings: [], batches: [], seconds: [], samples: [],
};
let current = null;
let heardAt = null;

function hear(event) {
  heardAt = performance.now();
  known.now = event.now;
  // As much as the driver keeps: a page that was open all the time shows what one does that is opened now.
  const { happenings, batches, seconds } = known.kept = event.kept;
  known.happenings = [...known.happenings, ...event.news.happenings].slice(-happenings);
  known.batches = [...known.batches, ...event.news.batches].slice(-batches);
  const fresh = new Set(event.news.seconds.map((second) => second.at));
  known.seconds = [...known.seconds.filter((second) => !fresh.has(second.at)), ...event.news.seconds]
    .slice(-seconds);
  known.samples = [...known.samples, ...event.news.samples].slice(-seconds);
  if (event.overview) {
    known.overview = event.overview;
    known.rates = event.rates;
    known.isLost = false;
    connection("live", false);
    showHead();
  }
  if (known.overview) current?.update?.(known);
}

function showHead() {
  const { application_id: id, state, is_paused: paused, kafka_silent_seconds: silent, waits_for: waits } = known.overview;
  const parts = [waits ? `${state}: ${waits}` : state, paused && "paused", silent && `Kafka has not answered for ${Math.round(silent)} s`];
  document.getElementById("application").textContent = id;
  badge(parts.filter(Boolean).join(", "), state);
  document.title = `${id} · ${state}`;
}

function badge(text, state) {
  const element = document.getElementById("state");
  if (element.textContent !== text) element.textContent = text;
  element.dataset.state = state;
}

function connection(text, isBad) {
  const element = document.getElementById("connection");
  if (element.textContent !== text) element.textContent = text;
  element.classList.toggle("bad", isBad);
}

// What is shown from here on is old: neither the badge nor the tab goes on saying that it runs.
function lost(text) {
  heardAt = null;
  connection(text, true);
  if (!known.overview) return;
  known.isLost = true;
  current?.update?.(known);
  const { application_id: id, state } = known.overview;
  badge(`last seen ${state}`, "");
  document.title = `${id} · not reachable`;
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
      let isFirst = true;
      let why = "";
      await listen("/v1/console/events", (event) => {
        // A new stream tells everything again; until it does, what was known stays to be read.
        if (isFirst) Object.assign(known, { happenings: [], batches: [], seconds: [], samples: [] });
        isFirst = false;
        why = event.why;
        hear(event);
      });
      lost(`${why || "The connection was closed"}; ${AGAIN}`);
    } catch (error) {
      if (error instanceof Refused && (error.status === 401 || error.status === 403)) {
        await signIn(error);
        continue;
      }
      lost(`Not reachable (${error.message}); ${AGAIN}`);
    }
    await new Promise((done) => setTimeout(done, AGAIN_MS));
  }
}

// A process that hangs, and a network that is gone, close no connection.
function listenForSilence() {
  if (heardAt !== null && performance.now() - heardAt > SILENT_MS) lost(`no news for more than ${SILENT_MS / 1000} s`);
}

function signIn(error) {
  const dialog = document.getElementById("sign-in");
  document.getElementById("sign-in-error").textContent = sessionStorage.length ? error.message : "";
  lost("waits for a token");
  dialog.showModal();
  return new Promise((done) => {
    let isGiven = false;
    document.getElementById("sign-in-form").addEventListener("submit", () => {
      isGiven = true;
      setToken(document.getElementById("token").value.trim());
      document.getElementById("token").value = "";
      connection("connecting", false);
      show();
      done();
    }, { once: true });
    // Escape closes it: there is nothing else that one could do here, so it comes back.
    const back = () => (isGiven ? dialog.removeEventListener("close", back) : dialog.showModal());
    dialog.addEventListener("close", back);
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
  setInterval(listenForSilence, 1000);
}

start();
