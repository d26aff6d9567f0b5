"""Records become what is judged: events with the interval of their place, subscriptions with their effects.

An event's place in the log lies in [low, high]. `low` is its first request; `high` its first answer, or the
first arrival of a notification of it, whichever came first: what was notified had been logged. So one
notification makes an unanswered publish sure, and with it the whole batch, which is logged as one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from edn.checker.columns import Columns
from edn.checker.records import Fail, Invoke, Ok, Operation, Recording, RecordingError, Topic, Unknown
from edn.checker.timeline import NEVER, Effect, Mask, Times
from edn.checker.values import KINDS, duration, microseconds, read_event

SECOND = 1_000_000_000

Numbers = npt.NDArray[np.int32]


@dataclass(slots=True)
class _Publishing:
    """All requests to publish one event id."""

    given: dict[str, Any]
    values: dict[str, Any]
    attempts: list[Operation] = field(default_factory=list)
    #: other attributes were sent under the same id, and no answer says which were taken
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
    #: greatest `high` so far: bounds a search from below
    highest: Times
    #: when the publisher was told, NEVER if it was not: what lateness counts from
    answered: Times
    sure: Mask
    ambiguous: Mask
    #: indices of the ambiguous ones
    unclear: npt.NDArray[np.intp]
    #: until when the event is kept for later subscribers, surely and at most
    kept: Times
    kept_at_most: Times
    any_kept: bool
    #: the dispatcher; -1 if that is not known to be one
    via: Numbers
    stream: Numbers
    #: number of `Recording.events` → index here
    index: dict[int, int]
    publishings: list[_Publishing]


@dataclass(slots=True)
class Life:
    """All operations on one subscription id."""

    effects: list[Effect] = field(default_factory=list)
    refused: list[Operation] = field(default_factory=list)

    def of(self, *kinds: str) -> list[Effect]:
        return [effect for effect in self.effects if effect.kind in kinds]


@dataclass(slots=True)
class History:
    topics: dict[str, TopicEvents]
    lives: dict[str, Life]
    #: numbers of events whose every publish was refused
    rejected: dict[int, _Publishing]
    #: (topic, address) of subscriptions that got no id, (topic) of publishes whose events got none
    nameless_subscriptions: set[tuple[str | None, str | None]]
    nameless_events: set[str | None]
    contradicted: list[tuple[str, str, _Publishing]]


def build_history(recording: Recording) -> History:
    """Raises `RecordingError` for what no reader could make sense of."""
    return _Builder(recording).build()


class _Builder:
    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._header = recording.header
        self._lives: dict[str, Life] = {}
        self._publishings: dict[tuple[str, str], _Publishing] = {}
        self._nameless_subscriptions: set[tuple[str | None, str | None]] = set()
        self._nameless_events: set[str | None] = set()

    def build(self) -> History:
        recording = self._recording
        for name, topic in recording.topics.items():
            wrong = sorted(set(topic.attributes.values()) - KINDS)
            if wrong:
                raise RecordingError(f'topic "{name}" has an attribute of type {wrong[0]!r}')
        for operation in recording.operations:
            try:
                if operation.invoke.kind == "publish":
                    self._publish(operation)
                else:
                    self._subscription(operation)
            except ValueError as error:
                raise RecordingError(f"{recording.where(operation.place)}: {error}") from None
        arrivals = self._arrivals()
        by_topic: dict[str, list[tuple[str, _Publishing]]] = {name: [] for name in recording.topics}
        rejected: dict[int, _Publishing] = {}
        for (within, id), publishing in self._publishings.items():
            if publishing.hopeful:
                by_topic[within].append((id, publishing))
            else:
                rejected[recording.events.number((within, id))] = publishing
        return History(
            {name: self._events(recording.topics[name], found, arrivals) for name, found in by_topic.items()},
            self._lives,
            rejected,
            self._nameless_subscriptions,
            self._nameless_events,
            [(topic, id, one) for (topic, id), one in self._publishings.items() if one.contradicted],
        )

    # -- subscriptions ----------------------------------------------------------------------------------

    def _subscription(self, operation: Operation) -> None:
        invoke, answer = operation.invoke, operation.answer
        id = invoke.subscription
        if id is None and isinstance(answer, Ok):
            id = answer.subscription
        if id is None:
            if invoke.kind != "subscribe":
                raise ValueError(f"{invoke.kind} names no subscription")
            if isinstance(answer, Ok):
                raise ValueError("subscribe was answered ok without the subscription's id")
            if not isinstance(answer, Fail):
                self._nameless_subscriptions.add((invoke.topic, invoke.address))
            return
        life = self._lives.setdefault(id, Life())
        if isinstance(answer, Fail):
            life.refused.append(operation)
        else:
            life.effects.append(self._effect(operation, life))

    def _effect(self, operation: Operation, life: Life) -> Effect:
        invoke, answer = operation.invoke, operation.answer
        assert invoke.kind != "publish"
        topic = invoke.topic
        if invoke.kind == "subscribe":
            if topic not in self._recording.topics:
                raise ValueError(f"topic {topic!r} was not declared")
        elif invoke.kind == "change":
            standing = [effect.topic for effect in life.of("subscribe")]
            if not standing and topic is None:
                raise ValueError(f'"{invoke.subscription}" was changed before it was subscribed')
            topic = topic or standing[-1]
        filter = invoke.filter
        if isinstance(filter, str) and isinstance(answer, Ok) and answer.filter is not None:
            filter = answer.filter
        places = (
            (operation.place,)
            if operation.answer_place is None
            else (operation.place, operation.answer_place)
        )
        return Effect(
            invoke.kind,
            invoke.time,
            self._end(operation),
            isinstance(answer, Ok),
            topic or "",
            filter,
            invoke.address,
            invoke.recipient,
            self._expiry(operation),
            places,
        )

    def _end(self, operation: Operation) -> int:
        match operation.answer:
            case Ok(time=time):
                return time
            case Unknown(time=time) if self._header and self._header.settles_after is not None:
                return time + round(self._header.settles_after * SECOND)
        return NEVER

    def _expiry(self, operation: Operation) -> tuple[int, int]:
        answer = operation.answer
        text = answer.expires if isinstance(answer, Ok) and answer.expires else operation.invoke.expires
        if text is None:
            return NEVER, NEVER
        lasting = duration(text)
        if lasting is None:
            assert self._header is not None
            # The recording's own clock, because a wall clock in nanoseconds does not reach the year 9999.
            instant = microseconds(text) * 1000 - self._header.wall + self._header.time
            return min(instant, NEVER), min(instant, NEVER)
        return min(operation.invoke.time + lasting, NEVER), min(self._end(operation) + lasting, NEVER)

    # -- events -----------------------------------------------------------------------------------------

    def _publish(self, operation: Operation) -> None:
        invoke, answer = operation.invoke, operation.answer
        if invoke.topic not in self._recording.topics:
            raise ValueError(f"topic {invoke.topic!r} was not declared")
        attributes = self._recording.topics[invoke.topic].attributes
        for place, event in enumerate(invoke.events):
            id = self._event_id(invoke, answer, place)
            if id is None:
                if not isinstance(answer, Fail):
                    self._nameless_events.add(invoke.topic)
                continue
            try:
                values = read_event(event, attributes)
            except ValueError as error:
                if not isinstance(answer, Fail):
                    raise ValueError(f"event {id!r}: {error}") from None
                values = {}  # refused, as it should be
            self._attempt((invoke.topic, id), event, values, operation)

    def _event_id(self, invoke: Invoke, answer: object, place: int) -> str | None:
        if isinstance(answer, Ok) and answer.ids is not None:
            if len(answer.ids) != len(invoke.events):
                raise ValueError(f"{len(answer.ids)} ids were answered for {len(invoke.events)} events")
            return answer.ids[place]
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
        known = self._publishings.setdefault(name, _Publishing(given, values))
        same = known.values == values and known.given.get("$time") == given.get("$time")
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
        """When each event was first notified to anybody."""
        recording = self._recording
        firsts: dict[int, int] = {}
        for post in recording.posts:
            for event in set(recording.pair_event[post.begin : post.end]):
                if post.time < firsts.get(event, NEVER):
                    firsts[event] = post.time
        return firsts

    def _events(
        self, topic: Topic, found: list[tuple[str, _Publishing]], arrivals: dict[int, int]
    ) -> TopicEvents:
        batch_arrivals: dict[int, int] = {}
        for id, one in found:
            if len(one.attempts) == 1:
                first = arrivals.get(self._recording.events.number((topic.topic, id)), NEVER)
                batch = one.attempts[0].place
                batch_arrivals[batch] = min(first, batch_arrivals.get(batch, NEVER))
        vias: dict[str, int] = {}
        streams: dict[tuple[str | None, str | None], int] = {}
        rows = []
        for id, one in found:
            number = self._recording.events.number((topic.topic, id))
            hopeful = one.hopeful
            low = min(attempt.invoke.time for attempt in hopeful)
            oks = [attempt.answer.time for attempt in hopeful if isinstance(attempt.answer, Ok)]
            through = {attempt.invoke.via for attempt in hopeful}
            answered = min(oks, default=NEVER)
            if len(through) > 1:
                # One event in several logs has several places; it must be met by who was there all the time.
                high = max(oks) if len(oks) == len(hopeful) else NEVER
                sure, via = bool(oks), None
            else:
                arrived = arrivals.get(number, NEVER)
                if len(one.attempts) == 1:
                    arrived = min(arrived, batch_arrivals[one.attempts[0].place])
                high, (via,) = min(answered, max(arrived, low)), through
                sure = high < NEVER
            availability = one.given.get("$availability", topic.availability)
            span = NEVER if availability == "forever" else round(float(availability) * SECOND)
            stream = (hopeful[0].invoke.publisher, via)
            rows.append(
                (
                    low,
                    number,
                    high,
                    answered,
                    sure,
                    one.ambiguous,
                    span,
                    -1 if via is None else vias.setdefault(via, len(vias)),
                    -1 if len(through) > 1 else streams.setdefault(stream, len(streams)),
                    one,
                )
            )
        rows.sort(key=lambda row: row[:2])
        lows, numbers, highs, answers, sures, ambiguous, spans, via_numbers, stream_numbers = (
            np.array([row[column] for row in rows], dtype=kind)
            for column, kind in enumerate(["i8", "i8", "i8", "i8", "?", "?", "i8", "i4", "i4"])
        )
        publishings = [row[-1] for row in rows]
        assert self._header is not None or not rows
        slack = round(self._header.clock_tolerance * SECOND) if self._header else 0
        return TopicEvents(
            Columns(topic.attributes, [one.values for one in publishings]),
            numbers,
            lows,
            highs,
            np.maximum.accumulate(highs) if len(highs) else highs,
            answers,
            sures,
            ambiguous,
            np.flatnonzero(ambiguous),
            np.where(spans > 0, np.minimum(lows + spans - slack, NEVER), lows),
            np.where(spans > 0, np.minimum(np.minimum(highs, NEVER) + spans + slack, NEVER), highs),
            bool((spans > 0).any()),
            via_numbers,
            stream_numbers,
            {int(number): place for place, number in enumerate(numbers)},
            publishings,
        )
