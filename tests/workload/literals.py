"""Values that programs get wrong, by type, and how a value is written as JSON."""

from __future__ import annotations

import datetime
import math
import random
import sys
from typing import Any

_EPOCH = datetime.datetime(1970, 1, 1)

NUMBERS = [
    0.0, -0.0, 1.0, -1.0, 30.0, 30.5, math.nextafter(30.0, 31), math.nextafter(30.0, 29), 0.1, 0.2, 0.1 + 0.2,
    5e-324, -5e-324, sys.float_info.min, sys.float_info.max, -sys.float_info.max, 1e308, -1e308,
    float(2**53), float(2**53 + 2), float(2**63), 1e22, math.pi,
]  # fmt: skip

INTEGERS = [
    0, 1, -1, 5, 6, 30, 255, 256, 2**31 - 1, 2**31, 2**53 - 1, 2**53, 2**53 + 1, 2**53 + 2, -(2**53) - 1,
    2**62, 2**63 - 2, 2**63 - 1, -(2**63), -(2**63) + 1,
]  # fmt: skip

STRINGS = [
    "", "a", "b", "ab", "abc", "abcd", "abcde", "abcdef", "abcdefg", "abcdefgh", "abcdeg", "NY",
    "NYSE", "NYSE-ARCA", "GE", "GEN", "é", "éa", "日本", "日本語", "\x00", "a\x00", "a\x00b",
    "\U0010ffff", "a\U0010ffff", "a\U0010ffffb", "\ud7ff", "\ue000", "\uffff", "\U00010000",
    'quo"te', "back\\slash", "it's", "new\nline", "/", "~", " ", "and", "abcdef\x00",
    "abcdef\U0010ffff", "zzzzzzz", "%", "`",
]  # fmt: skip

#: microseconds since 1970
TIMES = [
    0, -1, 1, 1_000_000, 999_999, 1_700_000_000_000_000, 1_700_000_000_000_001, 1_699_999_999_999_999,
    951_782_400_000_000, -62_135_596_800_000_000, 253_402_300_799_999_999, 1_483_228_799_999_999,
    1_483_228_800_000_000,
]  # fmt: skip

BY_TYPE: dict[str, list[Any]] = {
    "number": NUMBERS,
    "integer": INTEGERS,
    "string": STRINGS,
    "boolean": [False, True],
    "time": TIMES,
}


def write_time(value: int, chance: random.Random | None = None) -> str:
    """A time as RFC 3339; with `chance`, in any of the ways in which the same instant can be written."""
    offset = 0
    if chance is not None and chance.random() < 0.4:
        offset = chance.choice([0, 60, -300, 330, 845, -1, 1439, -1439])
    try:
        written = _EPOCH + datetime.timedelta(microseconds=value + offset * 60_000_000)
    except OverflowError:  # the wall clock there would leave the four-digit years
        offset, written = 0, _EPOCH + datetime.timedelta(microseconds=value)
    text = written.replace(microsecond=0).isoformat()
    fraction = f"{written.microsecond:06d}"
    if chance is not None and chance.random() < 0.3:
        fraction += chance.choice(["0", "4", "999"])  # finer digits are cut off
    fraction = fraction.rstrip("0") if chance is None or chance.random() < 0.5 else fraction
    zone = "Z"
    if offset or (chance is not None and chance.random() < 0.2):
        sign = "-" if offset < 0 else "+"
        zone = f"{sign}{abs(offset) // 60:02d}:{abs(offset) % 60:02d}"
    return text + (f".{fraction}" if fraction else "") + zone


def write(kind: str, value: Any, chance: random.Random | None = None) -> Any:
    """The JSON literal of a value; with `chance`, one of several that mean the same."""
    if kind == "time":
        return write_time(value, chance)
    if kind == "number" and chance is not None and chance.random() < 0.3 and value == int(value):
        whole = int(value)
        # 2**53 + 1 is no double: it reads as its nearest, which is 2**53.
        return whole + 1 if abs(whole) == 2**53 and chance.random() < 0.5 else whole
    return value
