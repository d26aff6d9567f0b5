"""Builds events and the histories of subscriptions from records."""

from __future__ import annotations

from dataclasses import dataclass, field

from edn.tools.checker.published import Publications, Publishing, TopicEvents
from edn.tools.checker.recording.reading import Operation, Recording
from edn.tools.checker.recording.records import Fail, Ok, RecordingError, Unknown
from edn.tools.checker.timeline import NEVER, SECOND, Effect
from edn.tools.checker.values import duration, is_kind, microseconds


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
    #: events whose every publish was refused, by number
    rejected: dict[int, Publishing]
    #: (topic, address) of unanswered subscriptions without an id, topics of unanswered events without ids
    nameless_subscriptions: set[tuple[str | None, str | None]]
    nameless_events: set[str | None]
    #: events that were accepted with two contents, with their number
    contradicted: list[tuple[int, Publishing]]


def build_history(recording: Recording) -> History:
    """Raises `RecordingError` for an inconsistent recording."""
    return _Builder(recording).build()


class _Builder:
    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._header = recording.header
        self._lives: dict[str, Life] = {}
        self._nameless_subscriptions: set[tuple[str | None, str | None]] = set()

    def build(self) -> History:
        recording = self._recording
        for name, topic in recording.topics.items():
            wrong = [kind for kind in topic.attributes.values() if not is_kind(kind)]
            if wrong:
                raise RecordingError(f'topic "{name}" has an attribute of type {wrong[0]!r}')
        publications = Publications(recording)
        for operation in recording.operations:
            try:
                if operation.invoke.kind == "publish":
                    publications.take(operation)
                elif operation.invoke.kind not in ("advertise", "unadvertise"):  # see `advertising`
                    self._subscription(operation)
            except ValueError as error:
                raise RecordingError(f"{recording.where(operation.place)}: {error}") from None
        return History(
            topics=publications.topics(),
            lives=self._lives,
            rejected=publications.rejected(),
            nameless_subscriptions=self._nameless_subscriptions,
            nameless_events=publications.nameless,
            contradicted=publications.contradicted(),
        )

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
        assert invoke.kind != "advertise"
        assert invoke.kind != "unadvertise"
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
            operation.places,
            invoke.sequence,
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
            # By the recording's clock, because nanoseconds since 1970 do not reach the year 9999.
            instant = microseconds(text) * 1000 - self._header.wall + self._header.time
            return min(instant, NEVER), min(instant, NEVER)
        return min(operation.invoke.time + lasting, NEVER), min(self._end(operation) + lasting, NEVER)
