"""Distributions of repeated measurements: percentiles and a small histogram.

`--json` prints the buckets, a terminal one bar per bucket. The bounds of buckets are round numbers: of equal
width where the values are close together, of equal ratio where they span more than a decade.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count, pairwise

from rich.bar import Bar
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

#: maximum of buckets; few values get fewer (Rice's rule)
MOST = 16
_WIDTH = 40
#: mantissas of round bounds, from fine to coarse
_LADDERS = (
    (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0),
    (1.0, 1.5, 2.0, 3.0, 5.0, 7.0),
    (1.0, 2.0, 5.0),
    (1.0, 3.0),
    (1.0,),
)


@dataclass(frozen=True, slots=True)
class Bucket:
    #: `low <= value < high`
    low: float
    high: float
    count: int


@dataclass(frozen=True, slots=True)
class Distribution:
    """Values of one measurement in one unit."""

    what: str
    unit: str
    count: int
    least: float
    p50: float
    p90: float
    p99: float
    most: float
    #: adjacent; they contain all values
    buckets: list[Bucket]

    @classmethod
    def of(cls, what: str, unit: str, values: Sequence[float]) -> Distribution:
        """Returns the distribution of at least one finite value ≥ 0."""
        ordered = sorted(values)
        if not ordered or not all(0 <= value < math.inf for value in ordered):
            raise ValueError(f"{what}: needs at least one value, all finite and not negative")
        p50, p90, p99 = (percentile(ordered, percent) for percent in (50, 90, 99))
        buckets = _buckets(ordered)
        return cls(what, unit, len(ordered), ordered[0], p50, p90, p99, ordered[-1], buckets)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text.assemble(
            (self.what, "bold"),
            f", {self.unit}: {self.count:,} values, p50 {_short(self.p50)}, p90 {_short(self.p90)}, "
            f"p99 {_short(self.p99)}, from {_short(self.least)} to {_short(self.most)}",
        )
        table = Table(box=None, show_header=False, padding=(0, 1))
        for justify in ("right", "right", "left"):
            table.add_column(justify=justify, no_wrap=True)
        highest = max(bucket.count for bucket in self.buckets)
        for bucket in self.buckets:
            span = f"{bucket.low:,.6g} – {bucket.high:,.6g}"
            table.add_row(span, f"{bucket.count:,}", Bar(highest, 0, bucket.count, width=_WIDTH))
        yield table


def percentile(values: Sequence[float], percent: int) -> float:
    """Returns the smallest value that at least `percent` of 100 values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -(-percent * len(ordered) // 100) - 1)]


def _buckets(ordered: Sequence[float]) -> list[Bucket]:
    wanted = min(MOST, max(4, math.ceil(2 * len(ordered) ** (1 / 3))))
    bounds = _bounds(ordered[0], ordered[-1], wanted)
    held = [0] * (len(bounds) - 1)
    for value in ordered:
        held[bisect_right(bounds, value) - 1] += 1
    return [Bucket(low, high, number) for (low, high), number in zip(pairwise(bounds), held, strict=True)]


def _bounds(least: float, most: float, buckets: int) -> list[float]:
    """Returns ascending round numbers, from one that is ≤ `least` to one that is > `most`."""
    if least > 0 and most / least > 10:
        for ladder in _LADDERS:
            bounds = _between(_rungs(ladder, least), least, most)
            if len(bounds) <= buckets + 1:
                return bounds
    step = _round_above(((most - least) or most or 1.0) / (buckets - 1))
    # One step earlier, because the quotient of floats may be one too large.
    steps = (float(f"{number * step:.12g}") for number in count(math.floor(least / step) - 1))
    return _between(steps, least, most)


def _between(rising: Iterator[float], least: float, most: float) -> list[float]:
    """Returns the bounds from the last one ≤ `least` to the first one > `most`."""
    bounds: list[float] = []
    for bound in rising:
        if bound <= least:
            bounds = [bound]
            continue
        bounds.append(bound)
        if bound > most:
            break
    return bounds


def _rungs(ladder: tuple[float, ...], least: float) -> Iterator[float]:
    for exponent in count(math.floor(math.log10(least)) - 1):
        for mantissa in ladder:
            yield float(f"{mantissa}e{exponent}")


def _round_above(step: float) -> float:
    """Returns the smallest of …, 0.5, 1, 2, 5, 10, … that is not below a step."""
    exponent = math.floor(math.log10(step))
    return next(
        rung
        for power in count(exponent)
        for rung in (float(f"{mantissa}e{power}") for mantissa in _LADDERS[2])
        if rung >= step
    )


def _short(value: float) -> str:
    """Formats a value with three significant digits."""
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.{max(0, 2 - math.floor(math.log10(abs(value))))}f}".rstrip("0").rstrip(".")
