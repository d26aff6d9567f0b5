"""Figures 5 and 6: Zipf-like subscriptions, with even events, and with Zipf-like ones of another ranking."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from evaluation.claims import Claim, Reading, Span, falls, readings, share
from evaluation.drawing import Canvas
from evaluation.experiment import Experiment, NetworkSizes, Progress, Scale
from evaluation.outcome import Outcome, Series
from evaluation.placing import Distribution, Offline, Online, Setup, place

METHODS: dict[str, Offline | Online] = {
    "random": Offline("random"),
    "K-mean offline": Offline("kmeans"),
    "R-tree online": Online(),
    "R-tree half offline": Online(offline=0.5),
    "R-tree offline": Offline("rtree"),
}
#: changes of a law that the published text leaves open: bins, and whether bounds include them
READINGS: dict[str, tuple[int, bool]] = {
    "B = 5": (5, True),
    "B = 20": (20, True),
    "B = 10, bounds exclusive": (10, False),
}
BINS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes(NetworkSizes):
    alphas: tuple[float, ...]
    #: draws of the law that a seed averages: from 2 on single cells decide
    draws: int
    #: the online methods take longest, and are run for so many of the draws
    online_draws: int


def _run(distribution: Distribution, sizes: Sizes, seed: int, progress: Progress) -> Outcome:
    series: dict[str, Series] = {}
    axis = list(sizes.alphas)
    jobs: list[tuple[str, Offline | Online, int, bool]] = [
        (name, method, BINS, True) for name, method in METHODS.items()
    ]
    jobs += [
        (f"{name}, {reading}", METHODS[name], bins, inclusive)
        for reading, (bins, inclusive) in READINGS.items()
        for name in ("random", "R-tree offline")
    ]
    for done, (label, method, bins, inclusive) in enumerate(jobs):
        draws = sizes.draws if isinstance(method, Offline) else sizes.online_draws
        means = []
        for alpha in sizes.alphas:
            progress(done, len(jobs), f"{label}, α = {alpha:g}")
            setup = Setup(
                **sizes.network, distribution=distribution, alpha=alpha, bins=bins, inclusive=inclusive
            )
            ratios = [place(setup, 1000 * seed + draw, method).hit_ratio for draw in range(draws)]
            means.append(sum(ratios) / draws)
        series[label] = Series(axis, means)
    return Outcome({"hit": 1 / (sizes.events * sizes.servers)}, series)


def _times(outcome: Outcome, reading: str = "") -> Series:
    """Random's traffic in parts of the offline R-tree's, up to α = 2: beyond there is hardly any.

    None at all counts as one hit.
    """
    random, offline = (outcome.series[f"{name}{reading}"] for name in ("random", "R-tree offline"))
    least = outcome["hit"]
    shown = [
        (x, max(one, least) / max(other, least))
        for x, one, other in zip(random.x, random.y, offline.y, strict=True)
        if x <= 2.0
    ]
    return Series([x for x, _ in shown], [y for _, y in shown])


def _all_fall(outcome: Outcome) -> list[float]:
    return share(*(holds for name in METHODS for holds in falls(outcome.series[name].y, slack=0.005)))


def _kmean_improves(outcome: Outcome) -> list[float]:
    kmean, random = outcome.series["K-mean offline"].y, outcome.series["random"].y
    ratios = [one / max(other, outcome["hit"]) for one, other in zip(kmean, random, strict=True)]
    return share(*falls(ratios, slack=0.005))


def _kmean_comes_near(outcome: Outcome) -> list[float]:
    kmean, offline = outcome.series["K-mean offline"].y, outcome.series["R-tree offline"].y
    return share(*falls([one - other for one, other in zip(kmean, offline, strict=True)], slack=0.005))


def draw(canvas: Canvas, outcomes: Sequence[Outcome], figure: str) -> None:
    left, right = canvas.panels(2)
    left.labels(f"Figure {figure}: traffic under Zipf-like subscriptions", "α", "hit ratio")
    right.labels("How much more random partitioning sends", "α", "traffic: random ÷ offline R-tree")
    for name in METHODS:
        left.curve(name)
    left.axes.set_ylim(0, 1.05)
    names = {f"B = {BINS}": "", **{reading: f", {reading}" for reading in READINGS}}
    for number, (label, suffix) in enumerate(names.items()):
        right.derived(label, partial(_times, reading=suffix), colour=number)
    right.published_span("3 to 5 times", 3, 5)


def _claims() -> tuple[Claim, ...]:
    return (
        Claim(
            text="For all ways of partitioning the traffic falls as α grows.",
            readings=(Reading("B = 10, each α to the next, up to 0.005", _all_fall),),
            why=(
                "Between 0.25 and 1 precise summaries of ten thousand rectangles a server still cover nearly "
                "everything for random partitioning, so that there is nothing to fall from."
            ),
        ),
        Claim(
            text="K-mean improves as α grows (here: beside random).",
            readings=(
                Reading("K-mean ÷ random, each α to the next", _kmean_improves),
                Reading("K-mean − offline R-tree, each α to the next", _kmean_comes_near),
            ),
            why=(
                "At the largest α hardly any event is forwarded at all, and a ratio of two small numbers "
                "is chance."
            ),
        ),
        Claim(
            text="Random sends 3 to 5 times as much as offline R-tree.",
            paper=Span(3, 5, "random sends more", lambda ours: ours > 1),
            readings=(
                Reading("B = 10, every α up to 2", lambda o: _times(o).y),
                Reading("B = 10, the largest of them", lambda o: [max(_times(o).y)]),
                *readings(READINGS, lambda outcome, name: _times(outcome, f", {name}").y),
            ),
            why=(
                "Neither B nor the α to which the sentence belongs is given. It holds for the middle of the "
                "range. At α = 0.25 subscriptions are close to even ones, for which the published Figure 3 "
                "itself has a factor of 2.5 at most."
            ),
        ),
    )


_SETTING = (
    "10 servers, 4 dimensions, B bins a dimension, ranked by their number for subscriptions. Bounds "
    "include both bins that were drawn: taken literally (exclusive), most rectangles have no volume. Load "
    "threshold twice the average."
)
_SIZES: dict[Scale, Sizes] = {
    "tiny": Sizes(servers=3, per_server=60, events=200, alphas=(0.5, 2.0), draws=1, online_draws=1),
    "quick": Sizes(
        servers=10, per_server=1000, events=20_000, alphas=(0.25, 0.5, 1.0, 2.0, 4.0), draws=2, online_draws=1
    ),
    "full": Sizes(
        servers=10,
        per_server=5000,
        events=20_000,
        alphas=(0.25, 0.5, 1.0, 2.0, 4.0),
        draws=2,
        online_draws=1,
    ),
}

EXPERIMENTS = (
    Experiment(
        name="figure-5",
        line="Figure 5",
        title="Zipf-like subscriptions, even events",
        question="What do uneven subscriptions change?",
        setting=_SETTING + " Events are even.",
        sizes=_SIZES,
        run=lambda sizes, seed, progress: _run("zipf", sizes, seed, progress),
        draw=lambda canvas, outcomes: draw(canvas, outcomes, "5"),
        claims=_claims(),
    ),
    Experiment(
        name="figure-6",
        line="Figure 6",
        title="Zipf-like subscriptions and events, each with its own ranking",
        question="And if the events are uneven, too, but elsewhere?",
        setting=_SETTING
        + " Events follow the same law with a random ranking, drawn anew for each draw: at α ≥ 2 "
        "one ranking is mostly chance, so a seed is the mean of several.",
        sizes=_SIZES,
        run=lambda sizes, seed, progress: _run("zipf-both", sizes, seed, progress),
        draw=lambda canvas, outcomes: draw(canvas, outcomes, "6"),
        claims=_claims(),
    ),
)
