"""What calls return: frozen records named as in the interface; what a newer network adds is ignored."""

from __future__ import annotations

from typing import Any

import msgspec


class Topic(msgspec.Struct, frozen=True):
    name: str
    #: name → "number", "integer", "string", "boolean" or "time"
    attributes: dict[str, str]
    engine: str | None = None
    #: how long an event stays available to later subscriptions: 0, seconds, or "forever"
    availability: float | str | None = None


class Sink(msgspec.Struct, frozen=True):
    #: where notifications are posted
    url: str
    #: who is meant behind that address, in the words of whoever runs it
    recipient: str | None = None


class Subscription(msgspec.Struct, frozen=True):
    id: str
    topic: str
    #: the filter as JSON; None is everything
    filter: Any = None
    #: None: a stream
    sink: Sink | None = None
    state: str | None = None
    #: an instant (RFC 3339); None is never
    expires: str | None = None
    owner: str | None = None
    #: the server that hosts it
    server: str | None = None
    created: str | None = None


class SubscriptionPage(msgspec.Struct, frozen=True):
    subscriptions: list[Subscription]
    #: the cursor of the next page; None after the last
    next: str | None = None


class Published(msgspec.Struct, frozen=True):
    accepted: int
    #: in the order of the events
    ids: list[str]


class Server(msgspec.Struct, frozen=True):
    id: str
    url: str | None = None
    state: str | None = None
    subscriptions: int = 0
    #: the offset up to which it has acknowledged the log
    cursor: int | None = None
    #: records of the log between its end and what this server is known to have, or not to need
    lag: int | None = None
    #: rectangles in use ÷ maximal rectangles; 0 is "route everything"
    precision: float | None = None
    #: events that were sent to it, since the dispatcher started
    forwarded: int | None = None
    #: those of them that matched at least one of its subscriptions
    useful: int | None = None
    #: (event, subscription) pairs that it found
    matched: int | None = None
    #: share of the published events that were forwarded to it
    hit_ratio: float | None = None
    #: notifications waiting to be delivered
    backlog: int | None = None
    #: why it cannot be reached, if so
    failure: str | None = None


class Tuning(msgspec.Struct, frozen=True):
    #: "fixed", "paper" or "model"
    mode: str
    precision: float | None = None
    #: decisions, as the network describes them
    history: list[dict[str, Any]] = []


class Health(msgspec.Struct, frozen=True):
    #: False: it runs, but cannot take work yet, or no more
    ready: bool
    #: what the network says about itself
    detail: dict[str, Any] = {}
