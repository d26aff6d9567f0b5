"""Filters of the product with cached comparisons, and an oracle that shares no code with what it judges.

The oracle knows a filter as the set of points of a small space that satisfy it, computed here from the
filter's JSON form. The space has values beyond all literals on both sides, so inclusion of these sets is
covering.
"""

from __future__ import annotations

from functools import cache
from itertools import product
from typing import Any

from edn.model.filter import Filter
from edn.model.schema import Schema

SCHEMA = Schema.parse({"a": "integer", "b": "integer", "c": "integer"})
VALUES = (None, *range(-1, 6))
SPACE = [
    {name: value for name, value in zip("abc", point, strict=True) if value is not None}
    for point in product(VALUES, repeat=3)
]


class Known:
    """A filter of `edn.model` that compares once with each other one."""

    def __init__(self, json: dict[str, Any]) -> None:
        self.json = json
        self.bound = Filter.parse(json).bind(SCHEMA)
        self.points = frozenset(at for at, point in enumerate(SPACE) if holds(json, point))
        self._covers: dict[int, bool] = {}
        self._overlaps: dict[int, bool] = {}

    def covers(self, other: Known) -> bool:
        found = self._covers.get(id(other))
        if found is None:
            found = self._covers[id(other)] = self.bound.covers(other.bound)
        return found

    def overlaps(self, other: Known) -> bool:
        found = self._overlaps.get(id(other))
        if found is None:
            found = self._overlaps[id(other)] = self.bound.overlaps(other.bound)
        return found

    def matches(self, point: int) -> bool:
        return self.bound.matches(SPACE[point])

    def __repr__(self) -> str:
        return str(self.json)


def holds(json: dict[str, Any], point: dict[str, int]) -> bool:
    for name, tests in json.items():
        if name not in point:
            return False
        value = point[name]
        for operator, literal in tests.items():
            holding = {"eq": value == literal, "lt": value < literal, "gt": value > literal, "exists": True}
            if not holding[operator]:
                return False
    return True


@cache
def pool() -> list[Known]:
    """Every filter of up to two constraints with few literals: many cover each other."""
    singles = [{"exists": True}, {"eq": 1}, {"eq": 3}, {"lt": 2}, {"lt": 4}, {"gt": 0}, {"gt": 2}]
    found = [Known({name: test}) for name in "abc" for test in singles]
    found += [Known({"a": one, "b": other}) for one in singles[1:] for other in singles[1:]]
    return found


class Oracle:
    """What each client must be told, by the published semantics: a set of requests per client."""

    def __init__(self) -> None:
        self._subscriptions: dict[int, list[Known]] = {}
        self._advertisements: dict[int, list[Known]] = {}

    def add(self, client: int, filter: Known, *, is_advertisement: bool = False) -> None:
        self._of(is_advertisement).setdefault(client, []).append(filter)

    def remove(self, client: int, filter: Known, *, is_advertisement: bool = False) -> None:
        """Cancels everything that the filter covers."""
        kept = [one for one in self._of(is_advertisement).get(client, []) if not one.points <= filter.points]
        self._of(is_advertisement)[client] = kept

    def receivers(self, publisher: int, point: int, *, by_advertisement: bool) -> set[int]:
        offered = any(point in one.points for one in self._advertisements.get(publisher, []))
        if by_advertisement and not offered:
            return set()
        return {
            client
            for client, filters in self._subscriptions.items()
            if any(point in one.points for one in filters)
        }

    def _of(self, is_advertisement: bool) -> dict[int, list[Known]]:
        return self._advertisements if is_advertisement else self._subscriptions
