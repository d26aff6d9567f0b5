"""Ours: A thousand servers, ten million subscriptions.

What does an event cost as servers and subscriptions grow? 8 dimensions, uniform subscriptions and events,
precise summaries. A simulation with measured kernels: the subscriptions are drawn and split (halving, from a
sample of them) for all servers; router and matcher of a few servers are built and timed, and their mean
stands for all. Covers of a thousand servers would not share a cache as those of a few do, so read routing at
many servers as a lower bound.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from edn.arrays import Floats, Ints
from edn.index import new_matcher
from edn.summary import new_router
from edn.tools.bench.workloads import uniform_points, uniform_rectangles
from evaluation.experiment import Claim, Experiment, Outcome, Progress, Scale, Series, track
from evaluation.experiments.table_1 import exponent
from evaluation.figures import Canvas
from evaluation.simulated_placement import maximal
from partitioning.rows import LocalRows
from partitioning.split import Tree, Volume, split
from selftune.curve import Effort, measure

DIMENSIONS = 8
PLACEMENTS = ("random", "partitioned")
#: subscriptions drawn at once
CHUNK = 250_000


def run(
    seed: int,
    progress: Progress,
    *,
    subscriptions: tuple[int, ...],
    servers: tuple[int, ...],
    most: int,
    least: int,
    sampled: int,
    learnt: int,
    events: int,
) -> Outcome:
    """`most`, `least`: subscriptions per server. `sampled`: servers that are built. `learnt`: subscriptions
    that the split is made from."""
    outcome = Outcome()
    jobs = [
        (count, placement, n)
        for count in subscriptions
        for placement in PLACEMENTS
        for n in servers
        if least <= count // n <= most
    ]
    found: dict[str, list[tuple[int, float]]] = {}
    for count, placement, n in track(jobs, progress, "{0:,} subscriptions, {2} servers, {1}"):
        rng = np.random.default_rng(seed)
        points = uniform_points(rng, events, DIMENSIONS)
        chosen = np.sort(rng.choice(n, min(n, sampled), replace=False))
        if placement == "random":
            parts = [uniform_rectangles(rng, count // n, DIMENSIONS) for _ in chosen]
        else:
            parts = _partitioned(learnt, count, n, chosen, rng)
        for what, cost in _costs(parts, n, points).items():
            found.setdefault(f"{what}: {count:,}, {placement}", []).append((n, cost))
    for name, row in found.items():
        outcome.series[name] = Series([n for n, _ in row], [cost for _, cost in row])
    return outcome


def _costs(parts: list[tuple[Floats, Floats]], servers: int, points: Floats) -> dict[str, float]:
    """Returns costs per event: microseconds of the dispatcher and of all servers together, and copies."""
    router = new_router("bitmap")
    covers = [(column, router.cover(*maximal(*part))) for column, part in enumerate(parts)]
    routed = measure(router.bundle(covers), len(parts), points, Effort(seconds=0.2, most=len(points)))
    matching = float(np.mean([_matching(part, points) for part in parts]))
    return {
        "routing": 1e6 * routed.routing * servers,
        "copies": routed.hit_ratio * servers,
        "matching": matching * routed.hit_ratio * servers,
        "matching without summaries": matching * servers,
    }


def _partitioned(
    learnt: int, subscriptions: int, servers: int, chosen: Ints, rng: np.random.Generator
) -> list[tuple[Floats, Floats]]:
    """Splits a sample, draws all subscriptions, and returns those of the chosen servers."""
    rows = LocalRows(*uniform_rectangles(rng, min(subscriptions, learnt), DIMENSIONS))
    tree: Tree = split(rows, servers, Volume.over(rows.space), halve=True)
    kept: list[list[tuple[Floats, Floats]]] = [[] for _ in chosen]
    for at in range(0, subscriptions, CHUNK):
        lo, hi = uniform_rectangles(rng, min(CHUNK, subscriptions - at), DIMENSIONS)
        parts = tree.parts(LocalRows(lo, hi, space=rows.space).whole)
        for place, server in enumerate(chosen):
            mine = np.flatnonzero(parts == server)
            kept[place].append((lo[mine], hi[mine]))
    return [
        (np.concatenate([one for one, _ in pieces]), np.concatenate([other for _, other in pieces]))
        for pieces in kept
    ]


def _matching(part: tuple[Floats, Floats], points: Floats) -> float:
    """Returns the microseconds in which a server matches one event."""
    matcher = new_matcher("bitmap", DIMENSIONS)
    matcher.insert(np.arange(len(part[0])), *part)
    matcher.match(points)
    began = time.thread_time()
    matcher.match(points)
    return 1e6 * (time.thread_time() - began) / len(points)


def _labels(outcome: Outcome, end: str = "") -> list[str]:
    names = [name.removeprefix("routing: ") for name in outcome.series if name.startswith("routing: ")]
    return [name for name in names if name.endswith(end)]


def draw(canvas: Canvas) -> None:
    left, middle, right = canvas.panels(3)
    left.labels("Routing an event", "servers", "µs of the dispatcher per event")
    middle.labels("Copies of an event", "servers", "copies per event")
    right.labels("Matching, all servers together", "servers", "µs per event")
    labels = _labels(canvas.first)
    for panel, what in ((left, "routing"), (middle, "copies"), (right, "matching")):
        for label in labels:
            style = "-" if label.endswith("partitioned") else ":"
            panel.curve(f"{what}: {label}", label, style=style)
        panel.log_log()
    for label in _labels(canvas.first, "partitioned"):
        right.curve(f"matching without summaries: {label}", f"{label}, no summaries", style="--", colour=6)
    axis = [x for label in labels for x in canvas.first.series[f"copies: {label}"].x]
    middle.line("no summaries: every server", (min(axis), max(axis)), (min(axis), max(axis)))


def _saves(outcome: Outcome) -> Iterator[bool]:
    for label in _labels(outcome, "partitioned"):
        costs = (
            outcome.y(f"{what}: {label}") for what in ("routing", "matching", "matching without summaries")
        )
        for routing, matching, without in zip(*costs, strict=True):
            yield routing < without - matching


def _slower(outcome: Outcome, what: str) -> list[bool]:
    curves = [outcome.series[f"{what}: {label}"] for label in _labels(outcome, "partitioned")]
    return [exponent(curve) < 1.0 for curve in curves if len(curve.x) > 1]


_TINY = {
    "subscriptions": (2000,),
    "servers": (2, 10),
    "most": 1000,
    "least": 100,
    "sampled": 2,
    "learnt": 1000,
    "events": 100,
}
_LARGE: dict[str, Any] = {"servers": (10, 100, 1000), "least": 100, "sampled": 2}
_SIZES: dict[Scale, dict[str, Any]] = {
    "tiny": _TINY,
    "quick": {
        **_LARGE,
        "subscriptions": (100_000, 1_000_000),
        "most": 20_000,
        "learnt": 50_000,
        "events": 500,
    },
    "full": {
        **_LARGE,
        "subscriptions": (100_000, 1_000_000, 10_000_000),
        "most": 100_000,
        "learnt": 100_000,
        "events": 1000,
    },
}

EXPERIMENT = Experiment(
    name="scale",
    text=__doc__,
    sizes=_SIZES,
    seeds={"tiny": 1, "quick": 1, "full": 1},
    run=run,
    draw=draw,
    claims=(
        Claim(
            "Summaries save the servers more time than routing costs the dispatcher.",
            {"partitioned, every size": _saves},
            why="Matching takes a fraction of a microsecond for a thousand subscriptions, about as long as a "
            "test of their summary. A copy costs a server some tens of microseconds to receive and commit "
            "it, and it costs the link; summaries save copies, by one to two orders of magnitude.",
        ),
        Claim(
            "Partitioned, the copies of an event grow more slowly than the servers.",
            {"exponent below 1, each number of subscriptions": lambda o: _slower(o, "copies")},
        ),
        Claim(
            "So does the time to route it, for a given number of subscriptions.",
            {"exponent below 1": lambda o: _slower(o, "routing")},
        ),
    ),
)
