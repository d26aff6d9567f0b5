"""Finds the points that lie in at least one rectangle of a set, for all servers at once.

A *cover* is an immutable, prepared set of rectangles. A *bundle* of covers answers for many columns (servers)
at once: `bundle.mark(points, out)` sets `out[i, column]` for every point in a cover of the column, and skips
values that are set already. Points have any width: lacking columns are missing in points and unconstrained in
rectangles. A *router* creates covers and bundles; there are two:

`bitmap`    Rectangles are sorted by decreasing size, and the largest few are tried one by one. For the others
            each dimension is divided into bins, and a bin has a bitset of the rectangles that meet it: the
            AND of one bitset per dimension leaves few candidates, which are compared exactly. The first one
            that contains the point ends the search. One kernel call answers for all covers of a bundle.
`rtree`     One libspatialindex tree per cover: the published method, as an independent reference. About three
            orders of magnitude slower.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
from rtree.index import Index, Property

from edn.arrays import Bools, Floats, Ints, Words
from edn.summary import marking
from edn.summary.kernels import quantile_edges, words_for
from edn.summary.measure import unit_rects

#: largest rectangles that are tried before the bitsets
_FIRST = 4
#: maximal number of rectangles without bitsets
_FEW = 8
#: sampled bounds for the choice of edges
_LOOK = 16_384
_NO_TABLE: Words = np.empty((0, 0, 0), dtype=np.uint64)
_NO_TALLIES: Ints = np.empty((0, 0), dtype=np.int64)
_NO_BITS: Words = np.empty((0, 0), dtype=np.uint64)


class Cover(Protocol):
    @property
    def lo(self) -> Floats: ...

    @property
    def hi(self) -> Floats: ...

    @property
    def count(self) -> int: ...

    @property
    def nbytes(self) -> int: ...


class Bundle(Protocol):
    def mark(self, points: Floats, out: Bools) -> None:
        """Sets out[i, column] where a cover of that column contains points[i]; clears nothing."""


class Router(Protocol):
    def cover(self, lo: Floats, hi: Floats, masks: Words | None = None) -> Cover:
        """Prepares rectangles for many searches; masks narrow them if the router supports it."""

    def tail(self, lo: Floats, hi: Floats) -> Cover:
        """Prepares a few rectangles at no cost."""

    def bundle(self, covers: Sequence[tuple[int, Cover]]) -> Bundle:
        """Combines (column, cover) pairs; a column may have several covers."""


@dataclass(frozen=True, slots=True)
class BitmapCover:
    lo: Floats
    hi: Floats
    #: number of rectangles tried one by one; all of them in a tail
    first: int
    edges: Floats
    table: Words
    #: rectangles per bitset of the table
    tallies: Ints
    #: hashed values that a rectangle admits per dimension, one bit each; empty without such limits
    masks: Words

    @property
    def count(self) -> int:
        return len(self.lo)

    @property
    def nbytes(self) -> int:
        arrays = (self.lo, self.hi, self.edges, self.table, self.tallies, self.masks)
        return sum(array.nbytes for array in arrays)


class BitmapBundle:
    """The concatenated arrays of all covers, for one kernel call."""

    __slots__ = ("_edges", "_hi", "_lo", "_masks", "_shape", "_table", "_tallies", "_width")

    def __init__(self, covers: Sequence[tuple[int, BitmapCover]]) -> None:
        rows = []
        edges_at = table_at = tallies_at = rects_at = masks_at = 0
        for column, cover in covers:
            n, d = cover.lo.shape
            words = cover.table.shape[2]
            first_mask = masks_at if cover.masks.size else -1
            begins = (edges_at, table_at, tallies_at, rects_at, first_mask)
            rows.append((column, d, n, cover.first, words, *begins))
            tallies_at += cover.tallies.size
            edges_at += cover.edges.size
            table_at += cover.table.size
            rects_at += cover.lo.size
            masks_at += cover.masks.size
        self._shape: Ints = np.array(rows, dtype=np.int64).reshape(len(rows), 10)
        self._width = max((cover.lo.shape[1] for _, cover in covers), default=0)
        self._edges: Floats = _joined([cover.edges for _, cover in covers], np.float64)
        self._table: Words = _joined([cover.table for _, cover in covers], np.uint64)
        self._tallies: Ints = _joined([cover.tallies for _, cover in covers], np.int64)
        self._lo: Floats = _joined([cover.lo for _, cover in covers], np.float64)
        self._hi: Floats = _joined([cover.hi for _, cover in covers], np.float64)
        self._masks: Words = _joined([cover.masks for _, cover in covers], np.uint64)

    def mark(self, points: Floats, out: Bools) -> None:
        if len(self._shape):
            fitted = widened(points, self._width)
            bits = marking.as_bits(fitted) if self._masks.size else _NO_BITS
            marking.mark(
                fitted,
                bits,
                self._shape,
                self._edges,
                self._table,
                self._tallies,
                self._lo,
                self._hi,
                self._masks,
                out,
            )


class BitmapRouter:
    def cover(self, lo: Floats, hi: Floats, masks: Words | None = None) -> BitmapCover:
        n, d = lo.shape
        a, b = unit_rects(lo, hi)
        order = np.argsort(-np.prod(b - a, axis=1), kind="stable")
        lo, hi = np.ascontiguousarray(lo[order]), np.ascontiguousarray(hi[order])
        ordered = _NO_BITS if masks is None else np.ascontiguousarray(masks[order])
        if n <= _FEW:
            return BitmapCover(lo, hi, n, np.empty((d, 0)), _NO_TABLE, _NO_TALLIES, ordered)
        edges = np.empty((d, marking.BINS - 1))
        step = -(-2 * n // _LOOK)
        for j in range(d):
            edges[j] = quantile_edges(np.concatenate([lo[::step, j], hi[::step, j]]), marking.BINS)
        table = np.zeros((d, marking.BINS, words_for(n)), dtype=np.uint64)
        marking.fill(lo, hi, edges, table)
        tallies = np.bitwise_count(table).sum(axis=2, dtype=np.int64)
        return BitmapCover(lo, hi, _FIRST, edges, table, tallies, ordered)

    def tail(self, lo: Floats, hi: Floats) -> BitmapCover:
        low, high = np.ascontiguousarray(lo), np.ascontiguousarray(hi)
        return BitmapCover(low, high, len(lo), np.empty((lo.shape[1], 0)), _NO_TABLE, _NO_TALLIES, _NO_BITS)

    def bundle(self, covers: Sequence[tuple[int, Cover]]) -> BitmapBundle:
        return BitmapBundle([(column, _made_by(cover, BitmapCover)) for column, cover in covers])


class RtreeCover:
    """A libspatialindex tree of ranks in [0, 1]; the library crashes on huge and infinite coordinates.

    A bound v_i becomes 2i + 1 and a value between v_i and v_(i+1) becomes 2i + 2, so comparisons are
    unchanged.
    """

    def __init__(self, lo: Floats, hi: Floats) -> None:
        self.lo, self.hi = lo, hi
        self.count, self.dimensions = lo.shape
        # The library requires two dimensions.
        self._width = max(2, self.dimensions)
        self._values = [np.unique(np.concatenate([lo[:, j], hi[:, j]])) for j in range(self.dimensions)]
        self._tree = None
        # The library crashes when two threads search one tree: one routes, another one measures cuts.
        self._lock = threading.Lock()
        if self.count:
            ids = np.arange(self.count, dtype=np.int64)
            properties = Property(dimension=self._width)
            self._tree = Index(
                (ids, self._ranks(lo), self._ranks(hi)), properties=properties, interleaved=True
            )

    @property
    def nbytes(self) -> int:
        return int(16 * self.count * self._width)

    def _ranks(self, coordinates: Floats) -> Floats:
        ranks = np.zeros((len(coordinates), self._width))
        for j, values in enumerate(self._values):
            column = coordinates[:, j]
            rank = np.searchsorted(values, column, "left") + np.searchsorted(values, column, "right")
            ranks[:, j] = rank / (2.0 * len(values) + 1.0)
        return ranks

    def contains(self, points: Floats) -> Bools:
        if self._tree is None:
            return np.zeros(len(points), dtype=np.bool_)
        ranks = self._ranks(points)
        corners = np.hstack([ranks, ranks]).tolist()
        with self._lock:
            return np.fromiter((self._tree.count(corner) > 0 for corner in corners), np.bool_, len(corners))


class RtreeBundle:
    __slots__ = ("_covers",)

    def __init__(self, covers: Sequence[tuple[int, RtreeCover]]) -> None:
        self._covers = covers

    def mark(self, points: Floats, out: Bools) -> None:
        for column, cover in self._covers:
            undecided = np.flatnonzero(~out[:, column])
            if len(undecided):
                fitted = widened(points[undecided], cover.dimensions)
                out[undecided, column] = cover.contains(fitted)


class RtreeRouter:
    def cover(self, lo: Floats, hi: Floats, masks: Words | None = None) -> RtreeCover:
        return RtreeCover(lo, hi)

    def tail(self, lo: Floats, hi: Floats) -> RtreeCover:
        return RtreeCover(lo, hi)

    def bundle(self, covers: Sequence[tuple[int, Cover]]) -> RtreeBundle:
        return RtreeBundle([(column, _made_by(cover, RtreeCover)) for column, cover in covers])


Prepared = TypeVar("Prepared", BitmapCover, RtreeCover)

ROUTERS: dict[str, type[BitmapRouter] | type[RtreeRouter]] = {"bitmap": BitmapRouter, "rtree": RtreeRouter}


def new_router(name: str) -> Router:
    try:
        return ROUTERS[name]()
    except KeyError:
        raise ValueError(f"router must be one of {', '.join(sorted(ROUTERS))}, got {name!r}") from None


def widened(points: Floats, dimensions: int) -> Floats:
    """Converts points for kernels: at least that many columns, padded with missing values."""
    rows, width = points.shape
    if width >= dimensions and points.flags.c_contiguous and points.flags.writeable:
        return points
    # Arrays over the bytes of a message are read-only: another type to a kernel, which would compile again.
    fitted = np.full((rows, max(width, dimensions)), -np.inf)
    fitted[:, :width] = points
    return fitted


def _made_by(cover: Cover, kind: type[Prepared]) -> Prepared:
    if not isinstance(cover, kind):  # without the check events would be lost
        raise TypeError(f"cover must be a {kind.__name__}, got {type(cover).__name__}")
    return cover


def _joined(arrays: Sequence[npt.NDArray[Any]], kind: type[np.generic]) -> npt.NDArray[Any]:
    return np.concatenate([array.ravel() for array in arrays]) if arrays else np.empty(0, dtype=kind)
