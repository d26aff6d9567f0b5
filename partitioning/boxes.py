"""The table of online placement: a few rectangles per server, which cover its subscriptions.

It is advisory: a stale or coarse rectangle costs traffic, never an event. The rectangles of all servers are
in one array, so that one kernel call compares a new subscription with all of them.
"""

from __future__ import annotations

import numpy as np

from edn.arrays import Floats, Ints
from edn.index.compilation import on_first_use
from partitioning.space import MISSING_LENGTH, THINNEST, GrowingSpace, Space


class BoxTable:
    """Rectangles by server. `number` gives the number of a server."""

    def __init__(self, bound: int | None) -> None:
        #: limit of rectangles per server; None: all that no other rectangle of the server contains
        self.bound = bound
        self._numbers: dict[str, int] = {}
        self._used = 0
        self._owner: Ints = np.empty(0, dtype=np.int64)
        self._lo: Floats = np.empty((0, 0))
        self._hi: Floats = np.empty((0, 0))
        self._seen = GrowingSpace()
        self._counts: dict[int, int] = {}

    @property
    def space(self) -> Space:
        return self._seen.space

    def number(self, server: str) -> int:
        return self._numbers.setdefault(server, len(self._numbers))

    def rects(self, server: str) -> tuple[Floats, Floats]:
        mine = np.flatnonzero(self._owner[: self._used] == self.number(server))
        return self._lo[mine], self._hi[mine]

    def replace(self, server: str, lo: Floats, hi: Floats) -> None:
        if self.bound is not None and len(lo) > self.bound:
            raise ValueError(f"{server} must have at most {self.bound} rectangles, got {len(lo)}")
        number = self.number(server)
        kept = np.flatnonzero(self._owner[: self._used] != number)
        for array in (self._owner, self._lo, self._hi):
            array[: len(kept)] = array[kept]
        self._used = len(kept)
        self._counts[number] = len(lo)
        if len(lo):
            width = lo.shape[1]
            self._seen.see(lo, hi)
            self._reserve(len(lo), width)
            end = self._used + len(lo)
            for array, bounds, unbounded in ((self._lo, lo, -np.inf), (self._hi, hi, np.inf)):
                array[self._used : end, :width] = bounds
                # These rows may have belonged to another server.
                array[self._used : end, width:] = unbounded
            self._owner[self._used : end] = number
            self._used = end

    def overlaps(self, lo: Floats, hi: Floats) -> tuple[Floats, float]:
        """Return for each server, by number, the largest volume that one of its rectangles shares with this
        one (d,), and this one's volume."""
        self._seen.see(lo[None], hi[None])
        self._reserve(0, len(lo))
        best = np.zeros(len(self._numbers))
        space = self._seen.space
        own = _overlaps(
            self._padded(lo, -np.inf),
            self._padded(hi, np.inf),
            self._lo,
            self._hi,
            self._owner,
            self._used,
            space.base,
            space.top,
            space.inverse,
            best,
        )
        return best, own

    def add(self, server: str, lo: Floats, hi: Floats) -> None:
        """Add a subscription's rectangle, unless one contains it. At the limit, extend the rectangle that
        grows least."""
        number = self.number(server)
        self._seen.see(lo[None], hi[None])
        self._reserve(1, len(lo))
        low, high = self._padded(lo, -np.inf), self._padded(hi, np.inf)
        space = self._seen.space
        full = self.bound is not None and self._counts.get(number, 0) >= self.bound
        measure = (space.base, space.top, space.inverse)
        at = _room(low, high, self._lo, self._hi, self._owner, self._used, number, full, *measure)
        if at == CONTAINED:
            return
        if at >= 0:
            np.minimum(self._lo[at], low, out=self._lo[at])
            np.maximum(self._hi[at], high, out=self._hi[at])
            return
        self._lo[self._used], self._hi[self._used] = low, high
        self._owner[self._used] = number
        self._used += 1
        self._counts[number] = self._counts.get(number, 0) + 1

    def _padded(self, side: Floats, fill: float) -> Floats:
        """Pad the bounds of an older subscription, which is unconstrained in the columns that it lacks."""
        if len(side) == self._lo.shape[1]:
            return side
        return np.concatenate([side, np.full(self._lo.shape[1] - len(side), fill)])

    def _reserve(self, more: int, width: int) -> None:
        rows, columns = self._lo.shape
        if self._used + more <= rows and width <= columns:
            return
        rows = rows if self._used + more <= rows else max(64, 2 * (self._used + more))
        lo = np.full((rows, max(width, columns)), -np.inf)
        hi = np.full((rows, max(width, columns)), np.inf)
        owner = np.full(rows, -1, dtype=np.int64)
        lo[: self._used, :columns] = self._lo[: self._used]
        hi[: self._used, :columns] = self._hi[: self._used]
        owner[: self._used] = self._owner[: self._used]
        self._lo, self._hi, self._owner = lo, hi, owner


CONTAINED, APPEND = -1, -2


@on_first_use
def _side(lo: float, hi: float, base: float, top: float, inverse: float) -> float:
    """Return the length of an interval; see `partitioning.space`."""
    missing = MISSING_LENGTH / inverse
    low = base - missing if lo == -np.inf else min(max(lo, base), top)
    high = base - 0.5 * missing if hi == -np.inf else min(max(hi, base), top)
    return max((high - low) * inverse, THINNEST)


@on_first_use
def _overlaps(
    lo: Floats,
    hi: Floats,
    lows: Floats,
    highs: Floats,
    owner: Ints,
    used: int,
    base: Floats,
    top: Floats,
    inverse: Floats,
    best: Floats,
) -> float:
    d = lo.shape[0]
    own = 1.0
    for j in range(d):
        own *= _side(lo[j], hi[j], base[j], top[j], inverse[j])
    # Remaining sides multiply the product by at most this.
    slack = (1.0 + MISSING_LENGTH) ** d
    for i in range(used):
        server = owner[i]
        if best[server] >= own:
            continue
        shared = 1.0
        for j in range(d):
            low, high = max(lo[j], lows[i, j]), min(hi[j], highs[i, j])
            if low > high:
                shared = 0.0
                break
            shared *= _side(low, high, base[j], top[j], inverse[j])
            if shared * slack <= best[server]:
                break
        if shared > best[server]:
            best[server] = shared
    return own


@on_first_use
def _room(
    lo: Floats,
    hi: Floats,
    lows: Floats,
    highs: Floats,
    owner: Ints,
    used: int,
    number: int,
    full: bool,
    base: Floats,
    top: Floats,
    inverse: Floats,
) -> int:
    """Return CONTAINED, APPEND, or, if the server is full, the rectangle that grows least."""
    d = lo.shape[0]
    chosen = APPEND
    least = np.inf
    for i in range(used):
        if owner[i] != number:
            continue
        inside = True
        for j in range(d):
            if lo[j] < lows[i, j] or hi[j] > highs[i, j]:
                inside = False
                break
        if inside:
            return CONTAINED
        if full:
            before = after = 1.0
            for j in range(d):
                before *= _side(lows[i, j], highs[i, j], base[j], top[j], inverse[j])
                low, high = min(lo[j], lows[i, j]), max(hi[j], highs[i, j])
                after *= _side(low, high, base[j], top[j], inverse[j])
            if after - before < least:
                least = after - before
                chosen = i
    return chosen
