"""Decides covering exactly where it can be decided exactly: conjunctions of ranges, equalities and prefixes.

Each attribute of such a filter is one half-open interval [low, high) of an ordered set in which every value
has a next one. `None` as `high` is "no bound"; the lowest value of each set is known. A filter covers another
when the other can never match, or when each of its intervals contains the other's for the same attribute.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from typing import Any

from tests.oracle.values import Schema, microseconds, read

#: operators that this module understands
SIMPLE = frozenset({"eq", "lt", "lte", "gt", "gte", "between", "prefix"})

Interval = tuple[Any, Any]

#: the least value of each type, and what lies beyond its greatest
LOWEST = {
    "number": -sys.float_info.max,
    "integer": -(2**63),
    "string": "",
    "boolean": 0,
    "time": microseconds("0001-01-01T00:00:00+23:59"),
    "bytes": b"",
}
BEYOND = {
    "number": math.inf,
    "integer": 2**63,
    "string": None,
    "boolean": 2,
    "time": microseconds("9999-12-31T23:59:60.999999-23:59") + 1,
    "bytes": None,
}


def _next(kind: str, value: Any) -> Any:
    if kind == "number":
        return math.nextafter(value, math.inf)
    if kind == "string":
        return value + "\0"
    if kind == "bytes":
        return value + b"\0"
    return value + 1


def after(kind: str, value: Any) -> Any:
    """The next value, or None if this one is already beyond all."""
    return None if value == BEYOND[kind] else _next(kind, value)


def _after_prefix(prefix: str) -> str | None:
    """The lowest string above all that begin with the prefix."""
    while prefix:
        code = ord(prefix[-1]) + 1
        if code == 0xD800:
            code = 0xE000  # surrogates are no characters
        if code <= 0x10FFFF:
            return prefix[:-1] + chr(code)
        prefix = prefix[:-1]
    return None


def _lower_high(a: Any, b: Any) -> Any:
    if a is None or b is None:
        return a if b is None else b
    return min(a, b)


def interval(operator: str, operand: Any, kind: str) -> Interval:
    lowest, beyond = LOWEST[kind], BEYOND[kind]
    if operator == "between":
        low, high = (read(kind, literal) for literal in operand)
        return low, _next(kind, high)
    value = read(kind, operand)
    if operator == "prefix":
        return value, _after_prefix(value)
    after = _next(kind, value)
    intervals = {
        "eq": (value, after),
        "lt": (lowest, value),
        "lte": (lowest, after),
        "gt": (after, beyond),
        "gte": (value, beyond),
    }
    return intervals[operator]


def _is_empty(interval: Interval) -> bool:
    low, high = interval
    return high is not None and low >= high


def intervals(written: Mapping[str, Any] | None, schema: Schema) -> dict[str, Interval] | None:
    """The interval of each constrained attribute, or None if the filter is not of the simple kind."""
    found: dict[str, Interval] = {}
    for name, condition in (written or {}).items():
        if name.startswith("$") or isinstance(condition, list):
            return None
        operators = condition if isinstance(condition, Mapping) else {"eq": condition}
        if not SIMPLE.issuperset(operators):
            return None
        kind = schema[name]
        low, high = LOWEST[kind], BEYOND[kind]
        for operator, operand in operators.items():
            other_low, other_high = interval(operator, operand, kind)
            low, high = max(low, other_low), _lower_high(high, other_high)
        found[name] = (low, high)
    return found


def covers(first: Mapping[str, Interval], second: Mapping[str, Interval]) -> bool:
    """Whether every event that matches the second matches the first."""
    if any(_is_empty(interval) for interval in second.values()):
        return True
    for name, (low, high) in first.items():
        if name not in second:
            return False
        other_low, other_high = second[name]
        if other_low < low or _lower_high(high, other_high) != other_high:
            return False
    return True
