"""Figure 4: what the precision of the subscription-routing summaries is worth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import log2

from evaluation.claims import Claim, Reading, Span, share
from evaluation.drawing import Canvas
from evaluation.experiment import Experiment, Progress
from evaluation.outcome import Outcome
from evaluation.placing import Online, Setup, ratios_and_loads, sweep

SHARES = {"online": 0.0, "half offline": 0.5}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    servers: tuple[int, ...]
    per_server: int
    events: int
    #: N_b, rectangles a server; the precise summary comes after them
    bounds: tuple[int, ...]


def run(sizes: Sizes, seed: int, progress: Progress) -> Outcome:
    bounds: list[int | None] = [*sizes.bounds, None]
    # Of a binary tree; the precise one lies one step beyond what was tried.
    axis = [1 + log2(bound) for bound in sizes.bounds]
    axis.append(axis[-1] + 2)
    methods = {f"{name}, {n} servers": (n, share) for n in sizes.servers for name, share in SHARES.items()}

    def case(method: tuple[int, float], x: float) -> tuple[Setup, Online]:
        n, offline = method
        setup = Setup(servers=n, per_server=sizes.per_server, events=sizes.events)
        return setup, Online(offline=offline, bound=bounds[axis.index(x)])

    found = sweep(methods, axis, case, seed, progress, "{name}, depth {x:g}")
    return Outcome({}, ratios_and_loads(axis, found))


def _names(outcome: Outcome) -> list[str]:
    return [name for name in outcome.series if not name.startswith("load")]


def _reductions(outcome: Outcome, start: str) -> list[float]:
    shown = [outcome.series[name].y for name in _names(outcome) if name.startswith(start)]
    return [1 - one[-1] / one[0] for one in shown]


def _better(outcome: Outcome, depth: float = 1.0) -> list[float]:
    """From that depth on."""
    pairs = [
        (outcome.series[name], outcome.series[name.replace("half offline", "online")])
        for name in _names(outcome)
        if name.startswith("half")
    ]
    return share(
        *(
            half < online
            for one, other in pairs
            for x, half, online in zip(one.x, one.y, other.y, strict=True)
            if x >= depth
        )
    )


def _uneven(outcome: Outcome) -> list[float]:
    """Whether somewhere a finer summary does worse."""
    curves = [outcome.series[name].y for name in _names(outcome)]
    return share(any(later > earlier for y in curves for earlier, later in pairwise(y)))


def draw(canvas: Canvas, outcomes: Sequence[Outcome]) -> None:
    left, right = canvas.panels(2)
    left.labels(
        "Figure 4: routing summaries of subscriptions", "depth: 1 + log2 N_b; last: precise", "hit ratio"
    )
    right.labels("How uneven the loads are", "depth: 1 + log2 N_b; last: precise", "largest load ÷ average")
    for name in _names(outcomes[0]):
        left.curve(name)
        right.curve(f"load of {name}", name)
    first = outcomes[0].series[_names(outcomes[0])[0]]
    start = sum(one.series[_names(one)[0]].y[0] for one in outcomes) / len(outcomes)
    left.axes.plot(
        [first.x[-1]] * 2, [0.75 * start, 0.8 * start], color="black", lw=4, alpha=0.6,
        label="published: 20 to 25 % below depth 1",
    )  # fmt: skip
    left.axes.set_ylim(0, 1.05)


EXPERIMENT = Experiment(
    name="figure-4",
    line="Figure 4",
    title="Precision of the summaries that route subscriptions",
    question="How much do finer subscription-routing summaries lower the traffic?",
    setting=(
        "The setting of Figure 3 with 10 and 20 servers. A server is known by N_b rectangles, from one to "
        "all that are maximal; the published depth is that of an R-tree of unknown fan-out, ours that of a "
        "binary tree. Our summaries follow every placement at once: at N_b the rectangle that grows least "
        "takes the new one in."
    ),
    sizes={
        "tiny": Sizes(servers=(2, 3), per_server=60, events=200, bounds=(1, 16)),
        "quick": Sizes(servers=(10, 20), per_server=1000, events=2000, bounds=(1, 4, 16, 64, 256)),
        "full": Sizes(servers=(10, 20), per_server=3000, events=4000, bounds=(1, 4, 16, 64, 256)),
    },
    seeds={"tiny": 1, "quick": 1, "full": 2},
    run=run,
    draw=draw,
    claims=(
        Claim(
            text="Half offline, half online does better than online in all cases.",
            readings=(
                Reading("every N_b, 10 and 20 servers", _better),
                Reading("N_b ≥ 16", lambda o: _better(o, 5.0)),
            ),
            why=(
                "With one or a few rectangles a server, each already as large as half of its "
                "subscriptions, nearly every new one lies inside rectangles of several servers: all "
                "overlaps tie, and the less loaded server takes it, which is chance. Online from nothing "
                "is spared that while its rectangles are still small, at the price of full and empty servers."
            ),
        ),
        Claim(
            text="Beside depth 1 precise summaries lower the hit ratio by 20 to 25 %.",
            paper=Span(0.2, 0.25, "it is lower", lambda ours: ours > 0),
            readings=(
                Reading("online, 10 and 20 servers", lambda o: _reductions(o, "online")),
                Reading("half offline, 10 and 20 servers", lambda o: _reductions(o, "half")),
            ),
            show="{:.0%}",
            why=(
                "Half offline gains more than was published, because at depth 1 it is little better than "
                "chance here (see above): a server's one rectangle is nearly the whole space."
            ),
        ),
        Claim(
            text="Finer is not always better: the curve is not monotone.",
            readings=(Reading("any curve", _uneven),),
        ),
    ),
)
