// Search of subscriptions with counters and attempts; dead letters.

import { get, post } from "./api.js";
import { $, code, count, element, fill, number, row, say, trying, when } from "./page.js";

const PAGE = 50;
let shown = [];
let following = null;
let asked = 0; // number of requests: a response is dropped after a later request
let letters = [];
let nextLetter = null;

export function begin() {
  $("#search-form").addEventListener("submit", (event) => { event.preventDefault(); trying(search)(); });
  $("#search-topic").addEventListener("change", trying(search));
  $("#search-dead").addEventListener("change", trying(search));
  $("#more-subscriptions").addEventListener("click", trying(more));
  $("#letters-form").addEventListener("submit", (event) => { event.preventDefault(); trying(showLetters)(); });
  $("#more-letters").addEventListener("click", trying(moreLetters));
}

export function setTopics(all) {
  const chosen = $("#search-topic").value;
  $("#search-topic").replaceChildren(element("option", { value: "" }, "all"), ...all.map((topic) => element("option", { value: topic.name, selected: topic.name === chosen }, topic.name)));
}

export async function search() {
  await ask(null);
}

const more = () => ask(following);

async function ask(cursor) {
  asked += 1;
  const mine = asked;
  const query = new URLSearchParams({ limit: PAGE });
  if ($("#search").value.trim()) query.set("search", $("#search").value.trim());
  if ($("#search-topic").value) query.set("topic", $("#search-topic").value);
  if ($("#search-dead").checked) query.set("dead", "true");
  if (cursor) query.set("cursor", cursor);
  const page = await get(`/v1/subscriptions?${query}`);
  if (mine !== asked) return;
  shown = cursor ? [...shown, ...page.subscriptions] : page.subscriptions;
  following = page.next;
  list();
}

function list() {
  fill($("#subscription-table tbody"), shown.map((one) => {
    const made = row(
      element("td", {}, element("button", { type: "button", "data-open": one.id, onclick: trying(() => open(one.id)) }, one.id.length > 13 ? `${one.id.slice(0, 12)}…` : one.id)),
      one.topic, code(condition(one)), target(one), one.server ?? "multiple",
      element("td", { class: one.state === "paused" ? "warn" : "good" }, one.state,
        one.advertised === false ? element("div", { class: "warn", "data-dead": one.id, title: "No advertisement of the topic can match the filter." }, "dead") : null),
      element("td", { class: "actions" }, element("button", { type: "button", "data-toggle": one.id, onclick: trying(() => toggle(one)) }, one.state === "paused" ? "Resume" : "Pause")));
    made.dataset.subscription = one.id;
    return made;
  }), "No subscriptions found.", 7);
  $("#more-subscriptions").hidden = !following;
  $("#subscription-count").textContent = following ? `first ${count(shown.length)}` : `${count(shown.length)} in total`;
}

function condition(one) {
  const shown = (filter) => (filter === null ? "everything" : JSON.stringify(filter));
  if (!one.sequence) return shown(one.filter);
  return one.sequence.map((step) => `${step.topic}: ${shown(step.filter)}${step.times ? ` × ${step.times}` : ""}`).join(" → ");
}

function target(one) {
  const at = one.sink?.url ? code(one.sink.url) : element("td", { class: "soft" }, "stream");
  if (one.sink?.recipient) at.append(element("div", { class: "soft" }, one.sink.recipient));
  return at;
}

async function toggle(one) {
  const changed = await post(`/v1/subscriptions/${encodeURIComponent(one.id)}/${one.state === "paused" ? "resume" : "pause"}`);
  shown = shown.map((other) => (other.id === one.id ? { ...other, state: changed.state } : other));
  list();
  say(`${one.id} is ${changed.state}.`);
  $(`[data-toggle="${CSS.escape(one.id)}"]`)?.focus();
}

const FIELDS = [["state", "Address state"], ["evaluated", "Evaluated"], ["matched", "Matched"], ["delivered", "Delivered"], ["failed", "Failed"], ["dead_letters", "Dead letters"], ["reason", "Last failure"], ["next_attempt", "Next attempt"]];

async function open(id) {
  const path = `/v1/subscriptions/${encodeURIComponent(id)}`;
  const [one, { attempts }] = await Promise.all([get(path), get(`${path}/attempts`).catch(() => ({ attempts: [] }))]);
  const dialog = $("#subscription-dialog");
  const facts = [["Topic", one.topic], [one.sequence ? "Sequence" : "Filter", condition(one)], ["Sink", one.sink?.url ?? "stream"], ["Server", one.server ?? "multiple"], ["Owner", one.owner], ["Created", when(one.created)], ["Expires", one.expires ? when(one.expires) : "never"]];
  if (one.delivery) for (const [field, name] of FIELDS) if (one.delivery[field] !== null) facts.push([name, typeof one.delivery[field] === "number" ? count(one.delivery[field]) : one.delivery[field]]);
  const monitor = one.sequence_state;
  if (monitor) facts.push(["Half matches", count(monitor.half_matches)], ["Waits for", `step ${monitor.waiting_for}${monitor.since ? `, since ${when(monitor.since)}` : ""}`]);
  if (monitor?.late || monitor?.dropped) facts.push(["Late, dropped", `${count(monitor.late)}, ${count(monitor.dropped)}`]);
  const act = (name, work) => element("button", { type: "button", onclick: trying(async () => { say(await work()); await open(id); }) }, name);
  dialog.replaceChildren(
    element("h2", { id: "subscription-title", tabindex: "-1", autofocus: true }, id), // focused, so that the dialog opens at its top
    element("dl", {}, ...facts.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, String(value ?? ""))])),
    element("h3", {}, "Last attempts"),
    element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Last attempts" }, element("table", { id: "attempts" },
      element("thead", {}, element("tr", {}, ...["Time", "Outcome", "Status", "Duration (ms)", "Notifications", "Response"].map((name) => element("th", {}, name)))),
      element("tbody", {}, ...(attempts.length ? attempts.slice(0, 10).map((one) => row(when(one.time), one.outcome, one.status ?? "", number((1000 * one.seconds).toFixed(1)), number(count(one.notifications)), one.reason ?? one.answer)) : [element("tr", {}, element("td", { class: "empty", colspan: 6 }, "No attempts yet."))])))),
    element("menu", {},
      act("Send example", async () => { const attempt = await post(`${path}/example`); return `The sink answered ${attempt.status ?? attempt.reason}.`; }),
      act("Enable", async () => { await post(`${path}/enable`); return "Address enabled."; }),
      act("Resend dead letters", async () => { const queued = await post(`${path}/recover`, { since: "1970-01-01T00:00:00Z" }); return `${queued.notifications} notifications requeued.`; }),
      element("button", { type: "button", class: "primary", onclick: () => dialog.close() }, "Close")));
  if (!dialog.open) dialog.showModal();
}

// -- dead letters -------------------------------------------------------------------------------------------------

export async function showLetters() {
  await askLetters(null);
}

const moreLetters = () => askLetters(nextLetter);
let askedLetters = 0;

async function askLetters(cursor) {
  askedLetters += 1;
  const mine = askedLetters;
  const query = new URLSearchParams({ limit: PAGE });
  const named = $("#letters-subscription").value.trim();
  if (!named && document.body.dataset.sees === "own") {
    fill($("#letter-table tbody"), [], "Enter a subscription: listing all dead letters requires an operator's key.", 7);
    return;
  }
  if (named) query.set("subscription", named);
  if (cursor) query.set("after", cursor);
  const page = await get(`/v1/dead-letters?${query}`);
  if (mine !== askedLetters) return;
  letters = cursor ? [...letters, ...page.dead_letters] : page.dead_letters;
  nextLetter = page.next;
  fill($("#letter-table tbody"), letters.map((letter) => {
    const resend = element("button", { type: "button", "data-resend": letter.id }, "Resend");
    resend.addEventListener("click", trying(async () => {
      const queued = await post(`/v1/dead-letters/${encodeURIComponent(letter.id)}/resend`);
      say(`${queued.notifications} notifications requeued.`);
      await showLetters();
    }));
    return row(letter.id, when(letter.died), code(letter.url), number(count(letter.notifications)), number(count(letter.attempts)), letter.reason, element("td", { class: "actions" }, resend));
  }), "No dead letters.", 7);
  $("#more-letters").hidden = !nextLetter;
  $("#letter-count").textContent = nextLetter ? `first ${count(letters.length)}` : `${count(letters.length)} in total`;
}
