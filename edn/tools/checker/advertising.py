"""Judges topics that enforce advertisements: was each event accepted or refused by some order of the calls?

Theory of operation
-------------------
An advertisement takes effect at an instant x between the request and the answer of `advertise`, and ends at
an instant y between those of `unadvertise`. A publish is decided at one instant between its own. An event is
accepted exactly if an advertisement of its publisher covers it at that instant. So, with the event's interval
[low, high]:

    accepted    needs an advertisement with x <= high and y >= low: one that can have been in effect
    refused     needs an instant of [low, high] at which no covering advertisement was certainly in effect

Acceptances also bound x and y. If only one advertisement can explain an accepted event, then its x is at most
`high` and its y at least `low`, so it was certainly in effect in between. The latest possible x and the
earliest possible y under these bounds leave most room for refusals; so where every event is covered by one
advertisement at most, a recording passes exactly if an order exists. Where several cover an event, the check
is sound but may miss a violation.

A repeat of an accepted event is accepted whatever is advertised then: only first attempts are judged.
Advertisements that may have expired are never certain.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edn.tools.checker.columns import Columns
from edn.tools.checker.recording.reading import Operation, Recording
from edn.tools.checker.recording.records import Fail, Ok, RecordingError, Topic, Unknown
from edn.tools.checker.timeline import NEVER, SECOND
from edn.tools.checker.values import read_event
from edn.tools.checker.verdicts import Fault, Findings, Violation

#: reason of a refusal that this module judges
UNADVERTISED = "unadvertised"


@dataclass(slots=True)
class _Life:
    """One advertisement from `advertise` to `unadvertise`."""

    advertise: Operation
    #: earliest and latest instant at which it took effect, and at which it ended
    begins: list[int]
    ends: list[int]
    #: whether it is known to have taken effect
    sure: bool
    may_expire: bool = False
    end: Operation | None = None


@dataclass(frozen=True, slots=True)
class _Attempt:
    """The first attempt to publish an event, with an outcome."""

    operation: Operation
    place: int
    low: int
    high: int
    accepted: bool
    #: number of events that were refused together; the cause may be any of them
    together: int


def judge_advertising(recording: Recording, findings: Findings) -> int:
    """Judges all topics that enforce advertisements; returns the number of judged events."""
    judged = 0
    for name, topic in recording.topics.items():
        if topic.advertising != "off":
            judged += _Judge(recording, findings, name, topic).judge()
    return judged


def _latest(recording: Recording, operation: Operation) -> int:
    """Returns the latest instant at which an operation can have taken effect."""
    header = recording.header
    match operation.answer:
        case Ok(time=time):
            return time
        case Unknown(time=time) if header and header.settles_after is not None:
            return time + round(header.settles_after * SECOND)
    return NEVER


def as_filter(advertisement: Mapping[str, Any], attributes: Mapping[str, Any]) -> dict[str, Any] | None:
    """Writes an advertisement as a filter of `columns`; None covers everything."""
    parts: list[dict[str, Any]] = []
    for name in attributes:
        absent = {name: {"exists": False}}
        if name not in advertisement:
            if "$others" not in advertisement:
                parts.append(absent)
        elif advertisement[name] != "any":
            parts.append({"$any": [absent, *({name: one} for one in advertisement[name])]})
    return {"$all": parts} if parts else None


class _Judge:
    def __init__(self, recording: Recording, findings: Findings, name: str, topic: Topic) -> None:
        self._recording = recording
        self._findings = findings
        self._name = name
        self._topic = topic
        self._lives: dict[str, list[_Life]] = defaultdict(list)
        self._attempts: list[_Attempt] = []
        self._values: list[dict[str, Any]] = []

    def judge(self) -> int:
        tried: set[str] = set()
        for operation in self._recording.operations:
            if operation.invoke.topic == self._name or operation.invoke.kind == "unadvertise":
                match operation.invoke.kind:
                    case "advertise":
                        self._advertise(operation)
                    case "unadvertise":
                        self._unadvertise(operation)
                    case "publish":
                        self._publish(operation, tried)
        covering = self._covering()
        self._tighten(covering)
        unexplained, wrongly = [], []
        for index, attempt in enumerate(self._attempts):
            if attempt.accepted and not _explaining(attempt, covering[index]):
                unexplained.append(attempt)
            elif not attempt.accepted and attempt.together == 1 and _certain(attempt, covering[index]):
                wrongly.append(attempt)
        wrongly += self._batches(covering)
        self._findings.add(Fault.UNADVERTISED, unexplained, self._accepted_story)
        self._findings.add(Fault.REFUSED, wrongly, self._refused_story)
        return len(self._attempts)

    # -- the recording ----------------------------------------------------------------------------------

    def _publisher(self, operation: Operation) -> str:
        return operation.invoke.publisher or ""

    def _advertise(self, operation: Operation) -> None:
        if isinstance(operation.answer, Fail):
            return
        if operation.invoke.advertisement is None or operation.invoke.declares is None:
            raise RecordingError(
                f"{self._recording.where(operation.place)}: advertise needs advertisement and declares"
            )
        self._lives[operation.invoke.advertisement].append(
            _Life(
                operation,
                [operation.invoke.time, _latest(self._recording, operation)],
                [NEVER, NEVER],
                isinstance(operation.answer, Ok),
                operation.invoke.expires is not None,
            )
        )

    def _unadvertise(self, operation: Operation) -> None:
        lives = self._lives.get(operation.invoke.advertisement or "")
        if isinstance(operation.answer, Fail) or not lives:
            return
        begin, end = operation.invoke.time, _latest(self._recording, operation)
        for life in lives:
            if life.end is None or not isinstance(life.end.answer, Ok):
                # An unanswered end may come at any time; a later one that was answered certainly ended it.
                life.ends = [min(begin, life.ends[0]), end]
                life.end = operation

    def _publish(self, operation: Operation, tried: set[str]) -> None:
        invoke, answer = operation.invoke, operation.answer
        refused = isinstance(answer, Fail) and answer.reason == UNADVERTISED
        dropped = set(answer.unadvertised or ()) if isinstance(answer, Ok) else set()
        fresh: list[int] = []
        for place, event in enumerate(invoke.events):
            id = event.get("$id") or (None if invoke.key is None else f"{invoke.key}/{place}")
            if id is None or id not in tried:
                fresh.append(place)
            if id is not None and not isinstance(answer, Fail) and place not in dropped:
                tried.add(id)
        if answer is None or not (refused or isinstance(answer, Ok)):
            return
        for place in fresh:
            self._attempts.append(
                _Attempt(
                    operation,
                    place,
                    invoke.time,
                    answer.time,
                    not refused and place not in dropped,
                    len(invoke.events) if refused else 1,
                )
            )
            self._values.append(read_event(invoke.events[place], self._topic.attributes))

    def _covering(self) -> list[list[_Life]]:
        """Returns for each attempt the advertisements of its publisher that cover its event."""
        columns = Columns(self._topic.attributes, self._values)
        found: list[list[_Life]] = [[] for _ in self._attempts]
        for life in (one for lives in self._lives.values() for one in lives):
            declares = life.advertise.invoke.declares
            assert declares is not None
            written = as_filter(declares, self._topic.attributes)
            publisher = self._publisher(life.advertise)
            for index in columns.matching(written, 0, len(self._attempts)).tolist():
                if self._publisher(self._attempts[index].operation) == publisher:
                    found[index].append(life)
        return found

    def _tighten(self, covering: Sequence[Sequence[_Life]]) -> None:
        """Bounds the instants of advertisements by the events that only they can explain."""
        bounds: dict[int, tuple[_Life, int, int]] = {}
        for attempt, lives in zip(self._attempts, covering, strict=True):
            able = _explaining(attempt, lives) if attempt.accepted else []
            if len(able) == 1:
                life, first, last = bounds.get(id(able[0]), (able[0], NEVER, -NEVER))
                bounds[id(life)] = (life, min(first, attempt.high), max(last, attempt.low))
        for life, first, last in bounds.values():
            life.sure = True
            life.begins[1] = min(life.begins[1], first)
            life.ends[0] = max(life.ends[0], last)

    def _batches(self, covering: Sequence[Sequence[_Life]]) -> list[_Attempt]:
        """Finds refused batches of several events that were all certainly advertised."""
        together: dict[int, list[tuple[_Attempt, Sequence[_Life]]]] = defaultdict(list)
        for attempt, lives in zip(self._attempts, covering, strict=True):
            if not attempt.accepted and attempt.together > 1:
                together[attempt.operation.place].append((attempt, lives))
        return [
            events[0][0]
            for events in together.values()
            # Events that repeat an accepted one are not judged, but cannot be the cause either.
            if all(_certain(attempt, lives) for attempt, lives in events)
        ]

    # -- explanations -----------------------------------------------------------------------------------

    def _accepted_story(self, attempt: _Attempt) -> Violation:
        return self._story(
            Fault.UNADVERTISED,
            attempt,
            "it was accepted, but nothing that covers it can have been advertised",
        )

    def _refused_story(self, attempt: _Attempt) -> Violation:
        return self._story(
            Fault.REFUSED,
            attempt,
            "it was refused, but an advertisement certainly covered it at every instant",
        )

    def _story(self, fault: Fault, attempt: _Attempt, reason: str) -> Violation:
        recording, operation = self._recording, attempt.operation
        event = operation.invoke.events[attempt.place]
        publisher = self._publisher(operation)
        lines = []
        for life in (one for lives in self._lives.values() for one in lives):
            if self._publisher(life.advertise) == publisher:
                ended = "" if life.end is None else f", ended by {_lines(recording, life.end)}"
                lines.append(
                    f'advertisement "{life.advertise.invoke.advertisement}" '
                    f"({_lines(recording, life.advertise)}{ended})"
                )
        shown = str(event.get("$id", attempt.place))
        return Violation(
            fault=fault,
            reason=f'event "{shown}" of {self._name} by "{publisher}": {reason}',
            topic=self._name,
            event=shown,
            attributes={name: value for name, value in event.items() if not name.startswith("$")},
            story=[f"publish ({_lines(recording, operation)})", *lines[:12]],
        )


def _lines(recording: Recording, operation: Operation) -> str:
    return ", ".join(recording.where(place) for place in operation.places)


def _explaining(attempt: _Attempt, lives: Sequence[_Life]) -> list[_Life]:
    """Returns the advertisements that can have been in effect when an event was accepted."""
    return [life for life in lives if life.begins[0] <= attempt.high and life.ends[1] >= attempt.low]


def _certain(attempt: _Attempt, lives: Sequence[_Life]) -> bool:
    """Tells whether covering advertisements were certainly in effect during the whole attempt."""
    reached = attempt.low
    spans = sorted((life.begins[1], life.ends[0]) for life in lives if life.sure and not life.may_expire)
    covered = False
    for begin, end in spans:
        if begin < reached and end > reached:
            reached, covered = end, True
    return covered and reached > attempt.high
