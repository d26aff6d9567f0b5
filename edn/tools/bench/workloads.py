"""Seeded random subscriptions and events for benchmarks, the load test, the experiments and tests.

A set of rectangles is a pair of float64 matrices `lo`, `hi` of shape (n, d); points are one of shape (n, d).
Every function draws from the given generator only, so a seed reproduces a run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt

from edn.arrays import Floats

#: the side of the space in the published experiments
SIDE = 10.0
#: bins per dimension of the Zipf-like distribution; the published text does not name the number
BINS = 10


def uniform_points(rng: np.random.Generator, n: int, d: int) -> Floats:
    """Draws events uniformly from [0, 10]^d."""
    return rng.random((n, d)) * SIDE


def uniform_rectangles(rng: np.random.Generator, n: int, d: int) -> tuple[Floats, Floats]:
    """Draws subscriptions with two uniform bounds per dimension."""
    one, other = uniform_points(rng, n, d), uniform_points(rng, n, d)
    return np.minimum(one, other), np.maximum(one, other)


def limited_rectangles(
    rng: np.random.Generator, n: int, d: int, *, side: float = SIDE, volume: float = 1.0
) -> tuple[Floats, Floats]:
    """Draws uniform subscriptions with a maximum side and a maximum share of the space.

    A side that is too long is drawn again alone, a rectangle that is too large as a whole.
    """
    lo, hi = uniform_rectangles(rng, n, d)
    while True:
        long = hi - lo > side
        large = (~long.any(axis=1)) & (np.prod((hi - lo) / SIDE, axis=1) > volume)
        again = long | large[:, None]
        count = int(again.sum())
        if not count:
            return lo, hi
        one, other = rng.random(count) * SIDE, rng.random(count) * SIDE
        lo[again], hi[again] = np.minimum(one, other), np.maximum(one, other)


@dataclass(frozen=True, slots=True)
class Zipf:
    """A Zipf-like law over the cells of a grid: the i-th most popular of bins^d cells weighs 1 / i^alpha.

    Without a ranking, cells are ranked by their number, whose first digit is the first dimension: the first
    dimensions then matter more than the last. Bounds include both drawn cells. Taken literally, the published
    text excludes them (`inclusive=False`), and most rectangles have no volume.
    """

    d: int
    alpha: float
    bins: int
    #: cumulative weight by popularity
    cumulative: Floats
    #: cell number by popularity; None where both are the same
    ranking: npt.NDArray[np.int64] | None
    inclusive: bool = True

    @classmethod
    def make(cls, d: int, alpha: float, *, bins: int = BINS, inclusive: bool = True) -> Zipf:
        cells = bins**d
        if cells > 1 << 24:
            raise ValueError(
                f"{bins} bins in {d} dimensions are {cells} cells; at most {1 << 24} are possible"
            )
        # Floats from the start: integer powers overflow at 20 bins and alpha 4.
        weights = np.arange(1, cells + 1, dtype=np.float64) ** -alpha
        cumulative = np.cumsum(weights)
        return cls(d, alpha, bins, cumulative / cumulative[-1], None, inclusive)

    def reranked(self, rng: np.random.Generator) -> Zipf:
        """Returns the same law with a random ranking of the cells."""
        return replace(self, ranking=rng.permutation(self.bins**self.d))

    def cells(self, rng: np.random.Generator, n: int) -> npt.NDArray[np.int64]:
        """Draws grid coordinates, (n, d), each in 0 … bins - 1."""
        number = np.searchsorted(self.cumulative, rng.random(n), side="right").astype(np.int64)
        number = np.minimum(number, len(self.cumulative) - 1)
        if self.ranking is not None:
            number = self.ranking[number]
        places = self.bins ** np.arange(self.d - 1, -1, -1, dtype=np.int64)
        return (number[:, None] // places) % self.bins

    def points(self, rng: np.random.Generator, n: int) -> Floats:
        return (self.cells(rng, n) + rng.random((n, self.d))) * (SIDE / self.bins)

    def rectangles(self, rng: np.random.Generator, n: int) -> tuple[Floats, Floats]:
        one, other = self.cells(rng, n), self.cells(rng, n)
        width = SIDE / self.bins
        return np.minimum(one, other) * width, (np.maximum(one, other) + self.inclusive) * width


#: columns of the market workload: a symbol, a venue, a price, a volume, a change, a time of day
MARKET_COLUMNS = 6
MARKET_SYMBOLS = 2000
MARKET_VENUES = 12


def market_points(rng: np.random.Generator, n: int, *, symbols: int = MARKET_SYMBOLS) -> Floats:
    """Draws quotes: two columns of names, four of numbers; a fifth of them has no change of the day.

    Fewer symbols concentrate the events.
    """
    points = np.empty((n, MARKET_COLUMNS))
    points[:, 0] = _popular(rng, n, symbols)
    points[:, 1] = _popular(rng, n, MARKET_VENUES)
    points[:, 2] = np.exp(rng.normal(3.5, 1.0, n))
    points[:, 3] = np.exp(rng.normal(9.0, 2.0, n))
    points[:, 4] = np.where(rng.random(n) < 0.2, -np.inf, rng.normal(0.0, 2.0, n))
    points[:, 5] = rng.random(n) * 86_400.0
    return points


def market_rectangles(rng: np.random.Generator, n: int, *, named: float = 0.9) -> tuple[Floats, Floats]:
    """Draws realistic filters: most attributes unconstrained, names by equality, numbers one-sided.

    The share `named` has a symbol, drawn uniformly and not by popularity.
    """
    lo = np.full((n, MARKET_COLUMNS), -np.inf)
    hi = np.full((n, MARKET_COLUMNS), np.inf)
    naming = rng.random(n) < named
    symbol = rng.integers(0, MARKET_SYMBOLS, n).astype(np.float64)
    lo[naming, 0] = hi[naming, 0] = symbol[naming]
    venue = ~naming | (rng.random(n) < 0.2)
    lo[venue, 1] = hi[venue, 1] = rng.integers(0, MARKET_VENUES, int(venue.sum()))
    bounds = market_points(rng, n)
    for column, share in ((2, 0.6), (3, 0.2), (4, 0.2), (5, 0.1)):
        chosen = (rng.random(n) < share) & np.isfinite(bounds[:, column])
        above = rng.random(n) < 0.5
        lo[chosen & above, column] = bounds[chosen & above, column]
        below = chosen & ~above
        hi[below, column] = bounds[below, column]
        lo[below, column] = -np.finfo(np.float64).max
    return lo, hi


def _popular(rng: np.random.Generator, n: int, values: int) -> Floats:
    weights = np.arange(1, values + 1, dtype=np.float64) ** -1.0
    return rng.choice(values, n, p=weights / weights.sum()).astype(np.float64)


@dataclass(frozen=True, slots=True)
class Workload:
    """A pair of distributions under one name."""

    name: str
    dimensions: int
    rectangles: Callable[[np.random.Generator, int], tuple[Floats, Floats]]
    points: Callable[[np.random.Generator, int], Floats]


def uniform(d: int) -> Workload:
    return Workload(f"uniform d={d}", d, partial(uniform_rectangles, d=d), partial(uniform_points, d=d))


def crowd(d: int) -> Workload:
    """Uniform subscriptions, but all events near one corner: the published change of load at run time."""

    def points(rng: np.random.Generator, n: int) -> Floats:
        return np.clip(rng.normal(0.95 * SIDE, 0.025 * SIDE, (n, d)), 0.0, SIDE)

    return Workload(f"crowd d={d}", d, partial(uniform_rectangles, d=d), points)


def limited(d: int, *, side: float = SIDE, volume: float = 1.0) -> Workload:
    """Uniform events, and no large subscriptions: the published Figure 8."""
    rectangles = partial(limited_rectangles, d=d, side=side, volume=volume)
    name = f"limited d={d}, side ≤ {side:g}, volume ≤ {volume:g}"
    return Workload(name, d, rectangles, partial(uniform_points, d=d))


def local(d: int, share: float) -> Workload:
    """Uniform events, and all subscriptions in one corner with this share of the space."""
    scale = share ** (1.0 / d)

    def rectangles(rng: np.random.Generator, n: int) -> tuple[Floats, Floats]:
        lo, hi = uniform_rectangles(rng, n, d)
        return lo * scale, hi * scale

    return Workload(f"locality {share:g}, d={d}", d, rectangles, partial(uniform_points, d=d))


def zipf(d: int, alpha: float, *, bins: int = BINS, inclusive: bool = True) -> Workload:
    """Zipf-like subscriptions, uniform events: the published Figure 5."""
    law = Zipf.make(d, alpha, bins=bins, inclusive=inclusive)
    return Workload(f"Zipf {alpha:g}, d={d}", d, law.rectangles, partial(uniform_points, d=d))


def zipf_both(d: int, alpha: float, *, bins: int = BINS, inclusive: bool = True, seed: int = 0) -> Workload:
    """Zipf-like subscriptions and events, each with its own ranking: the published Figure 6."""
    law = Zipf.make(d, alpha, bins=bins, inclusive=inclusive)
    events = law.reranked(np.random.default_rng(seed))
    return Workload(f"Zipf {alpha:g} both, d={d}", d, law.rectangles, events.points)


def market(named: float = 0.9) -> Workload:
    """Quotes, and filters of which the share `named` has a symbol."""
    return Workload("market", MARKET_COLUMNS, partial(market_rectangles, named=named), market_points)
