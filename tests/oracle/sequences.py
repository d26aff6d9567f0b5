"""What a sequence means, written a second time from docs/model.md: which lists of events it is notified of.

A sequence is given as subscribers write it, the events of a topic as the publisher sent them. Nothing is
remembered from event to event: for each start the steps are searched again from the beginning of the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.oracle.meaning import matches
from tests.oracle.values import Schema, Values

Written = Mapping[str, Any]


@dataclass(frozen=True)
class Happened:
    """An event, in the order in which the network looks at them."""

    topic: str
    values: Values
    #: in any unit
    time: int
    #: name of the log that made the time; None if the publisher chose it
    made_by: str | None = None


def completions(
    written: Written, schemas: Mapping[str, Schema], events: Sequence[Happened], within: int | None = None
) -> list[list[int]]:
    """Returns the notified lists of events, as indices, in the order of their last events."""
    steps, by = written["sequence"], written.get("by", [])
    tests = [_test(step, written.get("topic"), schemas) for step in steps]
    enders = [_ender(step, written.get("topic"), schemas) for step in steps]
    found: list[list[int]] = []
    for indices in _parted(by, events):
        mine = [events[index] for index in indices]
        concerned = [
            place
            for place, event in enumerate(mine)
            if any(test(event) for test in tests) or any(ender(event) for ender in enders)
        ]
        start = 0
        while start < len(concerned):
            taken, start = _attempt([mine[place] for place in concerned], start, steps, tests, enders, within)
            if taken:
                found.append([indices[concerned[place]] for place in taken])
    return sorted(found, key=lambda taken: taken[-1])


def _attempt(
    events: Sequence[Happened],
    start: int,
    steps: Sequence[Written],
    tests: Any,
    enders: Any,
    within: int | None,
) -> tuple[list[int], int]:
    """Tries to begin with one event; returns the complete list or [], and where the next try begins."""
    if not tests[0](events[start]):
        return [], start + 1
    taken = [start]
    for step, wanted in enumerate(steps):
        missing = wanted.get("times", 1) - (1 if step == 0 else 0)
        for _ in range(missing):
            place = taken[-1]
            while True:
                place += 1
                if place == len(events):
                    return [], len(events)
                event = events[place]
                if within is not None and event.time - events[taken[0]].time > within:
                    return [], place
                if not _follows(event, events[taken[-1]]):
                    continue
                if tests[step](event):
                    break
                if enders[step](event):
                    return [], place
            taken.append(place)
    return taken, taken[-1] + 1


def _follows(event: Happened, earlier: Happened) -> bool:
    if event.time == earlier.time:
        return event.made_by is not None and event.made_by == earlier.made_by
    return event.time > earlier.time


def _test(step: Written, topic: str | None, schemas: Mapping[str, Schema]) -> Any:
    name = step.get("topic", topic)
    return lambda event: event.topic == name and matches(step.get("filter"), event.values, schemas[name])


def _ender(step: Written, topic: str | None, schemas: Mapping[str, Schema]) -> Any:
    if step.get("unless") is None:
        return lambda event: False
    return _test({"topic": step.get("topic", topic), **step["unless"]}, None, schemas)


def _parted(by: Sequence[str], events: Sequence[Happened]) -> list[list[int]]:
    parts: dict[tuple[Any, ...], list[int]] = {}
    for index, event in enumerate(events):
        if all(name in event.values for name in by):
            parts.setdefault(tuple(event.values[name] for name in by), []).append(index)
    return list(parts.values())
