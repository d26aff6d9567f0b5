"""XPath expressions and events for them, drawn at random; and what libxml2 says of both, asked directly.

The XML of an event is written here by hand, as text, and parsed: nothing of the code under test takes part.
"""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import Any
from xml.sax.saxutils import escape

from lxml import etree

SCHEMA = {
    "symbol": "string",
    "price": "number",
    "volume": "integer",
    "open": "boolean",
    "when": "time",
    "at.floor": "integer",
    "at.room": "string",
    "bid.price": "number",
}
NAMES = ["symbol", "price", "volume", "open", "when", "at/floor", "at/room", "bid/price", "at", "bid", "none"]
STRINGS = [
    "GE",
    "G",
    "",
    "GEX",
    "30",
    "true",
    "false",
    " 30 ",
    "0.1",
    "2030-01-31T09:00:00Z",
    "é\ufffd",
    "a'b",
]
NUMBERS = [0.0, 1.0, -1.0, 0.1, 0.3, 0.30000000000000004, 30.0, 29.999999999999996, 1e16, 123456789.123, 1e-7]
NUMBERS += [1e300, -1e300, 5e-324, 1e-290, 2.0**53, 9007199254740993.0, 1.7976931348623157e308, 0.7, 4.35]
INTEGERS = [0, 1, -1, 3, 30, 2**53, 2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63), 1000000007]
TIMES = ["2030-01-31T09:00:00Z", "2030-01-31T10:00:00+01:00", "1999-12-31T23:59:59.5Z"]


class Writer:
    """Writes expressions; mostly such that something can be said about single attributes."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def condition(self, depth: int = 0) -> str:
        chance = self._chance
        kind = chance.random()
        if depth < 3 and kind < 0.28:
            joined = f" {chance.choice(['and', 'or'])} ".join(
                self.condition(depth + 1) for _ in range(chance.randint(2, 3))
            )
            return f"({joined})" if chance.random() < 0.5 else joined
        if depth < 3 and kind < 0.36:
            return f"not({self.condition(depth + 1)})"
        if kind < 0.75:
            return self._comparison(depth)
        if kind < 0.85:
            name = chance.choice(["starts-with", "contains"])
            return f"{name}({self.path(depth)}, {self._string()})"
        if kind < 0.92:
            return self.path(depth)
        return chance.choice(
            [
                f"count({self.path(depth)}) > {chance.randint(0, 2)}",
                f"boolean({self.path(depth)})",
                f"string-length({self.path(depth)}) = 2",
                f"{self.path(depth)} = {self.path(depth)}",
                f"sum({self.path(depth)}) >= {self._number()}",
                f"normalize-space({self.path(depth)}) = '30'",
                f"{self.path(depth)} = {chance.choice(['true()', 'false()'])}",
                f"number({self.path(depth)}) < {self._number()}",
                f"{self.path(depth)} * 2 > {self._number()}",
                "position() = last()",
            ]
        )

    def path(self, depth: int = 0) -> str:
        chance = self._chance
        name = chance.choice(NAMES)
        local = name.rpartition("/")[2]
        last = chance.choice(["", "", "", "", "/text()", "/node()", "/.", "/..", "[1]", "/self::*"])
        inside = f"[{self._inner(depth + 1)}]" if depth < 2 and chance.random() < 0.25 else ""
        start = chance.choice(
            [
                name,
                name,
                f"./{name}",
                f"//{local}",
                f"/e:event/{name}",
                f"/*/{name}",
                f"//{name}",
                f".//{local}",
                f"child::{name}",
                f"descendant::{local}",
                f"*[local-name() = '{local}']",
                f"at/../{name}",
                "*",
                "//*",
                "//text()",
                "//node()",
                "self::node()",
                f"({name} | //{chance.choice(NAMES)})",
                f"/e:event[{self._inner(depth + 1) if depth < 2 else 'price'}]/{name}",
                f"symbol/following-sibling::{local}",
                f"//{local}/ancestor::*/{chance.choice(NAMES)}",
                "@id",
            ]
        )
        return start + inside + last

    def _inner(self, depth: int) -> str:
        """A predicate: about the node itself, or anything."""
        chance = self._chance
        if chance.random() < 0.6:
            subject = chance.choice(
                [".", "text()", "node()", "..", "../price", "self::price", "/e:event/price"]
            )
            return f"{subject} {self._operator()} {chance.choice([self._number, self._string])()}"
        return self.condition(depth + 1)

    def _comparison(self, depth: int) -> str:
        chance = self._chance
        path, value = self.path(depth), chance.choice([self._number, self._number, self._string])()
        operator = self._operator()
        return f"{path} {operator} {value}" if chance.random() < 0.7 else f"{value} {operator} {path}"

    def _operator(self) -> str:
        return self._chance.choice(["=", "!=", "<", "<=", ">", ">="])

    def _number(self) -> str:
        chance = self._chance
        value = chance.choice([*NUMBERS, *INTEGERS])
        written = f"{value:.20f}".rstrip("0").rstrip(".") if abs(value) < 1e20 else f"{value:.0f}"
        if abs(value) < 1e-15 and value:
            written = f"{value:.330f}".rstrip("0")
        if chance.random() < 0.5 and abs(value) < 1e15:
            written = repr(float(value)) if "e" not in repr(float(value)) else written
        return written

    def _string(self) -> str:
        text = self._chance.choice(STRINGS)
        return f'"{text}"' if "'" in text else f"'{text}'"


def draw_event(chance: random.Random) -> dict[str, Any]:
    values = {
        "symbol": lambda: chance.choice([*STRINGS, "G\x01E", "é\x02"]),
        "price": lambda: chance.choice([*NUMBERS, chance.uniform(-40, 40)]),
        "volume": lambda: chance.choice(INTEGERS),
        "open": lambda: chance.random() < 0.5,
        "when": lambda: chance.choice(TIMES),
        "at.floor": lambda: chance.choice(INTEGERS),
        "at.room": lambda: chance.choice(STRINGS),
        "bid.price": lambda: chance.choice(NUMBERS),
    }
    return {name: draw() for name, draw in values.items() if chance.random() < 0.7}


def nested(event: dict[str, Any]) -> dict[str, Any]:
    """As a publisher would send it."""
    whole: dict[str, Any] = {}
    for name, value in event.items():
        outer, dot, inner = name.partition(".")
        if dot:
            whole.setdefault(outer, {})[inner] = value
        else:
            whole[name] = value
    return whole


def xml(event: dict[str, Any]) -> etree._Element:
    """The event as docs/soap.md describes its XML."""

    def write(value: Any) -> str:
        if isinstance(value, dict):
            return "".join(f"<{name}>{write(inner)}</{name}>" for name, inner in value.items())
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, float):
            return _digits(value)
        if isinstance(value, str) and value in TIMES:
            moment = datetime.fromisoformat(value).astimezone(UTC)
            return moment.isoformat().replace("+00:00", "Z")
        if isinstance(value, str):
            return escape("".join(one if one >= " " else "\ufffd" for one in value))
        return str(value)

    inside = write(nested(event))
    return etree.fromstring(f'<e:event xmlns:e="urn:edn:soap">{inside}</e:event>')


def _digits(value: float) -> str:
    """The shortest digits of a double, with the point where it belongs."""
    mantissa, _, power = repr(abs(value)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits, point = whole + fraction, len(whole) + int(power or 0)
    digits, point = ("0" * (1 - point) + digits, 1) if point < 1 else (digits.ljust(point, "0"), point)
    left, right = digits[:point].lstrip("0") or "0", digits[point:].rstrip("0")
    return ("-" if value < 0 else "") + left + (f".{right}" if right else "")


def verdict(expression: str, event: etree._Element) -> bool:
    found = event.xpath(f"boolean({expression})", namespaces={"e": "urn:edn:soap"})
    assert isinstance(found, bool)
    return found
