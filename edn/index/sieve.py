"""Kernels of matching: from coded points to the rectangles that contain them.

Some hundred points at a time go through one tile after the other, because a tile (64 blocks of 64 rectangles)
fits into the processor's first caches and the whole index does not: a miss costs more than a hundred
comparisons. Each step is its own loop that appends without branches, because a mispredicted branch costs as
much as comparing a block.

`sieve` returns *hits*: (point, block) and the bits of the block's rectangles that contain the point. Their
number per point is known before ids are written, so `emit` writes each to its final position.
"""

from __future__ import annotations

import numpy as np

from edn.arrays import Floats, Ints, Words
from edn.index.bits import population, trailing_zeros
from edn.index.compilation import kernel
from edn.index.kernels import (
    REACH_SHIFT,
    TILE_COLUMN_BYTES,
    Codes,
    block_masks,
    column_offset,
    integer,
    prefetch,
)

#: points per pass through a tile
_POINTS = 512
#: columns after which empty blocks are dropped
_STRIDE = 4


@kernel(
    "Tuple((u8[::1], u8[::1]))"
    "(f8[:,::1], u1[:,::1], u1[::1], u8[:,:,::1], u8[::1], u8[::1], f8[:,:,::1], i8[::1])"
)
def sieve(
    values: Floats,
    codes: Codes,
    blocks: Codes,
    reach: Words,
    occupied: Words,
    alive: Words,
    bounds: Floats,
    counts: Ints,
) -> tuple[Words, Words]:
    """Finds the rectangles that contain each point; adds their number to `counts`.

    Returns the hits: a word with the point's row above the block's number, and the word of its rectangles.
    """
    points, columns = codes.shape
    one, half, low_half = np.uint64(1), np.uint64(32), np.uint64(0xFFFFFFFF)
    room = min(points, _POINTS) * 64
    where, maybe, sure = np.empty(room, np.uint64), np.empty(room, np.uint64), np.empty(room, np.uint64)
    unsure = np.empty(room, np.int64)
    size, found = max(1024, room), 0
    hits, hit_bits = np.empty(size, np.uint64), np.empty(size, np.uint64)
    for start in range(0, points, _POINTS):
        stop = min(points, start + _POINTS)
        for tile in range(occupied.shape[0]):
            # 1. Find the blocks that reach into the point's bin in every column.
            count = 0
            for row in range(start, stop):
                candidates = occupied[tile]
                for k in range(columns):
                    candidates &= reach[tile, k, codes[row, k] >> REACH_SHIFT]
                head = (np.uint64(row) << half) | np.uint64(tile << 6)
                while candidates != 0:
                    where[count] = head + np.uint64(trailing_zeros(candidates))
                    count += 1
                    candidates &= candidates - one
            # 2. Compare whole blocks, some columns at a time; drop empty ones.
            for i in range(count):
                maybe[i] = sure[i] = alive[integer(where[i] & low_half)]
            for first in range(0, columns, _STRIDE):
                last = min(columns, first + _STRIDE)
                left = 0
                for i in range(count):
                    row, block = integer(where[i] >> half), integer(where[i] & low_half)
                    inside, certain = maybe[i], sure[i]
                    offset = column_offset(block, columns)
                    for k in range(first, last):
                        may, must = block_masks(blocks, offset + k * TILE_COLUMN_BYTES, codes[row, k])
                        inside &= may
                        certain &= must
                    where[left], maybe[left], sure[left] = where[i], inside, certain
                    left += integer(inside != 0)
                count = left
            # 3. Compare the doubles where a bound and the point share a bin.
            doubtful = 0
            for i in range(count):
                if maybe[i] != sure[i]:
                    unsure[doubtful] = i
                    doubtful += 1
                    slot = integer(where[i] & low_half) << 6
                    prefetch(bounds, slot + trailing_zeros(maybe[i] & ~sure[i]))
            for j in range(doubtful):
                i = unsure[j]
                row, slot = integer(where[i] >> half), integer(where[i] & low_half) << 6
                open_ = maybe[i] & ~sure[i]
                while open_ != 0:
                    lane = trailing_zeros(open_)
                    open_ &= open_ - one
                    inside_ = True
                    for k in range(columns):
                        x = values[row, k]
                        inside_ = (
                            inside_ & (bounds[slot + lane, 0, k] <= x) & (x <= bounds[slot + lane, 1, k])
                        )
                    sure[i] |= np.uint64(inside_) << np.uint64(lane)
            # 4. Append the hits.
            if found + count > size:
                size = 2 * size + count
                more, more_bits = np.empty(size, np.uint64), np.empty(size, np.uint64)
                more[:found], more_bits[:found] = hits[:found], hit_bits[:found]
                hits, hit_bits = more, more_bits
            for i in range(count):
                hits[found], hit_bits[found] = where[i], sure[i]
                found += integer(sure[i] != 0)
                counts[integer(where[i] >> half)] += population(sure[i])
    return hits[:found], hit_bits[:found]


@kernel("void(u8[::1], u8[::1], i8[::1], i8[::1], i8[::1])")
def emit(hits: Words, hit_bits: Words, ids: Ints, ends: Ints, out: Ints) -> None:
    """Writes the ids of the hits to `out`, those of point p from `ends[p]` on; advances `ends`."""
    one, half, low_half = np.uint64(1), np.uint64(32), np.uint64(0xFFFFFFFF)
    for i in range(hits.shape[0]):
        row, slot = integer(hits[i] >> half), integer(hits[i] & low_half) << 6
        end, bits = ends[row], hit_bits[i]
        while bits != 0:
            out[end] = ids[slot + trailing_zeros(bits)]
            end += 1
            bits &= bits - one
        ends[row] = end
