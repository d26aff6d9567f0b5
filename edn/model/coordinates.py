"""The attribute types as ordered domains, and the map from their values to coordinates.

Events and filters use the same monotone map to doubles. Where it merges values (long strings, integers and
times beyond 2^53), rectangles are covers and not exact. No other module maps values to numbers.

An exact set of values is a union of half-open intervals [lo, hi) of *marks*. A mark is a value as an element
of its ordered domain. A domain has a least mark, a successor for each mark, and an end above all marks:

    type      key (what predicates compare)    mark            successor      end
    number    float, never -0.0                the float       nextafter      +inf
    integer   int                              the int         + 1            2^63
    boolean   bool                             0 or 1          + 1            2
    time      int, microseconds since 1970     the int         + 1            after the last of year 9999
    string    str, by code point               its UTF-8       + NUL          FF, in no UTF-8
    bytes     bytes, by byte                   NUL and it      + NUL          01, below no mark

UTF-8 sorts like code points, so bytes can stand for strings. In JSON, bytes are text in base64.

An array has one mark, 0: its coordinate only tells that it is there. The predicate decides conditions on its
elements, which have the domain of their type.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from datetime import UTC, date, datetime, timedelta
from typing import Any

from edn.model.messages import describe
from edn.model.rect import LOWEST

Key = float | int | str | bool | bytes
#: what predicates compare: the key of a scalar, or the keys of an array's elements
Value = Key | tuple[Key, ...]
#: element of an ordered domain; only marks of one domain are compared
Mark = Any

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: last microsecond of year 9999
_LAST = 253_402_300_799_999_999
#: largest UTC offset, in microseconds
_MAX_OFFSET = (23 * 60 + 59) * 60_000_000
_INSTANT = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt](\d\d):(\d\d):(\d\d)(?:\.(\d+))?(?:[Zz]|([+-])(\d\d):(\d\d))", re.ASCII
)


def rfc3339(microseconds: int) -> str:
    """Formats a time in UTC, with a fraction only if it is not zero.

    Every result of `instant` can be formatted: hours outside the years 1 to 9999 of UTC get an offset that
    brings them back inside.
    """
    try:
        moment = _EPOCH + timedelta(microseconds=microseconds)
    except OverflowError:
        return _format_with_offset(microseconds)
    return moment.isoformat().replace("+00:00", "Z")


def _format_with_offset(microseconds: int) -> str:
    sign = "+" if microseconds < 0 else "-"
    local = microseconds + (_MAX_OFFSET if microseconds < 0 else -_MAX_OFFSET)
    leap = local > _LAST  # the second after the last one can only be written as :60
    moment = _EPOCH + timedelta(microseconds=local - 1_000_000 * leap)
    text = moment.replace(tzinfo=None).isoformat()
    return (text.replace(":59:59", ":59:60") if leap else text) + f"{sign}23:59"


def instant(text: str) -> int:
    """Parses an RFC 3339 time with an offset into microseconds since 1970 UTC; raises ValueError.

    Truncates to microseconds. The leap second :60 is the next minute's :00.
    """
    found = _INSTANT.fullmatch(text)
    if found is None:
        raise ValueError("not RFC 3339 with an offset, such as 2024-05-01T12:00:00Z")
    year, month, day, hour, minute, second, fraction, sign, hours, minutes = found.groups()
    days = date(int(year), int(month), int(day)).toordinal() - _EPOCH.toordinal()
    if int(hour) > 23 or int(minute) > 59 or int(second) > 60:
        raise ValueError("hour, minute or second is out of range")
    seconds = days * 86_400 + int(hour) * 3600 + int(minute) * 60 + int(second)
    if sign is not None:
        if int(hours) > 23 or int(minutes) > 59:
            raise ValueError("the offset is out of range")
        offset = int(hours) * 3600 + int(minutes) * 60
        seconds += offset if sign == "-" else -offset
    return seconds * 1_000_000 + (int(fraction[:6].ljust(6, "0")) if fraction else 0)


def is_encodable(text: str) -> bool:
    """Tells whether a string has no lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class Domain:
    """An attribute type: its values, their order and their coordinates."""

    name: str
    #: name with an article, for messages
    noun: str
    least: Mark
    end: Mark

    def key(self, value: object) -> Key:
        """Converts a literal into the value that predicates compare; raises ValueError ("got …")."""
        raise NotImplementedError

    def mark(self, key: Any) -> Mark:
        return key

    def after(self, mark: Mark) -> Mark:
        """Returns the successor of a mark: no mark lies between them."""
        raise NotImplementedError

    def coordinate(self, key: Any) -> float:
        return float(key)

    def closed(self, lo: Mark, hi: Mark) -> tuple[float, float, bool]:
        """Converts a non-empty [lo, hi) into a closed interval of coordinates, and whether it is exact."""
        raise NotImplementedError


class Number(Domain):
    name = "number"
    noun = "a number"
    least = LOWEST
    end = math.inf

    def key(self, value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ValueError(f"got {describe(value)}")
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            raise ValueError("got a number beyond the range of a 64-bit double")
        return number + 0.0  # makes -0.0 the one zero

    def after(self, mark: Mark) -> Mark:
        return math.nextafter(mark, math.inf)

    def closed(self, lo: Mark, hi: Mark) -> tuple[float, float, bool]:
        return lo, math.inf if hi == self.end else math.nextafter(hi, -math.inf) + 0.0, True


class Whole(Domain):
    """Domains whose marks are integers."""

    def after(self, mark: Mark) -> Mark:
        return mark + 1

    def closed(self, lo: Mark, hi: Mark) -> tuple[float, float, bool]:
        """A bound is exact if its neighbour has another coordinate, so always below 2^53."""
        low, high, exact = LOWEST, math.inf, True
        if lo != self.least:
            low = float(lo)
            exact = float(lo - 1) < low
        if hi != self.end:
            high = float(hi - 1)
            exact = exact and high < float(hi)
        return low, high, exact


class Integer(Whole):
    name = "integer"
    noun = "an integer"
    least = -(2**63)
    end = 2**63

    def key(self, value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ValueError(f"got {describe(value)}")
        if isinstance(value, float) and not value.is_integer():
            raise ValueError(f"got {describe(value)}")
        whole = int(value)
        if not self.least <= whole < self.end:
            raise ValueError("got a number that does not fit in 64 bits")
        return whole


class Boolean(Whole):
    name = "boolean"
    noun = "a boolean"
    least = 0
    end = 2

    def key(self, value: object) -> bool:
        if not isinstance(value, bool):
            raise ValueError(f"got {describe(value)}")
        return value

    def mark(self, key: Any) -> Mark:
        return int(key)


class Time(Whole):
    name = "time"
    noun = "a time"
    least = instant("0001-01-01T00:00:00+23:59")
    end = instant("9999-12-31T23:59:60.999999-23:59") + 1

    def key(self, value: object) -> int:
        if not isinstance(value, str):
            raise ValueError(f"got {describe(value)}, not a string such as 2024-05-01T12:00:00Z")
        try:
            return instant(value)
        except ValueError as error:
            raise ValueError(f"got {describe(value)}: {error}") from None


class Coded(Domain):
    """Domains of byte strings, whose first bytes are the coordinate."""

    #: leading bytes that determine the coordinate: 257^6 is below 2^53
    CODED_BYTES = 6
    _WEIGHTS = tuple(257**empty for empty in range(6, -1, -1))

    def after(self, mark: Mark) -> Mark:
        return mark + b"\0"

    def _closed(self, lo: bytes, hi: bytes | None) -> tuple[float, float, bool]:
        """Converts [lo, hi) without the end, None; a bound of up to six bytes is exact.

        No smaller value shares the coordinate of such a bound.
        """
        low = self._code(lo[: self.CODED_BYTES])
        if hi is None:
            return low if lo else LOWEST, math.inf, len(lo) <= self.CODED_BYTES
        exact = len(lo) <= self.CODED_BYTES and len(hi) <= self.CODED_BYTES
        if hi[:-1] == lo and hi[-1] == 0:  # one value
            return low, low, exact
        if hi.endswith(b"\0"):  # the successor of a value, which is the largest one below it
            return low, self._code(hi[:-1][: self.CODED_BYTES]), exact
        return low, self._code(hi[: self.CODED_BYTES]) - (len(hi) <= self.CODED_BYTES), exact

    def _code(self, first: bytes) -> float:
        """Encodes bytes as digits 1 to 256 in base 257; 0 is the end of the value."""
        code = 0
        for byte in first:
            code = code * 257 + byte + 1
        return float(code * self._WEIGHTS[len(first)])


class String(Coded):
    name = "string"
    noun = "a string"
    least = b""
    end = b"\xff"

    def key(self, value: object) -> str:
        if not isinstance(value, str):
            raise ValueError(f"got {describe(value)}")
        if not (value.isascii() or is_encodable(value)):
            raise ValueError("got a string with a lone surrogate")
        return value

    def mark(self, key: Any) -> Mark:
        return key.encode()

    def after_prefix(self, prefix: str) -> Mark:
        """Returns the smallest mark above all strings with the prefix: increments its last character."""
        for last in range(len(prefix) - 1, -1, -1):
            point = ord(prefix[last]) + 1
            if point == 0xD800:
                point = 0xE000
            if point <= 0x10FFFF:
                return (prefix[:last] + chr(point)).encode()
        return self.end

    def coordinate(self, key: Any) -> float:
        return self._code(key.encode()[: self.CODED_BYTES])

    def closed(self, lo: Mark, hi: Mark) -> tuple[float, float, bool]:
        return self._closed(lo, None if hi == self.end else hi)


class Bytes(Coded):
    """Byte strings. A NUL before each value makes room for an end above all of them."""

    name = "bytes"
    noun = "a string of bytes in base64"
    least = b"\0"
    end = b"\1"

    def key(self, value: object) -> bytes:
        if not isinstance(value, str):
            raise ValueError(f"got {describe(value)}")
        return read_base64(value)

    def mark(self, key: Any) -> Mark:
        return b"\0" + key

    def coordinate(self, key: Any) -> float:
        return self._code(key[: self.CODED_BYTES])

    def closed(self, lo: Mark, hi: Mark) -> tuple[float, float, bool]:
        return self._closed(lo[1:], None if hi == self.end else hi[1:])


def read_base64(text: str) -> bytes:
    """Decodes base64 (RFC 4648, padded); raises ValueError, also for a text that no encoder writes.

    So bytes have one text, and texts can be compared in place of bytes.
    """
    try:
        value = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"got {describe(text)}, not base64 with padding such as aGVsbG8=") from None
    if base64.b64encode(value) != text.encode():
        raise ValueError(f"got {describe(text)}, whose unused bits are not zero")
    return value


#: ends the name of an array's type, after that of its elements: `string[]`
ARRAY = "[]"


class Array(Whole):
    """Arrays whose elements have one type."""

    least = 0
    end = 1

    def __init__(self, element: Domain) -> None:
        self.element = element
        self.name = f"{element.name}{ARRAY}"
        self.noun = f"an array of {element.name}s"

    def key(self, value: object) -> Key:
        raise ValueError(f"got {describe(value)}")

    def coordinate(self, key: Any) -> float:
        return 0.0


SCALARS: dict[str, Domain] = {
    domain.name: domain for domain in (Number(), Integer(), String(), Boolean(), Time(), Bytes())
}
DOMAINS: dict[str, Domain] = SCALARS | {
    array.name: array for array in [Array(element) for element in SCALARS.values()]
}


def is_array(type_: str) -> bool:
    return type_.endswith(ARRAY)


def element_of(type_: str) -> str:
    """Returns the type of an array's elements."""
    return type_.removesuffix(ARRAY)
