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


class Notification(msgspec.Struct, frozen=True):
    """One event with all its matches at this address."""

    topic: str
    event: NotifiedEvent
    matches: list[Match]
    #: W3C Trace Context of the publisher
    traceparent: str | None = None
    tracestate: str | None = None
    #: whether it is the event of `edn delivery example`, which nobody published
    example: bool = False


class StreamedNotification(Notification, frozen=True, kw_only=True):
    """A notification of a stream."""

    #: its position in the stream: `Client.stream(id, after=position)` continues after it
    position: str
