"""Sequences of notifications: monitors, factoring and delegation.

A monitor of f · g · h takes the first notification that matches f, then the first later one that matches g,
and so on; it ignores everything else meanwhile, and starts anew after the last. A server knows from
advertisements which notifications its neighbours can provide: its table of *available patterns*. It
*factors* a sequence into available patterns and *delegates* groups of them to neighbours, which run
monitors of their own.

Delegating a part of a sequence changes its meaning. Over `f g f h g h`, one monitor of f · g · h finds one
match. A monitor of (f · g) · h with f · g delegated finds two: the second f · g begins before the first
match ends. None of the four published conditions excludes that. Only a whole sequence can be delegated
exactly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from edn.model.filter import BoundFilter, Filter
from edn.model.schema import Schema
from evaluation.siena.poset import Filtering

T = TypeVar("T")


def advertisement(schema: Schema, alternatives: Mapping[str, Sequence[Any]]) -> BoundFilter:
    """Returns the filter of an advertisement: each named attribute is missing or one of its alternatives.

    Attributes that are not named are missing.
    """
    conditions: list[dict[str, Any]] = []
    for name in schema.attributes:
        known = [{name: one} for one in alternatives.get(name, ())]
        conditions.append({"$any": [{name: {"exists": False}}, *known]})
    return Filter.parse({"$all": conditions}).bind(schema)


#: positions of the notifications of a match
Match = tuple[int, ...]


class Monitor(Generic[T]):
    """Finds a sequence of steps in what it is fed."""

    def __init__(self, steps: Sequence[T]) -> None:
        self._steps = steps
        self._at = 0
        self._found: Match = ()

    def feed(self, step: T, notifications: Match) -> Match | None:
        """Advances by notifications that match a step; returns a match if it is complete."""
        if self._steps[self._at] != step:
            return None
        self._at += 1
        self._found += notifications
        if self._at < len(self._steps):
            return None
        found, self._at, self._found = self._found, 0, ()
        return found


def matches(history: Sequence[T], steps: Sequence[T]) -> list[Match]:
    """Returns the matches of one monitor."""
    monitor = Monitor(steps)
    found = (monitor.feed(step, (at,)) for at, step in enumerate(history))
    return [match for match in found if match is not None]


def delegated_matches(history: Sequence[T], steps: Sequence[T], group: slice) -> list[Match]:
    """Returns the matches if the steps of `group` are delegated, and the rest is monitored here."""
    inner = Monitor(steps[group])
    # None stands for a match of the group, which arrives with its last notification.
    outer: Monitor[T | None] = Monitor([*steps[: group.start], None, *steps[group.stop :]])
    matches: list[Match] = []
    for at, step in enumerate(history):
        if step in steps[group]:
            part = inner.feed(step, (at,))
            found = outer.feed(None, part) if part is not None else None
        else:
            found = outer.feed(step, (at,))
        if found is not None:
            matches.append(found)
    return matches


@dataclass(frozen=True, slots=True)
class Available:
    """A row of the table of available patterns."""

    name: str
    filter: Filtering
    providers: frozenset[int]


@dataclass(frozen=True, slots=True)
class Delegation:
    """Steps `first` … `last` of a sequence, and the servers that get them as one subscription."""

    first: int
    last: int
    servers: frozenset[int]


def factor(steps: Sequence[Filtering], table: Sequence[Available]) -> list[list[Available]]:
    """Returns the available patterns of each step: those that overlap it."""
    return [[row for row in table if row.filter.overlaps(step)] for step in steps]


def delegate(steps: Sequence[Filtering], table: Sequence[Available]) -> list[Delegation]:
    """Groups the steps by the four published conditions, greedily from the first one.

    A group is contiguous, available from one server, from no other server, and none of its patterns occurs
    elsewhere in the sequence.
    """
    factors = factor(steps, table)
    providers = [frozenset().union(*(row.providers for row in rows)) for rows in factors]
    found: list[Delegation] = []
    at = 0
    while at < len(steps):
        last = at
        if len(providers[at]) == 1:
            while last + 1 < len(steps) and providers[last + 1] == providers[at]:
                last += 1
            while last > at and _occurs_elsewhere(factors, at, last):
                last -= 1
        found.append(Delegation(at, last, providers[at]))
        at = last + 1
    return found


def _occurs_elsewhere(factors: list[list[Available]], first: int, last: int) -> bool:
    inside = {row.name for rows in factors[first : last + 1] for row in rows}
    outside = {row.name for rows in factors[:first] + factors[last + 1 :] for row in rows}
    return bool(inside & outside)
