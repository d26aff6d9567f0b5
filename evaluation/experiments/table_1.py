"""Table I: The cost of partitioning.

How do time and traffic of each way grow with servers, rectangles and subscriptions? 4 dimensions. CPU time of
the product's own policies (the choice alone) and of its offline methods in one process. A bound O(x) means:
the measured exponent of x, from the smallest to the largest size, is at most 1.15. Offline, the published
cost is amortised over the subscriptions.
"""

from __future__ import annotations

import random
import time
from itertools import pairwise
from math import log
from statistics import fmean
from typing import Any

import numpy as np

from edn.tools.bench.workloads import uniform_points, uniform_rectangles
from evaluation.experiment import Claim, Experiment, Outcome, Progress, Scale, Series
from evaluation.figures import Canvas
from evaluation.simulated_placement import METHODS, Setup, place
from partitioning.methods import PartitionOptions, partition
from partitioning.online import Settings, new_placement
from partitioning.rows import LocalRows

DIMENSIONS = 4
#: tolerance of an upper bound O(…): the measured exponent may be this much higher
SLACK = 0.15
TRAFFIC = ("R-tree offline", "R-tree online", "K-mean offline", "K-mean online", "random")


def run(
    seed: int,
    progress: Progress,
    *,
    servers: tuple[int, ...],
    bounds: tuple[int, ...],
    subscriptions: tuple[int, ...],
    timed: int,
    per_server: int,
) -> Outcome:
    """`bounds`: rectangles in a server's summary. `subscriptions`: of the offline methods. `timed`: number of
    placements that are timed."""
    outcome = Outcome()
    progress(0, 3, "online, by servers")
    for policy in ("random", "kmeans", "rtree"):
        costs = [_online(policy, n, 64, timed, seed) for n in servers]
        outcome.series[f"{policy} online, by servers"] = Series(servers, costs)
    costs = [_online("rtree", 10, n, timed, seed) for n in bounds]
    outcome.series["rtree online, by N_b"] = Series(bounds, costs)
    progress(1, 3, "offline, by subscriptions")
    for method in ("rtree", "kmeans"):
        costs = [_offline(method, n, seed) for n in subscriptions]
        outcome.series[f"{method} offline, by subscriptions"] = Series(subscriptions, costs)
    progress(2, 3, "traffic")
    for name in TRAFFIC:
        ratio = place(Setup(per_server=per_server), seed, METHODS[name]).hit_ratio
        outcome.values[f"hit ratio, {name}"] = ratio
    return outcome


def _online(policy: str, servers: int, bound: int, timed: int, seed: int) -> float:
    """Returns the microseconds per placement, where every server has `bound` rectangles."""
    rng = np.random.default_rng(seed)
    placement = new_placement(policy, settings=Settings(bound=bound), rng=random.Random(seed))
    names = [str(number) for number in range(servers)]
    loads = dict.fromkeys(names, bound)
    for name in names:
        # Small ones: inside a rectangle a subscription is decided without further search.
        low = uniform_points(rng, bound, DIMENSIONS)
        placement.summarise(name, low, low + 0.5)
    lo, hi = uniform_rectangles(rng, timed, DIMENSIONS)
    placement.place(loads, lo[0], hi[0])
    began = time.thread_time()
    # `suggest` is the choice alone; the random policy has none.
    choose = placement.place if policy == "random" else placement.suggest
    for low, high in zip(lo, hi, strict=True):
        choose(loads, low, high)
    return 1e6 * (time.thread_time() - began) / timed


def _offline(method: str, subscriptions: int, seed: int) -> float:
    """Returns the microseconds per subscription with ten servers."""
    rng = np.random.default_rng(seed)
    lo, hi = uniform_rectangles(rng, subscriptions, DIMENSIONS)
    events = uniform_points(rng, 256, DIMENSIONS)
    wish = PartitionOptions(method=method, servers=10, seed=seed)
    for count in (100, subscriptions):  # the first call loads libraries
        rows = LocalRows(lo[:count], hi[:count])
        began = time.process_time()
        partition(rows, wish, events).parts(rows.whole)
    return 1e6 * (time.process_time() - began) / subscriptions


def exponent(curve: Series) -> float:
    """Returns the power of x with which y grows, from the ends."""
    return log(curve.y[-1] / curve.y[0]) / log(curve.x[-1] / curve.x[0])


def draw(canvas: Canvas) -> None:
    left, middle, right = canvas.panels(3)
    left.labels("Table I: choosing a server, online", "servers N_s", "µs per subscription")
    middle.labels("Online R-tree by N_b", "rectangles per server N_b", "µs per subscription")
    right.labels("Offline", "subscriptions S", "µs per subscription")
    for panel, label, name in (
        *((left, policy, f"{policy} online, by servers") for policy in ("random", "kmeans", "rtree")),
        (middle, "ten servers", "rtree online, by N_b"),
        *((right, method, f"{method} offline, by subscriptions") for method in ("rtree", "kmeans")),
    ):
        power = fmean(exponent(one.series[name]) for one in canvas.outcomes)
        panel.curve(name, f"{label} (exponent {power:.2f})")
    for panel, published in ((left, 1.0), (middle, 1.0), (right, 0.0)):
        panel.log_log()
        line = panel.axes.lines[-1].get_xydata()
        axis = [line[0][0], line[-1][0]]
        label = f"published: at most x^{published:g}" if published else "published: O(log S)"
        panel.line(label, axis, [line[0][1], line[0][1] * (axis[1] / axis[0]) ** published])


def _at_most(text: str, name: str, most: float, why: str = "") -> Claim:
    reading = f"exponent at most {most:g} + {SLACK:g}"
    return Claim(text, {reading: lambda o: exponent(o.series[name]) <= most + SLACK}, why=why)


def _ordered(outcome: Outcome) -> list[bool]:
    chains = [
        ("R-tree offline", "R-tree online", "K-mean online", "random"),
        ("R-tree online", "K-mean offline", "random"),
    ]
    pairs = [pair for chain in chains for pair in pairwise(chain)]
    return [outcome[f"hit ratio, {less}"] < outcome[f"hit ratio, {more}"] for less, more in pairs]


_SIZES: dict[Scale, dict[str, Any]] = {
    "tiny": {
        "servers": (2, 8),
        "bounds": (8, 64),
        "subscriptions": (200, 1000),
        "timed": 50,
        "per_server": 60,
    },
    "quick": {
        "servers": (4, 16, 64, 256),
        "bounds": (16, 64, 256, 1024, 4096),
        "subscriptions": (10_000, 30_000, 100_000),
        "timed": 300,
        "per_server": 1000,
    },
    "full": {
        "servers": (4, 16, 64, 256),
        "bounds": (16, 64, 256, 1024, 4096, 16384),
        "subscriptions": (10_000, 30_000, 100_000, 300_000),
        "timed": 1000,
        "per_server": 3000,
    },
}

EXPERIMENT = Experiment(
    name="table-1",
    text=__doc__,
    sizes=_SIZES,
    run=run,
    draw=draw,
    claims=(
        Claim(
            "Traffic: offline R-tree lowest, online R-tree low, K-mean medium, random high.",
            {"10 servers": _ordered},
        ),
        _at_most("Online R-tree needs O(N_s · N_b) per subscription: by N_b.", "rtree online, by N_b", 1.0),
        _at_most("And by N_s.", "rtree online, by servers", 1.0),
        _at_most("Online K-mean needs O(N_s).", "kmeans online, by servers", 1.0),
        _at_most(
            "Random needs O(1), for any number of servers.",
            "random online, by servers",
            0.0,
            "Ours reads the load of every server first, to leave out those above the threshold; the "
            "published cost does not count that.",
        ),
        _at_most("Offline R-tree needs O(log S) per subscription.", "rtree offline, by subscriptions", 0.0),
        _at_most(
            "Offline K-mean needs O(I · N_s) per subscription, whatever S is.",
            "kmeans offline, by subscriptions",
            0.0,
        ),
    ),
)
