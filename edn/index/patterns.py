"""Finds the strings that occur in a text, many at once, in one pass over the text.

An Aho-Corasick automaton over the bytes of UTF-8: a trie of all patterns, and for each state its longest
proper suffix that is also a state (`fail`). UTF-8 is self-synchronizing, so a pattern's bytes occur in a text
exactly where its characters do.

Only the occurrence of a pattern matters, not the count. So the pass marks each visited state and its suffixes
at most once: the work is linear in the text and the states for any patterns. (Reporting every occurrence, as
libraries do, is quadratic for "a", "aa", "aaa", … in a text of that letter.)

Edges are stored in one hash table, 12 bytes per byte of a pattern, half of it empty; a table of 256
transitions per state would take a kilobyte each. Kernels release the interpreter lock.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from edn.arrays import Bools, Bytes, Ints
from edn.index.compilation import kernel
from edn.index.kernels import integer

States = npt.NDArray[np.int32]

#: key of a free entry of the hash table
_FREE = -1


@kernel("i8(i8, i8)")
def _place(key: int, mask: int) -> int:
    """Returns the first position to probe: Fibonacci hashing, because states are consecutive."""
    mixed = np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)
    return integer(mixed >> np.uint64(32)) & mask


@kernel("i8(i8[::1], i4[::1], i8)")
def _follow(keys: Ints, targets: States, key: int) -> int:
    """Returns the state behind an edge, or -1."""
    mask = keys.shape[0] - 1
    at = _place(key, mask)
    while keys[at] != _FREE:
        if keys[at] == key:
            return integer(targets[at])
        at = (at + 1) & mask
    return -1


@kernel("i8(u1[::1], i8[::1], i8[::1], i4[::1], i4[::1], u1[::1], i4[::1], i4[::1])")
def _build(
    data: Bytes,
    ends: Ints,
    keys: Ints,
    targets: States,
    parent: States,
    label: Bytes,
    fail: States,
    last: States,
) -> int:
    """Fills the trie, its suffix links and `last`, each pattern's state; returns the number of states."""
    mask = keys.shape[0] - 1
    states = 1
    depth = np.zeros(parent.shape[0], np.int32)
    start = 0
    deepest = 0
    for pattern in range(ends.shape[0]):
        state = 0
        for i in range(start, ends[pattern]):
            key = state * 256 + integer(data[i])
            at = _place(key, mask)
            while keys[at] != _FREE and keys[at] != key:
                at = (at + 1) & mask
            if keys[at] == _FREE:
                keys[at] = key
                targets[at] = states
                parent[states] = state
                label[states] = data[i]
                depth[states] = depth[state] + 1
                deepest = max(deepest, integer(depth[states]))
                states += 1
            state = integer(targets[at])
        last[pattern] = state
        start = ends[pattern]
    # By increasing depth, so that the link of a parent is known.
    counts = np.zeros(deepest + 2, np.int64)
    for state in range(states):
        counts[depth[state] + 1] += 1
    for i in range(deepest + 1):
        counts[i + 1] += counts[i]
    order = np.empty(states, np.int32)
    for state in range(states):
        order[counts[depth[state]]] = state
        counts[depth[state]] += 1
    for i in range(1, states):
        state = integer(order[i])
        fail[state] = 0
        if depth[state] <= 1:
            continue
        suffix = integer(fail[parent[state]])
        while True:
            found = _follow(keys, targets, suffix * 256 + integer(label[state]))
            if found >= 0:
                fail[state] = found
                break
            if suffix == 0:
                break
            suffix = integer(fail[suffix])
    return states


@kernel("void(u1[::1], i4[::1], i8[::1], i4[::1], i4[::1], b1[::1])")
def _visit(text: Bytes, first: States, keys: Ints, targets: States, fail: States, seen: Bools) -> None:
    """Marks every state that is a suffix of a prefix of the text."""
    state = 0
    for i in range(text.shape[0]):
        byte = integer(text[i])
        while state != 0:
            found = _follow(keys, targets, state * 256 + byte)
            if found >= 0:
                state = found
                break
            state = integer(fail[state])
            if state == 0:
                state = integer(first[byte])
                break
        else:
            state = integer(first[byte])
        at = state
        while at != 0 and not seen[at]:
            seen[at] = True
            at = integer(fail[at])


class Patterns:
    """An automaton for many patterns. Immutable; threads may search concurrently."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self._patterns = sorted(set(patterns))
        encoded = [pattern.encode() for pattern in self._patterns]
        data = np.frombuffer(b"".join(encoded) or b"\0", dtype=np.uint8).copy()
        ends = np.cumsum([len(one) for one in encoded], dtype=np.int64)
        total = int(ends[-1]) if len(ends) else 0
        size = 1 << max(4, (2 * total).bit_length())
        self._keys = np.full(size, _FREE, dtype=np.int64)
        self._targets = np.zeros(size, dtype=np.int32)
        self._fail = np.zeros(total + 1, dtype=np.int32)
        self._last = np.zeros(len(encoded), dtype=np.int32)
        parent, label = np.zeros(total + 1, dtype=np.int32), np.zeros(total + 1, dtype=np.uint8)
        self._states = _build(data, ends, self._keys, self._targets, parent, label, self._fail, self._last)
        self._first = np.zeros(256, dtype=np.int32)
        for byte in range(256):
            self._first[byte] = max(0, _follow(self._keys, self._targets, byte))

    def __len__(self) -> int:
        return len(self._patterns)

    @property
    def nbytes(self) -> int:
        arrays = (self._keys, self._targets, self._fail, self._last)
        return sum(array.nbytes for array in arrays)

    def search(self, text: str) -> frozenset[str]:
        """Returns the patterns that occur in a text; the empty pattern always does."""
        seen = np.zeros(self._states, dtype=np.bool_)
        seen[0] = True
        # A copy, because a read-only array is another type to a kernel.
        data = np.frombuffer(text.encode(), dtype=np.uint8).copy()
        _visit(data, self._first, self._keys, self._targets, self._fail, seen)
        found = np.flatnonzero(seen[self._last]).tolist()
        return frozenset([self._patterns[place] for place in found])


class Searched(str):
    """A text with precomputed patterns: `pattern in text` is a lookup.

    Other patterns are searched for as in any string.
    """

    __slots__ = ("_among", "_found")

    _among: frozenset[str]
    _found: frozenset[str]

    @classmethod
    def of(cls, text: str, patterns: Patterns, among: frozenset[str]) -> Searched:
        """`among`: the precomputed patterns."""
        made = cls(text)
        made._among = among
        made._found = patterns.search(text)
        return made

    def __contains__(self, pattern: object) -> bool:
        if pattern in self._among:
            return pattern in self._found
        return super().__contains__(pattern)  # type: ignore[operator]  # any other string
