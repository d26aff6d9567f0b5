"""Matching and routing compared with other indexes: same rectangles, same events, one thread, in turns.

The workload is that of the published experiments: uniform rectangles in [0, 10]^d whose bounds are the
smaller and the larger of two uniform draws, and uniform events. Every id that another index returns is
compared with ours; for routing, every decision.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from edn.index import new_matcher
from edn.summary import new_router
from edn.tools.bench import peers
from edn.tools.bench.report import Progress, interleaved, rows
from edn.tools.bench.workloads import uniform_points, uniform_rectangles

#: subscriptions and dimensions of matching; servers, subscriptions of each and dimensions of routing
MATCH = ((10_000, 4), (10_000, 8), (100_000, 4), (100_000, 8))
ROUTE = ((10, 10_000, 4), (10, 10_000, 8))
QUICK_MATCH = ((300, 4), (300, 8))
QUICK_ROUTE = ((3, 200, 4), (3, 200, 8))
EVENTS, QUICK_EVENTS = 500, 20
#: minimum seconds of a turn
TURN, QUICK_TURN = 0.05, 0.0


@dataclass(frozen=True, slots=True)
class Result:
    """One kernel compared with one peer."""

    kernel: str
    servers: int
    #: per server
    subscriptions: int
    dimensions: int
    peer: str
    us_per_event: float
    peer_us_per_event: float
    ratio: float
    #: whether every answer of the peer equals ours
    exact: bool


show = rows(
    "Kernels and their peers",
    ("kernel", "{r.kernel}"),
    ("servers", "{r.servers}"),
    ("each holds", "{r.subscriptions:,}"),
    ("d", "{r.dimensions}"),
    ("peer", "{r.peer}"),
    ("µs/event", "{r.us_per_event:.2f}"),
    ("peer's", "{r.peer_us_per_event:,.1f}"),
    ("ratio", "{r.ratio:,.0f}×"),
    ("exact", lambda r: "yes" if r.exact else "NO"),
)


def run(*, quick: bool, seed: int, repeats: int, progress: Progress) -> list[Result]:
    """Measures all cells, matching first."""
    events, turn = (QUICK_EVENTS, QUICK_TURN) if quick else (EVENTS, TURN)
    results: list[Result] = []
    for subscriptions, dimensions in QUICK_MATCH if quick else MATCH:
        progress.say(f"matching {subscriptions:,} subscriptions in {dimensions} dimensions")
        results += match_cell(subscriptions, dimensions, events, seed=seed, repeats=repeats, turn=turn)
    for servers, subscriptions, dimensions in QUICK_ROUTE if quick else ROUTE:
        progress.say(f"routing to {servers} servers of {subscriptions:,} in {dimensions} dimensions")
        results += route_cell(
            servers, subscriptions, dimensions, events, seed=seed, repeats=repeats, turn=turn
        )
    return results


def match_cell(
    subscriptions: int, dimensions: int, events: int, *, seed: int, repeats: int, turn: float
) -> list[Result]:
    """Compares the `bitmap` matcher with each peer; of the two ways to query `rtree` the faster counts."""
    rng = np.random.default_rng(seed)
    lo, hi = uniform_rectangles(rng, subscriptions, dimensions)
    points = uniform_points(rng, events, dimensions)
    matcher = new_matcher("bitmap", dimensions)
    matcher.insert(np.arange(subscriptions), lo, hi)
    others: dict[str, peers.Peer] = {
        "rtree": peers.rtree_one_by_one,
        "rtree at once": peers.rtree_at_once,
        "sqlite": peers.sqlite,
        "numpy": peers.brute_force,
    }
    if not peers.sqlite_can(dimensions):
        del others["sqlite"]
    asks = {name: peer(lo, hi, points) for name, peer in others.items()}
    ours = matcher.match(points)
    exact = {name: peers.same(ours, ask()) for name, ask in asks.items()}
    seconds = interleaved({"ours": lambda: matcher.match(points), **asks}, repeats=repeats, at_least=turn)
    seconds["rtree"] = min(seconds["rtree"], seconds.pop("rtree at once"))
    exact["rtree"] = exact.pop("rtree at once") and exact["rtree"]
    return _compare("match", 1, subscriptions, dimensions, events, seconds, exact)


def route_cell(
    servers: int, subscriptions: int, dimensions: int, events: int, *, seed: int, repeats: int, turn: float
) -> list[Result]:
    """Compares routing with precise summaries with one `rtree` per server."""
    rng = np.random.default_rng(seed)
    held = [uniform_rectangles(rng, subscriptions, dimensions) for _ in range(servers)]
    points = uniform_points(rng, events, dimensions)
    router = new_router("bitmap")
    bundle = router.bundle([(server, router.cover(lo, hi)) for server, (lo, hi) in enumerate(held)])

    def route() -> npt.NDArray[np.bool_]:
        decisions = np.zeros((events, servers), np.bool_)
        bundle.mark(points, decisions)
        return decisions

    count = peers.tree_counts([peers.new_tree(lo, hi) for lo, hi in held], points)
    exact = np.array_equal(route(), count())
    seconds = interleaved({"ours": route, "rtree": count}, repeats=repeats, at_least=turn)
    return _compare("route", servers, subscriptions, dimensions, events, seconds, {"rtree": exact})


def _compare(
    kernel: str,
    servers: int,
    subscriptions: int,
    dimensions: int,
    events: int,
    seconds: Mapping[str, float],
    exact: Mapping[str, bool],
) -> list[Result]:
    """Returns one result per peer; `seconds` has ours as well."""
    us = {name: 1e6 * second / events for name, second in seconds.items()}
    cell = (kernel, servers, subscriptions, dimensions)
    return [Result(*cell, name, us["ours"], us[name], us[name] / us["ours"], exact[name]) for name in exact]
