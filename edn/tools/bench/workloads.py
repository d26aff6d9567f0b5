"""Seeded random subscriptions and events: the distributions that benchmarks, the load test, the published
experiments and tests share.

A set of rectangles is a pair of float64 matrices `lo`, `hi` of shape (n, d); points are one of shape (n, d).
Every function draws from the generator that it is given and from nothing else, so a seed replays a run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from edn.arrays import Floats

#: the side of the space in the published experiments
SIDE = 10.0
#: bins a dimension of the Zipf-like distribution; the published experiments do not name theirs
BINS = 10


def uniform_points(rng: np.random.Generator, n: int, d: int) -> Floats:
    """Events spread evenly over [0, 10]^d."""
    return rng.random((n, d)) * SIDE


def uniform_rectangles(rng: np.random.Generator, n: int, d: int) -> tuple[Floats, Floats]:
    """Subscriptions whose bounds in each dimension are the smaller and the larger of two even draws."""
    one, other = uniform_points(rng, n, d), uniform_points(rng, n, d)
    return np.minimum(one, other), np.maximum(one, other)


def limited_rectangles(
    rng: np.random.Generator, n: int, d: int, *, side: float = SIDE, volume: float = 1.0
) -> tuple[Floats, Floats]:
    """Such subscriptions without those that have a longer side, or more than this share of the space.

    A side that is too long is drawn anew by itself; a rectangle that is too large is, as a whole.
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

    Unless a ranking is given, cells are ranked by their number, whose first digit is the first dimension:
    the first dimensions then matter more than the last. Bounds include both drawn cells whole; where they do
    not, as the published text says literally, most rectangles have no volume.
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
    def make(
        cls,
        d: int,
        alpha: float,
        *,
        bins: int = BINS,
        ranking: npt.NDArray[np.int64] | None = None,
        inclusive: bool = True,
    ) -> Zipf:
        cells = bins**d
        if cells > 1 << 24:
            raise ValueError(
                f"{bins} bins in {d} dimensions are {cells} cells; at most {1 << 24} are possible"
            )
        # Floats from the start: integer powers overflow at 20 bins and alpha 4.
        weights = np.arange(1, cells + 1, dtype=np.float64) ** -alpha
        cumulative = np.cumsum(weights)
        return cls(d, alpha, bins, cumulative / cumulative[-1], ranking, inclusive)

    def reranked(self, rng: np.random.Generator) -> Zipf:
        """The same law with popularity dealt to the cells at random: where events follow another taste."""
        return replace(self, ranking=rng.permutation(self.bins**self.d))

    def cells(self, rng: np.random.Generator, n: int) -> npt.NDArray[np.int64]:
        """Grid coordinates, (n, d), each in 0 … bins - 1."""
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
    """Quotes: two columns of names, four of numbers; the change of the day is missing in a fifth of them.

    With fewer symbols it is a day on which everybody trades the same few.
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
    """Filters as people write them: most attributes unconstrained, names by equality, numbers one-sided.

    `named` of them name a symbol, evenly, not by popularity: the tail of quiet symbols is wanted too.
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
    return Workload(
        f"uniform d={d}",
        d,
        lambda rng, n: uniform_rectangles(rng, n, d),
        lambda rng, n: uniform_points(rng, n, d),
    )


def crowd(d: int) -> Workload:
    """Even subscriptions, but all events near one corner: the published change of load at run time."""

    def points(rng: np.random.Generator, n: int) -> Floats:
        return np.clip(rng.normal(0.95 * SIDE, 0.025 * SIDE, (n, d)), 0.0, SIDE)

    return Workload(f"crowd d={d}", d, lambda rng, n: uniform_rectangles(rng, n, d), points)


def limited(d: int, *, side: float = SIDE, volume: float = 1.0) -> Workload:
    """Even events, and subscriptions none of which is large: the published Figure 8."""
    return Workload(
        f"limited d={d}, side ≤ {side:g}, volume ≤ {volume:g}",
        d,
        lambda rng, n: limited_rectangles(rng, n, d, side=side, volume=volume),
        lambda rng, n: uniform_points(rng, n, d),
    )


def local(d: int, share: float) -> Workload:
    """Even events, and all subscriptions within one corner that has this share of the space."""
    scale = share ** (1.0 / d)

    def rectangles(rng: np.random.Generator, n: int) -> tuple[Floats, Floats]:
        lo, hi = uniform_rectangles(rng, n, d)
        return lo * scale, hi * scale

    return Workload(f"locality {share:g}, d={d}", d, rectangles, lambda rng, n: uniform_points(rng, n, d))


def zipf(d: int, alpha: float, *, bins: int = BINS, inclusive: bool = True) -> Workload:
    """Subscriptions follow the law, events are even: the published Figure 5."""
    law = Zipf.make(d, alpha, bins=bins, inclusive=inclusive)
    return Workload(f"Zipf {alpha:g}, d={d}", d, law.rectangles, lambda rng, n: uniform_points(rng, n, d))


def zipf_both(d: int, alpha: float, *, bins: int = BINS, inclusive: bool = True, seed: int = 0) -> Workload:
    """Subscriptions and events follow the law, each with a ranking of its own: the published Figure 6."""
    law = Zipf.make(d, alpha, bins=bins, inclusive=inclusive)
    events = law.reranked(np.random.default_rng(seed))
    return Workload(f"Zipf {alpha:g} both, d={d}", d, law.rectangles, events.points)


def market(named: float = 0.9) -> Workload:
    """Quotes, and filters of which so many name a symbol."""
    return Workload(
        "market", MARKET_COLUMNS, lambda rng, n: market_rectangles(rng, n, named=named), market_points
    )
