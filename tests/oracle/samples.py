"""Draws events at, beside and between the constants of filters: where a wrong bound shows.

A search for a counterexample to covering is only as good as its candidates. For each attribute they are every
constant that some filter compares it with, that constant's neighbours, what lies between two constants,
values far away, and nothing at all.
"""

from __future__ import annotations

import itertools
import math
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tests.oracle.meaning import Events
from tests.oracle.values import Schema, Values, read


def _literals(condition: Any) -> Iterator[Any]:
    if isinstance(condition, list):
        yield from condition
    elif not isinstance(condition, Mapping):
        yield condition
    else:
        for operator, operand in condition.items():
            if operator != "exists":
                yield from _literals(operand)


def constants(filters: Sequence[Mapping[str, Any] | None], schema: Schema) -> dict[str, list[Any]]:
    """What each attribute is compared with anywhere in the filters, read by its type, sorted."""
    found: dict[str, set[Any]] = {name: set() for name in schema}

    def walk(written: Mapping[str, Any]) -> None:
        for key, part in written.items():
            if key in ("$any", "$all"):
                for branch in part:
                    walk(branch)
            elif key == "$not":
                walk(part)
            else:
                found[key].update(read(schema[key], literal) for literal in _literals(part))

    for written in filters:
        walk(written or {})
    return {name: sorted(values) for name, values in found.items()}


def _around_number(value: float) -> list[float]:
    steps = [math.nextafter(value, -math.inf), value, math.nextafter(value, math.inf)]
    return [step for step in steps if math.isfinite(step)]


def _around_integer(value: int) -> list[int]:
    return [step for step in (value - 1, value, value + 1) if -(2**63) <= step < 2**63]


def _around_string(value: str) -> list[str]:
    found = [
        value,
        value + "\0",
        value + "z",
        "z" + value,
        value + value,
        value[:-1],
        value[1:],
        value + "\U0010ffff",
    ]
    if value:
        last = ord(value[-1])
        for code in (last - 1, last + 1):
            if 0 <= code <= 0x10FFFF and not 0xD800 <= code < 0xE000:
                found += [value[:-1] + chr(code), value[:-1] + chr(code) + "\U0010ffff"]
    return found


def candidates(kind: str, values: Sequence[Any]) -> list[Any]:
    """Values worth trying for an attribute that is compared with the (sorted) given ones."""
    near: list[Any]
    pairs = list(itertools.pairwise(values))
    if kind == "number":
        near = [near for value in values for near in _around_number(value)]
        near += [low / 2 + high / 2 for low, high in pairs]
        return sorted({*near, 0.0, -sys.float_info.max, sys.float_info.max})
    if kind == "integer":
        near = [near for value in values for near in _around_integer(value)]
        near += [(low + high) // 2 for low, high in pairs]
        return sorted({*near, 0, -(2**63), 2**63 - 1})
    if kind == "time":
        near = [step for value in values for step in (value - 1, value, value + 1)]
        return sorted({*near, *((low + high) // 2 for low, high in pairs), 0})
    if kind == "string":
        near = [near for value in values for near in _around_string(value)]
        near += [first + second for first, second in pairs] + [second + first for first, second in pairs]
        return sorted({*near, "", "other"})
    return [False, True]


def sample(
    pool: Mapping[str, Sequence[Any]], count: int, chance: random.Random, *, missing: float = 0.15
) -> list[Values]:
    """Events whose attributes are drawn from the pool, each absent with the given probability."""
    return [
        {name: chance.choice(values) for name, values in pool.items() if chance.random() >= missing}
        for _ in range(count)
    ]


def counterexample(
    first: Mapping[str, Any] | None,
    second: Mapping[str, Any] | None,
    schema: Schema,
    chance: random.Random,
    *,
    tries: int = 200,
) -> Values | None:
    """An event that matches the second filter and not the first, if the search meets one."""
    around = constants([first, second], schema)
    pool = {name: candidates(schema[name], values) for name, values in around.items()}
    events = Events(sample(pool, tries, chance), schema)
    escaped = (events.matching(second) & ~events.matching(first)).nonzero()[0]
    return events.events[escaped[0]] if len(escaped) else None
