// Overview: tiles, servers, tuning decisions and topics.

import { get } from "./api.js";
import { add, begin, decided, draw } from "./charts.js";
import { $, bytes, clock, code, count, element, fill, number, rate, row, share, swatch } from "./page.js";

let topicsKnown = -1;
let onTopics = () => {};
let shownDecisions = -1;

export function whenTopicsChange(listener) { onTopics = listener; }

export async function history(data) {
  begin(data);
  showDecisions();
  await topics();
}

export async function sample(data, visible) {
  add(data);
  for (const [name, value] of Object.entries(data.rates)) for (const at of document.querySelectorAll(`[data-rate="${name}"]`)) at.textContent = rate(value);
  for (const [name, value] of Object.entries(data.totals)) for (const at of document.querySelectorAll(`[data-total="${name}"]`)) at.textContent = count(value);
  $("#hit-ratio").textContent = share(data.hit_ratio);
  $("#false-positives").textContent = share(data.rates.forwarded > 0 ? Math.max(0, 1 - data.rates.useful / data.rates.forwarded) : null);
  $("#precision").textContent = share(data.precision, 0);
  $("#mode").textContent = data.mode;
  $("#cpu").textContent = share(data.cpu, 0);
  if (visible) {
    servers(data.servers);
    showDecisions();
    draw();
  }
  if (data.topics !== topicsKnown) await topics();
}

const STATES = { ready: "good", joining: "warn", away: "bad" };

function servers(all) {
  fill($("#servers tbody"), all.map((server) => {
    const name = element("td", {}, swatch(server.id), server.id);
    const state = element("td", { class: STATES[server.state] }, server.state, server.failure ? element("div", { class: "soft" }, server.failure) : null);
    const useful = server.rates.forwarded > 0 ? server.rates.useful / server.rates.forwarded : null;
    const rectangles = server.everything ? "everything" : `${count(server.rectangles)} of ${count(Math.max(server.maximal, server.rectangles))}`;
    const made = row(name, state, number(count(server.subscriptions)), number(count(server.lag)), number(count(server.backlog)), number(share(server.cpu, 0)),
      number(rate(server.rates.forwarded)), number(share(useful, 0)), number(share(server.hit_ratio)), number(rectangles), number(bytes(server.summary_bytes)));
    made.dataset.server = server.id;
    return made;
  }), "No servers yet.", 11);
}

function showDecisions() {
  const all = decided();
  if (all.length === shownDecisions) return;
  shownDecisions = all.length;
  fill($("#decisions tbody"), all.slice(-100).reverse().map((one) => row(clock(one.time / 1000), number(share(one.precision, 0)), `${one.mode}: ${one.reason}`)), "No decisions yet.", 3);
}

export async function topics() {
  const all = (await get("/v1/topics")).topics;
  topicsKnown = all.length;
  fill($("#topics tbody"), all.map((topic) => row(topic.name, code(Object.entries(topic.attributes).map(([name, type]) => `${name}: ${Array.isArray(type) ? `${type[0]}[]` : type}`).join(", ")),
    topic.availability === 0 ? "none" : topic.availability === "forever" ? "forever" : `${topic.availability} s`)), "No topics yet.", 3);
  onTopics(all);
}
