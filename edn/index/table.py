"""A hash table from ids to slots, for kernels: open addressing, linear probing, 8 to 16 bytes per id.

The table contains slot numbers only (-1 is free) and compares with the ids of the slots. Entries are never
removed: a search skips slots that are not alive, so a deleted id may be inserted again into another slot.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from edn.arrays import Ints, Words
from edn.index.compilation import kernel
from edn.index.kernels import integer

Slots = npt.NDArray[np.int32]


def new_table(capacity: int) -> Slots:
    """Creates an empty table for `capacity` slots, at most half full."""
    return np.full(1 << max(4, (2 * capacity - 1).bit_length()), -1, dtype=np.int32)


@kernel("i8(i8, i8)")
def first_place(id_: int, mask: int) -> int:
    """Returns the first position to probe: Fibonacci hashing, because ids are often consecutive."""
    mixed = np.uint64(id_) * np.uint64(0x9E3779B97F4A7C15)
    return integer(mixed >> np.uint64(32)) & mask


@kernel("void(i4[::1], i8[::1], i8, i8)")
def enter(table: Slots, ids: Ints, start: int, stop: int) -> None:
    """Enters the slots start..stop."""
    mask = table.shape[0] - 1
    for slot in range(start, stop):
        at = first_place(ids[slot], mask)
        while table[at] >= 0:
            at = (at + 1) & mask
        table[at] = slot


@kernel("i8(i4[::1], i8[::1], u8[::1], i8)")
def find(table: Slots, ids: Ints, alive: Words, id_: int) -> int:
    """Returns the live slot of an id, or -1."""
    mask = table.shape[0] - 1
    at = first_place(id_, mask)
    while table[at] >= 0:
        slot = integer(table[at])
        if ids[slot] == id_ and (alive[slot >> 6] >> np.uint64(slot & 63)) & np.uint64(1):
            return slot
        at = (at + 1) & mask
    return -1


@kernel("i8(i4[::1], i8[::1], u8[::1], i8[::1])")
def first_known(table: Slots, ids: Ints, alive: Words, wanted: Ints) -> int:
    """Returns the index of the first of `wanted` with a live slot, or -1."""
    for i in range(wanted.shape[0]):
        if find(table, ids, alive, wanted[i]) >= 0:
            return i
    return -1


@kernel("i8(i4[::1], i8[::1], u8[::1], u8[::1], i8[::1])")
def delete_ids(table: Slots, ids: Ints, alive: Words, occupied: Words, wanted: Ints) -> int:
    """Clears the live slots of ids, so that no match sees them; returns how many there were."""
    deleted = 0
    for i in range(wanted.shape[0]):
        slot = find(table, ids, alive, wanted[i])
        if slot < 0:
            continue
        block = slot >> 6
        alive[block] &= ~(np.uint64(1) << np.uint64(slot & 63))
        if alive[block] == 0:
            occupied[block >> 6] &= ~(np.uint64(1) << np.uint64(block & 63))
        deleted += 1
    return deleted
