"""Ours: A thousand sites.

Do the published orders hold on a network ten times as large? 1,000 sites of a Transit-Stub graph, 100
objects, otherwise as Figure 19, one run per point.
"""

from __future__ import annotations

from evaluation.experiment import Claim, Experiment, Outcome, Progress, Series
from evaluation.figures import Canvas
from evaluation.siena.grid import ARCHITECTURES, DISTRIBUTED, exponent, sample


def run(seed: int, progress: Progress, *, sites: int, objects: int, parties: tuple[int, ...]) -> Outcome:
    outcome = Outcome()
    for done, one in enumerate(ARCHITECTURES):
        progress(done, len(ARCHITECTURES), one)
        runs = [sample(seed, 1, one, sites=sites, objects=objects, parties=count)[0] for count in parties]
        outcome.series[f"total cost of {one}"] = Series(parties, [float(run.total) for run in runs])
        outcome.series[f"cost per request of {one}"] = Series(parties, [run.per_service for run in runs])
    return outcome


def draw(canvas: Canvas) -> None:
    left, right = canvas.panels(2)
    for panel, metric in ((left, "total cost"), (right, "cost per request")):
        panel.labels(f"{metric}, 1,000 sites", "interested parties", metric)
        for number, one in enumerate(("hs", "as", "aa", "ce")):
            panel.curve(f"{metric} of {one}", one, colour=number)
        panel.log_log()


def _growth(outcome: Outcome) -> float:
    curve = outcome.series["total cost of ce"]
    places = [at for at, x in enumerate(curve.x) if x >= 100]
    return exponent([curve.x[at] for at in places], [curve.y[at] - curve.y[0] for at in places])


EXPERIMENT = Experiment(
    name="siena-thousand-sites",
    text=__doc__,
    sizes={
        "tiny": {"sites": 100, "objects": 10, "parties": (10, 100, 1000)},
        "quick": {"sites": 1000, "objects": 10, "parties": (10, 100, 1000, 2000)},
        "full": {"sites": 1000, "objects": 100, "parties": (1, 10, 100, 1000, 2000, 10_000)},
    },
    seeds={"tiny": 1, "quick": 1, "full": 2},
    run=run,
    draw=draw,
    claims=(
        Claim(
            "The central server's blow-up is linear growth, bent by a logarithmic axis: exponent 1.",
            {"cost beyond that of the fewest parties, from 100 parties on": _growth},
            paper=1.0,
            strict=True,
        ),
        Claim(
            "hs costs more than as at every number of parties.",
            {"each": lambda o: [ratio > 1 for ratio in o.ratios("total cost of hs", "total cost of as")]},
            strict=True,
        ),
        Claim(
            "The central server is worst from one party per site on.",
            {
                "from 1,000 parties on": lambda o: [
                    o.at("total cost of ce", x) > o.at(f"total cost of {one}", x)
                    for one in DISTRIBUTED
                    for x in o.series["total cost of ce"].x
                    if x >= 1000
                ]
            },
            strict=True,
        ),
        Claim(
            "Beyond two parties per site the distributed architectures' cost grows by less than 15 %.",
            {
                "largest ÷ 2,000 parties": lambda o: [
                    o.y(f"total cost of {one}")[-1] / o.y(f"total cost of {one}")[-2] < 1.15
                    for one in DISTRIBUTED
                ]
            },
            strict=True,
        ),
    ),
)
