"""The outcome of an experiment: plain numbers and curves, by name."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

import msgspec


class Series(msgspec.Struct, frozen=True):
    """A curve."""

    x: list[float]
    y: list[float]

    def at(self, x: float) -> float:
        return self.y[self.x.index(x)]


class Outcome(msgspec.Struct, frozen=True):
    """What one seed gave, or the mean of several."""

    values: dict[str, float] = {}
    series: dict[str, Series] = {}

    def __getitem__(self, name: str) -> float:
        return self.values[name]

    def at(self, name: str, x: float) -> float:
        return self.series[name].at(x)

    def ratios(self, over: str, under: str) -> list[float]:
        """One curve divided by another, point by point."""
        pairs = zip(self.series[over].y, self.series[under].y, strict=True)
        return [one / other for one, other in pairs]


def mean(outcomes: Sequence[Outcome]) -> Outcome:
    """Number by number, point by point."""
    first = outcomes[0]
    return Outcome(
        {name: fmean(one.values[name] for one in outcomes) for name in first.values},
        {
            name: Series(
                # The same for all seeds; a mean of it might differ in its last bit.
                first.series[name].x,
                [fmean(y) for y in zip(*(one.series[name].y for one in outcomes), strict=True)],
            )
            for name in first.series
        },
    )
