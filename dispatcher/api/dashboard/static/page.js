// Shared by all views: elements, number formats, messages at the bottom of the page.

export const $ = (selector) => document.querySelector(selector);

// Sets text, never markup: values of the network cannot inject HTML.
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "onclick") made.addEventListener("click", value);
    else if (value === true) made.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

export function row(...cells) {
  return element("tr", {}, ...cells.map((cell) => (cell instanceof Element && cell.tagName === "TD" ? cell : element("td", {}, cell))));
}

export const number = (text) => element("td", { class: "n" }, text);
export const code = (text) => element("td", {}, element("code", {}, text));

export function fill(body, rows, empty, columns) {
  if (!rows.length && empty) rows = [element("tr", {}, element("td", { class: "empty", colspan: columns }, empty))];
  body.replaceChildren(...rows);
}

const whole = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });

export const count = (value) => (value === null || value === undefined ? "–" : whole.format(value));
export const rate = (value) => (value === null || value === undefined ? "–" : value >= 1000 ? whole.format(Math.round(value)) : short.format(value));
export const share = (value, digits = 1) => (value === null || value === undefined ? "–" : `${(100 * value).toFixed(digits)} %`);

export function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB"];
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) { value /= 1024; unit += 1; }
  return `${unit ? value.toFixed(1) : value} ${units[unit]}`;
}

export function clock(milliseconds) {
  return new Date(milliseconds).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit" });
}

export const when = (text) => (text ? new Date(text).toLocaleString() : "");

let hiding = 0;
export function say(text) {
  const toast = $("#toast");
  toast.textContent = text;
  toast.hidden = false;
  clearTimeout(hiding);
  hiding = setTimeout(() => { toast.hidden = true; }, 6000);
}

// Shows errors of an action as messages; a missing key opens the dialog instead.
export function trying(work) {
  return async (...given) => {
    try { return await work(...given); } catch (error) { if (error.status !== 401) say(error.message); return undefined; }
  };
}

export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

// Distinguishable with colour blindness and readable in both themes (Okabe and Ito's, and two more).
const SERVERS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8a7500", "#7a5cc9", "#5f6b76", "#b02a5b"];
const known = new Map();
export function serverColour(server) {
  if (!known.has(server)) known.set(server, SERVERS[known.size % SERVERS.length]);
  return known.get(server);
}
// Natural order: s2 before s10.
export const byServer = (a, b) => a.server.localeCompare(b.server, "en", { numeric: true });
export const swatch = (server) => element("span", { class: "swatch", style: `background:${serverColour(server)}` });
