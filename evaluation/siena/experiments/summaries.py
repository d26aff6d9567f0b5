"""Ours: Summaries against covering.

What would our summaries save in the same simulator? Acyclic peers on the spanning tree of 100 sites.
Subscriptions are rectangles in [0, 10]^4 with random corners, at random sites; in every round new ones
arrive and a tenth of all unsubscribe. Interest is told to neighbours by covering (the poset's roots), or by
the product's summaries of 1, 8, 64 and all maximal rectangles. After each round, random events are
published at random sites. A link's *state* is the number of rectangles that one neighbour keeps of another;
a false positive is an event that crosses a link though nobody behind it wants it.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from evaluation.experiment import Claim, Experiment, Outcome, Progress
from evaluation.figures import Canvas
from evaluation.siena.network import transit_stub
from evaluation.siena.rectangles import RectangleTree, summary_cut

WAYS = {"covering": -1, "1 rectangle": 1, "8 rectangles": 8, "64 rectangles": 64, "precise": 0}
SUMMARIES = list(WAYS)[1:]
DIMENSIONS = 4
METRICS = {
    "messages per subscribe": "messages per subscribe",
    "messages per unsubscribe": "messages per unsubscribe",
    "report messages per request": "reports per request",
    "state of a link": "rectangles per link and direction",
    "useless share of crossings": "false positives, share of crossings",
    "crossings per event": "links crossed per event",
}


def run(
    seed: int, progress: Progress, *, sites: int, subscriptions: int, rounds: int, events: int
) -> Outcome:
    outcome = Outcome()
    tree = transit_stub(sites, [seed, 0]).spanning_tree
    for done, (name, k) in enumerate(WAYS.items()):
        progress(done, len(WAYS), name)
        rng = np.random.default_rng([seed, 5])
        cut = None if k < 0 else summary_cut(k or None)
        network = RectangleTree(tree, DIMENSIONS, cut)
        live: dict[int, int] = {}
        crossed = useless = missed = 0
        states = []
        for turn in range(rounds):
            fresh = subscriptions if turn == 0 else subscriptions // 10
            for _ in range(fresh):
                id = network.sent.requests["subscribe"]
                corners = np.sort(rng.random((2, DIMENSIONS)) * 10, axis=0)
                site = int(rng.integers(sites))
                network.subscribe(id, site, corners[0], corners[1])
                live[id] = site
            if turn:
                for id in rng.choice(sorted(live), size=len(live) // 10, replace=False).tolist():
                    network.unsubscribe(id, live.pop(id))
            network.report()
            states.append(network.state)
            points = rng.random((events, DIMENSIONS)) * 10
            found = network.crossings(points, rng.integers(0, sites, events).tolist())
            crossed, useless, missed = crossed + found[0], useless + found[1], missed + found[2]
        sent = network.sent
        requests = sent.requests["subscribe"] + sent.requests["unsubscribe"]
        outcome.values.update(
            {
                f"messages per subscribe, {name}": sent.subscribe / sent.requests["subscribe"],
                f"messages per unsubscribe, {name}": sent.unsubscribe / max(1, sent.requests["unsubscribe"]),
                f"report messages per request, {name}": sent.report / requests,
                f"all messages per request, {name}": (sent.subscribe + sent.unsubscribe + sent.report)
                / requests,
                f"state of a link, {name}": float(np.mean(states)),
                f"useless share of crossings, {name}": useless / max(1, crossed),
                f"crossings per event, {name}": crossed / (rounds * events),
                f"missed, {name}": float(missed),
            }
        )
    return outcome


def draw(canvas: Canvas) -> None:
    for panel, (metric, title) in zip(canvas.panels(3, 2, height=3.6), METRICS.items(), strict=True):
        panel.labels(title, "", "")
        panel.bars(list(WAYS), [f"{metric}, {name}" for name in WAYS])


EXPERIMENT = Experiment(
    name="siena-summaries",
    text=__doc__,
    sizes={
        "tiny": {"sites": 25, "subscriptions": 60, "rounds": 2, "events": 40},
        "quick": {"sites": 50, "subscriptions": 120, "rounds": 3, "events": 60},
        "full": {"sites": 100, "subscriptions": 400, "rounds": 3, "events": 200},
    },
    seeds={"tiny": 1, "quick": 2, "full": 3},
    run=run,
    draw=draw,
    claims=(
        Claim(
            "No event is missed, whatever the summary.",
            {"all five": lambda o: [o[f"missed, {name}"] == 0 for name in WAYS]},
            strict=True,
        ),
        Claim(
            "A subscription needs fewer messages with every summary than with covering.",
            {
                "each summary": lambda o: [
                    o[f"messages per subscribe, {name}"] < o["messages per subscribe, covering"]
                    for name in SUMMARIES
                ]
            },
            strict=True,
            why="A precise summary prunes exactly what covering prunes, a rectangle inside another one, "
            "so both send the same. The others save little here, because most subscriptions arrive "
            "before the first report.",
        ),
        Claim(
            "An unsubscription needs none; with covering it needs more than one.",
            {
                "each summary": lambda o: [
                    *(o[f"messages per unsubscribe, {name}"] == 0 for name in SUMMARIES),
                    o["messages per unsubscribe, covering"] > 1,
                ]
            },
            strict=True,
        ),
        Claim(
            "Counting reports, every summary sends fewer messages per request than covering.",
            {
                "each summary": lambda o: [
                    o[f"all messages per request, {name}"] < o["all messages per request, covering"]
                    for name in SUMMARIES
                ]
            },
            strict=True,
            why="A report goes over every link where something changed, in both directions: with few "
            "requests per round that is as much as telling each of them.",
        ),
        Claim(
            "The state of a link shrinks with the number of rectangles.",
            {
                "1 < 8 < 64 < precise": lambda o: [
                    o[f"state of a link, {fewer}"] < o[f"state of a link, {more}"]
                    for fewer, more in pairwise(SUMMARIES)
                ]
            },
            strict=True,
        ),
        Claim(
            "Precise summaries and covering have no false positives; fewer rectangles have more.",
            {
                "0 = covering = precise < 64 < 8 < 1": lambda o: [
                    o["useless share of crossings, covering"] == 0,
                    o["useless share of crossings, precise"] == 0,
                    *(
                        o[f"useless share of crossings, {more}"] < o[f"useless share of crossings, {fewer}"]
                        for fewer, more in pairwise(SUMMARIES)
                    ),
                ]
            },
            strict=True,
        ),
    ),
)
