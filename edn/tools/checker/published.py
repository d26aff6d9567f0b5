"""Builds events from publish records, each with the interval that contains its place in the log.

`low` is the time of an event's first request; `high` that of its first answer or first notification,
whichever is earlier: a notified event had been logged. So one notification makes an unanswered publish
certain, and with it the whole batch, which is logged as one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from edn.tools.checker.columns import Columns
from edn.tools.checker.recording.reading import Operation, Recording
from edn.tools.checker.recording.records import Fail, Invoke, Ok, Topic
from edn.tools.checker.timeline import NEVER, SECOND, Mask, Times
from edn.tools.checker.values import fields_of, is_same, read_event

Numbers = npt.NDArray[np.int32]


@dataclass(slots=True)
class Publishing:
    """All requests to publish one event id."""

    given: dict[str, Any]
    values: dict[str, Any]
    attempts: list[Operation] = field(default_factory=list)
    #: other attributes were sent under the same id, and no answer tells which were accepted
    ambiguous: bool = False
    #: answered ok with two different contents
    contradicted: bool = False

    @property
    def hopeful(self) -> list[Operation]:
        return [attempt for attempt in self.attempts if not isinstance(attempt.answer, Fail)]


@dataclass(frozen=True, slots=True)
class TopicEvents:
    """The events of one topic in the order of `low`, as columns."""

    columns: Columns
    #: numbers of `Recording.events`
    numbers: npt.NDArray[np.int64]
    low: Times
    high: Times
    #: largest `high` so far, for binary search
    highest: Times
    #: time of the publisher's answer, NEVER without one; lateness counts from it
    answered: Times
    sure: Mask
    ambiguous: Mask
    #: indices of the ambiguous ones
    unclear: npt.NDArray[np.intp]
    #: end of the availability: earliest and latest
    kept: Times
    kept_at_most: Times
    any_kept: bool
    #: the dispatcher; -1 if unknown or more than one
    via: Numbers
    stream: Numbers
    #: number of `Recording.events` → index here
    index: dict[int, int]
    publishings: list[Publishing]


class _Span(NamedTuple):
    low: int
    high: int
    answered: int
    sure: bool
    #: None if unknown or more than one
    via: str | None
    one_log: bool


class Publications:
    """Collects publish operations and returns the events of each topic."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._header = recording.header
        self._publishings: dict[tuple[str, str], Publishing] = {}
        #: topics of unanswered publishes whose events have no ids
        self.nameless: set[str | None] = set()

    def take(self, operation: Operation) -> None:
        """Adds an operation; raises ValueError if it was accepted although it is invalid."""
        invoke, answer = operation.invoke, operation.answer
        if invoke.topic not in self._recording.topics:
            raise ValueError(f"topic {invoke.topic!r} was not declared")
        topic = self._recording.topics[invoke.topic]
        dropped = frozenset(answer.unadvertised or ()) if isinstance(answer, Ok) else frozenset[int]()
        for place, event in enumerate(invoke.events):
            if place in dropped:
                continue  # it never takes effect: a notification of it is unexpected
            id = self._event_id(invoke, answer, place)
            if id is None:
                if not isinstance(answer, Fail):
                    self.nameless.add(invoke.topic)
                continue
            try:
                values = read_event(event, topic.attributes, closed=topic.closed)
            except ValueError as error:
                if not isinstance(answer, Fail):
                    raise ValueError(f"event {id!r}: {error}") from None
                values = {}  # invalid, and refused
            self._attempt((invoke.topic, id), event, values, operation)

    def _event_id(self, invoke: Invoke, answer: object, place: int) -> str | None:
        if isinstance(answer, Ok) and answer.ids is not None:
            dropped = answer.unadvertised or []
            if len(answer.ids) != len(invoke.events) - len(dropped):
                raise ValueError(f"{len(answer.ids)} ids were answered for {len(invoke.events)} events")
            return answer.ids[place - sum(other < place for other in dropped)]
        given = invoke.events[place].get("$id")
        if isinstance(given, str):
            return given
        if invoke.key is not None:
            return f"{invoke.key}/{place}"
        if isinstance(answer, Ok):
            raise ValueError("publish was answered ok without the events' ids")
        return None

    def _attempt(
        self, name: tuple[str, str], given: dict[str, Any], values: dict[str, Any], operation: Operation
    ) -> None:
        known = self._publishings.setdefault(name, Publishing(given, values))
        same = is_same(fields_of(known.given), fields_of(given))
        same = same and known.given.get("$time") == given.get("$time")
        if not same and not isinstance(operation.answer, Fail):
            taken = any(isinstance(attempt.answer, Ok) for attempt in known.attempts)
            if isinstance(operation.answer, Ok):
                known.contradicted |= taken
                known.given, known.values, known.ambiguous = given, values, False
            elif not known.hopeful:
                known.given, known.values = given, values
            elif not taken:
                known.ambiguous = True
        elif isinstance(operation.answer, Ok):
            known.ambiguous = False
        known.attempts.append(operation)

    def _arrivals(self) -> dict[int, int]:
        """Returns the first arrival of each event at any address."""
        recording = self._recording
        firsts: dict[int, int] = {}
        for post in recording.posts:
            members = {event for _, _, events in post.complete for event in events}
            for event in members.union(recording.pair_event[post.begin : post.end]):
                if post.time < firsts.get(event, NEVER):
                    firsts[event] = post.time
        return firsts

    def rejected(self) -> dict[int, Publishing]:
        """Returns the events whose every publish was refused, by number."""
        return {
            self._recording.events.number(name): one
            for name, one in self._publishings.items()
            if not one.hopeful
        }

    def contradicted(self) -> list[tuple[int, Publishing]]:
        return [
            (self._recording.events.number(name), one)
            for name, one in self._publishings.items()
            if one.contradicted
        ]

    def topics(self) -> dict[str, TopicEvents]:
        arrivals = self._arrivals()
        found: dict[str, list[tuple[int, Publishing]]] = {name: [] for name in self._recording.topics}
        for (topic, id), one in self._publishings.items():
            if one.hopeful:
                found[topic].append((self._recording.events.number((topic, id)), one))
        return {
            name: self._topic(topic, found[name], arrivals) for name, topic in self._recording.topics.items()
        }

    def _topic(
        self, topic: Topic, found: list[tuple[int, Publishing]], arrivals: dict[int, int]
    ) -> TopicEvents:
        batches: dict[int, int] = {}  # place of a request → first arrival of any of its events
        for number, one in found:
            if len(one.attempts) == 1:
                place = one.attempts[0].place
                batches[place] = min(arrivals.get(number, NEVER), batches.get(place, NEVER))
        spans = {}
        for number, one in found:
            arrived = arrivals.get(number, NEVER)
            if len(one.attempts) == 1:
                arrived = batches[one.attempts[0].place]
            spans[number] = _span(one, arrived)
        found.sort(key=lambda event: (spans[event[0]].low, event[0]))
        ordered = [spans[number] for number, _ in found]
        publishings = [one for _, one in found]
        low, high, answered = (
            np.array([span[column] for span in ordered], dtype=np.int64) for column in range(3)
        )
        ambiguous = np.array([one.ambiguous for one in publishings], dtype=np.bool_)
        keeping = np.array([_keeping(one, topic) for one in publishings], dtype=np.int64)
        slack = round(self._header.clock_tolerance * SECOND) if self._header else 0
        return TopicEvents(
            columns=Columns(topic.attributes, [one.values for one in publishings]),
            numbers=np.array([number for number, _ in found], dtype=np.int64),
            low=low,
            high=high,
            highest=np.maximum.accumulate(high) if len(high) else high,
            answered=answered,
            sure=np.array([span.sure for span in ordered], dtype=np.bool_),
            ambiguous=ambiguous,
            unclear=np.flatnonzero(ambiguous),
            kept=np.where(keeping > 0, np.minimum(low + keeping - slack, NEVER), low),
            kept_at_most=np.where(keeping > 0, np.minimum(high + keeping + slack, NEVER), high),
            any_kept=bool((keeping > 0).any()),
            via=_numbered([span.via for span in ordered]),
            stream=_numbered(
                [
                    (one.hopeful[0].invoke.publisher, span.via) if span.one_log else None
                    for one, span in zip(publishings, ordered, strict=True)
                ]
            ),
            index={number: place for place, (number, _) in enumerate(found)},
            publishings=publishings,
        )


def _span(one: Publishing, arrived: int) -> _Span:
    hopeful = one.hopeful
    low = min(attempt.invoke.time for attempt in hopeful)
    oks = [attempt.answer.time for attempt in hopeful if isinstance(attempt.answer, Ok)]
    answered = min(oks, default=NEVER)
    through = {attempt.invoke.via for attempt in hopeful}
    if len(through) > 1:
        # An event in several logs has several places; a subscription that existed throughout met one of them.
        high = max(oks) if len(oks) == len(hopeful) else NEVER
        return _Span(low, high, answered, bool(oks), None, False)
    high = min(answered, max(arrived, low))
    return _Span(low, high, answered, high < NEVER, through.pop(), True)


def _keeping(one: Publishing, topic: Topic) -> int:
    """Returns the availability of an event in nanoseconds."""
    availability = one.given.get("$availability", topic.availability)
    return NEVER if availability == "forever" else min(round(float(availability) * SECOND), NEVER)


def _numbered(names: list[Any]) -> Numbers:
    """Returns equal numbers for equal names, -1 for None."""
    known: dict[Any, int] = {None: -1}
    return np.array([known.setdefault(name, len(known)) for name in names], dtype=np.int32)
