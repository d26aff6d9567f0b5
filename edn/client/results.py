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


class Key(msgspec.Struct, frozen=True):
    id: str
    name: str
    #: whose topics it sees; empty is the operator
    tenant: str
    scopes: list[str]
    created: str
    expires: str | None = None
    quota: dict[str, float] = {}
    #: the whole of it; only in the answer to the call that made it
    key: str | None = None

    def __repr__(self) -> str:
        shown = "" if self.key is None else ", key=…"
        return (
            f"Key(id={self.id!r}, name={self.name!r}, tenant={self.tenant!r}, scopes={self.scopes!r}{shown})"
        )


class Sink(msgspec.Struct, frozen=True):
    #: where notifications are posted
    url: str
    #: who is meant behind that address, in the words of whoever runs it
    recipient: str | None = None
    #: "cloudevents-binary", "-structured" or "-batch"; None is the network's own
    format: str | None = None
    #: whether the sink is asked for its consent
    consent: bool | None = None
    #: what notifications are signed with; only in the answer to the call that had it made
    secret: str | None = None

    def __repr__(self) -> str:
        shown = "" if self.secret is None else ", secret=…"
        return f"Sink(url={self.url!r}, recipient={self.recipient!r}{shown})"


class Delivery(msgspec.Struct, frozen=True):
    """How it is with a subscription's address, and what became of its notifications."""

    #: "healthy", "failing" or "disabled"
    state: str
    #: attempts in a row that were not taken
    failures: int = 0
    failing_since: str | None = None
    next_attempt: str | None = None
    #: since when it is known that the address will be disabled
    warned: str | None = None
    #: "gone" or "failing"
    disabled: str | None = None
    disabled_since: str | None = None
    reason: str | None = None
    #: whether notifications carry a signature
    signed: bool = False
    #: "granted" or "awaiting", where the sink is asked for it
    consent: str | None = None
    #: events of its topic that came to its server while it was active
    evaluated: int = 0
    matched: int = 0
    #: notifications that its sink took, and those that became dead letters
    delivered: int = 0
    failed: int = 0
    dead_letters: int = 0
    #: bytes that wait for it because it is paused, or because nobody reads its stream
    buffered_bytes: int = 0
    #: notifications that were dropped because its tenant was at a limit of bytes, the limit, and when last
    dropped: int = 0
    dropped_limit: str | None = None
    dropped_last: str | None = None


class Attempt(msgspec.Struct, frozen=True):
    time: str
    webhook_id: str
    #: None when there was no answer
    status: int | None = None
    reason: str | None = None
    seconds: float = 0.0
    #: the beginning of what the sink answered
    answer: str = ""
    notifications: int = 0
    #: "delivered", "again", "dead", "gone" or "example"
    outcome: str = ""
    next_attempt: str | None = None


class DeadLetter(msgspec.Struct, frozen=True):
    """A POST that was given up; `subscriptions` and `body` are there when one is asked for."""

    id: str
    webhook_id: str
    url: str
    died: str
    created: str
    attempts: int = 0
    status: int | None = None
    reason: str = ""
    notifications: int = 0
    subscriptions: list[str] | None = None
    body: dict[str, Any] | None = None


class DeadLetterPage(msgspec.Struct, frozen=True):
    dead_letters: list[DeadLetter]
    #: the cursor of the next page; None after the last
    next: str | None = None


class Queued(msgspec.Struct, frozen=True):
    """What waits to be delivered again."""

    letters: int
    notifications: int
    more: bool = False


class Rotation(msgspec.Struct, frozen=True):
    #: what signs from now on
    secret: str | None
    #: until when the secret before signs, too
    previous_until: str
    subscriptions: int = 0

    def __repr__(self) -> str:
        return f"Rotation(previous_until={self.previous_until!r}, subscriptions={self.subscriptions})"


class JoinedTopic(msgspec.Struct, frozen=True):
    """A topic that a subscription to a subtree has."""

    topic: str
    #: that hosts this part of the subscription
    server: str | None = None


class LeftOutTopic(msgspec.Struct, frozen=True):
    """A topic of the subtree that the filter does not fit."""

    topic: str
    reason: str = ""


class Subscription(msgspec.Struct, frozen=True):
    id: str
    #: or subtree, such as "stocks.**"
    topic: str
    #: the filter as JSON; None is everything
    filter: Any = None
    #: None: a stream
    sink: Sink | None = None
    state: str | None = None
    #: an instant (RFC 3339); None is never
    expires: str | None = None
    owner: str | None = None
    #: the server that hosts it; None of a subtree, whose topics have one each
    server: str | None = None
    created: str | None = None
    #: of a subtree, when one is asked for
    topics: list[JoinedTopic] | None = None
    left_out: list[LeftOutTopic] | None = None
    #: when one is asked for, and its server can say
    delivery: Delivery | None = None
    #: where the subscriber is, in the servers' coordinates
    location: list[float] | None = None


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
    #: it takes no new subscriptions: "draining" or "lost"
    leaving: str | None = None
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
    #: notifications that sinks took, since the server's start
    notified: int | None = None
    #: share of the published events that were forwarded to it
    hit_ratio: float | None = None
    #: notifications waiting to be delivered
    backlog: int | None = None
    #: why it cannot be reached, if so
    failure: str | None = None


class ServerClock(msgspec.Struct, frozen=True):
    id: str
    #: seconds by which its wall clock departs from its network time, where it is suspect
    suspect: float | None = None
    #: of a confirmation: what went wrong
    failure: str | None = None


class Clock(msgspec.Struct, frozen=True):
    """The time by which everything expires, and the wall clock that it follows."""

    time: str
    wall: str
    #: seconds by which the dispatcher's wall clock departs from network time, where it is suspect
    suspect: float | None = None
    #: seconds after which a suspect wall clock is trusted, if it goes on like this
    trusted_in: float | None = None
    #: corrections that were adopted since the start, and their sum in seconds
    adoptions: int = 0
    adopted: float = 0.0
    servers: list[ServerClock] = []

    @property
    def is_suspect(self) -> bool:
        return self.suspect is not None or any(one.suspect is not None for one in self.servers)


class Route(msgspec.Struct, frozen=True):
    """What sends events of a topic to a server."""

    name: str
    server: str
    #: every event goes there
    everything: bool = False
    #: that events are compared with
    rectangles: int = 0
    #: those of the precise summary
    maximal: int = 0
    precision: float | None = None
    bytes: int = 0
    subscriptions: int = 0
    #: of the summary
    revision: list[int] | None = None


class Binding(msgspec.Struct, frozen=True):
    """What is bound to a name of a topic or a subtree."""

    name: str
    #: that may host its subscriptions; None: any
    servers: list[str] | None = None
    #: that topics inherit
    engine: str | None = None
    created: str | None = None
    #: subscriptions that are elsewhere
    misplaced: int = 0


class Routes(msgspec.Struct, frozen=True):
    routes: list[Route]
    bindings: list[Binding]


class Dispatcher(msgspec.Struct, frozen=True):
    #: of its log; None until it has answered the one that was asked
    log: str | None = None
    url: str | None = None
    #: it is the one that was asked
    asked: bool = msgspec.field(name="self", default=False)
    reachable: bool = True
    #: it takes events
    ready: bool = True
    #: of others: it has all that has changed at the one that was asked
    level: bool = True
    #: it carries out changes of topics and subscriptions
    leader: bool = False
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
