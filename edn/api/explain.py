"""Explanations: the routing of an event, the reach of a filter, and the trace of a recent event."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from edn.api.delivery import Outcome
from edn.api.servers import State


class ExplainedSubscription(msgspec.Struct, frozen=True):
    """A subscription whose rectangles contain the event."""

    id: str
    #: if not, its rectangle was only a cover
    matches: bool
    #: what decided that, as text
    clauses: list[str]
    paused: bool
    recipient: str | None
    filter: Any


class ExplainedServer(msgspec.Struct, frozen=True):
    server: str
    state: State
    #: the event would be sent there
    routed: bool
    #: `everything` is sent there; a rectangle of its `summary` or of a `widening` contains the event; one
    #: does, but its Bloom `mask` does not; `no rectangle` does
    why: Literal["everything", "summary", "widening", "mask", "no rectangle"]
    #: in the words of a filter
    rectangle: dict[str, Any] | None
    #: that were tried
    rectangles: int
    #: subscriptions that match; null where the server did not say
    matched: int | None
    #: it would get the event for nothing
    false_positive: bool
    #: at most 100 of them
    subscriptions: list[ExplainedSubscription]
    failure: str | None


class ExplainedEvent(msgspec.Struct, frozen=True):
    topic: str
    event: dict[str, Any]
    precision: float | None
    matched: int
    false_positives: list[str]
    servers: list[ExplainedServer]


class MetServer(msgspec.Struct, frozen=True):
    server: str
    #: it gets every event
    everything: bool
    #: rectangles in use for it that the filter's meet, and all of them
    meeting: int
    rectangles: int


class RecentMatches(msgspec.Struct, frozen=True):
    events: int
    matched: int
    share: float | None
    since: str | None


class ExplainedFilter(msgspec.Struct, frozen=True):
    topic: str
    filter: Any
    text: str | None
    #: its rectangles say all; if not, the predicate decides inside them
    exact: bool
    #: in the words of a filter, at most 16 of them
    rectangles: list[dict[str, Any]]
    rectangle_count: int
    servers: list[MetServer]
    #: how it would have done on recent events
    recent: RecentMatches
    #: at most 100 ids each
    covers: list[str]
    covers_count: int
    covered_by: list[str]
    covered_by_count: int
    #: subscriptions that it was compared with, and those that the topic has
    examined: int
    subscriptions: int


class FollowedAttempt(msgspec.Struct, frozen=True):
    time: str
    webhook_id: str
    status: int | None
    reason: str | None
    seconds: float
    outcome: Outcome


class FollowedMatch(msgspec.Struct, frozen=True):
    #: empty if it has ended since
    subscription: str
    #: the oldest first
    attempts: list[FollowedAttempt]


class FollowedServer(msgspec.Struct, frozen=True):
    server: str
    #: when it had applied the event; null if it has not, or does not know any more
    taken: str | None
    matches: list[FollowedMatch]
    failure: str | None


class FollowedEvent(msgspec.Struct, frozen=True):
    id: str
    topic: str
    offset: int
    #: when it was committed, and its own time
    accepted: str
    time: str
    attributes: dict[str, Any]
    traceparent: str | None
    #: servers whose summary did not contain it
    not_sent_to: list[str]
    #: those that it was sent to
    servers: list[FollowedServer]
