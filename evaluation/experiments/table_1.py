"""Table I: what each way of partitioning costs, measured."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from math import log

import numpy as np

from edn.tools.bench.workloads import uniform_points, uniform_rectangles
from evaluation.claims import Claim, Reading, share
from evaluation.drawing import Canvas
from evaluation.experiment import Experiment, Progress
from evaluation.outcome import Outcome, Series
from evaluation.placing import Offline, Online, Setup, place
from partitioning.methods import PartitionOptions, partition
from partitioning.online import Settings, new_placement
from partitioning.rows import LocalRows

DIMENSIONS = 4
#: a claim "O(…)" is an upper bound: an exponent may be lower, and be measured this much higher
SLACK = 0.15
TRAFFIC: dict[str, Offline | Online] = {
    "R-tree offline": Offline("rtree"),
    "R-tree online": Online(),
    "K-mean offline": Offline("kmeans"),
    "K-mean online": Online(policy="kmeans"),
    "random": Offline("random"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    #: servers, and rectangles that are remembered of each
    servers: tuple[int, ...]
    bounds: tuple[int, ...]
    #: subscriptions of the offline methods
    subscriptions: tuple[int, ...]
    #: placements that are timed
    timed: int
    per_server: int


def run(sizes: Sizes, seed: int, progress: Progress) -> Outcome:
    series: dict[str, Series] = {}
    progress(0, 3, "online, by servers")
    for policy in ("random", "kmeans", "rtree"):
        axis = list(map(float, sizes.servers))
        series[f"{policy} online, by servers"] = Series(
            axis, [_online(policy, n, 64, sizes.timed, seed) for n in sizes.servers]
        )
    axis = list(map(float, sizes.bounds))
    series["rtree online, by N_b"] = Series(
        axis, [_online("rtree", 10, n, sizes.timed, seed) for n in sizes.bounds]
    )
    progress(1, 3, "offline, by subscriptions")
    for method in ("rtree", "kmeans"):
        axis = list(map(float, sizes.subscriptions))
        series[f"{method} offline, by subscriptions"] = Series(
            axis, [_offline(method, n, seed) for n in sizes.subscriptions]
        )
    progress(2, 3, "traffic")
    setup = Setup(per_server=sizes.per_server)
    return Outcome(
        {f"hit ratio, {name}": place(setup, seed, way).hit_ratio for name, way in TRAFFIC.items()}, series
    )


def _online(policy: str, servers: int, bound: int, timed: int, seed: int) -> float:
    """Microseconds a placement, where every server has `bound` rectangles."""
    rng = np.random.default_rng(seed)
    placement = new_placement(policy, settings=Settings(bound=bound), rng=random.Random(seed))
    names = [str(number) for number in range(servers)]
    loads = dict.fromkeys(names, bound)
    for name in names:
        # Small ones: what lies inside a rectangle is settled without looking further.
        low = uniform_points(rng, bound, DIMENSIONS)
        placement.summarise(name, low, low + 0.5)
    lo, hi = uniform_rectangles(rng, timed, DIMENSIONS)
    placement.place(loads, lo[0], hi[0])
    began = time.thread_time()
    # A suggestion is the choice alone; chance suggests nothing, it only places.
    choose = placement.place if policy == "random" else placement.suggest
    for low, high in zip(lo, hi, strict=True):
        choose(loads, low, high)
    return 1e6 * (time.thread_time() - began) / timed


def _offline(method: str, subscriptions: int, seed: int) -> float:
    """Microseconds a subscription, ten servers."""
    rng = np.random.default_rng(seed)
    lo, hi = uniform_rectangles(rng, subscriptions, DIMENSIONS)
    events = uniform_points(rng, 256, DIMENSIONS)
    rows = LocalRows(lo, hi)
    few = LocalRows(lo[:100], hi[:100])  # the first call loads what the others find loaded
    partition(few, PartitionOptions(method=method, servers=10, seed=seed), events).parts(few.whole)
    began = time.process_time()
    partition(rows, PartitionOptions(method=method, servers=10, seed=seed), events).parts(rows.whole)
    return 1e6 * (time.process_time() - began) / subscriptions


def exponent(curve: Series) -> float:
    """The power of x with which y grows, by the ends."""
    return log(curve.y[-1] / curve.y[0]) / log(curve.x[-1] / curve.x[0])


def draw(canvas: Canvas, outcomes: Sequence[Outcome]) -> None:
    left, middle, right = canvas.panels(3)
    left.labels("Table I: choosing a server, online", "servers N_s", "µs a subscription")
    for policy in ("random", "kmeans", "rtree"):
        name = f"{policy} online, by servers"
        left.curve(name, f"{policy} (exponent {_mean(outcomes, name):.2f})")
    middle.labels("Online R-tree by N_b", "rectangles a server N_b", "µs a subscription")
    middle.curve(
        "rtree online, by N_b", f"ten servers (exponent {_mean(outcomes, 'rtree online, by N_b'):.2f})"
    )
    right.labels("Offline", "subscriptions S", "µs a subscription")
    for method in ("rtree", "kmeans"):
        name = f"{method} offline, by subscriptions"
        right.curve(name, f"{method} (exponent {_mean(outcomes, name):.2f})")
    for panel, published in ((left, 1.0), (middle, 1.0), (right, 0.0)):
        panel.axes.set_xscale("log")
        panel.axes.set_yscale("log")
        line = panel.axes.lines[-1].get_xydata()
        axis = [line[0][0], line[-1][0]]
        panel.axes.plot(
            axis, [line[0][1], line[0][1] * (axis[1] / axis[0]) ** published], "k--", lw=1.1,
            label=f"published: at most x^{published:g}" if published else "published: O(log S)",
        )  # fmt: skip


def _mean(outcomes: Sequence[Outcome], name: str) -> float:
    return sum(exponent(one.series[name]) for one in outcomes) / len(outcomes)


def _at_most(text: str, name: str, most: float, why: str = "") -> Claim:
    reading = Reading(
        f"exponent at most {most:g} + {SLACK:g}",
        lambda o: share(exponent(o.series[name]) <= most + SLACK),
    )
    return Claim(text=text, readings=(reading,), why=why)


def _ordered(outcome: Outcome) -> list[float]:
    at = {name: outcome[f"hit ratio, {name}"] for name in TRAFFIC}
    return share(
        at["R-tree offline"] < at["R-tree online"],
        at["R-tree online"] < at["K-mean online"],
        at["R-tree online"] < at["K-mean offline"],
        at["K-mean online"] < at["random"],
        at["K-mean offline"] < at["random"],
    )


EXPERIMENT = Experiment(
    name="table-1",
    line="Table I",
    title="What partitioning costs",
    question="How do time and traffic of each way grow with servers, rectangles and subscriptions?",
    setting=(
        "4 dimensions. CPU time of the product's own policies (the choice alone) and of its offline "
        "methods in one process. A bound O(x) is taken as: the measured exponent of x, from the smallest "
        "to the largest size, is at most 1.15. Offline, the published cost is amortised over the "
        "subscriptions."
    ),
    sizes={
        "tiny": Sizes(servers=(2, 8), bounds=(8, 64), subscriptions=(200, 1000), timed=50, per_server=60),
        "quick": Sizes(
            servers=(4, 16, 64, 256),
            bounds=(16, 64, 256, 1024, 4096),
            subscriptions=(10_000, 30_000, 100_000),
            timed=300,
            per_server=1000,
        ),
        "full": Sizes(
            servers=(4, 16, 64, 256),
            bounds=(16, 64, 256, 1024, 4096, 16384),
            subscriptions=(10_000, 30_000, 100_000, 300_000),
            timed=1000,
            per_server=3000,
        ),
    },
    run=run,
    draw=draw,
    claims=(
        Claim(
            text="Traffic: offline R-tree lowest, online R-tree low, K-mean medium, random high.",
            readings=(Reading("10 servers", _ordered),),
        ),
        _at_most("Online R-tree needs O(N_s · N_b) a subscription: by N_b.", "rtree online, by N_b", 1.0),
        _at_most("And by N_s.", "rtree online, by servers", 1.0),
        _at_most("Online K-mean needs O(N_s).", "kmeans online, by servers", 1.0),
        _at_most(
            "Random needs O(1), however many servers there are.",
            "random online, by servers",
            0.0,
            "Ours looks at the load of every server first, so as to leave out those above the "
            "threshold; the published cost leaves that out of the count.",
        ),
        _at_most("Offline R-tree needs O(log S) a subscription.", "rtree offline, by subscriptions", 0.0),
        _at_most(
            "Offline K-mean needs O(I · N_s) a subscription, whatever S is.",
            "kmeans offline, by subscriptions",
            0.0,
        ),
    ),
)
