"""Subscriptions and their sinks."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from edn.api.delivery import Delivery
from edn.api.fields import Always, Sometimes


class Sink(msgspec.Struct, frozen=True):
    #: where notifications are posted
    url: str
    #: the recipient behind that address, in the words of whoever runs it
    recipient: str | None = None
    #: "cloudevents-binary", "-structured" or "-batch"; None is the network's own
    format: Sometimes[str] = None
    #: whether the sink is asked for its consent
    consent: Sometimes[bool] = None
    #: signs notifications; only in the answer to the call that generated it
    secret: Sometimes[str] = None

    def __repr__(self) -> str:
        shown = "" if self.secret is None else ", secret=…"
        return f"Sink(url={self.url!r}, recipient={self.recipient!r}{shown})"


class JoinedTopic(msgspec.Struct, frozen=True):
    """A topic of a subtree that its subscription covers."""

    topic: str
    #: the server that hosts this part of the subscription
    server: Always[str] = None


class LeftOutTopic(msgspec.Struct, frozen=True):
    """A topic of the subtree that the filter does not fit."""

    topic: str
    reason: str = ""


class Subscription(msgspec.Struct, frozen=True):
    id: str
    #: or subtree, such as "stocks.**"
    topic: str
    #: the filter as JSON; None is everything
    filter: Annotated[Any, dict[str, Any] | None] = None
    #: None: a stream
    sink: Sink | None = None
    state: Always[str] = None
    #: an instant (RFC 3339); None is never
    expires: str | None = None
    owner: Always[str] = None
    #: the server that hosts it; None for a subtree, whose topics have one each
    server: str | None = None
    created: Always[str] = None
    #: of a subtree, when a single subscription is read
    topics: Sometimes[list[JoinedTopic]] = None
    left_out: Sometimes[list[LeftOutTopic]] = None
    #: when a single subscription is read; null while its server cannot be reached
    delivery: Sometimes[Delivery] = None
    #: location of the subscriber, in the servers' coordinates
    location: list[float] | None = None


class SubscriptionList(msgspec.Struct, frozen=True):
    subscriptions: list[Subscription]


class SubscriptionPage(msgspec.Struct, frozen=True):
    subscriptions: list[Subscription]
    #: the cursor of the next page; None after the last
    next: str | None = None


class Ended(msgspec.Struct, frozen=True):
    ids: list[str]
