// Advertisements, and whether anybody listens to what they cover.

import { get } from "./api.js";
import { $, code, count, element, fill, row, trying, when } from "./page.js";

const PAGE = 50;
let shown = [];
let following = null;
let asked = 0; // number of requests: a response is dropped after a later request

export function begin() {
  $("#advertisements-form").addEventListener("submit", (event) => { event.preventDefault(); trying(search)(); });
  $("#advertisements-topic").addEventListener("change", trying(search));
  $("#more-advertisements").addEventListener("click", trying(() => ask(following)));
}

export function setTopics(all) {
  const chosen = $("#advertisements-topic").value;
  $("#advertisements-topic").replaceChildren(element("option", { value: "" }, "all"), ...all.map((topic) => element("option", { value: topic.name, selected: topic.name === chosen }, topic.name)));
}

export async function search() {
  await ask(null);
}

async function ask(cursor) {
  asked += 1;
  const mine = asked;
  const query = new URLSearchParams({ limit: PAGE });
  const publisher = $("#advertisements-publisher").value.trim();
  if (publisher) query.set("publisher", publisher);
  if ($("#advertisements-topic").value) query.set("topic", $("#advertisements-topic").value);
  if (cursor) query.set("cursor", cursor);
  const page = await get(`/v1/advertisements?${query}`);
  if (mine !== asked) return;
  shown = cursor ? [...shown, ...page.advertisements] : page.advertisements;
  following = page.next;
  fill($("#advertisement-table tbody"), shown.map((one) => {
    const made = row(code(one.id), one.topic, one.publisher, code(JSON.stringify(one.advertisement)),
      element("td", { class: one.wanted ? "good" : "soft" }, one.wanted ? "wanted" : "not wanted"),
      one.expires ? when(one.expires) : "never");
    made.dataset.advertisement = one.id;
    return made;
  }), "No advertisements found.", 6);
  $("#more-advertisements").hidden = !following;
  $("#advertisement-count").textContent = following ? `first ${count(shown.length)}` : `${count(shown.length)} in total`;
}
