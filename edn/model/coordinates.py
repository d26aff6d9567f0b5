"""The five types of attributes as ordered domains, and the one map from their values to coordinates.

Events and filters go through the same monotone map to doubles; where it merges values (long strings, integers
and times beyond 2^53), rectangles are covers and say so. Nothing else in the project turns a value into a
number.

Exactly, without coordinates, a set of values is a union of half-open intervals [lo, hi) of *marks*. A mark is
a value as an element of its ordered domain, which has a least mark, a successor for each mark and an end
above all of them:

    type      key (what predicates compare)    mark            successor      end
    number    float, never -0.0                the float       nextafter      +inf
    integer   int                              the int         + 1            2^63
    boolean   bool                             0 or 1          + 1            2
    time      int, microseconds since 1970     the int         + 1            after the last of year 9999
    string    str, by code point               its UTF-8       + NUL          FF, in no UTF-8

UTF-8 sorts as code points do, which is why bytes can stand for strings.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, date, datetime, timedelta
from typing import Any, ClassVar

from edn.model.rect import LOWEST
from edn.model.wording import shown

Key = float | int | str | bool
#: an element of an ordered domain; marks of one domain only are ever compared
Mark = Any

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: the last microsecond of 9999, and the greatest offset
_LAST = 253_402_300_799_999_999
_FARTHEST = (23 * 60 + 59) * 60_000_000
_INSTANT = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt](\d\d):(\d\d):(\d\d)(?:\.(\d+))?(?:[Zz]|([+-])(\d\d):(\d\d))", re.ASCII
)


def rfc3339(microseconds: int) -> str:
    """An instant as it is written in answers: UTC, with a fraction only where there is one.

    Of the first and the last day that there are, some hours lie in no year from 1 to 9999 of UTC; these are
    written with the offset that has most of them. So whatever `instant` reads can be written.
    """
    try:
        moment = _EPOCH + timedelta(microseconds=microseconds)
    except OverflowError:
        return _far(microseconds)
    return moment.isoformat().replace("+00:00", "Z")


def _far(microseconds: int) -> str:
    sign = "+" if microseconds < 0 else "-"
    local = microseconds + (_FARTHEST if microseconds < 0 else -_FARTHEST)
    leap = local > _LAST  # there, the second after the last can only be written as 60
    moment = _EPOCH + timedelta(microseconds=local - 1_000_000 * leap)
    text = moment.replace(tzinfo=None).isoformat()
    return (text.replace(":59:59", ":59:60") if leap else text) + f"{sign}23:59"


def instant(text: str) -> int:
    """An RFC 3339 time with its offset as microseconds since 1970 UTC; raises ValueError.

    What is finer than a microsecond is cut off. The leap second :60 is the next minute's :00.
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


class Domain:
    """A type of attribute: which values it has, their order, and where they lie on their column's axis."""

    name: ClassVar[str]
    #: with its article, for messages
    noun: ClassVar[str]
    least: Mark
    end: Mark

    def key(self, value: object) -> Key:
        """A literal as the value that predicates compare; raises ValueError, saying what it got instead."""
        raise NotImplementedError

    def mark(self, key: Any) -> Mark:
        return key

    def after(self, mark: Mark) -> Mark:
        """The successor: nothing lies between a mark and it."""
        raise NotImplementedError

    def coordinate(self, key: Any) -> float:
        raise NotImplementedError

    def closed(self, lo: Mark, hi: Mark) -> tuple[float, float, bool]:
        """The coordinates of a non-empty [lo, hi) as a closed interval; whether no other value lies in it."""
        raise NotImplementedError


class Number(Domain):
    name = "number"
    noun = "a number"
    least = LOWEST
    end = math.inf

    def key(self, value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ValueError(f"got {shown(value)}")
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            raise ValueError("got one beyond the range of a 64-bit double")
        return number + 0.0  # makes -0.0 the one zero

    def after(self, mark: Mark) -> Mark:
        return math.nextafter(mark, math.inf)

    def coordinate(self, key: Any) -> float:
        return float(key)

    def closed(self, lo: Mark, hi: Mark) -> tuple[float, float, bool]:
        return lo, math.inf if hi == self.end else math.nextafter(hi, -math.inf) + 0.0, True


class Whole(Domain):
    """Domains whose marks are integers."""

    def after(self, mark: Mark) -> Mark:
        return mark + 1

    def coordinate(self, key: Any) -> float:
        return float(key)

    def closed(self, lo: Mark, hi: Mark) -> tuple[float, float, bool]:
        """A bound is exact where the neighbour beyond it has another coordinate, so below 2^53 always."""
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
            raise ValueError(f"got {shown(value)}")
        if isinstance(value, float) and not value.is_integer():
            raise ValueError(f"got {shown(value)}, which is not whole")
        whole = int(value)
        if not self.least <= whole < self.end:
            raise ValueError("got one that does not fit in 64 bits")
        return whole


class Boolean(Whole):
    name = "boolean"
    noun = "a boolean"
    least = 0
    end = 2

    def key(self, value: object) -> bool:
        if not isinstance(value, bool):
            raise ValueError(f"got {shown(value)}")
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
            raise ValueError(f"got {shown(value)}")
        try:
            return instant(value)
        except ValueError as error:
            raise ValueError(f"got {shown(value)}: {error}") from None


class String(Domain):
    name = "string"
    noun = "a string"
    least = b""
    end = b"\xff"

    #: bytes that a coordinate can tell apart: 257^6 is below 2^53
    SEEN = 6
    _WEIGHTS = tuple(257**empty for empty in range(6, -1, -1))

    def key(self, value: object) -> str:
        if not isinstance(value, str):
            raise ValueError(f"got {shown(value)}")
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ValueError("got one with a lone surrogate, which is no character") from None
        return value

    def mark(self, key: Any) -> Mark:
        return key.encode()

    def after(self, mark: Mark) -> Mark:
        return mark + b"\0"

    def after_prefix(self, prefix: str) -> Mark:
        """The mark above all strings that begin so: the last character that can grow by one, grown."""
        for last in range(len(prefix) - 1, -1, -1):
            point = ord(prefix[last]) + 1
            if point == 0xD800:
                point = 0xE000
            if point <= 0x10FFFF:
                return (prefix[:last] + chr(point)).encode()
        return self.end

    def coordinate(self, key: Any) -> float:
        return self._code(key.encode()[: self.SEEN])

    def closed(self, lo: Mark, hi: Mark) -> tuple[float, float, bool]:
        """A bound is exact up to six bytes: then no smaller string shares its coordinate."""
        low = self._code(lo[: self.SEEN])
        if hi == self.end:
            return low if lo else LOWEST, math.inf, len(lo) <= self.SEEN
        exact = len(lo) <= self.SEEN and len(hi) <= self.SEEN
        if hi.endswith(b"\0"):  # then it is the successor of a string, which is the greatest below it
            return low, self._code(hi[:-1][: self.SEEN]), exact
        return low, self._code(hi[: self.SEEN]) - (len(hi) <= self.SEEN), exact

    def _code(self, first: bytes) -> float:
        """The first bytes as digits to the base 257, from 1 on: 0 is the end of the string."""
        code = 0
        for byte in first:
            code = code * 257 + byte + 1
        return float(code * self._WEIGHTS[len(first)])


DOMAINS: dict[str, Domain] = {
    domain.name: domain for domain in (Number(), Integer(), String(), Boolean(), Time())
}
