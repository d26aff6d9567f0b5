"""Notifications as a subscriber receives them: in a POST or from a stream."""

from __future__ import annotations

from typing import Any

import msgspec


class Match(msgspec.Struct, frozen=True):
    subscription: str
    recipient: str | None = None


class NotifiedEvent(msgspec.Struct, frozen=True):
    id: str
    time: str
    attributes: dict[str, Any]


class SequenceEvent(NotifiedEvent, frozen=True, kw_only=True):
    """An event of a sequence."""

    topic: str


_NO_EVENT = NotifiedEvent("", "", {})


class Notification(msgspec.Struct, frozen=True):
    """One event, or one complete sequence of events, with all its matches at this address."""

    topic: str
    #: of a sequence: the event that completed it
    event: NotifiedEvent = _NO_EVENT
    matches: list[Match] = []
    #: W3C Trace Context of the publisher
    traceparent: str | None = None
    tracestate: str | None = None
    #: whether it is the event of `edn delivery example`, which nobody published
    example: bool = False
    #: of a sequence: all of its events, in order
    events: list[SequenceEvent] = []

    def __post_init__(self) -> None:
        if self.events:
            msgspec.structs.force_setattr(self, "event", self.events[-1])


class StreamedNotification(Notification, frozen=True, kw_only=True):
    """A notification of a stream."""

    #: its position in the stream: `Client.stream(id, after=position)` continues after it
    position: str
