"""Reads recordings.

Operations are kept whole, notifications as rows of numbers, because there may be millions of them. Each
record has a **place**, a number that `Recording.where` converts to file and line.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from edn.tools.checker.recording import records
from edn.tools.checker.recording.records import RecordingError

T = TypeVar("T")


@dataclass(slots=True)
class Operation:
    """A request and its answer."""

    invoke: records.Invoke
    place: int
    answer: records.Ok | records.Fail | records.Unknown | None = None
    answer_place: int | None = None

    @property
    def places(self) -> tuple[int, ...]:
        """Places of the request and, if there is one, its answer."""
        return (self.place,) if self.answer_place is None else (self.place, self.answer_place)


@dataclass(frozen=True, slots=True)
class Post:
    """One POST; its pairs are the rows [begin, end) of `Recording.pair_*`."""

    place: int
    time: int
    address: str
    webhook: str
    accepted: bool
    status: int
    begin: int
    end: int
    #: complete sequences in it: subscription, recipient, and the numbers of its events
    complete: tuple[tuple[int, int, tuple[int, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class EventContent:
    """Content of an event in notifications, and the place of the first one."""

    attributes: bytes
    time: str | None
    place: int


class Names(Generic[T]):
    """Numbers for names."""

    def __init__(self) -> None:
        self.of: dict[T, int] = {}

    def number(self, name: T) -> int:
        return self.of.setdefault(name, len(self.of))

    def all(self) -> list[T]:
        return list(self.of)


@dataclass(slots=True)
class Recording:
    """A recording in memory."""

    header: records.Header | None = None
    whole: bool = True
    topics: dict[str, records.Topic] = field(default_factory=dict)
    operations: list[Operation] = field(default_factory=list)
    posts: list[Post] = field(default_factory=list)
    malformed: list[tuple[int, str]] = field(default_factory=list)
    #: (time, address, whether it begins) of `listening` and `stopped`
    listening: list[tuple[int, str, bool]] = field(default_factory=list)
    excused: set[str] = field(default_factory=set)
    quiets: list[int] = field(default_factory=list)
    #: numbers of subscriptions, of (topic, event id), and of recipients
    subscriptions: Names[str] = field(default_factory=Names)
    events: Names[tuple[str, str]] = field(default_factory=Names)
    recipients: Names[str | None] = field(default_factory=Names)
    #: one entry per notified (subscription, event) pair, in the order of the records
    pair_subscription: array[int] = field(default_factory=lambda: array("i"))
    pair_event: array[int] = field(default_factory=lambda: array("i"))
    pair_recipient: array[int] = field(default_factory=lambda: array("i"))
    pair_post: array[int] = field(default_factory=lambda: array("i"))
    #: the different contents of each event
    contents: dict[int, list[EventContent]] = field(default_factory=dict)
    files: list[str] = field(default_factory=list)
    _firsts: list[int] = field(default_factory=list)

    def where(self, place: int) -> str:
        """Returns file and line of a record."""
        file = bisect_right(self._firsts, place) - 1
        line = f"line {place - self._firsts[file] + 1}"
        return line if len(self.files) == 1 else f"{self.files[file]} {line}"


def read_recording(paths: Iterable[Path]) -> Recording:
    """Reads a recording of one or more files with the same clock; raises `RecordingError`."""
    recording = Recording()
    place = 0
    for path in paths:
        recording.files.append(path.name)
        recording._firsts.append(place)
        try:
            with path.open("rb") as lines:
                place = _File(recording, path.name).read(lines, place)
        except OSError as error:
            raise RecordingError(f"cannot read {path}: {error.strerror}") from None
    recording.quiets.sort()
    return recording


class _File:
    _decoder = msgspec.json.Decoder(records.Record)

    def __init__(self, recording: Recording, name: str) -> None:
        self._recording = recording
        self._name = name
        self._open: dict[int | str, Operation] = {}
        self._ended = False

    def read(self, lines: Iterable[bytes], first: int) -> int:
        """Returns the place after the last line."""
        place = first
        for place, line in enumerate(lines, first):
            if not line.endswith(b"\n"):
                break  # the file was truncated inside a line
            try:
                record = self._decoder.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise self._wrong(place - first, str(error)) from None
            try:
                self._take(record, place, begins=place == first)
            except ValueError as error:
                raise self._wrong(place - first, str(error)) from None
        # A file without its end may lack anything; an empty one lacks everything.
        self._recording.whole &= self._ended
        return place + 1

    def _wrong(self, line: int, detail: str) -> RecordingError:
        return RecordingError(f"{self._name}, line {line + 1}: {detail}")

    def _take(self, record: records.Record, place: int, *, begins: bool) -> None:
        if isinstance(record, records.Header) != begins:
            raise ValueError("a recording begins with its header" if begins else "a second header")
        recording = self._recording
        match record:
            case records.Notification():
                self._notification(record, place)
            case records.Invoke():
                if record.op in self._open:
                    raise ValueError(f"operation {record.op!r} was invoked before")
                operation = Operation(record, place)
                self._open[record.op] = operation
                recording.operations.append(operation)
            case records.Ok() | records.Fail() | records.Unknown():
                self._answer(record, place)
            case records.Header():
                if record.version != records.VERSION:
                    raise ValueError(
                        f"version {record.version}; this checker reads version {records.VERSION}"
                    )
                recording.header = recording.header or record
            case records.Topic():
                self._topic(record)
            case records.Listening() | records.Stopped():
                recording.listening.append(
                    (record.time, record.address, isinstance(record, records.Listening))
                )
            case records.Excused():
                recording.excused.add(record.address)
            case records.Quiet():
                recording.quiets.append(record.time)
            case records.End():
                self._ended = True

    def _topic(self, record: records.Topic) -> None:
        before = self._recording.topics.get(record.topic)
        if before is not None:
            for name, kind in before.attributes.items():
                if record.attributes.setdefault(name, kind) != kind:
                    raise ValueError(f'attribute "{name}" changes its type, which no recording can express')
        self._recording.topics[record.topic] = record

    def _answer(self, record: records.Ok | records.Fail | records.Unknown, place: int) -> None:
        operation = self._open.get(record.op)
        if operation is None:
            raise ValueError(f"operation {record.op!r} was never invoked")
        if operation.answer is not None:
            raise ValueError(f"operation {record.op!r} was answered before")
        if record.time < operation.invoke.time:
            raise ValueError(f"operation {record.op!r} was answered before it was invoked")
        operation.answer = record
        operation.answer_place = place

    def _notification(self, record: records.Notification, place: int) -> None:
        recording = self._recording
        if record.body is None:
            recording.malformed.append((place, record.address))
            return
        begin = len(recording.pair_post)
        number = len(recording.posts)
        complete: list[tuple[int, int, tuple[int, ...]]] = []
        for entry in record.body.notifications:
            if entry.event is None:
                complete += self._sequence(entry, place)
                continue
            event = recording.events.number((entry.topic, entry.event.id))
            self._add_content(event, entry.event, place)
            for match in entry.matches:
                recording.pair_subscription.append(recording.subscriptions.number(match.subscription))
                recording.pair_event.append(event)
                recording.pair_recipient.append(recording.recipients.number(match.recipient))
                recording.pair_post.append(number)
        recording.posts.append(
            Post(
                place,
                record.time,
                record.address,
                record.webhook,
                200 <= record.status < 300,
                record.status,
                begin,
                len(recording.pair_post),
                tuple(complete),
            )
        )

    def _sequence(self, entry: records.Entry, place: int) -> list[tuple[int, int, tuple[int, ...]]]:
        recording = self._recording
        numbers = []
        for event in entry.events:
            numbers.append(recording.events.number((event.topic, event.id)))
            self._add_content(numbers[-1], event, place)
        return [
            (
                recording.subscriptions.number(match.subscription),
                recording.recipients.number(match.recipient),
                tuple(numbers),
            )
            for match in entry.matches
        ]

    def _add_content(self, number: int, event: records.NotifiedEvent, place: int) -> None:
        attributes = bytes(event.attributes)
        known = self._recording.contents.setdefault(number, [])
        if not any(one.attributes == attributes and one.time == event.time for one in known):
            known.append(EventContent(attributes, event.time, place))
