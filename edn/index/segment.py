"""A segment: rectangles, coded in blocks and tiles, with room for some more.

Readers and the one writer share it without a lock. The writer fills slots that nothing refers to, first all
of their contents and then, in a second call, the bit in `alive` that makes them count; a deletion clears that
bit. A slot is never used twice. So a match that runs meanwhile sees each rectangle whole or not at all.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from edn.index.bins import Bins
from edn.index.clustering import cluster
from edn.index.compiling import kernel
from edn.index.kernels import (
    BLOCK,
    COLUMN_BYTES,
    HIGHEST_CODE,
    REACHES,
    Codes,
    Coordinates,
    Integers,
    Words,
    code_bounds,
    code_points,
    place,
)
from edn.index.sieve import sieve
from edn.index.table import Slots, bury, enter, first_known, new_table

#: rectangles in a tile
TILE = BLOCK * BLOCK
#: a segment of which so much is deleted wants to be built anew
_ROTTEN = 0.3


@dataclass(slots=True, eq=False)
class Segment:
    """`used` of `capacity` slots are filled; `dead` of these are deleted. Only the writer changes either."""

    #: the columns in which any rectangle may be constrained; all others are left out everywhere below
    columns: Integers
    bins: Bins
    #: bounds, slot by slot, for when codes cannot tell
    lo: Coordinates
    hi: Coordinates
    ids: Integers
    #: codes, see `edn.index.kernels`
    blocks: Codes
    reach: Words
    #: one bit a slot, and one bit a block in which any slot is alive
    alive: Words
    occupied: Words
    table: Slots
    used: int = 0
    dead: int = 0
    #: the next recoding of a segment that is being filled is due at so many slots
    recode_at: int = 0

    @classmethod
    def build(
        cls, ids: Integers, lo: Coordinates, hi: Coordinates, *, capacity: int = 0, all_columns: bool = False
    ) -> Segment:
        """Cluster and code these rectangles. `all_columns` if later ones may be constrained elsewhere.

        Works in kernels that release the interpreter lock: matching goes on meanwhile. About 1 µs a row.
        """
        count = len(ids)
        capacity = max(capacity, count)
        every = np.arange(lo.shape[1], dtype=np.int64)
        columns = every if all_columns else every[constrained(lo, hi)]
        if len(columns) < len(every):
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
            lo=np.empty((capacity, width)),
            hi=np.empty((capacity, width)),
            ids=np.empty(capacity, np.int64),
            blocks=_empty_blocks(block_count * width * COLUMN_BYTES),
            reach=np.zeros((tile_count, width, REACHES), np.uint64),
            alive=np.zeros(block_count, np.uint64),
            occupied=np.zeros(tile_count, np.uint64),
            table=new_table(capacity),
        )
        copy_rows(ids, lo, hi, order, 0, segment.ids, segment.lo, segment.hi)
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

    def append(self, ids: Integers, lo: Coordinates, hi: Coordinates) -> None:
        """Fill the next slots; there must be room, and every column must be one of ours."""
        start, stop = self.used, self.used + len(ids)
        append_rows(
            ids,
            lo,
            hi,
            self.bins.edges,
            self.bins.strides,
            start,
            self.ids,
            self.lo,
            self.hi,
            self.blocks,
            self.reach,
            self.table,
        )
        raise_slots(start, stop, self.alive, self.occupied)
        self.used = stop

    def delete(self, ids: Integers) -> int:
        """Forget those of the ids that are here; returns how many there were."""
        count = bury(self.table, self.ids, self.alive, self.occupied, ids)
        self.dead += count
        return count

    def first_known(self, ids: Integers) -> int:
        """The index of the first of these ids that is here, or -1."""
        return first_known(self.table, self.ids, self.alive, ids)

    def sieve(self, points: Coordinates, counts: Integers) -> tuple[Words, Words]:
        """The hits of each point, their numbers added to `counts`; `edn.index.sieve.emit` makes them ids."""
        codes = np.empty((len(points), len(self.columns)), np.uint8)
        values = np.empty(codes.shape)
        code_points(points, self.columns, self.bins.edges, self.bins.strides, codes, values)
        return sieve(
            values, codes, self.blocks, self.reach, self.occupied, self.alive, self.lo, self.hi, counts
        )

    @property
    def nbytes(self) -> int:
        """Memory taken, in bytes."""
        arrays = (self.lo, self.hi, self.ids, self.blocks, self.reach, self.alive, self.occupied, self.table)
        return sum(array.nbytes for array in arrays) + self.bins.edges.nbytes


def gather(
    segments: Iterable[tuple[Segment, Words]], dimensions: int
) -> tuple[Integers, Coordinates, Coordinates]:
    """The rectangles of several segments whose bit is set in the copy of `alive` that comes with each."""
    parts = list(segments)
    total = sum(count_bits(alive) for _, alive in parts)
    ids = np.empty(total, np.int64)
    lo, hi = np.empty((total, dimensions)), np.empty((total, dimensions))
    at = 0
    for segment, alive in parts:
        at = gather_alive(segment.ids, segment.lo, segment.hi, segment.columns, alive, at, ids, lo, hi)
    return ids, lo, hi


def _empty_blocks(size: int) -> Codes:
    """Codes that nothing is inside, beginning on a multiple of 64 bytes."""
    memory = np.empty(size + BLOCK, np.uint8)
    start = -memory.ctypes.data % BLOCK
    blocks = memory[start : start + size]
    close_blocks(blocks)
    return blocks


@kernel("void(u1[::1])")
def close_blocks(blocks: Codes) -> None:
    for start in range(0, blocks.shape[0], COLUMN_BYTES):
        blocks[start : start + BLOCK] = HIGHEST_CODE
        blocks[start + BLOCK : start + COLUMN_BYTES] = 0


@kernel("b1[::1](f8[:,::1], f8[:,::1])")
def constrained(lo: Coordinates, hi: Coordinates) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """In which columns any rectangle is not [-inf, +inf]."""
    found = np.zeros(lo.shape[1], np.bool_)
    for row in range(lo.shape[0]):
        for k in range(lo.shape[1]):
            found[k] |= not (lo[row, k] == -np.inf and hi[row, k] == np.inf)
    return found


@kernel("f8[:,::1](f8[:,::1], i8[::1])")
def gather_columns(bounds: Coordinates, columns: Integers) -> Coordinates:
    result = np.empty((bounds.shape[0], columns.shape[0]))
    for row in range(bounds.shape[0]):
        for k in range(columns.shape[0]):
            result[row, k] = bounds[row, columns[k]]
    return result


@kernel("void(i8[::1], f8[:,::1], f8[:,::1], i8[::1], i8, i8[::1], f8[:,::1], f8[:,::1])")
def copy_rows(
    ids: Integers,
    lo: Coordinates,
    hi: Coordinates,
    order: Integers,
    start: int,
    to_ids: Integers,
    to_lo: Coordinates,
    to_hi: Coordinates,
) -> None:
    for i in range(order.shape[0]):
        row, slot = order[i], start + i
        to_ids[slot] = ids[row]
        for k in range(lo.shape[1]):
            to_lo[slot, k] = lo[row, k]
            to_hi[slot, k] = hi[row, k]


@kernel(
    "void(i8[::1], f8[:,::1], f8[:,::1], f8[:,::1], i8[::1], i8, i8[::1], f8[:,::1], f8[:,::1], u1[::1], "
    "u8[:,:,::1], i4[::1])"
)
def append_rows(
    ids: Integers,
    lo: Coordinates,
    hi: Coordinates,
    edges: Coordinates,
    strides: Integers,
    start: int,
    to_ids: Integers,
    to_lo: Coordinates,
    to_hi: Coordinates,
    blocks: Codes,
    reach: Words,
    table: Slots,
) -> None:
    """Code rectangles and write them to slots start, start + 1, …: all but the bits that make them count.

    One kernel, because rectangles often come one by one, and each call from Python costs a microsecond.
    """
    low, high = np.empty(lo.shape, np.uint8), np.empty(lo.shape, np.uint8)
    order = np.arange(ids.shape[0])
    code_bounds(lo, hi, edges, strides, low, high)
    copy_rows(ids, lo, hi, order, start, to_ids, to_lo, to_hi)
    place(start, low, high, order, blocks, reach)
    enter(table, to_ids, start, start + ids.shape[0])


@kernel("void(i8, i8, u8[::1], u8[::1])")
def raise_slots(start: int, stop: int, alive: Words, occupied: Words) -> None:
    """Make slots count, from the next match on."""
    for slot in range(start, stop):
        block = slot >> 6
        alive[block] |= np.uint64(1) << np.uint64(slot & 63)
        occupied[block >> 6] |= np.uint64(1) << np.uint64(block & 63)


@kernel("i8(u8[::1])")
def count_bits(words: Words) -> int:
    total = 0
    for i in range(words.shape[0]):
        word = words[i]
        while word != 0:
            total += 1
            word &= word - np.uint64(1)
    return total


@kernel("i8(i8[::1], f8[:,::1], f8[:,::1], i8[::1], u8[::1], i8, i8[::1], f8[:,::1], f8[:,::1])")
def gather_alive(
    ids: Integers,
    lo: Coordinates,
    hi: Coordinates,
    columns: Integers,
    alive: Words,
    at: int,
    to_ids: Integers,
    to_lo: Coordinates,
    to_hi: Coordinates,
) -> int:
    """Append the rectangles whose bit is set, unconstrained in the columns that a segment leaves out."""
    for slot in range(ids.shape[0]):
        if not (alive[slot >> 6] >> np.uint64(slot & 63)) & np.uint64(1):
            continue
        to_ids[at] = ids[slot]
        to_lo[at, :] = -np.inf
        to_hi[at, :] = np.inf
        for k in range(columns.shape[0]):
            to_lo[at, columns[k]] = lo[slot, k]
            to_hi[at, columns[k]] = hi[slot, k]
        at += 1
    return at
