// Making elements. Text is always set as text: keys, values and names are anybody's.

export function h(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (value === true) element.setAttribute(key, "");
    else element.setAttribute(key, String(value));
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined).map(
    (child) => (child instanceof Node ? child : document.createTextNode(String(child))),
  ));
  return element;
}

const SVG = "http://www.w3.org/2000/svg";

export function s(name, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, String(value));
  element.append(...children);
  return element;
}

const FIGURE = /^(\?|-?[\d.,]+( (B|[KMGT]iB|ms|s|min|h|days))?)$/;

// Which columns hold figures, as far as anything stands in them: their last digits are to be below each other.
function figures(heads, rows) {
  return heads.map((_, i) => {
    const texts = rows.map((row) => row[i]).map((cell) => (cell instanceof Node
      ? (cell.tagName === "TD" && !cell.classList.contains("data") ? cell.textContent : "a text") : String(cell)));
    return texts.some((text) => FIGURE.test(text)) && texts.every((text) => text === "" || FIGURE.test(text));
  });
}

// With `folds` a row becomes a list on a phone, where a table would have to be scrolled.
export function table(caption, heads, rows, { folds = false } = {}) {
  if (rows.length === 0) return h("p", { class: "quiet" }, `${caption}: none`);
  const isFigure = figures(heads, rows);
  return h("div", { class: "scroll" },
    h("table", { class: folds && "folds" },
      h("caption", {}, caption),
      h("thead", {}, h("tr", {}, heads.map((head, i) => h("th", { scope: "col", class: isFigure[i] && "figures" }, head)))),
      h("tbody", {}, rows.map((row) => h("tr", {}, row.map((cell, i) => {
        const found = cell instanceof Node && (cell.tagName === "TD" || cell.tagName === "TH") ? cell : h("td", {}, cell);
        if (folds) found.dataset.head = heads[i];
        if (isFigure[i]) found.classList.add("figures");
        return found;
      }))))));
}

// Fills an element anew. A table takes the place of the one before it inside of the same box: what somebody has
// scrolled sideways stays where it was.
export function redraw(element, ...fresh) {
  fresh.forEach((each, i) => {
    const before = element.children[i];
    if (!before) element.append(each);
    else if (before.className === "scroll" && each.className === "scroll") before.replaceChildren(...each.childNodes);
    else before.replaceWith(each);
  });
  while (element.children.length > fresh.length) element.lastElementChild.remove();
}

export function number(value) {
  return value === null || value === undefined || value < 0 ? "?" : Math.round(value).toLocaleString("en");
}

// A cell that stays on one line: a number and its unit.
export function whole(text) {
  return h("td", { class: "whole" }, text);
}

// Bytes, as people read them.
export function size(bytes) {
  if (bytes === null || bytes === undefined) return "not known";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  const unit = Math.min(units.length - 1, bytes > 0 ? Math.floor(Math.log2(bytes) / 10) : 0);
  const scaled = bytes / 1024 ** unit;
  return `${unit && scaled < 10 ? scaled.toFixed(1) : Math.round(scaled)} ${units[unit]}`;
}

// How long something takes or is kept, in the unit in which people would say it.
export function duration(ms) {
  const units = [["days", 86400000], ["h", 3600000], ["min", 60000], ["s", 1000]];
  const [unit, length] = units.find(([name, length]) => ms >= length * (name === "days" ? 2 : 1)) ?? ["ms", 1];
  return `${length === 1 ? Math.round(ms) : (ms / length).toFixed(1).replace(/\.0$/, "")} ${unit}`;
}

export function seconds(value) {
  return value < 1 ? `${Math.round(value * 1000)} ms` : `${value.toFixed(1)} s`;
}

export function time(ms) {
  const at = new Date(ms);
  const two = (part) => String(part).padStart(2, "0");
  return `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}

// A moment with its date; what no calendar has stays a number.
export function moment(ms) {
  const at = new Date(ms);
  return Number.isNaN(at.getTime()) ? String(ms) : at.toISOString();
}

// A value as the service wrote it, cut where it would fill the page.
export function shown(value, most = 200) {
  const text = typeof value === "string" ? value : JSON.stringify(value);
  return (text ?? "").length > most ? `${text.slice(0, most)}…` : text ?? "";
}

export function bar(done, all, label) {
  const share = all > 0 ? Math.min(1, done / all) : 1;
  return h("span", { class: "progress" },
    h("progress", { max: 1, value: share, "aria-label": label }),
    ` ${number(done)} of ${number(all)}`);
}
