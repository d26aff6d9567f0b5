"""Explanations: why an event matches, and what happened to it. See `edn.protocol`."""

from __future__ import annotations

import msgspec

from edn.protocol.codec import Int64


class Explain(msgspec.Struct, frozen=True):
    """Asks how a server would match an event. Nothing is stored, counted or sent."""

    log: str
    topic: Int64
    #: the log's time, which expiry is compared with
    time: Int64
    #: float64 each
    point: bytes
    #: the attributes as JSON
    line: bytes
    #: subscriptions that are named at most
    limit: Int64


class Explanation(msgspec.Struct, frozen=True, array_like=True):
    """One subscription whose rectangles contain the event."""

    id: str
    #: the exact predicate holds; if not, the rectangle was only a cover
    matches: bool
    #: what decided that, in the filter language's text form
    clauses: list[str]
    #: notifications are kept, not sent
    paused: bool


class Explained(msgspec.Struct, frozen=True):
    matched: Int64
    subscriptions: list[Explanation]


class AskJourney(msgspec.Struct, frozen=True):
    """Asks for the trace of an event."""

    log: str
    offset: Int64


class JourneyAttempt(msgspec.Struct, frozen=True, array_like=True):
    """A POST that told of it; as `edn_server.delivery.attempts.Attempt`."""

    time: Int64
    webhook_id: str
    status: Int64 | None
    reason: str | None
    seconds: float
    outcome: str


class JourneyRecipient(msgspec.Struct, frozen=True, array_like=True):
    """A subscription that it matched; empty if that has ended since."""

    subscription: str
    attempts: list[JourneyAttempt]


class Journey(msgspec.Struct, frozen=True):
    #: when the server had applied it; None if it is not known there, or not any more
    committed: Int64 | None
    recipients: list[JourneyRecipient]
