"""Find which of many strings occur in a text, in one pass over the text.

Aho and Corasick's automaton over the bytes of UTF-8: a trie of all patterns, and for each state the longest
proper suffix of it that is a state, too (`fail`). UTF-8 synchronises itself, so a pattern's bytes occur in a
text's exactly where its characters do.

Only *whether* a pattern occurs is asked, never how often. So the pass marks the states that it visits, each
with all its suffixes and each at most once: the work is linear in the text and the states, whatever the
patterns have in common. (Reporting every occurrence, as libraries do, is quadratic for "a", "aa", "aaa", …
in a text of that letter.)

Edges lie in one hash table, 12 bytes for each byte of a pattern and half of it empty; a table of 256
transitions a state would take a kilobyte each. Kernels release the interpreter lock.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from edn.arrays import Bools, Bytes, Ints
from edn.index.compilation import kernel
from edn.index.kernels import integer

States = npt.NDArray[np.int32]

#: a key of the hash table that no edge has
_FREE = -1


@kernel("i8(i8, i8)")
def _place(key: int, mask: int) -> int:
    """Where the probing for an edge begins: Fibonacci hashing, because states are consecutive."""
    mixed = np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)
    return integer(mixed >> np.uint64(32)) & mask


@kernel("i8(i8[::1], i4[::1], i8)")
def _follow(keys: Ints, targets: States, key: int) -> int:
    """The state behind an edge, or -1."""
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
    """Fills the trie and its suffix links; `last` gets the state of each pattern. Returns how many states."""
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
    # by rising depth, so that the link of a parent is known
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
    """Marks every state that is a suffix of some beginning of the text."""
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
    """Many patterns, prepared. Immutable; any number of threads may search at the same time."""

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
        """Memory that the automaton takes, in bytes."""
        arrays = (self._keys, self._targets, self._fail, self._last)
        return sum(array.nbytes for array in arrays)

    def search(self, text: str) -> frozenset[str]:
        """Returns the patterns that occur in a text; the empty one always does."""
        seen = np.zeros(self._states, dtype=np.bool_)
        seen[0] = True
        # A copy: arrays over bytes are read-only, which to a kernel is another type.
        data = np.frombuffer(text.encode(), dtype=np.uint8).copy()
        _visit(data, self._first, self._keys, self._targets, self._fail, seen)
        found = np.flatnonzero(seen[self._last]).tolist()
        return frozenset([self._patterns[place] for place in found])


class Searched(str):
    """A text of which is known which patterns occur in it: `pattern in text` is looked up.

    Patterns that were not searched for are searched for as in any other string.
    """

    __slots__ = ("_among", "_found")

    _among: frozenset[str]
    _found: frozenset[str]

    @classmethod
    def of(cls, text: str, patterns: Patterns, among: frozenset[str]) -> Searched:
        """`among`: the patterns that were prepared."""
        made = cls(text)
        made._among = among
        made._found = patterns.search(text)
        return made

    def __contains__(self, pattern: object) -> bool:
        if pattern in self._among:
            return pattern in self._found
        return super().__contains__(pattern)  # type: ignore[operator]  # any other string
