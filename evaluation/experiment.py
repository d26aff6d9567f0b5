"""Experiments: a run per seed, claims about the outcome, and a figure.

Claims and figures are computed from outcomes alone, so stored results can be judged and drawn again.

A claim is a published number, a published range, or an order ("this lies between those", "it falls"). Where
the published text is ambiguous, a claim has several *readings*. All of them are judged and shown; the first
one gives the verdict.

| | a number | a range | an order |
|---|---|---|---|
| reproduced | within 15 % of it | all in it, or within 15 % of its ends | holds at every point compared |
| partly | same direction | same direction, or half of ours in it | holds at half of them or more |
| not | otherwise | otherwise | otherwise |

Numbers and ranges are compared with the mean over the seeds. Orders are judged on the mean curves.

A **strict** claim is judged at every seed instead. A comparison of an order holds if it holds at every
seed, and fails if it holds at none; between lies the noise. There is a verdict only if it is the same
whether the comparisons in the noise hold or not, and for a number only if every seed has the same one.
Otherwise the claim is *undecided*.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import fmean, stdev
from typing import Any, Literal, Protocol, TypeVar

import msgspec

TOLERANCE = 0.15

#: `tiny` only proves that the experiment runs; `full` is close to the published sizes
Scale = Literal["tiny", "quick", "full"]
Verdict = Literal["reproduced", "partly", "not", "undecided"]
T = TypeVar("T")


class Series(msgspec.Struct, frozen=True):
    """A curve."""

    x: Sequence[float]
    y: Sequence[float]

    def at(self, x: float) -> float:
        return self.y[self.x.index(x)]


class Outcome(msgspec.Struct, frozen=True):
    """Numbers and curves by name: of one seed, or the mean over several. A run fills the dictionaries."""

    values: dict[str, float] = {}
    series: dict[str, Series] = {}

    def __getitem__(self, name: str) -> float:
        return self.values[name]

    def at(self, name: str, x: float) -> float:
        return self.series[name].at(x)

    def y(self, name: str) -> Sequence[float]:
        return self.series[name].y

    def ratios(self, over: str, under: str) -> list[float]:
        """Divides one curve by another, point by point."""
        return [one / other for one, other in zip(self.y(over), self.y(under), strict=True)]


def mean(outcomes: Sequence[Outcome]) -> Outcome:
    """Averages outcomes number by number and point by point."""
    first = outcomes[0]
    return Outcome(
        {name: fmean(one.values[name] for one in outcomes) for name in first.values},
        {
            # x is equal for all seeds; its mean could differ in the last bit.
            name: Series(curve.x, [fmean(y) for y in zip(*(one.y(name) for one in outcomes), strict=True)])
            for name, curve in first.series.items()
        },
    )


#: numbers of an outcome; for an order, whether it holds at each point that is compared
Measure = Callable[[Outcome], float | Iterable[float]]


@dataclass(frozen=True, slots=True)
class Claim:
    #: the published sentence in our words
    text: str
    #: by name; the first one counts
    readings: Mapping[str, Measure]
    #: the published number or range; None for an order
    paper: float | tuple[float, float] | None = None
    #: whether a number points in the published direction
    partly: Callable[[float], bool] | None = None
    #: format of a number
    show: str = "{:.2f}"
    #: why our result differs
    why: str = ""
    #: judged at every seed
    strict: bool = False


@dataclass(frozen=True, slots=True)
class Judged:
    """One reading of a claim, judged."""

    reading: str
    #: means over the seeds; more than one number only for ranges
    ours: list[float]
    #: standard deviations over the seeds
    spread: list[float]
    verdict: Verdict
    #: of a strict order, the share of the comparisons that differ between seeds
    noise: float = 0.0


def bounds(paper: float | tuple[float, float]) -> tuple[float, float]:
    """Returns the ends of a published range; both are the same for a number."""
    return paper if isinstance(paper, tuple) else (paper, paper)


def verdict(claim: Claim, ours: Sequence[float]) -> Verdict:
    if claim.paper is None:
        return "reproduced" if ours[0] == 1.0 else "partly" if ours[0] >= 0.5 else "not"
    low, high = bounds(claim.paper)
    inside = [low - TOLERANCE * abs(low) <= one <= high + TOLERANCE * abs(high) for one in ours]
    if all(inside):
        return "reproduced"
    if claim.partly is not None and all(claim.partly(one) for one in ours):
        return "partly"
    return "partly" if low < high and sum(inside) >= len(inside) / 2 else "not"


def judge(claim: Claim, outcomes: Sequence[Outcome]) -> list[Judged]:
    """Judges all readings, in their order."""
    judged = []
    for name, measure in claim.readings.items():
        if claim.strict:
            judged.append(_judge_strictly(claim, name, [_numbers(measure, one) for one in outcomes]))
            continue
        columns = list(zip(*(_measured(claim, measure, outcome) for outcome in outcomes), strict=True))
        ours = [fmean(column) for column in columns]
        if claim.paper is None:
            ours = _measured(claim, measure, mean(outcomes))
        spread = [stdev(column) if len(column) > 1 else 0.0 for column in columns]
        judged.append(Judged(name, ours, spread, verdict(claim, ours)))
    return judged


def _judge_strictly(claim: Claim, reading: str, seeds: Sequence[list[float]]) -> Judged:
    columns = list(zip(*seeds, strict=True))
    if claim.paper is None:
        holds = fmean(all(column) for column in columns)
        may_hold = fmean(any(column) for column in columns)
        verdicts = {verdict(claim, [holds]), verdict(claim, [may_hold])}
        ours, spread, noise = [holds], [0.0], may_hold - holds
    else:
        verdicts = {verdict(claim, seed) for seed in seeds}
        ours = [fmean(column) for column in columns]
        spread = [stdev(column) if len(column) > 1 else 0.0 for column in columns]
        noise = 0.0
    return Judged(reading, ours, spread, verdicts.pop() if len(verdicts) == 1 else "undecided", noise)


def _measured(claim: Claim, measure: Measure, outcome: Outcome) -> list[float]:
    numbers = _numbers(measure, outcome)
    return [fmean(numbers)] if claim.paper is None else numbers


def _numbers(measure: Measure, outcome: Outcome) -> list[float]:
    found = measure(outcome)
    return [float(one) for one in found] if isinstance(found, Iterable) else [float(found)]


def readings(
    names: Iterable[str], measure: Callable[[Outcome, str], float | Iterable[float]]
) -> dict[str, Measure]:
    """Returns one measure per name."""

    def under(name: str) -> Measure:
        return lambda outcome: measure(outcome, name)

    return {name: under(name) for name in names}


def values(names: Iterable[str], what: str) -> dict[str, Measure]:
    """Returns measures of the numbers "what, name" of an outcome."""
    return readings(names, lambda outcome, name: outcome[f"{what}, {name}"])


def falls(values: Sequence[float], slack: float = 0.0) -> list[bool]:
    """Returns whether each value is at most `slack` above the one before it."""
    return [later <= earlier + slack for earlier, later in pairwise(values)]


def rises(values: Sequence[float], slack: float = 0.0) -> list[bool]:
    return [later >= earlier - slack for earlier, later in pairwise(values)]


class Progress(Protocol):
    def __call__(self, done: int, total: int, what: str) -> None: ...


def track(jobs: Iterable[T], progress: Progress, what: str) -> Iterator[T]:
    """Yields jobs and reports each before it begins; `what` is a template of the job, or of its fields."""
    jobs = list(jobs)
    for done, job in enumerate(jobs):
        progress(done, len(jobs), what.format(*job) if isinstance(job, tuple) else what.format(job))
        yield job


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    #: on the command line
    name: str
    #: a docstring: the line of the published evaluation (or "Ours"), a colon, the title; then the question,
    #: the setting, and how gaps of the published text were filled
    text: str | None
    #: keyword arguments of `run`
    sizes: Mapping[Scale, Mapping[str, Any]]
    seeds: Mapping[Scale, int] = field(default_factory=lambda: {"tiny": 1, "quick": 2, "full": 2})
    #: of a seed, the progress and a size
    run: Callable[..., Outcome]
    #: on an `evaluation.figures.Canvas`
    draw: Callable[[Any], None]
    claims: tuple[Claim, ...]
    #: starts processes and needs a machine of its own, so it runs only on request
    live: bool = False

    @property
    def line(self) -> str:
        return self._parts()[0]

    @property
    def title(self) -> str:
        return self._parts()[1]

    @property
    def about(self) -> str:
        return self._parts()[2]

    @property
    def is_ours(self) -> bool:
        """Whether the experiment is not part of the published work."""
        return self.line == "Ours"

    def _parts(self) -> tuple[str, str, str]:
        head, _, about = (self.text or "").partition("\n\n")
        line, _, title = " ".join(head.split()).rstrip(".").partition(": ")
        return line, title, " ".join(about.split())
