"""The form of sequences: as subscribers write them, as they are stored, and bound to schemas.

A stored sequence stands where a subscription has its filter, as `{"$sequence": …}`, which no filter can be.
It names topics by their uid; `parse` reads the names that a subscriber writes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import msgspec
import numpy as np

from edn.errors import EdnError, InvalidInput
from edn.formats import duration
from edn.model import namespace
from edn.model.filter import BoundFilter, Filter
from edn.model.rect import Rects
from edn.model.schema import Schema
from edn.model.sequence.monitor import MAX_STEPS, UNLESS, Plan, plan_of

KEY = "$sequence"
MIN_STEPS = 2
#: most events of one sequence
MAX_EVENTS = 100
MAX_BY = 8
#: microseconds
MAX_SETTLE = 3_600_000_000
MAX_WITHIN = 3_650 * 86_400_000_000


class Watch(msgspec.Struct, frozen=True, omit_defaults=True):
    """A filter on a topic: that of an `unless`."""

    #: uid
    topic: int
    #: JSON form; None matches everything
    filter: Any = None


class Step(msgspec.Struct, frozen=True, omit_defaults=True):
    topic: int
    filter: Any = None
    #: number of events that fill it
    times: int = 1
    unless: Watch | None = None


class Sequence(msgspec.Struct, frozen=True, omit_defaults=True):
    steps: list[Step]
    by: list[str] = []
    #: microseconds; None: no limit
    within: int | None = None
    #: microseconds
    settle: int = 0

    @property
    def roles(self) -> list[tuple[int, Step | Watch]]:
        """The roles of candidates (`monitor`), each with its topic and filter."""
        found: list[tuple[int, Step | Watch]] = []
        for place, step in enumerate(self.steps):
            found.append((place, step))
            if step.unless is not None:
                found.append((UNLESS + place, step.unless))
        return found

    @property
    def topics(self) -> list[int]:
        """The uids of all topics, that of the first step first."""
        return list(dict.fromkeys(part.topic for _, part in self.roles))

    @property
    def plan(self) -> Plan:
        return plan_of(tuple(step.times for step in self.steps), self.within)

    @property
    def predicates(self) -> int:
        """Number of comparisons, as quotas count them."""
        return sum(Filter.parse(part.filter).predicates for _, part in self.roles)

    def to_json(self) -> dict[str, Any]:
        """Writes the stored form."""
        return encode(self)

    def bind(self, schemas: Mapping[int, Schema]) -> BoundSequence:
        """Binds the filters to the schemas of their topics; raises `InvalidFilter` if one does not fit."""
        parts = [
            Part(role, one.topic, Filter.parse(one.filter).bind(schemas[one.topic]))
            for role, one in self.roles
        ]
        return BoundSequence(self, tuple(parts))


def is_sequence(stored: object) -> bool:
    """Returns whether a subscription's stored filter is a sequence."""
    return isinstance(stored, dict) and KEY in stored


def encode(sequence: Sequence) -> dict[str, Any]:
    return {KEY: msgspec.to_builtins(sequence)}


def decode(stored: Mapping[str, Any]) -> Sequence:
    return msgspec.convert(stored[KEY], Sequence)


# -- bound -----------------------------------------------------------------------------------------------


class Part(NamedTuple):
    """The filter of one role."""

    role: int
    topic: int
    bound: BoundFilter


@dataclass(frozen=True, eq=False)  # no slots: `cached_property` needs a `__dict__`
class BoundSequence:
    """A sequence whose filters are bound to the schemas of their topics.

    Placement and the directory see it as they see a bound filter: by the topic of its first step.
    """

    sequence: Sequence
    parts: tuple[Part, ...]

    @property
    def attributes(self) -> frozenset[str]:
        return self.attributes_of(self.sequence.steps[0].topic)

    def rects(self) -> Rects:
        return self.rects_of(self.sequence.steps[0].topic)

    def attributes_of(self, topic: int) -> frozenset[str]:
        """Returns the attributes of a topic that must not change."""
        found = frozenset(self.sequence.by)
        return found.union(*(part.bound.attributes for part in self.parts if part.topic == topic))

    def rects_of(self, topic: int) -> Rects:
        """Returns the rectangles of all roles on a topic."""
        return self._rects[topic]

    @cached_property
    def _rects(self) -> dict[int, Rects]:
        found = {}
        for topic in self.sequence.topics:
            rects = [part.bound.rects() for part in self.parts if part.topic == topic]
            found[topic] = Rects(
                np.concatenate([one.lo for one in rects]),
                np.concatenate([one.hi for one in rects]),
                np.concatenate([one.exact for one in rects]),
            )
        return found

    def covers(self, other: BoundSequence) -> bool:
        """Tells whether each step covers the other's step at the same place; never wrongly True."""
        mine = [part for part in self.parts if part.role < UNLESS]
        theirs = [part for part in other.parts if part.role < UNLESS]
        return len(mine) == len(theirs) and all(
            one.topic == two.topic and one.bound.covers(two.bound)
            for one, two in zip(mine, theirs, strict=True)
        )


# -- as subscribers write it ------------------------------------------------------------------------------


class Written(NamedTuple):
    """The members of a request that belong to a sequence."""

    steps: Any
    topic: str | None = None
    by: Any = None
    within: Any = None
    settle: Any = None


class TopicRef(NamedTuple):
    uid: int
    schema: Schema


def topic_names(written: Written) -> list[tuple[str, str]]:
    """Checks the shape of a sequence; returns the (pointer, name) of each topic, once per mention.

    Raises `InvalidInput` with a pointer into the request.
    """
    steps = written.steps
    if not isinstance(steps, list):
        raise InvalidInput(f"sequence must be a list of steps, got {_shown(steps)}", pointer="/sequence")
    if not MIN_STEPS <= len(steps) <= MAX_STEPS:
        hint = "; for one step use filter" if len(steps) == 1 else ""
        raise InvalidInput(
            f"sequence must have {MIN_STEPS} to {MAX_STEPS} steps, got {len(steps)}{hint}",
            pointer="/sequence",
        )
    found = []
    for place, step in enumerate(steps):
        pointer = f"/sequence/{place}"
        _check_members(step, ("topic", "filter", "times", "unless"), pointer)
        name = _topic_name(step, written.topic, pointer)
        found.append((f"{pointer}/topic" if "topic" in step else "/topic", name))
        unless = step.get("unless")
        if unless is not None:
            _check_members(unless, ("topic", "filter"), f"{pointer}/unless")
            own = _topic_name(unless, name, f"{pointer}/unless")
            found.append((f"{pointer}/unless/topic" if "topic" in unless else found[-1][0], own))
    return found


def parse(written: Written, find: Callable[[str], TopicRef]) -> Sequence:
    """Reads a sequence whose shape is checked (`topic_names`); `find` returns a topic by name.

    Raises `InvalidInput` with a pointer into the request.
    """
    names = iter(topic_names(written))
    steps, total = [], 0
    refs: dict[int, tuple[str, Schema]] = {}

    def read(part: Mapping[str, Any], pointer: str) -> tuple[int, Any]:
        _, name = next(names)
        topic = find(name)
        refs[topic.uid] = (name, topic.schema)
        return topic.uid, _read_filter(part.get("filter"), topic.schema, f"{pointer}/filter")

    for place, step in enumerate(written.steps):
        pointer = f"/sequence/{place}"
        uid, filter = read(step, pointer)
        times = _read_times(step.get("times", 1), f"{pointer}/times")
        total += times
        unless = None
        if step.get("unless") is not None:
            unless = Watch(*read(step["unless"], f"{pointer}/unless"))
            if place == 0 and times == 1:
                raise InvalidInput(
                    "unless of the first step must come with times above 1: nothing precedes its event",
                    pointer=f"{pointer}/unless",
                )
        steps.append(Step(uid, filter, times, unless))
    if total > MAX_EVENTS:
        raise InvalidInput(
            f"times of all steps together must be at most {MAX_EVENTS}, got {total}", pointer="/sequence"
        )
    return Sequence(
        steps,
        by=_read_by(written.by, refs),
        within=_read_duration(written.within, "within", MAX_WITHIN, "3650 days"),
        settle=_read_duration(written.settle, "settle", MAX_SETTLE, "one hour") or 0,
    )


def write(sequence: Sequence, name_of: Callable[[int], str]) -> dict[str, Any]:
    """Returns the members of a subscription that show a sequence."""

    def part(one: Step | Watch) -> dict[str, Any]:
        return {"topic": name_of(one.topic), "filter": one.filter}

    steps = []
    for step in sequence.steps:
        shown = part(step)
        if step.times > 1:
            shown["times"] = step.times
        if step.unless is not None:
            shown["unless"] = part(step.unless)
        steps.append(shown)
    found: dict[str, Any] = {"sequence": steps}
    if sequence.by:
        found["by"] = sequence.by
    if sequence.within is not None:
        found["within"] = duration.text(sequence.within)
    if sequence.settle:
        found["settle"] = duration.text(sequence.settle)
    return found


def _check_members(given: object, allowed: tuple[str, ...], pointer: str) -> None:
    if not isinstance(given, dict):
        raise InvalidInput(
            f"{pointer.rpartition('/')[2] if 'unless' in pointer else 'a step'} must be an object with "
            f"{', '.join(allowed)}, got {_shown(given)}",
            pointer=pointer,
        )
    for name in given:
        if name not in allowed:
            raise InvalidInput(
                f'"{name[:80]}" must be one of {", ".join(allowed)}', pointer=f"{pointer}/{name[:80]}"
            )


def _topic_name(part: Mapping[str, Any], default: str | None, pointer: str) -> str:
    name = part.get("topic", default)
    if name is None:
        raise InvalidInput("a step must have a topic, or the request one for all steps", pointer=pointer)
    if not isinstance(name, str):
        raise InvalidInput(f"topic must be a string, got {_shown(name)}", pointer=f"{pointer}/topic")
    if namespace.is_subtree(name):
        raise InvalidInput(
            f'a step must have one topic, got the subtree "{name[:80]}"', pointer=f"{pointer}/topic"
        )
    return name


def _read_filter(given: object, schema: Schema, pointer: str) -> Any:
    try:
        filter = Filter.parse(given)
        bound = filter.bind(schema)
    except EdnError as error:
        error.pointer = pointer + (error.pointer or "")
        raise
    if filter.uses_xpath:
        raise InvalidInput("a filter of a sequence must not use XPath", pointer=pointer)
    if not len(bound.rects()):
        raise InvalidInput(
            "a filter of a sequence must be able to match; the conditions of this one exclude each other",
            pointer=pointer,
        )
    return filter.to_json()


def _read_times(given: object, pointer: str) -> int:
    if type(given) is not int or not 1 <= given <= MAX_EVENTS:
        raise InvalidInput(
            f"times must be an integer from 1 to {MAX_EVENTS}, got {_shown(given)}", pointer=pointer
        )
    return given


def _read_by(given: object, topics: Mapping[int, tuple[str, Schema]]) -> list[str]:
    if given is None:
        return []
    if not isinstance(given, list) or not 1 <= len(given) <= MAX_BY or len(set(map(str, given))) < len(given):
        raise InvalidInput(
            f"by must be a list of 1 to {MAX_BY} different attributes, got {_shown(given)}", pointer="/by"
        )
    for place, name in enumerate(given):
        pointer = f"/by/{place}"
        types: dict[str, str] = {}
        for topic, schema in topics.values():
            kind = schema.attributes.get(name) if isinstance(name, str) else None
            if kind is None:
                raise InvalidInput(
                    f"by must name attributes of all topics of the sequence; {_shown(name)} is none of "
                    f'"{topic}"',
                    pointer=pointer,
                )
            if not isinstance(kind, str):
                raise InvalidInput(f'by must not name an array, got "{name}" of "{topic}"', pointer=pointer)
            types[kind] = topic
        if len(types) > 1:
            shown = " and ".join(f'{kind} in "{topic}"' for kind, topic in types.items())
            raise InvalidInput(
                f'by: "{name}" must have one type in all topics, it is {shown}', pointer=pointer
            )
    return list(given)


def _read_duration(given: object, name: str, most: int, limit: str) -> int | None:
    if given is None:
        return None
    length = duration.microseconds(given) if isinstance(given, str) else None
    if length is None or not 0 < length <= most:
        raise InvalidInput(
            f"{name} must be {duration.EXAMPLES}, above 0 and at most {limit}, got {_shown(given)}",
            pointer=f"/{name}",
        )
    return length


def _shown(value: object) -> str:
    return msgspec.json.encode(value).decode()[:60]
