"""A segment: rectangles, coded in blocks and tiles, with room for some more.

Readers and the one writer share it without a lock. The writer fills slots that nothing refers to, first all
of their contents and then, in a second call, the bit in `alive` that makes them count; a deletion clears that
bit. A slot is never used twice. So a match that runs meanwhile sees each rectangle whole or not at all.
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
from edn.index.table import Slots, bury, enter, first_known, new_table

#: rectangles in a tile
TILE = BLOCK * BLOCK
CACHE_LINE = 64
#: a segment of which so much is deleted wants to be built anew
_ROTTEN = 0.3

Scalar = TypeVar("Scalar", np.uint8, np.float64)


@dataclass(slots=True, eq=False)
class Segment:
    """`used` of `capacity` slots are filled; `dead` of these are deleted. Only the writer changes either."""

    #: the columns in which any rectangle may be constrained; all others are left out everywhere below
    columns: Ints
    bins: Bins
    #: for when codes cannot tell: the lower and then the upper bounds of each slot, side by side in memory
    bounds: Floats
    ids: Ints
    #: codes, see `edn.index.kernels`
    blocks: Codes
    reach: Words
    #: one bit a slot, and one bit a block in which any slot is alive
    alive: Words
    occupied: Words
    table: Slots
    used: int = 0
    dead: int = 0
    #: it was filled rectangle by rectangle, and never clustered as a whole
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
        """Cluster and code these rectangles, in the columns that any of them constrains, and in those of
        `also`, which rectangles that are appended later may constrain.

        Works in kernels that release the interpreter lock: matching goes on meanwhile. About 1 µs a row.
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
    def rotten(self) -> bool:
        """Whether so much was deleted that building it anew pays."""
        return self.dead > _ROTTEN * self.used

    def lacks(self, lo: Floats, hi: Floats) -> Ints:
        """Returns the columns that some of these rectangles constrain and that are not among ours."""
        wanted = constrained(lo, hi)
        wanted[self.columns] = False
        return np.flatnonzero(wanted)

    def append(self, ids: Ints, lo: Floats, hi: Floats) -> None:
        """Fills the next slots; there must be room, and no column that they constrain may lack here."""
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
        """Forget those of the ids that are here; returns how many there were."""
        count = bury(self.table, self.ids, self.alive, self.occupied, ids)
        self.dead += count
        return count

    def first_known(self, ids: Ints) -> int:
        """The index of the first of these ids that is here, or -1."""
        return first_known(self.table, self.ids, self.alive, ids)

    def sieve(self, points: Floats, counts: Ints) -> tuple[Words, Words]:
        """The hits of each point, their numbers added to `counts`; `edn.index.sieve.emit` makes them ids."""
        codes = np.empty((len(points), len(self.columns)), np.uint8)
        values = np.empty(codes.shape)
        code_points(points, self.columns, self.bins.edges, self.bins.strides, codes, values)
        return sieve(values, codes, self.blocks, self.reach, self.occupied, self.alive, self.bounds, counts)

    @property
    def nbytes(self) -> int:
        """Memory taken, in bytes."""
        arrays = (self.bounds, self.ids, self.blocks, self.reach, self.alive, self.occupied, self.table)
        return sum(array.nbytes for array in arrays) + self.bins.edges.nbytes


def gather(segments: Iterable[tuple[Segment, Words]], dimensions: int) -> tuple[Ints, Floats, Floats]:
    """The rectangles of several segments whose bit is set in the copy of `alive` that comes with each."""
    parts = list(segments)
    total = sum(count_bits(alive) for _, alive in parts)
    ids = np.empty(total, np.int64)
    lo, hi = np.empty((total, dimensions)), np.empty((total, dimensions))
    at = 0
    for segment, alive in parts:
        at = gather_alive(segment.ids, segment.bounds, segment.columns, alive, at, ids, lo, hi)
    return ids, lo, hi


def _aligned(count: int, dtype: type[Scalar]) -> npt.NDArray[Scalar]:
    """Memory that begins on a multiple of a cache line, as vector loads and rows of bounds want it.

    It is all zeros, which the system provides only where it is touched. Codes of zero are those of a slot
    that nothing is inside: the code of a point is at least 1.
    """
    size = count * np.dtype(dtype).itemsize
    memory = np.zeros(size + CACHE_LINE, np.uint8)
    start = -memory.ctypes.data % CACHE_LINE
    return memory[start : start + size].view(dtype)
