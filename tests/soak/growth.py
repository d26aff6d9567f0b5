"""Judges whether a series of samples grows: a robust slope over the second half of a run.

The first half is warm-up: caches fill, files reach their steady size. The slope is that of Theil and Sen, the
median of the slopes of all pairs, which a few outliers do not move. What is compared with the tolerance is
that slope times the length of the half.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

#: a run of at least so many seconds is judged by the tolerances as they are, a shorter one by a multiple
STRICT_SECONDS = 600.0
LENIENCY = 4.0
#: samples beyond which pairs become too many; fewer are drawn evenly
_MOST = 600


@dataclass(frozen=True, slots=True)
class Tolerance:
    """What may be gained over the second half: the larger of a number and a share of the median."""

    absolute: float
    share: float

    def of(self, median: float, seconds: float) -> float:
        allowed = max(self.absolute, self.share * median)
        return allowed if seconds >= STRICT_SECONDS else allowed * LENIENCY


_MIB = float(1 << 20)
TOLERANCES = {
    "rss": Tolerance(10 * _MIB, 0.03),
    "descriptors": Tolerance(12, 0.1),
    "threads": Tolerance(3, 0.05),
    "files": Tolerance(6 * _MIB, 0.05),
}


@dataclass(frozen=True, slots=True)
class Growth:
    process: str
    figure: str
    #: medians of the four quarters
    quarters: tuple[float, ...]
    #: over the second half
    gained: float
    allowed: float

    @property
    def grows(self) -> bool:
        return self.gained > self.allowed


def slope(times: Sequence[float], values: Sequence[float]) -> float:
    """Median slope of all pairs, per second; 0 for fewer than two samples."""
    if len(times) < 2:
        return 0.0
    chosen = np.unique(np.linspace(0, len(times) - 1, min(len(times), _MOST)).astype(np.intp))
    x, y = np.asarray(times, dtype=float)[chosen], np.asarray(values, dtype=float)[chosen]
    first, second = np.triu_indices(len(x), 1)
    apart = x[second] - x[first]
    return float(np.median((y[second] - y[first])[apart > 0] / apart[apart > 0]))


def judge(process: str, figure: str, times: Sequence[float], values: Sequence[float]) -> Growth:
    """`times` are seconds since the start of the churn."""
    whole = times[-1] - times[0]
    half = [place for place, time in enumerate(times) if time - times[0] >= whole / 2]
    late = [values[place] for place in half]
    quarters = tuple(
        float(np.median(part)) if len(part) else float("nan") for part in np.array_split(np.array(values), 4)
    )
    return Growth(
        process=process,
        figure=figure,
        quarters=quarters,
        gained=slope([times[place] for place in half], late) * whole / 2,
        allowed=TOLERANCES[figure].of(float(np.median(late)), whole),
    )
