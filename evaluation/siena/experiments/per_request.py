"""Figures 22 to 24: Cost per subscription and per notification.

Which requests does each architecture favour? One object, 1 to 10,000 parties; cost of all subscription
messages per subscription, and of all notification messages per publication. Then the degenerate scenarios:
no party, and one party that takes one notification. The text says of Figure 23 that it has a single object,
and that 100,000 notifications are published: one object with 10 cycles of 10,000, or 1,000 objects with 100
each (R5).
"""

from __future__ import annotations

from itertools import pairwise
from statistics import fmean
from typing import Any

from evaluation.experiment import Claim, Experiment, Outcome, Progress, Series
from evaluation.figures import Canvas
from evaluation.siena.grid import exponent, network_of, sample
from evaluation.siena.scenario import Architecture

BOTH: tuple[Architecture, ...] = ("hs", "as")
BEHAVIOURS: dict[str, dict[str, Any]] = {
    "5 cycles of objects": {"object_cycles": 5},
    "20 cycles of objects": {"object_cycles": 20},
    "5 publications": {"publications": 5},
    "20 publications": {"publications": 20},
    "half the delay": {"publication_delay": (1000.0, 1250.0), "start_delay": (1000.0, 1250.0)},
    "twice the delay": {"publication_delay": (4000.0, 5000.0), "start_delay": (4000.0, 5000.0)},
}
DEGENERATE: dict[str, dict[str, Any]] = {
    "no party": {"parties": 0},
    "one party": {"parties": 1, "party_cycles": 1, "notifications": 1},
}
R5 = {"1,000 objects (R5)": 1000, "1 object, 10 × 10,000 (R5)": 1}


def run(
    seed: int,
    progress: Progress,
    *,
    parties: tuple[int, ...],
    published: tuple[int, ...],
    sites: tuple[int, ...],
    long_cycle: int,
    runs: int,
) -> Outcome:
    outcome = Outcome()
    progress(0, 5, "per subscription")
    for one in BOTH:
        found = [sample(seed, runs, one, objects=1, parties=count) for count in parties]
        costs = [fmean(run.per_subscription for run in some) for some in found]
        outcome.series[f"per subscription, {one}"] = Series(parties, costs)
    progress(1, 5, "behaviour")
    for one in BOTH:
        base = fmean(run.per_subscription for run in sample(seed, runs, one, objects=1, parties=10))
        for name, changes in BEHAVIOURS.items():
            some = sample(seed, runs, one, objects=1, parties=10, **changes)
            outcome.values[f"{name}, {one}"] = fmean(run.per_subscription for run in some) / base
    progress(2, 5, "first subscription")
    for tree in ("cheapest tree", "cheapest paths"):
        depth = []
        for count in sites:
            trees = [network_of(count, seed, run) for run in range(runs)]
            depths = [
                (one.spanning_tree if tree == "cheapest tree" else one.path_tree).depths() for one in trees
            ]
            depth.append(fmean(fmean(some) for some in depths))
        outcome.series[f"hops of a first subscription in hs, {tree}"] = Series(sites, depth)
    hops = []
    for count in sites:
        some = sample(seed, 1, "as", sites=count, objects=1, parties=1, party_cycles=1, notifications=10**6)
        hops.append(float(some[0].messages[0]))
    outcome.series["hops of a first subscription in as"] = Series(sites, hops)
    progress(3, 5, "per notification")
    for name, objects in R5.items():
        for one in BOTH:
            pubs = 10 if objects > 1 else long_cycle
            found = [
                sample(seed, runs, one, objects=objects, parties=count, publications=pubs)
                for count in parties
            ]
            costs = [fmean(run.per_notification for run in some) for some in found]
            outcome.series[f"per notification, {one}, {name}"] = Series(parties, costs)
    progress(4, 5, "degenerate scenarios")
    for one in BOTH:
        for name, changes in DEGENERATE.items():
            found = [
                sample(seed, runs, one, objects=1, publications=max(1, count // 10), **changes)
                for count in published
            ]
            costs = [fmean(run.per_notification for run in some) for some in found]
            outcome.series[f"{name}, {one}"] = Series(published, costs)
    return outcome


def draw(canvas: Canvas) -> None:
    first, second, third, fourth = canvas.panels(2, 2, height=3.8)
    first.labels("Figure 22: one object", "interested parties", "cost per subscription")
    first.curves({f"per subscription, {one}": one for one in BOTH})
    first.log_log()
    second.labels("Figure 23: per notification", "interested parties", "cost per notification")
    for name in R5:
        for one in BOTH:
            second.curve(f"per notification, {one}, {name}", f"{one}, {name}")
    second.axes.set_xscale("log")
    third.labels("Figure 24: no party, or one notification taken", "notifications published", "cost each")
    for name in ("no party", "one party"):
        for one in BOTH:
            third.curve(f"{name}, {one}", f"{one}, {name}")
    third.axes.set_xscale("log")
    fourth.labels("A first subscription", "sites", "hops")
    fourth.curves([name for name in canvas.first.series if name.startswith("hops")])
    fourth.log_log()


def _differences(outcome: Outcome, name: str) -> list[float]:
    pairs = zip(
        outcome.y(f"per notification, hs, {name}"), outcome.y(f"per notification, as, {name}"), strict=True
    )
    return [one - other for one, other in pairs]


def _shrinks(outcome: Outcome) -> list[bool]:
    pairs = zip(outcome.y("per subscription, as"), outcome.y("per subscription, hs"), strict=True)
    return [later < earlier for earlier, later in pairwise(one - other for one, other in pairs)]


EXPERIMENT = Experiment(
    name="siena-per-request",
    text=__doc__,
    sizes={
        "tiny": {
            "parties": (1, 10, 100),
            "published": (10, 100),
            "sites": (25, 50),
            "long_cycle": 50,
            "runs": 2,
        },
        "quick": {
            "parties": (1, 10, 100, 1000),
            "published": (10, 100, 1000),
            "sites": (25, 50, 100, 200, 400),
            "long_cycle": 1000,
            "runs": 3,
        },
        "full": {
            "parties": (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000),
            "published": (10, 100, 1000, 10_000, 100_000),
            "sites": (25, 50, 100, 200, 400),
            "long_cycle": 10_000,
            "runs": 10,
        },
    },
    seeds={"tiny": 1, "quick": 2, "full": 3},
    run=run,
    draw=draw,
    claims=(
        Claim(
            "C12. One object: a subscription costs more in as than in hs at low densities.",
            {
                "up to 10 parties": lambda o: [
                    o.at("per subscription, as", x) > o.at("per subscription, hs", x)
                    for x in o.series["per subscription, as"].x
                    if x <= 10
                ]
            },
            strict=True,
        ),
        Claim(
            "C12. Both benefit from more parties: each falls.",
            {
                "from each number to the next": lambda o: [
                    later < earlier
                    for one in BOTH
                    for earlier, later in pairwise(o.y(f"per subscription, {one}"))
                ]
            },
            strict=True,
        ),
        Claim("C12. And their difference shrinks.", {"from each number to the next": _shrinks}, strict=True),
        Claim(
            "C13. A first subscription takes O(N) hops in as: exponent 1.",
            {
                "25 to 400 sites": lambda o: exponent(
                    o.series["hops of a first subscription in as"].x,
                    o.y("hops of a first subscription in as"),
                )
            },
            paper=1.0,
            strict=True,
        ),
        Claim(
            "C13. And O(log N) in hs: exponent below 0.3.",
            {
                tree: lambda o, tree=tree: [  # type: ignore[misc]
                    exponent(
                        o.series[f"hops of a first subscription in hs, {tree}"].x,
                        o.y(f"hops of a first subscription in hs, {tree}"),
                    )
                    < 0.3
                ]
                for tree in ("cheapest tree", "cheapest paths")
            },
            strict=True,
            why="The depth of the cheapest tree of a Transit-Stub graph grows faster than a logarithm, "
            "because the tree winds through the transit sites; that of the cheapest paths grows more "
            "slowly.",
        ),
        Claim(
            "C14. The cost of a subscription does not depend on the objects' behaviour (ratio 1).",
            {
                "cycles, publications and delays halved and doubled": lambda o: [
                    value for name, value in o.values.items() if name.endswith((", hs", ", as"))
                ]
            },
            paper=(1.0, 1.0),
            partly=lambda ours: 0.5 < ours < 2,
            strict=True,
            why="A party counts its notifications, so more publications mean more cycles, and a "
            "subscription of a later cycle costs other than the first: parties of one site and one "
            "cycle share it.",
        ),
        Claim(
            "C15. Per notification, hs - as is constant in the parties: largest ÷ smallest.",
            {
                name: lambda o, name=name: max(_differences(o, name)) / max(1e-9, min(_differences(o, name)))  # type: ignore[misc]
                for name in R5
            },
            paper=1.0,
            strict=True,
        ),
        Claim(
            "C16. Without parties hs has a constant cost above 0 per notification: largest ÷ smallest.",
            {"by the notifications published": lambda o: max(o.y("no party, hs")) / min(o.y("no party, hs"))},
            paper=1.0,
            strict=True,
        ),
        Claim(
            "C16. And as has none.",
            {"by the notifications published": lambda o: max(o.y("no party, as"))},
            paper=0.0,
            strict=True,
        ),
        Claim(
            "C17. One party takes one notification: the cost in hs is constant: largest ÷ smallest.",
            {
                "from 100 notifications on": lambda o: (
                    max(o.y("one party, hs")[1:]) / min(o.y("one party, hs")[1:])
                ),
                "from 10 on": lambda o: max(o.y("one party, hs")) / min(o.y("one party, hs")),
            },
            paper=1.0,
            strict=True,
        ),
        Claim(
            "C17. And in as inverse to the notifications published: slope -1.",
            {"log-log, all points": lambda o: exponent(o.series["one party, as"].x, o.y("one party, as"))},
            paper=-1.0,
            show="{:+.2f}",
            strict=True,
        ),
    ),
)
