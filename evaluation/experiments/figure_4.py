"""Figure 4: Precision of the summaries that route subscriptions.

How much do finer subscription-routing summaries lower the traffic? The setting of Figure 3 with 10 and 20
servers. The summary of a server has N_b rectangles, from one to all maximal ones. The published depth is
that of an R-tree of unknown fan-out; ours is that of a binary tree. Our summaries include every placement at
once: when a summary has N_b rectangles, the one that grows least absorbs the new one.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from math import log2

from evaluation.experiment import Claim, Experiment, Outcome, Progress
from evaluation.figures import Canvas
from evaluation.simulated_placement import Online, Setup, sweep

SHARES = {"online": 0.0, "half offline": 0.5}


def run(
    seed: int,
    progress: Progress,
    *,
    servers: tuple[int, ...],
    per_server: int,
    events: int,
    bounds: tuple[int, ...],
) -> Outcome:
    """`bounds`: N_b; the precise summary follows them."""
    # The depth of a binary tree; the precise summary lies one step beyond the last bound.
    axis = [1 + log2(bound) for bound in bounds]
    axis.append(axis[-1] + 2)
    cases = {
        f"{name}, {n} servers": [
            (
                Setup(servers=n, per_server=per_server, events=events),
                Online(offline=share, bound=bound),
            )
            for bound in (*bounds, None)
        ]
        for n in servers
        for name, share in SHARES.items()
    }
    return sweep(cases, axis, seed, progress)


def _names(outcome: Outcome) -> list[str]:
    return [name for name in outcome.series if not name.startswith("load")]


def _reductions(outcome: Outcome, start: str) -> list[float]:
    shown = [outcome.y(name) for name in _names(outcome) if name.startswith(start)]
    return [1 - one[-1] / one[0] for one in shown]


def _better(outcome: Outcome, depth: float = 1.0) -> Iterator[bool]:
    """Compares half offline with online, from a depth on."""
    for name in _names(outcome):
        if name.startswith("half"):
            one, other = outcome.series[name], outcome.y(name.replace("half offline", "online"))
            for x, half, online in zip(one.x, one.y, other, strict=True):
                if x >= depth:
                    yield half < online


def _uneven(outcome: Outcome) -> bool:
    """Returns whether a finer summary is worse anywhere."""
    curves = [outcome.y(name) for name in _names(outcome)]
    return any(later > earlier for y in curves for earlier, later in pairwise(y))


def draw(canvas: Canvas) -> None:
    left, right = canvas.panels(2)
    depth = "depth: 1 + log2 N_b; last: precise"
    left.labels("Figure 4: routing summaries of subscriptions", depth, "hit ratio")
    right.labels("How uneven the loads are", depth, "largest load ÷ average")
    names = _names(canvas.first)
    left.curves(names)
    right.curves(names, "load of ")
    start = sum(one.y(names[0])[0] for one in canvas.outcomes) / len(canvas.outcomes)
    style = {"color": "black", "lw": 4, "alpha": 0.6, "label": "published: 20 to 25 % below depth 1"}
    left.axes.plot([canvas.first.series[names[0]].x[-1]] * 2, [0.75 * start, 0.8 * start], **style)
    left.axes.set_ylim(0, 1.05)


EXPERIMENT = Experiment(
    name="figure-4",
    text=__doc__,
    sizes={
        "tiny": {"servers": (2, 3), "per_server": 60, "events": 200, "bounds": (1, 16)},
        "quick": {"servers": (10, 20), "per_server": 1000, "events": 2000, "bounds": (1, 4, 16, 64, 256)},
        "full": {"servers": (10, 20), "per_server": 3000, "events": 4000, "bounds": (1, 4, 16, 64, 256)},
    },
    seeds={"tiny": 1, "quick": 1, "full": 2},
    run=run,
    draw=draw,
    claims=(
        Claim(
            "Half offline, half online does better than online in all cases.",
            {"every N_b, 10 and 20 servers": _better, "N_b ≥ 16": lambda o: _better(o, 5.0)},
            why="With few rectangles per server, each as large as half of the server's subscriptions, nearly "
            "every new subscription lies inside rectangles of several servers. All overlaps tie and the less "
            "loaded server is chosen, which is chance. Online placement from an empty network avoids that "
            "while its rectangles are small, but leaves servers full or empty.",
        ),
        Claim(
            "Compared with depth 1, precise summaries lower the hit ratio by 20 to 25 %.",
            {
                "online, 10 and 20 servers": lambda o: _reductions(o, "online"),
                "half offline, 10 and 20 servers": lambda o: _reductions(o, "half"),
            },
            paper=(0.2, 0.25),
            partly=lambda ours: ours > 0,
            show="{:.0%}",
            why="Half offline gains more than published, because at depth 1 it is little better than chance "
            "here (see above): the one rectangle of a server is nearly the whole space.",
        ),
        Claim("Finer is not always better: the curve is not monotone.", {"any curve": _uneven}),
    ),
)
