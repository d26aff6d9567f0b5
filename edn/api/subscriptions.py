"""Subscriptions and their sinks."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from edn.api.delivery import Delivery, SequenceState
from edn.api.fields import Always, Sometimes


class SinkCredentials(msgspec.Struct, frozen=True):
    """Credentials of a sink; only their type is ever shown."""

    type: Annotated[str, Literal["bearer", "basic", "api_key", "oauth2", "certificate"]]


class ExponentialDelays(msgspec.Struct, frozen=True):
    """Delays between attempts, in seconds."""

    first: float
    factor: float
    longest: float


class RetryPolicy(msgspec.Struct, frozen=True):
    """When a failed attempt is repeated; seconds."""

    #: delays between attempts; the last one repeats
    schedule: Sometimes[list[float]] = None
    exponential: Sometimes[ExponentialDelays] = None
    #: age at which a notification becomes a dead letter
    give_up: Sometimes[float] = None
    #: statuses after which there is no further attempt
    permanent: Sometimes[list[int]] = None


class Sink(msgspec.Struct, frozen=True):
    #: URL that notifications are posted to
    url: str
    #: recipient, as the subscriber names it
    recipient: str | None = None
    #: "cloudevents-binary", "-structured" or "-batch"; None: the network's own format
    format: Sometimes[str] = None
    #: whether the sink must consent
    consent: Sometimes[bool] = None
    #: signing secret; only in the answer to the call that generated it
    secret: Sometimes[str] = None
    #: static headers of every request
    headers: Sometimes[dict[str, str]] = None
    credentials: Sometimes[SinkCredentials] = None
    #: seconds per attempt
    timeout: Sometimes[float] = None
    retry: Sometimes[RetryPolicy] = None
    #: deliveries per second
    rate: Sometimes[float] = None
    #: False: a failing notification does not hold back later ones
    ordered: Sometimes[bool] = None

    def __repr__(self) -> str:
        shown = "" if self.secret is None else ", secret=…"
        return f"Sink(url={self.url!r}, recipient={self.recipient!r}{shown})"


class JoinedTopic(msgspec.Struct, frozen=True):
    """A topic of a subtree that its subscription covers."""

    topic: str
    #: server that hosts the member
    server: Always[str] = None


class LeftOutTopic(msgspec.Struct, frozen=True):
    """A topic of the subtree that the filter does not fit."""

    topic: str
    reason: str = ""


class SequenceWatch(msgspec.Struct, frozen=True):
    topic: str
    filter: Annotated[Any, dict[str, Any] | None] = None


class SequenceStep(msgspec.Struct, frozen=True):
    topic: str
    filter: Annotated[Any, dict[str, Any] | None] = None
    #: number of events that fill it, if more than one
    times: Sometimes[int] = None
    #: ends the half match while the step is awaited
    unless: Sometimes[SequenceWatch] = None


class Subscription(msgspec.Struct, frozen=True):
    id: str
    #: topic, or subtree such as "stocks.**"
    topic: str
    #: filter as JSON; None matches everything
    filter: Annotated[Any, dict[str, Any] | None] = None
    #: in place of a filter: steps whose events follow each other
    sequence: Sometimes[list[SequenceStep]] = None
    by: Sometimes[list[str]] = None
    within: Sometimes[str] = None
    settle: Sometimes[str] = None
    #: what the monitor of a sequence waits for; not in lists
    sequence_state: Sometimes[SequenceState] = None
    #: None: a stream
    sink: Sink | None = None
    state: Always[str] = None
    #: RFC 3339 time; None: never
    expires: str | None = None
    owner: Always[str] = None
    #: server that hosts it; None for a subtree subscription, whose members have one each
    server: str | None = None
    created: Always[str] = None
    #: topics of a subtree subscription; not in lists
    topics: Sometimes[list[JoinedTopic]] = None
    left_out: Sometimes[list[LeftOutTopic]] = None
    #: not in lists; null while its server cannot be reached
    delivery: Sometimes[Delivery] = None
    #: location of the subscriber, in the servers' coordinates
    location: list[float] | None = None
    #: false: no advertisement of the topic overlaps the filter; null: nothing is advertised
    advertised: Sometimes[bool] = None
    #: a likely mistake in the request, such as a filter that no event can match
    warning: Sometimes[str] = None

    def filters_on(self, topic: str) -> list[Any]:
        """Returns the filters on a topic: one, or those of the steps of a sequence."""
        if self.sequence is None:
            return [self.filter]
        found = [step.filter for step in self.sequence if step.topic == topic]
        return found + [
            step.unless.filter
            for step in self.sequence
            if step.unless is not None and step.unless.topic == topic
        ]


class SubscriptionList(msgspec.Struct, frozen=True):
    subscriptions: list[Subscription]


class SubscriptionPage(msgspec.Struct, frozen=True):
    subscriptions: list[Subscription]
    #: cursor of the next page; None after the last
    next: str | None = None


class Ended(msgspec.Struct, frozen=True):
    ids: list[str]
    #: sequences of the owner on these topics: a filter does not end them
    sequences: Sometimes[int] = None
