"""Decides covering for every filter without `suffix` and `contains`, by trying all events that differ.

Every comparison splits an attribute's values at a few cuts: `lt 5` at 5, `eq 5` at 5 and at what follows it.
Between two cuts all values are alike to the filters at hand, so one value of each cell, and "missing", stand
for all there are; and one event of each combination of cells stands for all events.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tests.oracle.meaning import Events
from tests.oracle.ranges import LOWEST, SIMPLE, after, interval
from tests.oracle.values import Schema, Values


class NotDecided(Exception):
    """Too many events, or a filter with patterns."""


def _cuts(condition: Any, kind: str) -> Iterator[Any]:
    """Where a condition's comparisons split the values; None for "above all"."""
    if isinstance(condition, list):
        condition = {"in": condition}
    if not isinstance(condition, Mapping):
        condition = {"eq": condition}
    for operator, operand in condition.items():
        if operator == "not":
            yield from _cuts(operand, kind)
        elif operator == "in":
            for member in operand:
                yield from interval("eq", member, kind)
        elif operator == "ne":
            yield from interval("eq", operand, kind)
        elif operator in SIMPLE:
            yield from interval(operator, operand, kind)
        elif operator != "exists":
            raise NotDecided(operator)


def _walk(written: Mapping[str, Any], schema: Schema, found: dict[str, set[Any]]) -> None:
    for key, part in written.items():
        if key in ("$any", "$all"):
            for branch in part:
                _walk(branch, schema, found)
        elif key == "$not":
            _walk(part, schema, found)
        else:
            found.setdefault(key, set()).update(_cuts(part, schema[key]))


def representatives(
    filters: Sequence[Mapping[str, Any] | None], schema: Schema, *, limit: int = 20_000
) -> list[Values]:
    """One event of each combination of cells that the filters can tell apart."""
    found: dict[str, set[Any]] = {}
    for written in filters:
        _walk(written or {}, schema, found)
    choices: list[list[tuple[str, Any] | None]] = []
    for name, cuts in found.items():
        kind = schema[name]
        values = {LOWEST[kind], *(cut for cut in cuts if cut is not None and after(kind, cut) is not None)}
        choices.append([None, *((name, value) for value in sorted(values))])
    if math.prod(map(len, choices)) > limit:
        raise NotDecided("too many events")
    return [dict(pair for pair in event if pair is not None) for event in itertools.product(*choices)]


def covers(first: Mapping[str, Any] | None, second: Mapping[str, Any] | None, schema: Schema) -> bool:
    """Whether every event that matches the second matches the first; raises NotDecided."""
    events = Events(representatives([first, second], schema), schema)
    return not (events.matching(second) & ~events.matching(first)).any()
