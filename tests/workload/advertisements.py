"""Random advertisements, filters and events over a small schema, so that they often meet.

Every constant is drawn from a short pool per type; so are the values of events, with the neighbours of the
constants between them.
"""

from __future__ import annotations

import random
from typing import Any

SCHEMA: dict[str, str | list[str]] = {
    "what": "string",
    "level": "integer",
    "price": "number",
    "when": "time",
    "open": "boolean",
    "at.city": "string",
    "raw": "bytes",
    "tags": ["string"],
}
STRINGS = ["", "a", "al", "alarm", "alarm clock", "alarm clocks", "b", "login", "logout", "é", "z"]
INTEGERS = [-(2**63), -7, 0, 1, 2, 3, 4, 5, 6, 7, 10, 2**53, 2**53 + 1, 2**63 - 1]
NUMBERS = [-1.5, 0.0, 0.1, 1.0, 2.5, 3.0, 5.0, 1e16, 1e300]
TIMES = [
    "2024-01-01T00:00:00Z",
    "2024-01-01T01:00:00+01:00",
    "2024-05-01T12:00:00.5Z",
    "2030-01-01T00:00:00Z",
]
BYTES = ["", "AA==", "AAA=", "AQ==", "/w==", "//8=", "aGVsbG8gd29ybGQ=", "aGVsbG8gd29ybGR6"]
POOLS: dict[str, list[Any]] = {
    "string": STRINGS,
    "integer": INTEGERS,
    "number": NUMBERS,
    "time": TIMES,
    "boolean": [True, False],
    "bytes": BYTES,
}
_ORDERED = ("lt", "lte", "gt", "gte")
_PATTERNS = ("suffix", "contains")


class Drawing:
    """Draws from a random generator; `patterns`: with suffix and contains."""

    def __init__(self, chance: random.Random, *, patterns: bool = True, arrays: bool = True) -> None:
        self._chance = chance
        self._patterns = patterns
        self.schema = {name: kind for name, kind in SCHEMA.items() if arrays or not isinstance(kind, list)}

    def advertisement(self, *, most: int = 4) -> dict[str, Any]:
        chance = self._chance
        names = chance.sample(list(self.schema), chance.randint(1, most))
        written: dict[str, Any] = {}
        for name in names:
            if chance.random() < 0.2:
                written[name] = "any"
            else:
                written[name] = [self._alternative(self.schema[name]) for _ in range(chance.randint(1, 3))]
        if chance.random() < 0.25:
            written["$others"] = "any"
        return written

    def filter(self, *, most: int = 3) -> dict[str, Any] | None:
        chance = self._chance
        if chance.random() < 0.03:
            return None
        names = chance.sample(list(self.schema), chance.randint(1, most))
        written = {name: self._condition(self.schema[name]) for name in names}
        if chance.random() < 0.2:
            other = chance.choice(list(self.schema))
            written["$any"] = [{other: self._condition(self.schema[other])} for _ in range(2)]
        return written

    def event(self) -> dict[str, Any]:
        chance = self._chance
        event: dict[str, Any] = {}
        for name, kind in self.schema.items():
            if chance.random() < 0.55:
                continue
            event[name] = (
                [chance.choice(POOLS[kind[0]]) for _ in range(chance.randint(0, 3))]
                if isinstance(kind, list)
                else self._value(kind)
            )
        return event

    def _value(self, kind: str) -> Any:
        value = self._chance.choice(POOLS[kind])
        if self._chance.random() < 0.2 and kind == "string":
            return value + self._chance.choice(["s", "\0", " clock"])
        if self._chance.random() < 0.2 and kind == "number":
            return value + 0.5
        return value

    def _alternative(self, kind: str | list[str]) -> Any:
        """An alternative that leaves at least one value."""
        if isinstance(kind, list):
            quantifier = self._chance.choice(["any", "all"])
            return {quantifier: self._simple(kind[0])}
        if self._chance.random() < 0.5:
            return self._chance.choice(POOLS[kind])
        return self._simple(kind)

    def _condition(self, kind: str | list[str]) -> Any:
        if self._chance.random() < 0.1:
            return {"exists": self._chance.random() < 0.7}
        return self._alternative(kind)

    def _simple(self, kind: str) -> dict[str, Any]:
        chance, pool = self._chance, POOLS[kind]
        drawn = chance.random()
        if kind == "boolean" or drawn < 0.25:
            return {chance.choice(["eq", "ne"]): chance.choice(pool)}
        if drawn < 0.4:
            return {"in": chance.sample(pool, 2)}
        if drawn < 0.5:
            return {"not": {"in": chance.sample(pool, 2)}}
        if kind == "string" and drawn < 0.65:
            operators = ("prefix", *_PATTERNS) if self._patterns else ("prefix",)
            return {chance.choice(operators): chance.choice(pool)}
        # Inner values in order, so that an open bound leaves something.
        places = {"time": (0, 2), "bytes": (2, 5)}.get(kind)
        first, last = places or sorted(chance.sample(range(1, len(pool) - 1), 2))
        low, high = pool[first], pool[last]
        if drawn < 0.8:
            return {"between": [low, high]}
        operator = chance.choice(_ORDERED)
        return {operator: low if operator in ("gt", "gte") else high}
