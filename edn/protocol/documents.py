"""Cuts the events out of a request's body, with one compiled pass over its bytes.

The pass copies each event as it was sent, without the keys that begin with $, as a line of its own. It also
finds what a decoder that skips undeclared fields does not see: repeated keys, deep nesting, and numbers that
may exceed a double. Wherever it is in doubt, `edn.formats.documents` and `strict_json` decide, in Python.

Repeated keys are found by a hash set of all keys of the body, each with the number of its object. Equal
hashes are a doubt, and so are keys with escapes.
"""

from __future__ import annotations

import threading

import numpy as np
import numpy.typing as npt

from edn.arrays import Bytes
from edn.formats.documents import MAX_DEPTH, SPACED, Lines
from edn.index.compilation import kernel

Words = npt.NDArray[np.uint64]

#: digits of a number before its point, with its exponent, that certainly fit a double
_SAFE_DIGITS = 300
_DOUBT = -1
#: for the search of quotes and backslashes in a word of eight bytes
_ONES, _HIGHS = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080)
_QUOTES, _SLASHES = _ONES * np.uint64(34), _ONES * np.uint64(92)


def cut_events(body: bytes) -> Lines | None:
    """Cuts the events out of a body of valid JSON; None if `edn.formats.documents` must decide."""
    if not body.isascii():
        try:
            body.decode()
        except UnicodeDecodeError:
            return None
    if b"\n" in body or b"\r" in body:
        body = body.translate(SPACED)
    text = np.frombuffer(body, dtype=np.uint8)
    words = np.frombuffer(body, dtype=np.uint64, count=len(body) // 8)
    seen, lines = _scratch.arrays(2 * body.count(b":"), len(body))
    length, own = _cut(text, words, seen, lines)
    return None if length == _DOUBT else Lines(lines[:length].tobytes(), own)


class _Scratch(threading.local):
    """Memory of a thread: new pages cost more than the pass."""

    def __init__(self) -> None:
        self._seen: Words = np.empty(1 << 10, dtype=np.uint64)
        self._lines: Bytes = np.empty(1 << 16, dtype=np.uint8)

    def arrays(self, keys: int, size: int) -> tuple[Words, Bytes]:
        """Returns an empty hash set for so many keys, and space for the lines of a body."""
        # An event has at least two bytes, and gets a line break.
        room = size + size // 2 + 1
        if room > len(self._lines):
            self._lines = np.empty(2 * room, dtype=np.uint8)
        slots = 64
        while slots < keys:
            slots *= 2
        if slots > len(self._seen):
            self._seen = np.empty(slots, dtype=np.uint64)
        seen = self._seen[:slots]
        seen.fill(0)
        return seen, self._lines


_scratch = _Scratch()


@kernel(
    "UniTuple(int64, 2)(Array(uint8, 1, 'C', readonly=True), Array(uint64, 1, 'C', readonly=True), "
    "uint64[::1], uint8[::1])"
)
def _cut(text: Bytes, words: Words, seen: Words, lines: Bytes) -> tuple[int, int]:
    """Writes the lines; returns their length and the number of keys that begin with $, or a doubt."""
    size = len(text)
    mask = np.uint64(len(seen) - 1)
    prime, odd = np.uint64(0x100000001B3), np.uint64(0x9E3779B97F4A7C15)
    # Per level: whether it is an object, and the seed of its keys.
    is_object = np.zeros(MAX_DEPTH + 2, dtype=np.bool_)
    seeds = np.zeros(MAX_DEPTH + 2, dtype=np.uint64)
    objects = np.uint64(0)
    depth = 0
    outer = 0  # level of the events: 1 in a batch
    wants_key = False
    own = 0
    cutting = False
    at = 0  # length of the lines
    begin = 0  # begin of the bytes that are copied next
    member = 0  # begin of the current member of an event, after the comma
    place = 0
    while place < size:
        byte = text[place]
        if byte == 34:  # a string
            place += 1
            if wants_key:
                first = place
                code = seeds[depth]
                while text[place] != 34:
                    if text[place] == 92:
                        return _DOUBT, 0
                    code = (code ^ np.uint64(text[place])) * prime
                    place += 1
                code ^= code >> np.uint64(29)
                code = (code * odd) | np.uint64(1)
                slot = (code >> np.uint64(32)) & mask
                while seen[slot] != 0:
                    if seen[slot] == code:
                        return _DOUBT, 0
                    slot = (slot + np.uint64(1)) & mask
                seen[slot] = code
                wants_key = False
                if depth == outer + 1 and text[first] == 36:  # our own key
                    own += 1
                    cutting = True
                    part = text[begin:member]
                    copy = lines[at : at + len(part)]
                    for k in range(len(part)):
                        copy[k] = part[k]
                    at += len(part)
            else:
                while True:
                    byte = text[place]
                    while byte != 34 and byte != 92:
                        place += 1
                        # Eight bytes at once, where neither a quote nor a backslash is among them.
                        while place & 7 == 0 and place >> 3 < len(words):
                            word = words[place >> 3]
                            quotes, slashes = word ^ _QUOTES, word ^ _SLASHES
                            if (quotes - _ONES) & ~quotes & _HIGHS or (slashes - _ONES) & ~slashes & _HIGHS:
                                break
                            place += 8
                        byte = text[place]
                    if byte == 34:
                        break
                    place += 2
            place += 1
        elif byte == 44:  # a comma
            wants_key = is_object[depth]
            place += 1
            if depth == outer + 1:
                member = place
                if cutting:
                    cutting = False
                    begin = place
        elif byte == 123 or byte == 91:  # an object or array begins
            if depth == MAX_DEPTH:
                return _DOUBT, 0
            if byte == 91 and depth == 0:
                outer = 1
            depth += 1
            wants_key = byte == 123
            is_object[depth] = wants_key
            if wants_key:
                objects += np.uint64(1)
                seeds[depth] = (objects * odd) ^ np.uint64(0xCBF29CE484222325)
            if depth == outer + 1:
                begin = place
                member = place + 1
            place += 1
        elif byte == 125 or byte == 93:  # it ends
            wants_key = False
            if depth == outer + 1:
                if cutting:
                    cutting = False
                    begin = place
                    if lines[at - 1] == 44:
                        at -= 1
                part = text[begin : place + 1]
                copy = lines[at : at + len(part)]
                for k in range(len(part)):
                    copy[k] = part[k]
                at += len(part)
                lines[at] = 10
                at += 1
            depth -= 1
            place += 1
        elif byte == 45 or (byte >= 48 and byte <= 57):  # a number
            digits = place
            place += 1
            while place < size and text[place] >= 48 and text[place] <= 57:
                place += 1
            digits = place - digits
            if place < size and text[place] == 46:
                place += 1
                while place < size and text[place] >= 48 and text[place] <= 57:
                    place += 1
            if place < size and (text[place] == 101 or text[place] == 69):
                place += 1
                negative = text[place] == 45
                if negative or text[place] == 43:
                    place += 1
                exponent = 0
                while place < size and text[place] >= 48 and text[place] <= 57:
                    if exponent <= _SAFE_DIGITS:
                        exponent = exponent * 10 + int(text[place]) - 48
                    place += 1
                if not negative:
                    digits += exponent
            if digits > _SAFE_DIGITS:
                return _DOUBT, 0
        else:
            place += 1
    return at, own
