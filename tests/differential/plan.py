"""Draws one run from a seed: topics, subscriptions, changes and events, and the pairs that are due."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.oracle.meaning import Events
from tests.oracle.samples import candidates
from tests.oracle.values import Schema, read, read_event
from tests.workload import adversarial
from tests.workload.text import Writer

#: (subscription, event)
Pair = tuple[str, str]

_LONG = "shared-prefix/" * 5

#: in addition to those of `tests.workload.literals`
STRINGS = [
    "\x01", "\x1f", "\x7f", "\x80", "\x85", "\u2028", "\ufeff", "\u202e", "\t", "\r\n",
    "e\u0301", "\u00e9", "\u1e9b\u0323", "\ufb01", "\u0130", "\u00df",
    "\U0001f469\u200d\U0001f469\u200d\U0001f467", "\U0001f44d", "\U0001f44d\U0001f3fd", "\U0001d518",
    "\uff21", "\U000e0001", "a" * 63, "a" * 64, "a" * 65,
    _LONG[:63], _LONG[:64], _LONG[:64] + "x", _LONG[:64] + "y", _LONG[:64] + "\U0001f44d",
    _LONG[:64] + "\x01",
    "abcde\u0301", "abcd\U0001f44d", "abc\U0001f44dd", "true", "null", "0", "-0", "NaN", "1e999",
    "<a href='x'>", "${jndi}", "%00", "2024-05-01T12:00:00Z",
]  # fmt: skip
NUMBERS = [
    -0.0, 1e-307, 2.2250738585072011e-308, -1e-323, 1.7976931348623155e308, 9007199254740991.0,
    9007199254740994.0, 0.30000000000000004, 1 / 3, -273.15, 1e15, 1e16, 1e17, 4.35, 123456789.123456789,
]  # fmt: skip
INTEGERS = [2**53 - 2, 2**53 + 3, -(2**53), -(2**53) + 1, -(2**53) - 2, 2**63 - 1025, 2**63 - 1024, 2**62 + 1]
_MORE: Mapping[str, list[Any]] = {"string": STRINGS, "number": NUMBERS, "integer": INTEGERS}

#: a type whose literals are never literals of the other, so that a filter fits one of the two
_OTHER_TYPE = {
    "number": "string",
    "string": "number",
    "integer": "boolean",
    "boolean": "time",
    "time": "integer",
}
#: topics that have every attribute, and most of the traffic
_BUSY = ("d",) * 5 + ("d.a.b",) * 5
_RANGES = frozenset({"lt", "lte", "gt", "gte", "between"})
_PATTERNS = frozenset({"prefix", "suffix", "contains"})


class HostileSpace(adversarial.Space):
    """A schema whose constants are drawn from more hostile values."""

    def __init__(self, chance: random.Random, attributes: Mapping[str, str] | None = None) -> None:
        self._near: dict[str, list[Any]] = {}
        super().__init__(chance, attributes)

    def _pool(self, kind: str) -> list[Any]:
        more = _MORE.get(kind, [])
        chosen = self.chance.sample(more, min(len(more), 9)) + super()._pool(kind)
        return chosen if kind == "boolean" else list(dict.fromkeys(chosen))

    def values(self, *, missing: float = 0.15) -> dict[str, Any]:
        """Values at and beside the constants; some attributes are missing."""
        drawn: dict[str, Any] = {}
        for name, kind in self.attributes.items():
            if self.chance.random() < missing:
                continue
            if name not in self._near:
                ordered = sorted(read(kind, one) if kind != "time" else one for one in self.pool[name])
                found = candidates(kind, ordered)
                self._near[name] = [one for one in found if adversarial.can_be_written(kind, one)]
            exact = self.chance.random() < 0.6
            drawn[name] = self.chance.choice(self.pool[name] if exact else self._near[name])
        return drawn


def fits(written: Mapping[str, Any] | None, schema: Schema) -> bool:
    """Whether a filter can be subscribed to a topic of this schema: it names known attributes of fitting
    types."""
    for key, part in (written or {}).items():
        if key in ("$any", "$all"):
            if not all(fits(branch, schema) for branch in part):
                return False
        elif key == "$not":
            if not fits(part, schema):
                return False
        elif key not in schema or not _condition_fits(part, schema[key]):
            return False
    return True


def _condition_fits(condition: Any, kind: str) -> bool:
    if isinstance(condition, list):
        condition = {"in": condition}
    if not isinstance(condition, Mapping):
        condition = {"eq": condition}
    return all(_operator_fits(operator, operand, kind) for operator, operand in condition.items())


def _operator_fits(operator: str, operand: Any, kind: str) -> bool:
    if operator == "exists":
        return True
    if operator == "not":
        return _condition_fits(operand, kind)
    if (operator in _RANGES and kind == "boolean") or (operator in _PATTERNS and kind != "string"):
        return False
    try:
        for literal in operand if operator in ("in", "between") else [operand]:
            read(kind, literal)
    except (ValueError, OverflowError):
        return False
    return True


@dataclass(frozen=True, slots=True)
class Subscription:
    id: str
    #: a topic or a subtree
    topic: str
    #: the JSON form, which the oracle reads
    filter: dict[str, Any] | None
    #: the same filter as it is sent: JSON or text
    sent: dict[str, Any] | str | None
    #: number of the sink's address
    address: int

    def reaches(self, topic: str) -> bool:
        if not self.topic.endswith("**"):
            return self.topic == topic
        root = self.topic.removesuffix("**").removesuffix(".")
        return not root or topic == root or topic.startswith(root + ".")


@dataclass(frozen=True, slots=True)
class Post:
    """One request that publishes."""

    topic: str
    #: the name of each event in this run; it is also its `$id` where `chosen`
    names: list[str]
    events: list[dict[str, Any]]
    #: an event alone, not an array
    alone: bool
    ascii: bool

    def body(self) -> bytes:
        value: Any = self.events[0] if self.alone else self.events
        return json.dumps(value, ensure_ascii=self.ascii).encode()


@dataclass(slots=True)
class Step:
    """Requests in the order of the fields, then rest."""

    topics: dict[str, dict[str, str]] = field(default_factory=dict)
    cancel: list[str] = field(default_factory=list)
    subscribe: list[Subscription] = field(default_factory=list)
    change: list[Subscription] = field(default_factory=list)
    posts: list[Post] = field(default_factory=list)


@dataclass(slots=True)
class Plan:
    steps: list[Step]
    #: pairs that must arrive, exactly once
    due: set[Pair]
    #: what each event is: topic, values as they are compared
    events: dict[str, tuple[str, dict[str, Any]]]
    schemas: dict[str, dict[str, str]]
    #: newest version of each
    subscriptions: dict[str, Subscription]

    def share_of_subtrees(self) -> float:
        return sum(one.topic.endswith("**") for one in self.subscriptions.values()) / len(self.subscriptions)


def draw(seed: int, *, filters: int, events: int, batches: int = 4) -> Plan:
    """The plan of a seed; equal arguments give an equal plan."""
    return _Drawing(random.Random(f"differential {seed}"), filters, events, batches).plan()


class _Drawing:
    def __init__(self, chance: random.Random, filters: int, events: int, batches: int) -> None:
        self._chance = chance
        self._filters, self._events, self._batches = filters, events, batches
        self._text = Writer(chance)
        # All topics share the constants of one space, so that filters on subtrees match in several.
        self._all = HostileSpace(chance, adversarial.schema(chance, width=chance.randint(6, 9)))
        self._spaces: dict[str, HostileSpace] = {}
        #: what later steps do to topics: create, or add an attribute
        self._later: list[dict[str, dict[str, str]]] = []
        self._living: dict[str, Subscription] = {}
        self._plan = Plan([], set(), {}, {}, {})

    def plan(self) -> Plan:
        first, *later = self._tree()
        for number in range(self._batches):
            step = Step(topics=first if not number else (later[number - 1] if later[number - 1 :] else {}))
            for name, attributes in step.topics.items():
                self._spaces[name] = self._space(attributes)
                self._plan.schemas[name] = attributes
            self._draw_changes(step, number)
            self._draw_posts(step, number)
            self._plan.steps.append(step)
        return self._plan

    def _tree(self) -> list[dict[str, dict[str, str]]]:
        """Topics of the first step, then what each later one creates or changes."""
        names = ["d", "d.a", "d.a.b", "d.a.b.c", "d.c", "other"]
        schemas = {name: self._schema() for name in names}
        schemas["d"] = dict(self._all.attributes)
        schemas["d.a.b"] = dict(self._all.attributes)
        late = {name: self._schema() for name in ("d.a.late", "other.late")}
        narrow = schemas["d.c"]
        missing = sorted(self._all.attributes.keys() - narrow.keys())
        grown = {**narrow, **{name: self._all.attributes[name] for name in missing}}
        return [schemas, {"d.a.late": late["d.a.late"], "d.c": grown}, {"other.late": late["other.late"]}]

    def _schema(self) -> dict[str, str]:
        """Most of the attributes; sometimes one of them with another type."""
        chance, whole = self._chance, self._all.attributes
        names = chance.sample(sorted(whole), chance.randint(max(2, len(whole) - 3), len(whole)))
        chosen = {name: whole[name] for name in whole if name in names}
        if chance.random() < 0.6:
            name = chance.choice(sorted(chosen))
            chosen[name] = _OTHER_TYPE[chosen[name]]
        return chosen

    def _space(self, attributes: Mapping[str, str]) -> HostileSpace:
        space = HostileSpace(self._chance, attributes)
        for name, kind in attributes.items():
            if kind == self._all.attributes[name]:
                space.pool[name] = self._all.pool[name]
        return space

    # -- subscriptions ---------------------------------------------------------------------------------

    def _draw_changes(self, step: Step, number: int) -> None:
        chance = self._chance
        share = 0.6 if not number else 0.4 / max(1, self._batches - 1)
        for _ in range(max(1, round(self._filters * share))):
            step.subscribe.append(self._subscription(f"w{len(self._plan.subscriptions)}"))
            self._plan.subscriptions[step.subscribe[-1].id] = step.subscribe[-1]
        if number:
            old = chance.sample(sorted(self._living), min(len(self._living), self._filters // 20 + 2))
            step.cancel = old[: len(old) // 2]
            for name in old[len(old) // 2 :]:
                before = self._living[name]
                step.change.append(self._subscription(name, before.topic, before.address))
                self._plan.subscriptions[name] = step.change[-1]
        for name in step.cancel:
            del self._living[name]
        self._living |= {one.id: one for one in (*step.subscribe, *step.change)}

    def _subscription(self, name: str, topic: str | None = None, address: int | None = None) -> Subscription:
        chance = self._chance
        if topic is None and chance.random() < 0.27:
            topic = chance.choice(["d.**", "d.a.**", "d.a.b.**", "**", "other.**", "d.none.**"])
        elif topic is None:
            topic = chance.choice([*sorted(self._spaces), *_BUSY])
        written = self._filter(topic)
        sent: dict[str, Any] | str | None = written
        if written is not None and chance.random() < 0.5:
            sent = self._text.write(written)
        address = chance.randrange(24) if address is None else address
        return Subscription(name, topic, written, sent, address)

    def _filter(self, topic: str) -> dict[str, Any] | None:
        """A filter that fits the topic, or at least one topic of the subtree."""
        chance = self._chance
        inside = [
            name for name in sorted(self._spaces) if Subscription("", topic, None, None, 0).reaches(name)
        ]
        if chance.random() < 0.02:
            return None
        for _ in range(200):
            space = self._spaces[chance.choice(inside)] if inside else self._all
            written = space.wide_filter() if chance.random() < 0.06 else space.filter()
            if not inside or any(fits(written, self._spaces[name].attributes) for name in inside):
                return written
        return None

    # -- events ----------------------------------------------------------------------------------------

    def _draw_posts(self, step: Step, number: int) -> None:
        chance = self._chance
        wanted = self._events * (number + 1) // self._batches - self._events * number // self._batches
        topics = [*sorted(self._spaces), *_BUSY]
        while wanted:
            alone = chance.random() < 0.3
            count = 1 if alone else min(wanted, chance.choice([1, 2, 7, 20, 45]))
            wanted -= count
            topic = chance.choice(topics)
            names, events = [], []
            for _ in range(count):
                name, event = self._event(topic)
                names.append(name)
                events.append(event)
            step.posts.append(Post(topic, names, events, alone, chance.random() < 0.5))
            self._expect(topic, names)

    def _event(self, topic: str) -> tuple[str, dict[str, Any]]:
        space, name = self._spaces[topic], f"e{len(self._plan.events)}"
        event = space.event(space.values(missing=self._chance.choice([0.0, 0.15, 0.15, 0.6])))
        self._plan.events[name] = (topic, read_event(event, space.attributes))
        if self._chance.random() < 0.4:
            event["$id"] = name
        return name, event

    def _expect(self, topic: str, names: Sequence[str]) -> None:
        schema = self._spaces[topic].attributes
        asked = Events([self._plan.events[name][1] for name in names], schema)
        for subscription in self._living.values():
            if subscription.reaches(topic) and fits(subscription.filter, schema):
                for place in np.flatnonzero(asked.matching(subscription.filter)).tolist():
                    self._plan.due.add((subscription.id, names[place]))


def operators(plan: Plan) -> Iterator[str]:
    """Every operator that the plan's filters use."""
    for subscription in plan.subscriptions.values():
        yield from adversarial.operators(subscription.filter)
