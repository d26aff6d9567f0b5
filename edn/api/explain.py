"""Explanations: the routing of an event, the reach of a filter, and the trace of a recent event."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from edn.api.delivery import Outcome
from edn.api.fields import Sometimes
from edn.api.servers import State

#: reason why an event is routed to a server, or not: the server receives `everything`; a rectangle of its
#: `summary` or of a `widening` contains the event; only its Bloom `mask` excludes the event; `no rectangle`
#: contains it
Why = Literal["everything", "summary", "widening", "mask", "no rectangle"]


class ExplainedSubscription(msgspec.Struct, frozen=True):
    """A subscription whose rectangles contain the event."""

    id: str
    #: false: its rectangles contain the event, but its predicate does not hold
    matches: bool
    #: decisive clauses, as text
    clauses: list[str]
    paused: bool
    recipient: str | None
    filter: Any
    #: of a sequence: what the event would do
    step: Sometimes[str] = None


class AskedSubscription(msgspec.Struct, frozen=True):
    """A subscription that the request names, whether the event reaches it or not."""

    id: str
    matches: bool
    #: clauses that hold, or, if it does not match, those that fail
    clauses: list[str]
    server: str | None
    paused: bool
    filter: Any
    #: the filter as text; null: it matches everything
    text: str | None
    #: why it cannot match any event of this topic
    failure: str | None = None


class ExplainedServer(msgspec.Struct, frozen=True):
    server: str
    state: State
    #: the event would be routed there
    routed: bool
    why: Why
    #: the rectangle as a filter
    rectangle: dict[str, Any] | None
    #: number of tested rectangles
    rectangles: int
    #: matching subscriptions; null: the server did not answer
    matched: int | None = None
    #: the event would be routed there and match nothing
    false_positive: bool = False
    #: at most 100 of them
    subscriptions: list[ExplainedSubscription] = []
    failure: str | None = None
    #: seconds since its summary came into use; null: it has none, and everything is routed to it
    summary_seconds: float | None = None


class ExplainedAdvertisement(msgspec.Struct, frozen=True):
    """An advertisement that covers the event, or overlaps the filter."""

    id: str
    publisher: str


class ExplainedEvent(msgspec.Struct, frozen=True):
    topic: str
    event: dict[str, Any]
    precision: float | None
    matched: int
    false_positives: list[str]
    servers: list[ExplainedServer]
    #: what happens to events that are not advertised
    advertising: str = "off"
    #: advertisements that cover it, at most 100; null: the topic has none
    advertised_by: list[ExplainedAdvertisement] | None = None
    #: the subscription that the request names
    subscription: Sometimes[AskedSubscription] = None


class MetServer(msgspec.Struct, frozen=True):
    server: str
    #: every event is routed there
    everything: bool
    #: rectangles in use that intersect those of the filter, and all rectangles
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
    #: false: the predicate decides inside its rectangles
    exact: bool
    #: as filters, at most 16 of them
    rectangles: list[dict[str, Any]]
    rectangle_count: int
    servers: list[MetServer]
    #: matches among recent events
    recent: RecentMatches
    #: at most 100 ids each
    covers: list[str]
    covers_count: int
    covered_by: list[str]
    covered_by_count: int
    #: subscriptions that it was compared with, and all subscriptions of the topic
    examined: int
    subscriptions: int
    #: advertisements whose events it may match, at most 100; null: the topic has none
    advertised_by: list[ExplainedAdvertisement] | None = None


class FollowedAttempt(msgspec.Struct, frozen=True):
    time: str
    webhook_id: str
    status: int | None
    reason: str | None
    seconds: float
    outcome: Outcome


class FollowedMatch(msgspec.Struct, frozen=True):
    #: empty: it has ended since
    subscription: str
    #: oldest first
    attempts: list[FollowedAttempt]


class FollowedServer(msgspec.Struct, frozen=True):
    server: str
    #: time when the server applied the event; null: not yet, or no longer known
    taken: str | None = None
    matches: list[FollowedMatch] = []
    failure: str | None = None


class FollowedEvent(msgspec.Struct, frozen=True):
    id: str
    topic: str
    offset: int
    #: time of the commit, and time of the event
    accepted: str
    time: str
    attributes: dict[str, Any]
    traceparent: str | None
    #: servers whose summary did not contain it
    not_sent_to: list[str]
    #: servers that it was routed to
    servers: list[FollowedServer]
