"""The maximal rectangles of a changing set: those that no other covers, and one of several equal ones.

A server's summary consists of them, so they are maintained under every insert and delete instead of being
recomputed. `edn.summary.forest` explains the structure and has the kernels.

An insert scans bitsets over the maximal rectangles, a few microseconds for 100,000 of them in four
dimensions. A delete costs that for every rectangle that loses its witness: nothing if the deleted one is not
maximal, much if it covered everything else.

Only columns that some rectangle constrains are **active**: bounds and bitsets exist only for them, so a wide
topic costs only its used columns. Activating a column rebuilds the bitsets.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from edn.arrays import Floats, Ints, Words
from edn.summary import forest
from edn.summary.kernels import CHUNK, quantile_edges, words_for

#: sampled values for bins and sizes
_SAMPLE = 20_000
#: knots to compare sizes, finer than bins
_KNOTS = 1024
#: initial capacity
_FIRST_ROWS = 16
#: rectangles beyond which several columns are activated at once, so that rebuilds stay rare
_MANY = 1024
#: sides beyond which few rectangles have fewer bins per side
_WIDE = 64


class Maximal:
    """The maximal rectangles of a set. One thread only; `rects()` returns copies."""

    def __init__(self, dimensions: int) -> None:
        if dimensions < 0:
            raise ValueError(f"dimensions must be 0 or more, got {dimensions}")
        self._dimensions = dimensions
        #: active columns, in the order of their activation
        self._active: Ints = np.empty(0, dtype=np.int64)
        self._rows: dict[int, int] = {}
        self._free_rows: list[int] = []
        self._top = 0
        #: bounds in the active columns
        self._lo: Floats = np.empty((0, 0))
        self._hi: Floats = np.empty((0, 0))
        #: per row: witness, first child, following and preceding sibling, slot
        self._links: Ints = np.empty((5, 0), dtype=np.int64)
        self._witness, self._child, self._following, self._before, self._slot = self._links
        #: slots ever used, free ones of them, roots
        self._counts: Ints = np.zeros(3, dtype=np.int64)
        self._build_table(np.empty(0, dtype=np.int64))

    @property
    def dimensions(self) -> int:
        return self._dimensions

    def __len__(self) -> int:
        """Number of maximal rectangles."""
        return int(self._counts[2])

    @property
    def total(self) -> int:
        """Number of rectangles, maximal or not."""
        return len(self._rows)

    def __contains__(self, id: int) -> bool:
        return id in self._rows

    @property
    def nbytes(self) -> int:
        bounds = (self._lo, self._hi, self._edges)
        arrays = (*bounds, self._links, self._table, self._slot_row, self._free_slots)
        return sum(array.nbytes for array in arrays)

    def rects(self) -> tuple[Floats, Floats]:
        rows = self._roots()
        lo = np.full((len(rows), self._dimensions), -np.inf)
        hi = np.full((len(rows), self._dimensions), np.inf)
        lo[:, self._active], hi[:, self._active] = self._lo[rows], self._hi[rows]
        return lo, hi

    def insert(self, ids: Iterable[int], lo: npt.ArrayLike, hi: npt.ArrayLike) -> None:
        """Adds rectangles (n, d) under new ids, unconstrained in the columns that they lack."""
        names = _names(ids)
        low = self._matrix(lo, len(names), -np.inf)
        high = self._matrix(hi, len(names), np.inf)
        if not (low <= high).all():
            at = int(np.argmin((low <= high).all(axis=1)))
            raise ValueError(
                f"rectangle {at} (id {names[at]}) has a lower bound above its upper bound, or NaN"
            )
        taken = next((name for name in names if name in self._rows), None)
        if taken is not None:
            raise ValueError(f"id {taken} exists already")
        _check_unique(names)
        self._activate(low, high)
        rows = self._take_rows(len(names))
        self._rows.update(zip(names, rows.tolist(), strict=True))
        self._lo[rows] = low[:, self._active]
        self._hi[rows] = high[:, self._active]
        self._place(rows)

    def delete(self, ids: Iterable[int]) -> None:
        """Removes rectangles; raises KeyError for an unknown id and removes nothing."""
        names = _names(ids)
        _check_unique(names)
        rows = np.array([self._rows[name] for name in names], dtype=np.int64)
        orphans = np.empty(self._top, dtype=np.int64)
        lost = forest.remove_rows(
            rows, self._witness, self._child, self._following, self._before, self._slot,
            self._table, self._alive, self._slot_row, self._free_slots, self._counts, orphans,
        )  # fmt: skip
        for name in names:
            del self._rows[name]
        self._free_rows.extend(rows.tolist())
        orphans = orphans[:lost]
        orphans = orphans[self._witness[orphans] == forest.LOOSE]
        if 8 * len(self) + 4096 < len(self._slot_row):
            self._build_table(orphans)
        if len(orphans):
            self._place(orphans)

    def grow(self, dimensions: int) -> None:
        """Adds columns, in which existing rectangles are unconstrained."""
        if dimensions < self._dimensions:
            raise ValueError(f"dimensions must be {self._dimensions} or more, got {dimensions}")
        self._dimensions = dimensions

    def check(self) -> None:
        """Asserts every invariant. For tests; quadratic."""
        live = sorted(self._rows.values())
        roots = self._roots()
        assert len(set(live)) == len(live), "two ids share a row"
        assert len(live) + len(self._free_rows) == self._top, "rows are lost"
        assert len(roots) == len(self), "the count of roots is wrong"
        assert sorted(roots.tolist()) == [r for r in live if self._witness[r] == forest.ROOT], (
            "roots and slots"
        )
        children: dict[int, list[int]] = {}
        for row in live:
            above = int(self._witness[row])
            if above == forest.ROOT:
                assert self._slot_row[self._slot[row]] == row, "a root without its slot"
                continue
            assert above in live, "a witness that is not there"
            assert self._slot[row] == -1, "a slot without a root"
            assert self._row_covers(above, row), "a witness that does not cover"
            children.setdefault(above, []).append(row)
        for row in live:
            chain = []
            at = int(self._child[row])
            while at >= 0:
                chain.append(at)
                at = int(self._following[at])
            assert sorted(chain) == sorted(children.get(row, [])), "a list of children is wrong"
            above, steps = row, 0
            while self._witness[above] >= 0:
                above, steps = int(self._witness[above]), steps + 1
                assert steps <= len(live), "witnesses run in a circle"
        for one in roots:
            for other in roots:
                assert one == other or not self._row_covers(int(one), int(other)), "a root covers another"
        bins = np.empty(2 * len(self._active), dtype=np.int64)
        expected = np.zeros_like(self._table)
        for row in roots:
            forest.bins_of(int(row), self._lo, self._hi, self._edges, bins)
            place = int(self._slot[row])
            bit = np.uint64(1 << (place & 63))
            for j in range(len(self._active)):
                expected[2 * j, bins[2 * j] :, place >> 6] |= bit
                expected[2 * j + 1, : bins[2 * j + 1] + 1, place >> 6] |= bit
        sides = 2 * len(self._active)
        assert (expected[:sides] == self._table[:sides]).all(), "a bitset is wrong"

    # -- inside -----------------------------------------------------------------------------------------

    def _row_covers(self, outer: int, inner: int) -> bool:
        return bool((self._lo[outer] <= self._lo[inner]).all() and (self._hi[outer] >= self._hi[inner]).all())

    def _roots(self) -> Ints:
        rows = self._slot_row[: self._counts[0]]
        return rows[rows >= 0]

    def _matrix(self, bounds: npt.ArrayLike, n: int, pad: float) -> Floats:
        given = np.asarray(bounds, dtype=np.float64)
        if given.ndim != 2 or len(given) != n or given.shape[1] > self._dimensions:
            raise ValueError(
                f"bounds must be {n} rows of at most {self._dimensions} columns, got shape {given.shape}"
            )
        if given.shape[1] == self._dimensions:
            return given
        return np.hstack([given, np.full((n, self._dimensions - given.shape[1]), pad)])

    def _activate(self, lo: Floats, hi: Floats) -> None:
        wanted = ((lo != -np.inf) | (hi != np.inf)).any(axis=0)
        wanted[self._active] = False
        more = np.flatnonzero(wanted)
        if not len(more):
            return
        if self.total > _MANY:
            idle = np.ones(self._dimensions, dtype=np.bool_)
            idle[self._active] = idle[more] = False
            more = np.concatenate([more, np.flatnonzero(idle)[: len(self._active)]])
        rows = len(self._lo)
        self._active = np.concatenate([self._active, more])
        self._lo = np.hstack([self._lo, np.full((rows, len(more)), -np.inf)])
        self._hi = np.hstack([self._hi, np.full((rows, len(more)), np.inf)])
        self._build_table(np.empty(0, dtype=np.int64))

    def _take_rows(self, n: int) -> Ints:
        reused = [self._free_rows.pop() for _ in range(min(n, len(self._free_rows)))]
        fresh = n - len(reused)
        if self._top + fresh > len(self._lo):
            more = max(_FIRST_ROWS, len(self._lo), fresh)
            self._lo = np.vstack([self._lo, np.empty((more, len(self._active)))])
            self._hi = np.vstack([self._hi, np.empty((more, len(self._active)))])
            self._links = np.hstack([self._links, np.full((5, more), -1)])
            self._witness, self._child, self._following, self._before, self._slot = self._links
        rows = np.array(reused + list(range(self._top, self._top + fresh)), dtype=np.int64)
        self._top += fresh
        self._witness[rows] = forest.LOOSE
        self._child[rows] = -1
        self._slot[rows] = -1
        return rows

    def _place(self, rows: Ints) -> None:
        if len(rows) > len(self) and len(rows) > 64:
            # The bins of a small set do not fit a much larger insert.
            self._build_table(rows)
        rows = rows[self._by_falling_size(rows)]
        done = 0
        while True:
            done = forest.insert_rows(
                rows, done, self._lo, self._hi, self._witness, self._child, self._following, self._before,
                self._slot, self._table, self._edges, self._alive, self._slot_row, self._free_slots,
                self._counts,
            )  # fmt: skip
            if done == len(rows):
                return
            self._build_table(rows[done:])

    def _by_falling_size(self, rows: Ints) -> Ints:
        """Sorts rows by decreasing size, so that covering rectangles come first and few are demoted."""
        if len(rows) < 2:
            return np.arange(len(rows))
        size = np.zeros(len(rows))
        step = -(-len(rows) // _SAMPLE)
        for j in range(len(self._active)):
            lo, hi = self._lo[rows, j], self._hi[rows, j]
            knots = quantile_edges(np.concatenate([lo[::step], hi[::step]]), _KNOTS)
            size += np.log(1.0 + np.searchsorted(knots, hi, "right") - np.searchsorted(knots, lo, "right"))
        return np.argsort(-size, kind="stable")

    def _build_table(self, coming: Ints) -> None:
        """Builds the bitsets, with room for twice the roots and some coming rows, and bins by quantiles."""
        roots = self._roots() if len(self) else np.empty(0, dtype=np.int64)
        roots = roots[self._by_falling_size(roots)]
        sample = np.concatenate([_thinned(roots, _SAMPLE), _thinned(coming, _SAMPLE)])
        words = words_for(2 * len(roots) + min(len(coming), max(4096, len(roots))))
        bins = 64 if words * 64 <= 1 << 18 else 32
        sides = max(2, 2 * len(self._active))
        if words == CHUNK and sides > _WIDE:
            bins = 16
        self._edges = np.full((sides, bins - 1), np.inf)
        for j in range(len(self._active)):
            self._edges[2 * j] = quantile_edges(self._lo[sample, j], bins)
            self._edges[2 * j + 1] = quantile_edges(self._hi[sample, j], bins)
        self._table: Words = np.zeros((sides, bins, words), dtype=np.uint64)
        self._alive: Words = np.zeros(words, dtype=np.uint64)
        self._slot_row: Ints = np.full(words * 64, -1, dtype=np.int64)
        self._free_slots: Ints = np.empty(words * 64, dtype=np.int64)
        forest.fill_table(roots, self._lo, self._hi, self._edges, self._table, self._slot_row, self._slot)
        full, rest = divmod(len(roots), 64)
        self._alive[:full] = ~np.uint64(0)
        if rest:
            self._alive[full] = np.uint64((1 << rest) - 1)
        self._counts[:] = len(roots), 0, len(roots)


def _names(ids: Iterable[int]) -> list[int]:
    return ids.tolist() if isinstance(ids, np.ndarray) else [int(id) for id in ids]


def _check_unique(names: list[int]) -> None:
    if len(set(names)) != len(names):
        raise ValueError("ids must be unique, got one twice")


def _thinned(rows: Ints, most: int) -> Ints:
    return rows[:: -(-len(rows) // most)] if len(rows) > most else rows
