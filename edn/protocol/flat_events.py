"""Reads requests of flat events with one compiled pass: points, places of strings, and lines.

It serves the usual body: an object or an array of objects whose fields are declared and not nested. The pass
reads numbers and booleans into points, notes where strings begin and end, and copies each event as it was
sent. Whatever it does not know (an undeclared or repeated key, a key that begins with $, an escape, a byte
outside ASCII, a line break, a number with more than 19 digits) is a doubt: the general path decides.

A decimal number becomes the nearest double in one of two ways. If its digits are below 2^53 and its power of
ten at most 22, both are doubles, and one operation rounds correctly. Otherwise the digits are multiplied by
the power of five in 128 bits (D. Lemire, Number Parsing at a Gigabyte per Second, 2021). A product too close
to the middle between two doubles is a doubt.
"""

from __future__ import annotations

import math

import numpy as np

from edn.arrays import Bytes, Floats, Ints, Words
from edn.index.bits import leading_zeros
from edn.index.compilation import kernel
from edn.model.event import BOOLEAN, INTEGER, FlatEvents, FlatLayout
from edn.model.rect import MISSING

_DOUBT = -1
#: powers of ten that are doubles
_EXACT = np.array([10.0**power for power in range(23)])
#: largest power of ten, positive or negative, that the pass multiplies with
_MOST = 64
#: digits that fit into a word, and digits of an integer that is certainly a double
_DIGITS = 19
_INTEGER_DIGITS = 15
_LOW = np.uint64(0xFFFFFFFF)
_ALL = ~np.uint64(0)
_ONE = np.uint64(1)
_TEN = np.uint64(10)
_HALF = np.uint64(32)
#: bits of a product below the 53 bits of a double and the one that rounds
_REST = np.uint64(0x1FF)
_TOO_LARGE = np.uint64(1 << 53)


def _fives() -> Words:
    """Returns 5^q for q = -64 … 64, scaled to 128 bits, as words (high, low); reciprocals are rounded up."""
    rows = []
    for power in range(-_MOST, _MOST + 1):
        if power < 0:
            five = 5**-power
            scaled = (1 << (five - 1).bit_length() + 127) // five + 1
        else:
            five = 5**power
            scaled = five << 128 >> five.bit_length()
        rows.append(divmod(scaled, 1 << 64))
    return np.array(rows, dtype=np.uint64)


_FIVES = _fives()


def read_flat_events(body: bytes, layout: FlatLayout) -> FlatEvents | None:
    """Reads a body; None if the general path must decide."""
    most = body.count(b"{")
    points = np.full((most, layout.width), MISSING)
    spans = np.empty((most, layout.texts, 2), dtype=np.int64)
    # An event has at least two bytes, and gets a line break.
    lines = np.empty(len(body) + most, dtype=np.uint8)
    count, length = _read(
        np.frombuffer(body, dtype=np.uint8),
        layout.names,
        layout.ends,
        layout.kinds,
        layout.columns,
        _FIVES,
        points,
        spans,
        lines,
    )
    if count == _DOUBT:
        return None
    return FlatEvents(points[:count], spans[:count], lines[:length].tobytes())


@kernel("UniTuple(uint64, 2)(uint64, uint64)")
def _product(a: np.uint64, b: np.uint64) -> tuple[np.uint64, np.uint64]:
    """Multiplies two words; returns the high and the low word."""
    a_low, a_high = a & _LOW, a >> _HALF
    b_low, b_high = b & _LOW, b >> _HALF
    lowest = a_low * b_low
    middle = a_high * b_low + (lowest >> _HALF)
    other = a_low * b_high + (middle & _LOW)
    return a_high * b_high + (middle >> _HALF) + (other >> _HALF), a * b


@kernel("float64(uint64, int64, Array(uint64, 2, 'C', readonly=True))")
def _nearest(digits: np.uint64, power: int, fives: Words) -> float:
    """Returns the double nearest to digits * 10^power, which is not zero; NaN is a doubt."""
    if digits <= _TOO_LARGE and -22 <= power <= 22:
        return float(float(digits) / _EXACT[-power] if power < 0 else float(digits) * _EXACT[power])
    if power < -_MOST or power > _MOST:
        return math.nan
    shift = leading_zeros(digits)
    scaled = digits << np.uint64(shift)
    high, low = _product(scaled, fives[power + _MOST, 0])
    if high & _REST == _REST and low + scaled < scaled:
        # The low word of the power may change the rounding.
        more, least = _product(scaled, fives[power + _MOST, 1])
        total = low + more
        if total < low:
            high += _ONE
        low = total
        if high & _REST == _REST and low == _ALL and least + scaled < scaled:
            return math.nan
    top = high >> np.uint64(63)
    kept = high >> (top + np.uint64(9))
    if low == 0 and high & _REST == 0 and kept & np.uint64(3) == _ONE:
        return math.nan  # in the middle, as far as 128 bits can tell
    kept = (kept + (kept & _ONE)) >> _ONE
    # 10^power = 5^power * 2^power, and 217706 / 2^16 is log2(10).
    exponent = (217706 * power >> 16) + 64 - shift - (1 - int(top)) - 52
    return math.ldexp(float(kept), exponent)


@kernel(
    "UniTuple(int64, 2)(Array(uint8, 1, 'C', readonly=True), uint8[::1], int64[::1], int64[::1], "
    "int64[::1], Array(uint64, 2, 'C', readonly=True), float64[:, ::1], int64[:, :, ::1], uint8[::1])"
)
def _read(
    text: Bytes,
    names: Bytes,
    ends: Ints,
    kinds: Ints,
    columns: Ints,
    fives: Words,
    points: Floats,
    spans: Ints,
    lines: Bytes,
) -> tuple[int, int]:
    """Fills points, spans and lines; returns the number of events and the length of the lines, or a doubt.

    The text is that of a `bytes`, so a NUL follows it. Nothing here accepts a NUL, so nothing reads beyond.
    """
    doubt = (_DOUBT, 0)
    size, attributes = len(text), len(kinds)
    place = at = count = 0
    while text[place] == 32 or text[place] == 9:
        place += 1
    is_batch = text[place] == 91
    if is_batch:
        place += 1
        while text[place] == 32 or text[place] == 9:
            place += 1
    is_open = not (is_batch and text[place] == 93)
    place += not is_open
    while is_open:
        if text[place] != 123:
            return doubt
        begin = place
        place += 1
        while text[place] == 32 or text[place] == 9:
            place += 1
        seen = np.uint64(0)
        expected = 0
        has_member = text[place] != 125
        while has_member:
            if text[place] != 34:
                return doubt
            place += 1
            # Most publishers send the attributes in one order.
            found, after = -1, place
            for step in range(attributes):
                known = expected + step
                if known >= attributes:
                    known -= attributes
                first = ends[known - 1] if known else 0
                length = ends[known] - first
                same = 0
                while same < length and text[place + same] == names[first + same]:
                    same += 1
                if same == length and text[place + length] == 34:
                    found, after = known, place + length + 1
                    break
            if found < 0 or seen >> np.uint64(found) & _ONE:
                return doubt
            seen |= _ONE << np.uint64(found)
            expected = found + 1
            place = after
            while text[place] == 32 or text[place] == 9:
                place += 1
            if text[place] != 58:
                return doubt
            place += 1
            while text[place] == 32 or text[place] == 9:
                place += 1
            kind, column = kinds[found], columns[found]
            if kind > BOOLEAN:
                spans[count, kind - BOOLEAN - 1, 0] = spans[count, kind - BOOLEAN - 1, 1] = -1
            byte = text[place]
            if byte == 110:  # null
                if text[place + 1] != 117 or text[place + 2] != 108 or text[place + 3] != 108:
                    return doubt
                place += 4
            elif kind <= INTEGER:
                is_negative = byte == 45
                place += is_negative
                digits, used, power = np.uint64(0), 0, 0
                start = place
                while text[place] >= 48 and text[place] <= 57:
                    used += 1 if digits else text[place] != 48
                    digits = digits * _TEN + np.uint64(text[place] - 48)
                    place += 1
                if place == start or (place > start + 1 and text[start] == 48):
                    return doubt
                if text[place] == 46:
                    place += 1
                    start = place
                    while text[place] >= 48 and text[place] <= 57:
                        used += 1 if digits else text[place] != 48
                        digits = digits * _TEN + np.uint64(text[place] - 48)
                        place += 1
                    power = start - place
                    if power == 0 or kind == INTEGER:
                        return doubt
                if text[place] == 101 or text[place] == 69:
                    place += 1
                    is_small = text[place] == 45
                    place += is_small or text[place] == 43
                    start, exponent = place, 0
                    while text[place] >= 48 and text[place] <= 57:
                        exponent = exponent * 10 + text[place] - 48
                        place += 1
                    if place == start or place > start + 4 or kind == INTEGER:
                        return doubt
                    power += -exponent if is_small else exponent
                if used > (_INTEGER_DIGITS if kind == INTEGER else _DIGITS):
                    return doubt
                value = 0.0
                if digits:
                    value = _nearest(digits, power, fives)
                    if value != value:
                        return doubt
                points[count, column] = -value if is_negative and digits else value
            elif kind == BOOLEAN:
                if (
                    byte == 116
                    and text[place + 1] == 114
                    and text[place + 2] == 117
                    and text[place + 3] == 101
                ):
                    points[count, column] = 1.0
                    place += 4
                elif (
                    byte == 102
                    and text[place + 1] == 97
                    and text[place + 2] == 108
                    and text[place + 3] == 115
                    and text[place + 4] == 101
                ):
                    points[count, column] = 0.0
                    place += 5
                else:
                    return doubt
            else:  # a string
                if byte != 34:
                    return doubt
                place += 1
                start = place
                while text[place] != 34:
                    if text[place] < 32 or text[place] > 126 or text[place] == 92:
                        return doubt
                    place += 1
                spans[count, kind - BOOLEAN - 1, 0] = start
                spans[count, kind - BOOLEAN - 1, 1] = place
                place += 1
            while text[place] == 32 or text[place] == 9:
                place += 1
            has_member = text[place] == 44
            if has_member:
                place += 1
                while text[place] == 32 or text[place] == 9:
                    place += 1
        if text[place] != 125:
            return doubt
        place += 1
        # Strings that were absent.
        for known in range(attributes):
            if kinds[known] > BOOLEAN and not seen >> np.uint64(known) & _ONE:
                spans[count, kinds[known] - BOOLEAN - 1, 0] = spans[count, kinds[known] - BOOLEAN - 1, 1] = -1
        part = text[begin:place]
        copy = lines[at : at + len(part)]
        for k in range(len(part)):
            copy[k] = part[k]
        at += len(part)
        lines[at] = 10
        at += 1
        count += 1
        if not is_batch:
            break
        while text[place] == 32 or text[place] == 9:
            place += 1
        is_open = text[place] == 44
        if not is_open and text[place] != 93:
            return doubt
        place += 1
        while text[place] == 32 or text[place] == 9:
            place += 1
    while place < size and (text[place] == 32 or text[place] == 9):
        place += 1
    return (count, at) if place == size else doubt
