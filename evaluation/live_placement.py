"""Placement in a running network beside the same policy in memory: `edn bench placement`.

Real processes: a dispatcher and ten servers. Subscriptions come one after the other, in arrays; then the same
events are published, and the dispatcher's own counters tell the hit ratio. Beside it the policy is run in
memory on the same sequence with the same chance, and the same events are routed by precise summaries of what
it placed where. The two must agree, and the loads must keep to the limits.

At last a few subscriptions are brought to each server's own door: they must end on the server that the
policy names, given the routing summaries that servers exchange.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import httpx
import msgspec
import numpy as np

from edn import protocol
from edn.arrays import Floats
from edn.client import Client, NewSubscription
from edn.tools.bench.network import NOWHERE, STEP, filters, names_of, network
from edn.tools.bench.report import Progress, rows
from edn.tools.bench.workloads import uniform_points, uniform_rectangles
from evaluation.simulated_placement import hit_ratio
from partitioning.online import Limits, Settings, new_placement

TOPIC = "placement"
POLICIES = ("random", "least-loaded", "rtree", "kmeans", "traffic")
#: how far the hit ratios may be apart
TOLERANCE = 0.01
#: subscriptions that are brought to each server's door
AT_EACH_DOOR = 2


class Outcome(msgspec.Struct, frozen=True):
    """One policy."""

    policy: str
    servers: int
    subscriptions: int
    events: int
    #: forwarded ÷ (published × servers), as the dispatcher counted
    hit_ratio: float
    #: the same of the policy in memory
    in_memory: float
    #: share of the subscriptions that went to the same server in both
    same_server: float
    smallest_load: int
    largest_load: int
    #: the most subscriptions that a server may have
    limit: float
    subscriptions_per_second: float
    #: subscriptions brought to servers' doors where content decides, and those that ended where it says
    doors: int
    doors_right: int

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
    ("any door", "{r.doors_right} of {r.doors}"),
)


def right(outcomes: list[Outcome]) -> bool:
    return all(outcome.right for outcome in outcomes)


def run(*, policy: Sequence[str] | None, default: Sequence[str] = POLICIES, **sizes: Any) -> list[Outcome]:
    """A network for each policy; for those of `default`, if none is named."""
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
    settings = {
        "EDN_PLACEMENT": policy,
        "EDN_PLACEMENT_SEED": str(seed),
        "EDN_LOAD_FACTOR": str(load_factor),
        "EDN_EXCHANGE_SECONDS": "1",
    }
    attributes = names_of(dimensions)
    with (
        network(servers, **settings) as running,
        Client(running.url) as client,
        httpx.Client(base_url=running.url, timeout=120) as http,
    ):
        names = sorted(server.id for server in client.servers())
        # A first summary that came in the midst would make the policy forget, and the runs differ.
        _await_summaries(http, names)
        client.create_topic(TOPIC, dict.fromkeys(attributes, "number"))
        began = time.monotonic()
        hosts = _subscribe(client, lo, hi, progress, policy)
        seconds = time.monotonic() - began
        loads = Counter(hosts)
        progress.say(f"{policy}: waiting for the summaries")
        _await_summaries(http, names)
        progress.say(f"{policy}: publishing")
        ratio = _publish(http, attributes, points)
        progress.say(f"{policy}: at the servers' doors")
        doors = _at_the_doors(http, running.secret, dimensions, rng)
    progress.say(f"{policy}: in memory")
    offline = place_in_memory(policy, lo, hi, names, load_factor, seed)
    parts = np.array([names.index(server) for server in offline])
    return Outcome(
        policy=policy,
        servers=servers,
        subscriptions=subscriptions,
        events=events,
        hit_ratio=ratio,
        in_memory=hit_ratio(lo, hi, parts, servers, points),
        same_server=float(np.mean([one == other for one, other in zip(hosts, offline, strict=True)])),
        smallest_load=min(loads.get(name, 0) for name in names),
        largest_load=max(loads.values()),
        limit=float("inf") if policy == "least-loaded" else load_factor * subscriptions / servers,
        subscriptions_per_second=subscriptions / seconds,
        doors=doors.total(),
        doors_right=doors[True],
    )


def place_in_memory(
    policy: str, lo: Floats, hi: Floats, servers: list[str], load_factor: float, seed: int
) -> list[str]:
    """What the dispatcher does, without one."""
    settings = Settings(limits=Limits(factor=load_factor))
    placement = new_placement(policy, settings=settings, rng=random.Random(seed))
    loads = dict.fromkeys(servers, 0)
    placed = []
    for low, high in zip(lo, hi, strict=True):
        server = placement.place(loads, low, high)
        loads[server] += 1
        placed.append(server)
    return placed


def _subscribe(client: Client, lo: Floats, hi: Floats, progress: Progress, policy: str) -> list[str]:
    """The server of each."""
    hosts: list[str] = []
    for start in range(0, len(lo), STEP):
        progress.say(f"{policy}: subscribing, {start:,} of {len(lo):,}")
        wanted = [
            NewSubscription(topic=TOPIC, filter=filter, url=f"{NOWHERE}/{row % 10}")
            for row, filter in enumerate(filters(lo[start : start + STEP], hi[start : start + STEP]))
        ]
        hosts += [made.server or "" for made in client.subscribe_many(wanted)]
    return hosts


def _publish(http: httpx.Client, attributes: list[str], points: Floats) -> float:
    """The hit ratio of these events, by the dispatcher's counters."""
    before = _counted(http)
    for start in range(0, len(points), STEP):
        batch = [dict(zip(attributes, row, strict=True)) for row in points[start : start + STEP].tolist()]
        while True:
            answer = http.post(f"/v1/topics/{TOPIC}/events", json=batch)
            if answer.status_code not in (429, 503):
                break
            time.sleep(float(answer.headers["retry-after"]))
        answer.raise_for_status()
    while any(one["lag"] != 0 for one in http.get("/v1/servers").json()["servers"]):
        time.sleep(0.1)  # a poll: the loop ends when the last lag is 0
    published, forwarded, servers = (late - early for late, early in zip(_counted(http), before, strict=True))
    assert published == len(points)
    return forwarded / (published * (before[2] + servers))


def _counted(http: httpx.Client) -> tuple[int, int, int]:
    told = http.get("/v1/servers").json()
    return told["published"], sum(one["forwarded"] for one in told["servers"]), len(told["servers"])


def _await_summaries(http: httpx.Client, names: list[str]) -> None:
    """Until every server has told what it hosts, all of it."""
    while True:
        held = [http.get(f"/v1/servers/{name}/summary").json() for name in names]
        told = not any(one["everything"] for one in held)
        if told and not any(topic["widenings"] for one in held for topic in one["topics"].values()):
            return
        time.sleep(0.2)  # a poll: the loop ends when the last summary is there


def _at_the_doors(
    http: httpx.Client, secret: str, dimensions: int, rng: np.random.Generator
) -> Counter[bool]:
    """Bring small subscriptions to each server; whether each ended where the policy says, if it says."""
    time.sleep(3.0)  # two exchanges: what the servers know is what is asked for here
    answer = http.get("/internal/routing-summaries", headers={"authorization": f"Bearer {secret}"})
    answer.raise_for_status()
    told = protocol.decode(answer.content, protocol.RoutingSummaries)
    right: Counter[bool] = Counter()
    for server in http.get("/v1/servers").json()["servers"]:
        for _ in range(AT_EACH_DOOR):
            low = uniform_points(rng, 1, dimensions) * 0.9
            named = _named(told, low[0], low[0] + 0.5)
            body = {
                "topic": TOPIC,
                "filter": filters(low, low + 0.5)[0],
                "sink": {"url": NOWHERE},
            }
            made = httpx.post(f"{server['url']}/v1/subscriptions", json=body, timeout=60)
            made.raise_for_status()
            if named:
                right[made.json()["server"] in named] += 1
    return right


def _named(told: protocol.RoutingSummaries, low: Floats, high: Floats) -> set[str]:
    """The servers with the best that the exchanged summaries offer; several, where they tie.

    A server at its limit is passed over, and at its limit is one from moment to moment: whoever would be
    named with it or without it is right.
    """
    rule, present = told.rule, {peer.id: peer.subscriptions for peer in told.peers}
    below = Limits(threshold=rule.threshold, factor=rule.factor).candidates(present)
    policy = new_placement(rule.policy, settings=Settings(bound=rule.bound, spread=rule.spread))
    for boxes in told.boxes:
        lo, hi = protocol.points_array(boxes.lo, boxes.width), protocol.points_array(boxes.hi, boxes.width)
        policy.summarise(boxes.server, lo, hi)

    def best(among: list[str]) -> set[str]:
        # Among equals the least loaded is chosen: let each of them be that.
        return {
            name
            for name in among
            if policy.suggest({one: int(one != name) for one in among}, low, high) == name
        }

    named = best(list(present))
    if not named or named <= set(below):
        return named
    # Nothing similar below the limits: anybody there will do.
    return named | (best(below) or set(below))
