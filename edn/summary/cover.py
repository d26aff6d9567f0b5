"""Which points lie in at least one rectangle of a set: the question that routing asks for every server.

A *cover* is an immutable set of rectangles prepared for it. A *bundle* of covers answers for many columns
(servers) at once: `bundle.mark(points, out)` sets `out[i, column]` for every point that some cover of the
column contains, and spends nothing on those that are set already. Points have any width: what they lack is
missing, and a rectangle is unconstrained in the columns that it lacks. A *router* makes both; there are two:

`bitmap`    Rectangles are sorted by falling size, and the largest few are tried one by one. For the others
            each dimension is cut into bins, and a bin has a bitset of the rectangles that meet it: the AND of
            one bitset a dimension leaves few candidates, which are compared exactly. The first that contains
            the point ends the search. One kernel call answers for all covers of a bundle.
`rtree`     One libspatialindex tree a cover, asked for any hit: the published way, and an independent second
            opinion. Some three orders of magnitude slower.
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

#: this many of the largest rectangles are tried before any bitset is touched
_FIRST = 4
#: so few rectangles have no bitsets: all are tried
_FEW = 8
#: bounds that are looked at to choose edges
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
        """Sets out[i, column] where a cover of that column contains points[i]; clear nothing."""


class Router(Protocol):
    def cover(self, lo: Floats, hi: Floats, masks: Words | None = None) -> Cover:
        """Prepare rectangles for many questions; masks narrow them, where the router knows how to."""

    def tail(self, lo: Floats, hi: Floats) -> Cover:
        """Prepare a few rectangles at no cost."""

    def bundle(self, covers: Sequence[tuple[int, Cover]]) -> Bundle:
        """Covers with the column that each belongs to; a column may have several."""


@dataclass(frozen=True, slots=True)
class BitmapCover:
    lo: Floats
    hi: Floats
    #: rectangles tried one by one; all of them in a tail
    first: int
    edges: Floats
    table: Words
    #: how many rectangles each bitset of the table has
    tallies: Ints
    #: values that a rectangle admits in a dimension, one bit each; empty where it admits all inside
    masks: Words

    @property
    def count(self) -> int:
        return len(self.lo)

    @property
    def nbytes(self) -> int:
        arrays = (self.lo, self.hi, self.edges, self.table, self.tallies, self.masks)
        return sum(array.nbytes for array in arrays)


class BitmapBundle:
    """The arrays of all covers laid end to end, so that one kernel call sees them all."""

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
    """Coordinates are replaced by their ranks, in [0, 1]: the library crashes on huge and infinite ones.

    A bound v_i becomes 2i + 1 and a value between v_i and v_(i+1) becomes 2i + 2, so every comparison stays.
    """

    def __init__(self, lo: Floats, hi: Floats) -> None:
        self.lo, self.hi = lo, hi
        self.count, self.dimensions = lo.shape
        # The library knows no space of fewer than two dimensions.
        self._width = max(2, self.dimensions)
        self._values = [np.unique(np.concatenate([lo[:, j], hi[:, j]])) for j in range(self.dimensions)]
        self._tree = None
        # The library crashes when two threads ask one tree: one that routes, and one that measures its cuts.
        self._asking = threading.Lock()
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
        with self._asking:
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
        raise ValueError(f"no router is called {name!r}; there are {', '.join(sorted(ROUTERS))}") from None


def widened(points: Floats, dimensions: int) -> Floats:
    """Points with at least that many columns, as the kernels take them; what they lack is missing."""
    rows, width = points.shape
    if width >= dimensions and points.flags.c_contiguous and points.flags.writeable:
        return points
    # Arrays over the bytes of a message are read-only: to a kernel another type, compiled for seconds.
    fitted = np.full((rows, max(width, dimensions)), -np.inf)
    fitted[:, :width] = points
    return fitted


def _made_by(cover: Cover, kind: type[Prepared]) -> Prepared:
    if not isinstance(cover, kind):  # to leave it out would be to lose events
        raise TypeError(f"a {type(cover).__name__} of another router; a {kind.__name__} is right")
    return cover


def _joined(arrays: Sequence[npt.NDArray[Any]], kind: type[np.generic]) -> npt.NDArray[Any]:
    return np.concatenate([array.ravel() for array in arrays]) if arrays else np.empty(0, dtype=kind)
