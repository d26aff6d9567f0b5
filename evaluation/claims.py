"""Claims, and the rule that judges them.

A claim is a published number, a published span, or an order ("this lies between those", "it falls"). Where
the text leaves something open it has several *readings*; all are judged and shown, and the verdict of the
claim is that of the first.

| | a number | a span | an order |
|---|---|---|---|
| reproduced | within 15 % of it | all in it, or within 15 % of its ends | holds at every point compared |
| partly | same direction | same direction, or half of ours in it | holds at half of them or more |
| not | otherwise | otherwise | otherwise |

The comparison is made with the mean over the seeds, an order's on the mean curves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, stdev
from typing import Literal

from evaluation.outcome import Outcome, mean

TOLERANCE = 0.15

Verdict = Literal["reproduced", "partly", "not"]
Measure = Callable[[Outcome], float]
Measures = Callable[[Outcome], Sequence[float]]


@dataclass(frozen=True, slots=True)
class Number:
    """A published number. `partly` says of ours whether it points in the same direction."""

    paper: float
    #: what the same direction would be, in words
    direction: str = ""
    partly: Callable[[float], bool] | None = None


@dataclass(frozen=True, slots=True)
class Span:
    """A published range, "by 20 % to 60 %"; ours may be several numbers."""

    low: float
    high: float
    direction: str = ""
    partly: Callable[[float], bool] | None = None


@dataclass(frozen=True, slots=True)
class Order:
    """Something without a number. Ours is the share of the compared points at which it holds."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One way to understand the published text, and what of an outcome belongs to it."""

    name: str
    measure: Measures


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    #: the published sentence in our words
    text: str
    readings: tuple[Reading, ...]
    paper: Number | Span | Order = Order()
    #: how a number is printed
    show: str = "{:.2f}"
    #: why ours differs, where it does
    why: str = ""


@dataclass(frozen=True, slots=True)
class Judged:
    """One reading of a claim, judged."""

    reading: str
    #: means over the seeds; one number but for spans
    ours: list[float]
    #: standard deviations over the seeds
    spread: list[float]
    verdict: Verdict


def within(ours: float, low: float, high: float) -> bool:
    """In [low, high], or no further away than 15 % of the nearer end."""
    return low - TOLERANCE * abs(low) <= ours <= high + TOLERANCE * abs(high)


def verdict(paper: Number | Span | Order, ours: Sequence[float]) -> Verdict:
    if isinstance(paper, Order):
        share = fmean(ours)
        return "reproduced" if share == 1.0 else "partly" if share >= 0.5 else "not"
    low, high = (paper.paper, paper.paper) if isinstance(paper, Number) else (paper.low, paper.high)
    inside = [within(one, low, high) for one in ours]
    if all(inside):
        return "reproduced"
    if paper.partly is not None and all(paper.partly(one) for one in ours):
        return "partly"
    return "partly" if isinstance(paper, Span) and sum(inside) >= len(inside) / 2 else "not"


def judge(claim: Claim, outcomes: Sequence[Outcome]) -> list[Judged]:
    """All readings, the one that counts first."""
    judged = []
    for reading in claim.readings:
        each = [list(reading.measure(outcome)) for outcome in outcomes]
        columns = list(zip(*each, strict=True))
        ours = (
            list(reading.measure(mean(outcomes)))
            if isinstance(claim.paper, Order)
            else [fmean(column) for column in columns]
        )
        spread = [stdev(column) if len(column) > 1 else 0.0 for column in columns]
        judged.append(Judged(reading.name, ours, spread, verdict(claim.paper, ours)))
    return judged


def readings(names: Iterable[str], measure: Callable[[Outcome, str], Sequence[float]]) -> tuple[Reading, ...]:
    """The same question under several readings, by their names."""

    def under(name: str) -> Reading:
        return Reading(name, lambda outcome: measure(outcome, name))

    return tuple(under(name) for name in names)


def values(names: Iterable[str], what: str) -> tuple[Reading, ...]:
    """The numbers "what, name" of the outcome, by the names of readings."""
    return readings(names, lambda outcome, name: [outcome[f"{what}, {name}"]])


def value(name: str) -> Measures:
    """A number of the outcome."""
    return lambda outcome: [outcome[name]]


def number(measure: Measure) -> Measures:
    """One number made of the outcome."""
    return lambda outcome: [measure(outcome)]


def share(*holds: bool) -> list[float]:
    """How many of the comparisons hold."""
    return [fmean(map(float, holds))]


def falls(values: Sequence[float], slack: float = 0.0) -> list[bool]:
    """Whether each is below the one before it, or above it by no more than `slack`."""
    return [later <= earlier + slack for earlier, later in pairwise(values)]


def rises(values: Sequence[float], slack: float = 0.0) -> list[bool]:
    return [later >= earlier - slack for earlier, later in pairwise(values)]
