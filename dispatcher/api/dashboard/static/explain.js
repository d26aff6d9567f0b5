// Explains how an event would be routed and matched, or what a filter would match.

import { post } from "./api.js";
import { $, byServer, count, element, share, swatch, trying } from "./page.js";

const EXAMPLES = { string: "text", number: 1.5, integer: 1, boolean: true, time: "2030-01-31T09:00:00Z", bytes: "aGVsbG8=" };
let topics = [];
let latest = new Map();

export function begin() {
  $("#try-form").addEventListener("submit", (event) => { event.preventDefault(); trying(explain)(); });
  $("#try-topic").addEventListener("change", example);
  for (const choice of document.getElementsByName("try-kind")) choice.addEventListener("change", example);
  $("#try-latest").addEventListener("click", () => {
    const event = latest.get($("#try-topic").value);
    if (event) $("#try-text").value = JSON.stringify(event);
  });
}

export function setTopics(all) {
  topics = all;
  const chosen = $("#try-topic").value;
  $("#try-topic").replaceChildren(...all.map((topic) => element("option", { value: topic.name, selected: topic.name === chosen }, topic.name)));
  if (!$("#try-text").value) example();
}

export function sample(data) {
  for (const event of data.events) latest.set(event.topic, event.attributes);
}

const kind = () => document.querySelector("[name=try-kind]:checked").value;

function example() {
  const topic = topics.find((one) => one.name === $("#try-topic").value);
  if (!topic) return;
  $("#try-latest").hidden = kind() !== "event";
  $("#try-label").textContent = kind() === "event" ? "Event (a JSON object)" : "Filter (text or JSON)";
  const made = Object.fromEntries(Object.entries(topic.attributes).map(([name, type]) => [name, Array.isArray(type) ? [EXAMPLES[type[0]]] : EXAMPLES[type]]));
  if (kind() === "event") { $("#try-text").value = JSON.stringify(latest.get(topic.name) ?? made); return; }
  const [first, given] = Object.entries(topic.attributes)[0];
  const [name, type] = Array.isArray(given) ? [`${first} any`, given[0]] : [first, given];
  $("#try-text").value = type === "string" || type === "time" || type === "bytes" ? `${name} == "${EXAMPLES[type]}"` : type === "boolean" ? `${name} == true` : `${name} > 1`;
}

async function explain() {
  const text = $("#try-text").value.trim();
  const topic = $("#try-topic").value;
  if (!topic) throw new Error("No topics yet.");
  let body;
  if (kind() === "event") {
    try { body = { event: JSON.parse(text) }; } catch (error) { throw new Error(`Invalid JSON: ${error.message}`); }
  } else {
    body = { filter: text.startsWith("{") ? JSON.parse(text) : text };
  }
  const answer = await post(`/v1/topics/${encodeURIComponent(topic)}/explain`, body);
  answer.servers.sort(byServer);
  $("#try-result").replaceChildren(...(kind() === "event" ? ofEvent(answer) : ofFilter(answer)));
}

const WHY = {
  everything: "gets every event: it has no summary yet, or the precision is 0",
  summary: "a rectangle of its summary contains the event",
  widening: "the rectangle of a recent subscription contains the event",
  mask: "a rectangle contains the event, but its Bloom mask does not",
  "no rectangle": "no rectangle contains the event",
};

function ofEvent(answer) {
  const wasted = answer.false_positives;
  const matching = answer.matched === 0 ? "No subscription matches." : answer.matched === 1 ? "One subscription matches." : `${count(answer.matched)} subscriptions match.`;
  const routed = answer.servers.filter((server) => server.routed).map((server) => server.server);
  const head = element("p", { id: "try-summary" }, `${matching} The event would be routed to ${routed.join(", ") || "no server"}` +
    (wasted.length ? `; false positives: ${wasted.join(", ")}.` : "."));
  return [head, ...answer.servers.map((server) => {
    const verdict = server.failure ? "no response" : !server.routed ? "not routed" : server.false_positive ? "false positive" : `${count(server.matched)} matched`;
    return element("div", { class: "card", "data-server": server.server, "data-kind": server.false_positive ? "false-positive" : server.matched ? "match" : "none" },
      element("h3", {}, swatch(server.server), `${server.server}: ${verdict}`),
      element("p", { class: "soft" }, WHY[server.why], server.rectangles ? ` (${count(server.rectangles)} tested)` : ""),
      server.rectangle ? element("p", {}, element("code", { class: "mono" }, JSON.stringify(server.rectangle))) : null,
      server.failure ? element("p", { class: "bad" }, server.failure) : null,
      server.subscriptions.length ? element("ul", {}, ...server.subscriptions.map((one) => element("li", { class: one.matches ? "" : "soft" },
        `${one.id}${one.recipient ? ` (${one.recipient})` : ""}${one.paused ? ", paused" : ""}: ${one.matches ? "matches" : "does not match"} `,
        element("code", { class: "mono" }, one.clauses.join(" and ") || "everything")))) : null);
  })];
}

function ofFilter(answer) {
  const { recent } = answer;
  const named = (ids, all) => (all ? `${ids.slice(0, 10).join(", ")}${all > 10 ? ` and ${count(all - 10)} more` : ""}` : "none");
  const facts = [
    ["Filter", answer.text ?? "everything"],
    ["Rectangles", `${count(answer.rectangle_count)}${answer.exact ? ", exact" : ", cover; the predicate decides inside"}`],
    ["Recent events", recent.events ? `${count(recent.matched)} of ${count(recent.events)} would have matched (${share(recent.share)})` : "none"],
    ["Covers", named(answer.covers, answer.covers_count)],
    ["Covered by", named(answer.covered_by, answer.covered_by_count)],
    ["Compared with", `${count(answer.examined)} of ${count(answer.subscriptions)} subscriptions`],
    ...answer.servers.map((server) => [server.server, server.everything ? "gets every event" : `intersects ${count(server.meeting)} of ${count(server.rectangles)} rectangles`]),
  ];
  return [element("dl", {}, ...facts.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]))];
}
