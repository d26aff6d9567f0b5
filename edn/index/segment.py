"""A segment: rectangles coded in blocks and tiles, with room for more.

Readers and the one writer share it without a lock. The writer fills the contents of unused slots first, and
then, in a second call, sets their bits in `alive`; a deletion clears the bit. Slots are never reused. So a
concurrent match sees each rectangle completely or not at all.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from edn.arrays import Floats, Ints, Words
from edn.index.bins import Bins
from edn.index.clustering import cluster
from edn.index.kernels import BLOCK, COLUMN_BYTES, REACHES, Codes, code_bounds, code_points, place
from edn.index.rows import (
    append_rows,
    constrained,
    copy_rows,
    count_bits,
    gather_alive,
    gather_columns,
    raise_slots,
)
from edn.index.sieve import sieve
from edn.index.table import Slots, delete_ids, enter, first_known, new_table

#: rectangles in a tile
TILE = BLOCK * BLOCK
CACHE_LINE = 64
#: fraction of deleted slots at which a segment is rebuilt
_SPARSE = 0.3

Scalar = TypeVar("Scalar", np.uint8, np.float64)


@dataclass(slots=True, eq=False)
class Segment:
    """Coded rectangles. Only the writer changes `used` and `dead`."""

    #: columns in which a rectangle may be constrained; the arrays below have only these
    columns: Ints
    bins: Bins
    #: lower and upper bounds of each slot, adjacent in memory, for comparisons that codes do not decide
    bounds: Floats
    ids: Ints
    #: codes, see `edn.index.kernels`
    blocks: Codes
    reach: Words
    #: one bit per slot, and one bit per block with a live slot
    alive: Words
    occupied: Words
    table: Slots
    #: filled slots
    used: int = 0
    #: deleted ones of these
    dead: int = 0
    #: whether rectangles were appended, so that they were never clustered as a whole
    filling: bool = False

    @classmethod
    def build(
        cls,
        ids: Ints,
        lo: Floats,
        hi: Floats,
        *,
        capacity: int = 0,
        also: Ints | None = None,
    ) -> Segment:
        """Clusters and codes rectangles in their constrained columns and in those of `also`.

        The kernels release the interpreter lock, so matching continues. About 1 µs per row.
        """
        count = len(ids)
        capacity = max(capacity, count)
        wanted = constrained(lo, hi)
        if also is not None:
            wanted[also] = True
        columns = np.flatnonzero(wanted)
        if len(columns) < len(wanted):
            lo, hi = gather_columns(lo, columns), gather_columns(hi, columns)
        width = len(columns)
        bins = Bins.of(lo, hi)
        low, high = np.empty((count, width), np.uint8), np.empty((count, width), np.uint8)
        code_bounds(lo, hi, bins.edges, bins.strides, low, high)
        order = cluster(low, high)
        block_count = -(-capacity // BLOCK)
        tile_count = -(-block_count // BLOCK)
        segment = cls(
            columns=columns,
            bins=bins,
            bounds=_aligned(capacity * 2 * width, np.float64).reshape(capacity, 2, width),
            ids=np.empty(capacity, np.int64),
            blocks=_aligned(tile_count * width * BLOCK * COLUMN_BYTES, np.uint8),
            reach=np.zeros((tile_count, width, REACHES), np.uint64),
            alive=np.zeros(block_count, np.uint64),
            occupied=np.zeros(tile_count, np.uint64),
            table=new_table(capacity),
        )
        copy_rows(ids, lo, hi, order, 0, segment.ids, segment.bounds)
        place(0, low, high, order, segment.blocks, segment.reach)
        enter(segment.table, segment.ids, 0, count)
        raise_slots(0, count, segment.alive, segment.occupied)
        segment.used = count
        return segment

    @property
    def capacity(self) -> int:
        return len(self.ids)

    def __len__(self) -> int:
        return self.used - self.dead

    @property
    def is_sparse(self) -> bool:
        """Whether enough slots are deleted for a rebuild."""
        return self.dead > _SPARSE * self.used

    def lacks(self, lo: Floats, hi: Floats) -> Ints:
        """Returns the columns that these rectangles constrain and the segment lacks."""
        wanted = constrained(lo, hi)
        wanted[self.columns] = False
        return np.flatnonzero(wanted)

    def append(self, ids: Ints, lo: Floats, hi: Floats) -> None:
        """Fills the next slots; requires room for the rectangles and all columns that they constrain."""
        start, stop = self.used, self.used + len(ids)
        if len(self.columns) < lo.shape[1]:
            lo, hi = gather_columns(lo, self.columns), gather_columns(hi, self.columns)
        append_rows(
            ids,
            lo,
            hi,
            self.bins.edges,
            self.bins.strides,
            start,
            self.ids,
            self.bounds,
            self.blocks,
            self.reach,
            self.table,
        )
        raise_slots(start, stop, self.alive, self.occupied)
        self.used = stop

    def delete(self, ids: Ints) -> int:
        """Deletes ids; returns how many there were."""
        count = delete_ids(self.table, self.ids, self.alive, self.occupied, ids)
        self.dead += count
        return count

    def first_known(self, ids: Ints) -> int:
        return first_known(self.table, self.ids, self.alive, ids)

    def sieve(self, points: Floats, counts: Ints) -> tuple[Words, Words]:
        """Returns the hits of each point for `edn.index.sieve.emit`; adds their numbers to `counts`."""
        codes = np.empty((len(points), len(self.columns)), np.uint8)
        values = np.empty(codes.shape)
        code_points(points, self.columns, self.bins.edges, self.bins.strides, codes, values)
        return sieve(values, codes, self.blocks, self.reach, self.occupied, self.alive, self.bounds, counts)

    @property
    def nbytes(self) -> int:
        arrays = (self.bounds, self.ids, self.blocks, self.reach, self.alive, self.occupied, self.table)
        return sum(array.nbytes for array in arrays) + self.bins.edges.nbytes


def gather(segments: Iterable[tuple[Segment, Words]], dimensions: int) -> tuple[Ints, Floats, Floats]:
    """Copies the rectangles of several segments whose bit is set in the given copy of `alive`."""
    parts = list(segments)
    total = sum(count_bits(alive) for _, alive in parts)
    ids = np.empty(total, np.int64)
    lo, hi = np.empty((total, dimensions)), np.empty((total, dimensions))
    at = 0
    for segment, alive in parts:
        at = gather_alive(segment.ids, segment.bounds, segment.columns, alive, at, ids, lo, hi)
    return ids, lo, hi


def _aligned(count: int, dtype: type[Scalar]) -> npt.NDArray[Scalar]:
    """Allocates memory aligned to cache lines, for vector loads and rows of bounds.

    It is zero, so pages are allocated only when touched. Codes of zero are those of an empty slot: the code
    of a point is at least 1.
    """
    size = count * np.dtype(dtype).itemsize
    memory = np.zeros(size + CACHE_LINE, np.uint8)
    start = -memory.ctypes.data % CACHE_LINE
    return memory[start : start + size].view(dtype)
