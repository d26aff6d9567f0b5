"""Ours: what an event costs as the network grows to a thousand servers and ten million subscriptions."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edn.arrays import Floats, Ints
from edn.index import new_matcher
from edn.summary import new_router
from edn.tools.bench.workloads import uniform_points, uniform_rectangles
from evaluation.claims import Claim, Reading, share
from evaluation.drawing import Canvas
from evaluation.experiment import Experiment, Progress
from evaluation.experiments.table_1 import exponent
from evaluation.outcome import Outcome, Series
from evaluation.placing import maximal
from partitioning.rows import LocalRows
from partitioning.split import Tree, Volume, split
from selftune.curve import Effort, measure

DIMENSIONS = 8
PLACEMENTS = ("random", "partitioned")
#: subscriptions that are drawn at once
CHUNK = 250_000
WHAT = ("routing", "copies", "matching", "matching without summaries")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    subscriptions: tuple[int, ...]
    servers: tuple[int, ...]
    #: subscriptions a server at most, and at least
    most: int
    least: int
    #: servers that are looked at
    sampled: int
    #: subscriptions that the split is made from
    learnt: int
    events: int


def run(sizes: Sizes, seed: int, progress: Progress) -> Outcome:
    series: dict[str, Series] = {}
    cells = [
        (subscriptions, [n for n in sizes.servers if sizes.least <= subscriptions // n <= sizes.most])
        for subscriptions in sizes.subscriptions
    ]
    total = 2 * sum(len(servers) for _, servers in cells)
    done = 0
    for subscriptions, servers in cells:
        for placement in PLACEMENTS:
            rows: list[dict[str, float]] = []
            for n in servers:
                progress(done, total, f"{subscriptions:,} subscriptions, {n} servers, {placement}")
                done += 1
                rows.append(_cell(sizes, subscriptions, n, placement, seed))
            for what in WHAT:
                series[f"{what}: {subscriptions:,}, {placement}"] = Series(
                    list(map(float, servers)), [row[what] for row in rows]
                )
    return Outcome({}, series)


def _cell(sizes: Sizes, subscriptions: int, servers: int, placement: str, seed: int) -> dict[str, float]:
    """Costs an event: microseconds of the dispatcher and of all servers together, and copies."""
    rng = np.random.default_rng(seed)
    points = uniform_points(rng, sizes.events, DIMENSIONS)
    chosen = np.sort(rng.choice(servers, min(servers, sizes.sampled), replace=False))
    if placement == "random":
        share_of_one = subscriptions // servers
        parts = [uniform_rectangles(rng, share_of_one, DIMENSIONS) for _ in chosen]
    else:
        parts = _partitioned(sizes, subscriptions, servers, chosen, rng)
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
    sizes: Sizes, subscriptions: int, servers: int, chosen: Ints, rng: np.random.Generator
) -> list[tuple[Floats, Floats]]:
    """What the chosen servers get: the split of a sample decides, all subscriptions are drawn and go by
    it."""
    lo, hi = uniform_rectangles(rng, min(subscriptions, sizes.learnt), DIMENSIONS)
    rows = LocalRows(lo, hi)
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
    """Microseconds of a server to match one event."""
    matcher = new_matcher("bitmap", DIMENSIONS)
    matcher.insert(np.arange(len(part[0])), *part)
    matcher.match(points)
    began = time.thread_time()
    matcher.match(points)
    return 1e6 * (time.thread_time() - began) / len(points)


def _labels(outcome: Outcome) -> list[str]:
    return [name.removeprefix("routing: ") for name in outcome.series if name.startswith("routing: ")]


def draw(canvas: Canvas, outcomes: Sequence[Outcome]) -> None:
    left, middle, right = canvas.panels(3)
    left.labels("Routing an event", "servers", "µs of the dispatcher an event")
    middle.labels("Copies of an event", "servers", "copies an event")
    right.labels("Matching, all servers together", "servers", "µs an event")
    labels = _labels(outcomes[0])
    for panel, what in ((left, "routing"), (middle, "copies"), (right, "matching")):
        for colour, label in enumerate(labels):
            style = "-" if label.endswith("partitioned") else ":"
            panel.curve(f"{what}: {label}", label, style=style, colour=colour)
        panel.axes.set_xscale("log")
        panel.axes.set_yscale("log")
    for label in labels:
        if label.endswith("partitioned"):
            right.curve(
                f"matching without summaries: {label}", f"{label}, no summaries", style="--", colour=6
            )
    widest = max(outcomes[0].series[f"copies: {label}"].x[-1] for label in labels)
    narrowest = min(outcomes[0].series[f"copies: {label}"].x[0] for label in labels)
    middle.axes.plot(
        [narrowest, widest], [narrowest, widest], "k--", lw=1.1, label="no summaries: every server"
    )


def _saves(outcome: Outcome) -> list[float]:
    return share(
        *(
            routing < without - matching
            for label in _labels(outcome)
            if label.endswith("partitioned")
            for routing, matching, without in zip(
                outcome.series[f"routing: {label}"].y,
                outcome.series[f"matching: {label}"].y,
                outcome.series[f"matching without summaries: {label}"].y,
                strict=True,
            )
        )
    )


def _slower(outcome: Outcome, what: str) -> list[float]:
    shown = [
        outcome.series[f"{what}: {label}"] for label in _labels(outcome) if label.endswith("partitioned")
    ]
    return share(*(exponent(curve) < 1.0 for curve in shown if len(curve.x) > 1))


EXPERIMENT = Experiment(
    name="scale",
    line="ours",
    title="A thousand servers, ten million subscriptions",
    question="What does an event cost as servers and subscriptions grow?",
    setting=(
        "8 dimensions, even subscriptions and events, precise summaries. A simulation with measured "
        "kernels: the subscriptions are drawn and split (halving, from a sample of them) for all servers; "
        "router and matcher of a few of those are built and timed, and their mean stands for all. Covers "
        "of a thousand servers would not share a cache as those of a few do, so read routing at many "
        "servers as a lower bound."
    ),
    sizes={
        "tiny": Sizes(
            subscriptions=(2000,), servers=(2, 10), most=1000, least=100, sampled=2, learnt=1000, events=100
        ),
        "quick": Sizes(
            subscriptions=(100_000, 1_000_000),
            servers=(10, 100, 1000),
            most=20_000,
            least=100,
            sampled=2,
            learnt=50_000,
            events=500,
        ),
        "full": Sizes(
            subscriptions=(100_000, 1_000_000, 10_000_000),
            servers=(10, 100, 1000),
            most=100_000,
            least=100,
            sampled=2,
            learnt=100_000,
            events=1000,
        ),
    },
    seeds={"tiny": 1, "quick": 1, "full": 1},
    run=run,
    draw=draw,
    claims=(
        Claim(
            text="Summaries save the servers more time than routing costs the dispatcher.",
            readings=(Reading("partitioned, every size", _saves),),
            why=(
                "Matching is a fraction of a microsecond for a thousand subscriptions, about what asking "
                "their summary takes. What a copy costs a server is taking it in and committing it, some "
                "tens of microseconds, and the link; it is copies that summaries save, by one to two "
                "orders of magnitude."
            ),
        ),
        Claim(
            text="Partitioned, the copies of an event grow more slowly than the servers.",
            readings=(
                Reading("exponent below 1, each number of subscriptions", lambda o: _slower(o, "copies")),
            ),
        ),
        Claim(
            text="So does the time to route it, for a given number of subscriptions.",
            readings=(Reading("exponent below 1", lambda o: _slower(o, "routing")),),
        ),
    ),
)
