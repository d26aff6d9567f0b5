// Map: rectangles of the summaries on two attributes, recent events, and the effect of another precision.

import { call, get } from "./api.js";
import { CONFIG, layout } from "./charts.js";
import { $, byServer, colour, count, element, fill, number, row, say, serverColour, share, swatch, trying } from "./page.js";
import { plain } from "./text.js";

const DROPPED = 120;
const REFRESH = 4000;
let topics = [];
let picture = null;
let dropped = [];
let trial = null;
let inForce = null;
let shape = "";
let asked = 0;
let drawnAt = 0;

export function setTopics(all) {
  topics = all;
  const chosen = $("#map-topic").value;
  $("#map-topic").replaceChildren(...all.map((topic) => element("option", { value: topic.name, selected: topic.name === chosen }, topic.name)));
  setAttributes();
}

function setAttributes() {
  const topic = topics.find((one) => one.name === $("#map-topic").value);
  // An array has no place on an axis.
  const names = topic ? Object.keys(topic.attributes).filter((name) => !Array.isArray(topic.attributes[name])) : [];
  const numeric = names.filter((name) => ["number", "integer", "time"].includes(topic.attributes[name]));
  // By default a number on the x axis and a string on the y axis.
  const strings = names.filter((name) => topic.attributes[name] === "string");
  const order = [...numeric.slice(0, 1), ...strings.slice(0, 1), ...numeric.slice(1), ...names];
  for (const [selector, place] of [["#map-x", 0], ["#map-y", 1]]) {
    const select = $(selector);
    const chosen = names.includes(select.value) ? select.value : order[Math.min(place, order.length - 1)];
    select.replaceChildren(...names.map((name) => element("option", { value: name, selected: name === chosen }, name)));
  }
}

export function begin() {
  const again = trying(async () => { dropped = []; await refresh(); });
  $("#map-topic").addEventListener("change", () => { setAttributes(); again(); });
  $("#map-x").addEventListener("change", again);
  $("#map-y").addEventListener("change", again);
  let waiting = 0;
  $("#map-precision").addEventListener("input", () => {
    trial = Number($("#map-precision").value);
    showTrial();
    clearTimeout(waiting);
    waiting = setTimeout(trying(refresh), 120);
  });
  $("#map-reset").addEventListener("click", trying(async () => { trial = null; showTrial(); await refresh(); }));
  $("#map-apply").addEventListener("click", trying(async () => {
    await call("PUT", "/v1/tuning", { mode: "fixed", precision: trial });
    say(`Precision fixed at ${share(trial, 0)}.`);
    inForce = trial;
    trial = null;
    showTrial();
    await refresh();
  }));
}

function showTrial() {
  const value = trial ?? inForce ?? 1;
  $("#map-value").textContent = trial === null ? `${share(value, 0)} (in force)` : `${share(value, 0)} (in force: ${share(inForce, 0)})`;
  $("#map-precision").value = value;
  $("#map-reset").disabled = $("#map-apply").disabled = trial === null;
}

// Called with every sample; `visible`: the map is shown.
export function sample(data, visible) {
  inForce = data.precision;
  const topic = $("#map-topic").value;
  for (const event of data.events) if (event.topic === topic) dropped.push(event);
  dropped = dropped.slice(-DROPPED);
  if (!visible) return;
  if (trial === null) showTrial();
  const now = JSON.stringify([inForce, data.servers.map((server) => [server.rectangles, server.maximal])]);
  if (!picture || (now !== shape && Date.now() - asked > REFRESH)) {
    shape = now;
    trying(refresh)();
  } else if (data.events.length) {
    draw();
  }
}

export async function refresh() {
  const [topic, x, y] = ["#map-topic", "#map-x", "#map-y"].map((selector) => $(selector).value);
  if (!topic || !x || !y) return;
  asked = Date.now();
  const mine = asked;
  const query = new URLSearchParams({ x, y });
  if (trial !== null) query.set("precision", trial);
  const answer = await get(`/v1/topics/${encodeURIComponent(topic)}/projection?${query}`);
  if (mine < drawnAt) return; // a later request was answered first
  drawnAt = mine;
  picture = answer;
  picture.servers.sort(byServer);
  describe();
  draw();
}

function describe() {
  const rectangles = picture.servers.reduce((sum, server) => sum + server.rectangles, 0);
  const precise = picture.servers.reduce((sum, server) => sum + Math.max(server.maximal, server.rectangles), 0);
  let text = `${count(rectangles)} of ${count(precise)} rectangles.`;
  if (picture.copies !== null) {
    text += ` Each of ${count(picture.sampled)} recent events is routed to ${picture.copies.toFixed(2)} servers on average`;
    const change = picture.copies_in_force > 0 ? picture.copies / picture.copies_in_force - 1 : 0;
    if (trial !== null) text += `, in force: ${picture.copies_in_force.toFixed(2)}: ${change >= 0 ? "+" : "−"}${Math.abs(100 * change).toFixed(0)} % traffic`;
    text += ".";
  }
  $("#map-effect").textContent = text;
  fill($("#map-servers tbody"), picture.servers.map((server) => {
    const sent = picture.events.filter((event) => event.to.includes(server.server)).length;
    const made = row(element("td", {}, swatch(server.server), server.server), number(server.everything ? "everything" : count(server.rectangles)),
      number(count(Math.max(server.maximal, server.rectangles))), number(count(server.shadows.length)), number(`${count(sent)} of ${count(picture.events.length)}`));
    made.dataset.server = server.server;
    made.dataset.rectangles = server.rectangles;
    return made;
  }), "No servers yet.", 5);
}

// -- from coordinates to positions on an axis -----------------------------------------------------------------------

const encoder = new TextEncoder();

// As in `edn.model`: the first six bytes as digits to the base 257.
function stringCoordinate(text) {
  let code = 0;
  const first = encoder.encode(text).slice(0, 6);
  for (let place = 0; place < 6; place += 1) code = code * 257 + (place < first.length ? first[place] + 1 : 0);
  return code;
}

function coordinate(axis, value) {
  if (value === null || value === undefined) return null;
  if (axis.type === "string") return stringCoordinate(value);
  if (axis.type === "boolean") return value ? 1 : 0;
  if (axis.type === "time") return Date.parse(value) * 1000;
  return value;
}

// Strings are evenly spaced in their order; times are dates.
function place(axis, at) {
  if (axis.type === "time") return new Date(at / 1000);
  if (axis.type !== "string") return at;
  const stops = axis.stops;
  let low = 0;
  let high = stops.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (stops[middle].at < at) low = middle + 1; else high = middle;
  }
  return low < stops.length && stops[low].at === at ? low : low - 0.5;
}

function ends(axis) {
  const [low, high] = axis.range ?? [0, 1];
  if (axis.type === "string") return [-0.8, Math.max(0, axis.stops.length - 1) + 0.8];
  if (axis.type === "boolean") return [-0.6, 1.6];
  const margin = (high - low || Math.abs(high) || 1) * 0.05;
  return axis.type === "time" ? [new Date((low - margin) / 1000), new Date((high + margin) / 1000)] : [low - margin, high + margin];
}

function side(axis, from, to) {
  const [low, high] = ends(axis);
  const wide = axis.type === "string" || axis.type === "bytes" || axis.type === "boolean" ? 0.35 : 0;
  const a = from === null ? low : place(axis, from);
  const b = to === null ? high : place(axis, to);
  if (!wide) return [a, b];
  return [from === null ? low : a - wide, to === null ? high : b + wide];
}

function draw() {
  if (!window.Plotly || !picture) return;
  const { x: across, y: up } = picture;
  const traces = picture.servers.map((server) => {
    const xs = [];
    const ys = [];
    for (const [x0, x1, y0, y1] of server.shadows) {
      const [a, b] = side(across, x0, x1);
      const [c, d] = side(up, y0, y1);
      xs.push(a, b, b, a, a, null);
      ys.push(c, c, d, d, c, null);
    }
    const tint = serverColour(server.server);
    return { type: "scatter", mode: "lines", fill: "toself", name: plain(server.server), x: xs, y: ys, line: { color: tint, width: 1 }, fillcolor: `${tint}12`, hoverinfo: "skip" };
  });
  const names = picture.servers.map((server) => server.server);
  traces.push(points("events", [...picture.events, ...dropped.map(located).filter(Boolean)], names));
  const ticks = (axis) => (axis.stops ? thinned(axis) : {});
  window.Plotly.react("chart-map", traces, layout({
    hovermode: "closest",
    margin: { l: 60, r: 12, t: innerWidth < 760 ? 44 : 30, b: 56 },
    xaxis: { title: { text: plain(across.attribute) }, range: ends(across), ...ticks(across) },
    yaxis: { title: { text: plain(up.attribute) }, range: ends(up), ...ticks(up) },
  }), CONFIG);
}

function located(event) {
  const x = coordinate(picture.x, attribute(event.attributes, picture.x.attribute));
  const y = coordinate(picture.y, attribute(event.attributes, picture.y.attribute));
  return x === null || y === null || Number.isNaN(x) || Number.isNaN(y) ? null : { x, y, to: event.to, fresh: true };
}

// Nested objects flatten to dotted names.
function attribute(attributes, name) {
  if (name in attributes) return attributes[name];
  let value = attributes;
  for (const part of name.split(".")) value = value?.[part];
  return value;
}

function points(name, events, servers) {
  return {
    type: "scatter", mode: "markers", name: plain(name),
    x: events.map((event) => place(picture.x, event.x)),
    y: events.map((event) => place(picture.y, event.y)),
    text: events.map((event) => plain(event.to.length ? `to ${event.to.join(", ")}` : "to no server")),
    hovertemplate: "%{text}<extra></extra>",
    marker: {
      size: events.map((event) => (event.fresh ? 8 : 6)),
      // Routed to one server: its colour; to several: the text's; to none: hollow.
      color: events.map((event) => (event.to.length === 1 ? serverColour(event.to[0]) : event.to.length ? colour("text") : "rgba(0,0,0,0)")),
      symbol: events.map((event) => (event.to.length > 1 && event.to.length === servers.length ? "square" : event.to.length > 1 ? "diamond" : "circle")),
      line: { width: 1, color: events.map((event) => (event.to.length ? colour("panel") : colour("soft"))) },
    },
  };
}

function thinned(axis) {
  const step = Math.max(1, Math.ceil(axis.stops.length / 18));
  const shown = axis.stops.map((stop, index) => [axis.type === "string" ? index : stop.at, stop.label]).filter((_, index) => index % step === 0);
  return { tickvals: shown.map(([at]) => at), ticktext: shown.map(([, label]) => plain(label)) };
}

export const redraw = draw;
