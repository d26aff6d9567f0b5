// Connects the views to the live stream; tabs, theme and API key.

import * as advertisements from "./advertisements.js";
import { hasKey, useKey, watch, whenKeyIsRequired } from "./api.js";
import { draw } from "./charts.js";
import * as explain from "./explain.js";
import * as map from "./map.js";
import * as overview from "./overview.js";
import { $, say, trying } from "./page.js";
import * as subscriptions from "./subscriptions.js";

const tabs = [...document.querySelectorAll("[role=tab]")];
let limited = false; // without an operator's key, or not at the admin port: topics and subscriptions only
const shows = (name) => !document.hidden && !document.getElementById(name).hidden;

const OPENED = {
  overview: () => (limited ? trying(overview.topics)() : draw()),
  map: trying(() => map.refresh()),
  subscriptions: trying(() => subscriptions.search()),
  advertisements: trying(() => advertisements.search()),
  letters: trying(() => subscriptions.showLetters()),
};

function select(tab, focus = true) {
  for (const one of tabs) {
    const chosen = one === tab;
    one.setAttribute("aria-selected", String(chosen));
    one.tabIndex = chosen ? 0 : -1;
    document.getElementById(one.getAttribute("aria-controls")).hidden = !chosen;
  }
  if (focus) tab.focus();
  const name = tab.getAttribute("aria-controls");
  history.replaceState(null, "", `#${name}`);
  OPENED[name]?.();
}

for (const tab of tabs) {
  tab.addEventListener("click", () => select(tab));
  tab.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const there = tabs.filter((one) => !one.hidden);
    const to = step ? there[(there.indexOf(tab) + step + there.length) % there.length] : { Home: there[0], End: there.at(-1) }[event.key];
    if (to) { event.preventDefault(); select(to); }
  });
}

$("#theme-button").addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  try { localStorage.setItem("edn-theme", root.dataset.theme); } catch { /* the theme applies to this page only */ }
  redraw();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);

function redraw() {
  draw();
  map.redraw();
}

const keyDialog = $("#key-dialog");
function askForKey(refusal) {
  $("#key-button").hidden = false;
  $("#key-refusal").textContent = refusal ? `401: ${refusal}` : "";
  $("#key-refusal").hidden = !refusal;
  $("#key-forget").hidden = !hasKey();
  if (!keyDialog.open) keyDialog.showModal();
}
whenKeyIsRequired(askForKey);
$("#key-button").hidden = !hasKey();
$("#key-button").addEventListener("click", () => askForKey(""));
$("#key-cancel").addEventListener("click", () => keyDialog.close("cancel"));
$("#key-forget").addEventListener("click", () => keyDialog.close("forget"));
keyDialog.addEventListener("close", () => {
  const given = keyDialog.returnValue === "use" ? $("#key-input").value.trim() : "";
  $("#key-input").value = "";
  if (!given && keyDialog.returnValue !== "forget") return;
  useKey(given);
  location.reload();
});

// Hides the views that require an operator.
function limit() {
  limited = true;
  document.body.dataset.sees = "own";
  $("#tab-map").hidden = true;
  if (!$("#map").hidden) select($("#tab-overview"), false);
  trying(overview.topics)();
}

overview.whenTopicsChange((all) => {
  map.setTopics(all);
  subscriptions.setTopics(all);
  advertisements.setTopics(all);
  explain.setTopics(all);
  if (shows("map")) trying(() => map.refresh())();
});
map.begin();
subscriptions.begin();
advertisements.begin();
explain.begin();
const wanted = tabs.find((tab) => `#${tab.getAttribute("aria-controls")}` === location.hash);
if (wanted) select(wanted, false);

const WORDS = {
  live: "live",
  lost: "disconnected, reconnecting",
  locked: "API key required",
  limited: "topics and subscriptions of this key's tenant; traffic and servers require an operator's key",
  elsewhere: "topics and subscriptions only; for traffic and servers, open the dashboard at the admin port",
};
watch("/v1/live", {
  history: trying((data) => overview.history(data)),
  sample: trying(async (data) => {
    $("#status-text").textContent = `live, ${data.servers.filter((server) => server.state === "ready").length} of ${data.servers.length} servers ready`;
    await overview.sample(data, shows("overview"));
    map.sample(data, shows("map"));
    explain.sample(data);
  }),
}, (state, why) => {
  $(".dot").dataset.state = state;
  $("#status-text").textContent = `${WORDS[state]}${why ? ` (${why})` : ""}`;
  if (state === "limited" || state === "elsewhere") limit();
});

window.addEventListener("load", () => {
  if (!window.Plotly) say("Charts require Plotly: pip install plotly");
});
