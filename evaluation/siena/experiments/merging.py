"""003, 4.4.1 and 4.4.2: Merging subscriptions in batches.

What do batches that merge subscriptions save, and what does merging too much cost? Parties of 100 sites
subscribe to `alarm = v`, `alarm > v` or `alarm < v` for values 0 to 999. A server forwards each
subscription at once, pruned by covering; or it sends a batch to each neighbour, with intervals merged whose
union is one (`= 1`, `= 2` and `> 2` are `> 0`); or it merges everything into the smallest interval around
it. Then alarms are published.
"""

from __future__ import annotations

import numpy as np

from evaluation.experiment import Claim, Experiment, Outcome, Progress
from evaluation.figures import Canvas
from evaluation.siena.network import transit_stub
from evaluation.siena.rectangles import RectangleTree, bounding, merged_intervals

WAYS = {"at once": None, "merged": merged_intervals, "overmerged": bounding}
VALUES = 1000


def run(seed: int, progress: Progress, *, sites: int, subscriptions: int, events: int) -> Outcome:
    outcome = Outcome()
    tree = transit_stub(sites, [seed, 0]).spanning_tree
    for done, (name, cut) in enumerate(WAYS.items()):
        progress(done, len(WAYS), name)
        rng = np.random.default_rng([seed, 6])
        network = RectangleTree(tree, 1, cut)
        for id in range(subscriptions):
            value = float(rng.integers(VALUES))
            # Most are for one value: an open interval covers half of everything.
            kind = int(rng.integers(40))
            low = 0.0 if kind == 0 else value
            high = float(VALUES - 1) if kind == 1 else value
            site = int(rng.integers(sites))
            if cut is None:
                network.subscribe(id, site, np.array([low]), np.array([high]))
            else:
                network.own[site].add(id, np.array([low]), np.array([high]))
        network.report()
        points = rng.integers(0, VALUES, (events, 1)).astype(np.float64)
        crossed, useless, missed = network.crossings(points, rng.integers(0, sites, events).tolist())
        outcome.values.update(
            {
                f"messages, {name}": float(network.sent.subscribe + network.sent.report),
                f"state of a link, {name}": network.state,
                f"spurious share, {name}": useless / max(1, crossed),
                f"missed, {name}": float(missed),
            }
        )
    return outcome


def draw(canvas: Canvas) -> None:
    left, middle, right = canvas.panels(3)
    for panel, metric in ((left, "messages"), (middle, "state of a link"), (right, "spurious share")):
        panel.labels(metric, "", "")
        panel.bars(list(WAYS), [f"{metric}, {name}" for name in WAYS])


EXPERIMENT = Experiment(
    name="siena-merging",
    text=__doc__,
    sizes={
        "tiny": {"sites": 25, "subscriptions": 50, "events": 50},
        "quick": {"sites": 50, "subscriptions": 200, "events": 200},
        "full": {"sites": 100, "subscriptions": 500, "events": 1000},
    },
    seeds={"tiny": 1, "quick": 2, "full": 3},
    run=run,
    draw=draw,
    claims=(
        Claim(
            "C24. Merging in batches lowers the number of messages.",
            {"against forwarding at once": lambda o: o["messages, merged"] < o["messages, at once"]},
            strict=True,
        ),
        Claim(
            "C24. Merging too much saves state and causes spurious notifications; exact merging causes none.",
            {
                "overmerged against merged": lambda o: [
                    o["state of a link, overmerged"] < o["state of a link, merged"],
                    o["spurious share, overmerged"] > o["spurious share, merged"],
                    o["spurious share, merged"] == 0,
                    o["spurious share, at once"] == 0,
                ]
            },
            strict=True,
        ),
        Claim(
            "C24. No interested party misses a notification.",
            {"all three": lambda o: [o[f"missed, {name}"] == 0 for name in WAYS]},
            strict=True,
        ),
    ),
)
