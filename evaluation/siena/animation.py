"""Writes an HTML page in which one subscription and one notification spread, architecture by architecture.

The page has no dependencies. Its data are the trace records of a simulation of 100 sites: an object of
interest advertises, a party at another site subscribes, the object publishes.
"""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any, get_args

import msgspec

from evaluation.siena.clients import ANY_EVENT, Client
from evaluation.siena.exact import build_servers
from evaluation.siena.kernel import Simulator
from evaluation.siena.network import Network, transit_stub
from evaluation.siena.scenario import TITLES, Architecture

SITES, SEED = 100, 4


def scene(network: Network, architecture: Architecture, party: int, source: int) -> dict[str, Any]:
    """Simulates advertise, subscribe and publish one after the other; returns links and messages."""
    simulator = Simulator(network, keep_records=True)
    servers = build_servers(simulator, architecture)
    numbers = count()
    clients = [Client(servers[site], numbers) for site in (party, source)]
    for client, site in zip(clients, (party, source), strict=True):
        simulator.create_process_at(client, site)
    simulator.run()
    phases = []
    for name, act in (
        ("advertise", lambda: clients[1].advertise(ANY_EVENT)),
        ("subscribe", lambda: clients[0].subscribe(ANY_EVENT)),
        ("publish", lambda: clients[1].publish(None)),
    ):
        first, began = len(simulator.trace.records), simulator.clock
        act()
        simulator.run()
        messages = [
            [one.source_site, one.destination_site, one.departure - began, one.arrival - began, one.cost]
            for one in simulator.trace.records[first:]
            if one.source_site != one.destination_site
        ]
        phases.append({"name": name, "messages": [[round(x, 2) for x in one] for one in messages]})
    if architecture == "ce":
        links = []
    elif architecture == "gs":
        links = [[one, other] for one, other, _ in network.links]
    else:
        links = [[site, above] for site, above in enumerate(network.spanning_tree.parent) if above >= 0]
    return {"title": TITLES[architecture], "links": links, "phases": phases, "got": len(clients[0].received)}


def write_page(path: Path) -> Path:
    """Writes the page and returns its path."""
    network = transit_stub(SITES, SEED)
    depths = network.spanning_tree.depths()
    source = depths.index(max(depths))
    # Far away from the object: the last site of the breadth-first order in another stub.
    costs, _ = network.costs_from(source)
    party = costs.index(max(costs))
    data = {
        "places": [[round(x, 2), round(y, 2)] for x, y in network.places],
        "graph": [[one, other] for one, other, _ in network.links],
        "party": party,
        "source": source,
        "scenes": {name: scene(network, name, party, source) for name in get_args(Architecture)},
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_PAGE.replace("/*DATA*/", msgspec.json.encode(data).decode()))
    return path


_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>How a subscription and a notification spread</title>
<style>
  :root { color-scheme: light dark; }
  body { font: 15px/1.5 system-ui, sans-serif; margin: 1.5rem auto; max-width: 68rem; padding: 0 1rem; }
  h1 { font-size: 1.4rem; }
  nav, .controls { display: flex; flex-wrap: wrap; gap: .5rem; align-items: center; margin: .6rem 0; }
  button { font: inherit; padding: .3rem .8rem; border: 1px solid #8888; border-radius: .4rem;
           background: none; color: inherit; cursor: pointer; }
  button[aria-pressed=true] { background: #0072B2; border-color: #0072B2; color: white; }
  input[type=range] { flex: 1; min-width: 10rem; }
  svg { width: 100%; height: auto; max-height: 72vh; border: 1px solid #8884; border-radius: .6rem; }
  .graph { stroke: #8883; stroke-width: .15; }
  .tree { stroke: #888a; stroke-width: .2; }
  .used { stroke-width: .45; stroke-linecap: round; }
  .site { fill: #999; }
  .advertise { stroke: #E69F00; fill: #E69F00; }
  .subscribe { stroke: #009E73; fill: #009E73; }
  .publish { stroke: #D55E00; fill: #D55E00; }
  text { font: 1.6px system-ui, sans-serif; fill: currentColor; }
  table { border-collapse: collapse; margin-top: 1rem; }
  td, th { padding: .2rem .8rem; text-align: right; border-bottom: 1px solid #8884; }
  td:first-child, th:first-child { text-align: left; }
</style>
</head>
<body>
<h1>How a subscription and a notification spread over 100 sites</h1>
<p>An object of interest advertises, a party far away subscribes, the object publishes one notification.
Colours: <b style="color:#E69F00">advertisement</b>, <b style="color:#009E73">subscription</b>,
<b style="color:#D55E00">notification</b>. Time runs as in the simulation; a link's cost is its length.</p>
<nav id="architectures" aria-label="Architecture"></nav>
<nav id="phases" aria-label="Request"></nav>
<svg id="map" role="img" aria-label="Map of the sites with the messages sent so far"></svg>
<div class="controls"><button id="play">Play</button>
<input id="time" type="range" min="0" max="1000" value="0" aria-label="Time"><span id="said"></span></div>
<table id="sums"></table>
<script>
const data = /*DATA*/;
const $ = id => document.getElementById(id), NS = "http://www.w3.org/2000/svg";
const xs = data.places.map(p => p[0]), ys = data.places.map(p => p[1]);
const left = Math.min(...xs) - 4, top_ = Math.min(...ys) - 4;
$("map").setAttribute("viewBox",
  [left, top_, Math.max(...xs) - left + 4, Math.max(...ys) - top_ + 4].join(" "));
let architecture = "as", phase = 1, playing = true, time = 0, last = 0;
function add(name, attributes, text) {
  const one = document.createElementNS(NS, name);
  for (const key in attributes) one.setAttribute(key, attributes[key]);
  if (text) one.textContent = text;
  $("map").append(one);
}
function line(a, b, part, kind) {
  const [x, y] = data.places[a], [u, v] = data.places[b];
  add("line", {x1: x, y1: y, x2: x + (u - x) * part, y2: y + (v - y) * part, class: kind});
}
function draw() {
  const scene = data.scenes[architecture], now = scene.phases[phase];
  const end = Math.max(1, ...now.messages.map(m => m[3]));
  const clock = end * time / 1000;
  $("map").replaceChildren();
  for (const [a, b] of data.graph) line(a, b, 1, "graph");
  for (const [a, b] of scene.links) line(a, b, 1, "tree");
  let sent = 0, cost = 0;
  for (const [a, b, from, to, price] of now.messages) {
    if (clock < from) continue;
    sent++; cost += price;
    const part = Math.min(1, (clock - from) / Math.max(.01, to - from));
    line(a, b, part, "used " + now.name);
  }
  data.places.forEach(([x, y]) => add("circle", {cx: x, cy: y, r: .35, class: "site"}));
  for (const [site, name, kind] of [[data.source, "object", "publish"], [data.party, "party", "subscribe"]]) {
    const [x, y] = data.places[site];
    add("circle", {cx: x, cy: y, r: .7, class: kind});
    add("text", {x: x + 1, y: y + .5}, name);
  }
  $("said").textContent = `${sent} messages, cost ${cost}`;
  $("time").value = time;
}
function buttons(id, entries, chosen, choose) {
  $(id).replaceChildren(...entries.map(([key, title]) => {
    const one = document.createElement("button");
    one.textContent = title;
    one.setAttribute("aria-pressed", key === chosen());
    one.onclick = () => { choose(key); time = 0; playing = true; show(); };
    return one;
  }));
}
function show() {
  buttons("architectures", Object.entries(data.scenes).map(([key, s]) => [key, `${key}: ${s.title}`]),
    () => architecture, key => { architecture = key; });
  buttons("phases", data.scenes[architecture].phases.map((p, at) => [at, p.name]), () => phase,
    at => { phase = at; });
  draw();
}
function tick(at) {
  if (playing) {
    time = Math.min(1000, time + (at - last) / 4);
    if (time === 1000) playing = false;
    draw();
  }
  $("play").textContent = playing ? "Pause" : "Play";
  last = at;
  requestAnimationFrame(tick);
}
$("play").onclick = () => { playing = !playing; if (time === 1000) time = 0; };
$("time").oninput = event => { playing = false; time = +event.target.value; draw(); };
const rows = Object.entries(data.scenes).map(([key, s]) => "<tr><td>" + key + ": " + s.title + "</td>" +
  s.phases.map(p => "<td>" + p.messages.length + "</td><td>" +
    p.messages.reduce((sum, m) => sum + m[4], 0) + "</td>").join("") + "</tr>");
$("sums").innerHTML = "<tr><th></th>" + ["advertise", "subscribe", "publish"].map(name =>
  "<th>" + name + ": messages</th><th>cost</th>").join("") + "</tr>" + rows.join("");
show();
requestAnimationFrame(at => { last = at; tick(at); });
</script>
</body>
</html>
"""
