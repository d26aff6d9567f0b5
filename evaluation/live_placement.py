"""Placement in a running network compared with the same policy in memory: `edn bench placement`.

A dispatcher and ten servers run as processes. Subscriptions are created in batches; then events are
published, and the dispatcher's counters give the hit ratio. The same policy places the same sequence in
memory with the same seed, and the same events are routed by precise summaries of its placement. Both must
agree, and the loads must respect the limits.

Finally, a few subscriptions are sent to each server directly: they must be placed on the server that the
policy chooses with the routing summaries that servers exchange.
"""

from __future__ import annotations

import math
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import httpx
import numpy as np

from edn import protocol
from edn.arrays import Floats
from edn.client import Client
from edn.tools.bench.network import (
    NOWHERE,
    STEP,
    TOPIC,
    Counted,
    bodies_of,
    fill,
    filters,
    network,
    summarised,
)
from edn.tools.bench.report import Progress, rows
from edn.tools.bench.workloads import uniform_points, uniform_rectangles
from evaluation.simulated_placement import hit_ratio
from partitioning.online import Limits, Settings, new_placement

JSON = {"content-type": "application/json"}
POLICIES = ("random", "least-loaded", "rtree", "kmeans", "traffic")
#: allowed difference of the hit ratios
TOLERANCE = 0.01
#: subscriptions sent to each server directly
PER_SERVER = 2


@dataclass(slots=True)
class Outcome:
    """The result of one policy."""

    policy: str
    servers: int
    subscriptions: int
    events: int
    #: from the dispatcher's counters
    hit_ratio: float = 0.0
    #: hit ratio of the policy in memory
    in_memory: float = 0.0
    #: share of the subscriptions with the same server in both
    same_server: float = 0.0
    smallest_load: int = 0
    largest_load: int = 0
    #: largest allowed load
    limit: float = math.inf
    subscriptions_per_second: float = 0.0
    #: subscriptions sent to servers directly, and those on the right server
    doors: int = 0
    doors_right: int = 0

    @property
    def right(self) -> bool:
        return (
            abs(self.hit_ratio - self.in_memory) <= TOLERANCE
            and self.largest_load <= self.limit
            and self.doors_right == self.doors
        )


show = rows(
    "Placement",
    ("policy", "{r.policy}"),
    ("hit ratio", "{r.hit_ratio:.4f}"),
    ("in memory", "{r.in_memory:.4f}"),
    ("same server", "{r.same_server:.2%}"),
    ("loads", "{r.smallest_load:,} – {r.largest_load:,}"),
    ("limit", "{r.limit:,.0f}"),
    ("subscriptions/s", "{r.subscriptions_per_second:,.0f}"),
    ("at any server", "{r.doors_right} of {r.doors}"),
)


def right(outcomes: list[Outcome]) -> bool:
    return all(outcome.right for outcome in outcomes)


def run(*, policy: Sequence[str] | None, default: Sequence[str] = POLICIES, **sizes: Any) -> list[Outcome]:
    """Measures each policy, or those of `default`."""
    return [measure(name, **sizes) for name in policy or default]


def measure(
    policy: str,
    *,
    servers: int,
    subscriptions: int,
    dimensions: int,
    events: int,
    load_factor: float,
    seed: int,
    progress: Progress,
) -> Outcome:
    rng = np.random.default_rng(seed)
    lo, hi = uniform_rectangles(rng, subscriptions, dimensions)
    points = uniform_points(rng, events, dimensions)
    outcome = Outcome(policy, servers, subscriptions, events)
    settings = {
        "EDN_PLACEMENT": policy,
        "EDN_PLACEMENT_SEED": str(seed),
        "EDN_LOAD_FACTOR": str(load_factor),
        "EDN_EXCHANGE_SECONDS": "1",
    }
    with (
        network(servers, **settings) as running,
        Client(running.url) as client,
        httpx.Client(base_url=running.url, timeout=120) as http,
    ):
        names = sorted(server.id for server in client.servers())
        # A first summary in between would reset the policy, and the runs would differ.
        summarised(running.url)
        began = time.monotonic()
        hosts = fill(client, lo, hi, progress, f"{policy}: subscribing")
        outcome.subscriptions_per_second = subscriptions / (time.monotonic() - began)
        progress.say(f"{policy}: waiting for the summaries")
        summarised(running.url)
        progress.say(f"{policy}: publishing")
        outcome.hit_ratio = _publish(http, points)
        progress.say(f"{policy}: subscribing at the servers")
        direct = _subscribe_at_servers(http, running.secret, dimensions, rng)
    outcome.doors, outcome.doors_right = direct.total(), direct[True]
    loads = Counter(hosts)
    outcome.smallest_load, outcome.largest_load = min(loads[name] for name in names), max(loads.values())
    if policy != "least-loaded":
        outcome.limit = load_factor * subscriptions / servers
    progress.say(f"{policy}: in memory")
    offline = place_in_memory(policy, lo, hi, names, load_factor, seed)
    outcome.same_server = float(np.mean([one == other for one, other in zip(hosts, offline, strict=True)]))
    parts = np.array([names.index(server) for server in offline])
    outcome.in_memory = hit_ratio(lo, hi, parts, servers, points)
    return outcome


def place_in_memory(
    policy: str, lo: Floats, hi: Floats, servers: list[str], load_factor: float, seed: int
) -> list[str]:
    """Places subscriptions like the dispatcher, in memory."""
    settings = Settings(limits=Limits(factor=load_factor))
    placement = new_placement(policy, settings=settings, rng=random.Random(seed))
    loads = dict.fromkeys(servers, 0)
    placed = []
    for low, high in zip(lo, hi, strict=True):
        server = placement.place(loads, low, high)
        loads[server] += 1
        placed.append(server)
    return placed


def _publish(http: httpx.Client, points: Floats) -> float:
    """Publishes events and returns their hit ratio."""
    before = Counted.read(http)
    for body in bodies_of(points[start : start + STEP] for start in range(0, len(points), STEP)):
        while True:
            answer = http.post(f"/v1/topics/{TOPIC}/events", content=body, headers=JSON)
            if answer.status_code not in (429, 503):
                break
            time.sleep(float(answer.headers["retry-after"]))
        answer.raise_for_status()
    while (now := Counted.read(http)).lag:
        time.sleep(0.1)  # a poll: the loop ends when no server has a lag
    assert now.published - before.published == len(points)
    return now.hit_ratio(before)


def _subscribe_at_servers(
    http: httpx.Client, secret: str, dimensions: int, rng: np.random.Generator
) -> Counter[bool]:
    """Sends small subscriptions to each server; counts those on the server that the policy chooses."""
    time.sleep(3.0)  # two exchanges of summaries
    answer = http.get("/internal/routing-summaries", headers={"authorization": f"Bearer {secret}"})
    answer.raise_for_status()
    summaries = protocol.decode(answer.content, protocol.RoutingSummaries)
    right: Counter[bool] = Counter()
    for server in http.get("/v1/servers").json()["servers"]:
        for _ in range(PER_SERVER):
            low = uniform_points(rng, 1, dimensions) * 0.9
            named = _named(summaries, low[0], low[0] + 0.5)
            body = {"topic": TOPIC, "filter": filters(low, low + 0.5)[0], "sink": {"url": NOWHERE}}
            made = httpx.post(f"{server['url']}/v1/subscriptions", json=body, timeout=60)
            made.raise_for_status()
            if named:
                right[made.json()["server"] in named] += 1
    return right


def _named(summaries: protocol.RoutingSummaries, low: Floats, high: Floats) -> set[str]:
    """Returns the servers that the policy may choose by the exchanged summaries.

    A server at its limit is skipped, and loads change all the time: the choice with and without such servers
    is right.
    """
    rule, present = summaries.rule, {peer.id: peer.subscriptions for peer in summaries.peers}
    below = Limits(threshold=rule.threshold, factor=rule.factor).candidates(present)
    policy = new_placement(rule.policy, settings=Settings(bound=rule.bound, spread=rule.spread))
    for boxes in summaries.boxes:
        lo, hi = protocol.points_array(boxes.lo, boxes.width), protocol.points_array(boxes.hi, boxes.width)
        policy.summarise(boxes.server, lo, hi)

    def best(among: list[str]) -> set[str]:
        # Ties go to the least loaded server: try each of them in that role.
        return {
            name
            for name in among
            if policy.suggest({one: int(one != name) for one in among}, low, high) == name
        }

    named = best(list(present))
    if not named or named <= set(below):
        return named
    # Without a similar server below the limits, every server there is right.
    return named | (best(below) or set(below))
