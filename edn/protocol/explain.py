"""Explanation of a match, and the trace of an event. See `edn.protocol`."""

from __future__ import annotations

import msgspec

from edn.protocol.codec import Int64


class Explain(msgspec.Struct, frozen=True):
    """Requests how a server would match an event, without any effect."""

    log: str
    topic: Int64
    #: time of the log, compared with expiries
    time: Int64
    #: float64 each
    point: bytes
    #: attributes as JSON
    line: bytes
    #: maximal number of subscriptions in the response
    limit: Int64


class Explanation(msgspec.Struct, frozen=True, array_like=True):
    """A subscription whose rectangles contain the event."""

    id: str
    #: whether the predicate holds
    matches: bool
    #: deciding clauses in the text form of filters
    clauses: list[str]
    #: whether notifications are buffered
    paused: bool
    #: of a sequence: what the event would do to its monitor
    step: str = ""


class Explained(msgspec.Struct, frozen=True):
    matched: Int64
    subscriptions: list[Explanation]


class TraceQuery(msgspec.Struct, frozen=True):
    log: str
    offset: Int64


class TracedAttempt(msgspec.Struct, frozen=True, array_like=True):
    """An attempt to deliver the event, like `edn_server.delivery.attempts.Attempt`."""

    time: Int64
    webhook_id: str
    status: Int64 | None
    reason: str | None
    seconds: float
    outcome: str


class TracedRecipient(msgspec.Struct, frozen=True, array_like=True):
    """A matching subscription; empty if it has ended since."""

    subscription: str
    attempts: list[TracedAttempt]


class EventTrace(msgspec.Struct, frozen=True):
    #: time at which the server applied the event; None if unknown
    committed: Int64 | None
    recipients: list[TracedRecipient]
