"""Finite volumes of rectangles whose bounds may be infinite, for the comparison of servers.

Each dimension is clamped to the range of the finite bounds seen, so that an unconstrained side has the
length of the range. Missing is an interval below the range, a sixteenth of its length: a rectangle that
contains events without the attribute is longer than one that does not.

    coordinate     -inf as lo     -inf as hi       below the range   inside   above
    clamped to     base - w       base - w/2       base              itself   top

Sides are divided by a power of two that is at least the length of the range. That is exact, so volumes
compare as in the original space, and products of many dimensions neither overflow nor underflow. No side is
shorter than `THINNEST`: an equality has no length, but must not make every volume zero.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from edn.arrays import Floats
from edn.index.compilation import on_first_use

#: smallest length of a side, relative to the scale of its dimension
THINNEST = 2.0**-20
#: length of "missing", relative to the scale
MISSING_LENGTH = 2.0**-4

_LARGEST = float(np.finfo(np.float64).max)
#: limit of coordinates, so that the difference of two is finite
_FAR = 2.0**996


@dataclass(frozen=True, slots=True)
class Space:
    #: range of each dimension
    base: Floats
    top: Floats
    #: a power of two that is at least top - base
    scale: Floats
    #: 1 / scale, exact
    inverse: Floats

    @classmethod
    def spanning(cls, base: Floats, top: Floats) -> Space:
        """Return the space between the smallest and largest finite bounds; +inf and -inf if there is none."""
        base, top = np.clip(base, -_FAR, _FAR), np.clip(top, -_FAR, _FAR)
        # A dimension with at most one finite bound needs a length, too.
        none = base > top
        base, top = np.where(none, 0.0, base), np.where(none, 0.0, top)
        point = base == top
        pad = np.where(point, np.maximum(0.5, np.abs(base) * 2.0**-20), 0.0)
        base, top = base - pad, top + pad
        exponents = np.array([math.frexp(length)[1] for length in (top - base).tolist()], dtype=np.int64)
        scale = np.ldexp(1.0, np.clip(exponents, -900, 1000))
        return cls(base, top, scale, 1.0 / scale)

    @classmethod
    def of(cls, lo: Floats, hi: Floats) -> Space:
        return cls.spanning(*finite_range(lo, hi))

    @property
    def dimensions(self) -> int:
        return len(self.base)

    @property
    def whole(self) -> float:
        """The volume of an unconstrained rectangle."""
        return float(np.prod((self.top - self.base) * self.inverse + MISSING_LENGTH))

    def clamp(self, lo: Floats, hi: Floats) -> tuple[Floats, Floats]:
        """Return rectangles (n, d) with finite bounds."""
        low, high = np.empty(lo.shape), np.empty(hi.shape)
        _clamp(np.ascontiguousarray(lo), np.ascontiguousarray(hi), self.base, self.top, self.scale, low, high)
        return low, high

    def centres(self, lo: Floats, hi: Floats) -> Floats:
        """Return the centres of rectangles (n, d), each dimension scaled to its range."""
        low, high = self.clamp(lo, hi)
        scaled: Floats = ((low + high) / 2 - self.base) / (self.top - self.base)
        return scaled

    def volume(self, low: Floats, high: Floats) -> Floats:
        """Return the volumes of clamped rectangles (…, d)."""
        sides = np.maximum((high - low) * self.inverse, THINNEST)
        return np.asarray(np.multiply.reduce(sides, axis=-1))


class GrowingSpace:
    """The space of all rectangles seen so far."""

    __slots__ = ("_base", "_top", "space")

    def __init__(self) -> None:
        self._base: Floats = np.empty(0)
        self._top: Floats = np.empty(0)
        self.space = Space.spanning(self._base, self._top)

    def see(self, lo: Floats, hi: Floats) -> None:
        d = lo.shape[1]
        if d > len(self._base):
            more = d - len(self._base)
            self._base = np.concatenate([self._base, np.full(more, np.inf)])
            self._top = np.concatenate([self._top, np.full(more, -np.inf)])
            self.space = Space.spanning(self._base, self._top)
        if _finite_range(lo, hi, self._base, self._top):
            self.space = Space.spanning(self._base, self._top)


def finite_range(lo: Floats, hi: Floats) -> tuple[Floats, Floats]:
    """Return the smallest and largest finite bound of each dimension; +inf and -inf if there is none."""
    base = np.full(lo.shape[1], np.inf)
    top = np.full(lo.shape[1], -np.inf)
    _finite_range(np.ascontiguousarray(lo), np.ascontiguousarray(hi), base, top)
    return base, top


@on_first_use
def _finite_range(lo: Floats, hi: Floats, base: Floats, top: Floats) -> bool:
    """Extend the range; return whether it changed."""
    wider = False
    for i in range(lo.shape[0]):
        for j in range(lo.shape[1]):
            for x in (lo[i, j], hi[i, j]):
                if -_LARGEST < x < _LARGEST:
                    if x < base[j]:
                        base[j] = x
                        wider = True
                    if x > top[j]:
                        top[j] = x
                        wider = True
    return wider


@on_first_use
def _clamp(
    lo: Floats, hi: Floats, base: Floats, top: Floats, scale: Floats, low: Floats, high: Floats
) -> None:
    for i in range(lo.shape[0]):
        for j in range(lo.shape[1]):
            missing = MISSING_LENGTH * scale[j]
            if lo[i, j] == -np.inf:
                low[i, j] = base[j] - missing
            else:
                # Adding zero turns -0.0 into 0.0, so that they are one key.
                low[i, j] = min(max(lo[i, j], base[j]), top[j]) + 0.0
            if hi[i, j] == -np.inf:
                high[i, j] = base[j] - 0.5 * missing
            else:
                high[i, j] = min(max(hi[i, j], base[j]), top[j]) + 0.0
