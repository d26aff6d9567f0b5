"""Bodies of the control plane, for pydantic and the OpenAPI document: what is asked, then what is answered.

They make one document, and so one module; other doors have theirs beside them (`keys_door`, `moving_door`).
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, PlainValidator, Tag, WithJsonSchema

from edn.evidence import Delivery

# Not words: a key of a body that is spelt like a tag would lose its place.
ONE, MANY = "<one>", "<many>"
#: what pydantic puts into the places of errors, and no pointer should show
UNION_TAGS = frozenset({ONE, MANY})

Name = Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9_.:~@-]+$")]
#: `edn.filter` says what is wrong with one, better than a union of types could
FilterBody = Annotated[
    Any,
    Field(description="A filter as an object or as text; without one, everything matches."),
    WithJsonSchema(
        {
            "anyOf": [{"type": "object"}, {"type": "string"}, {"type": "null"}],
            "examples": [{"symbol": "GE", "price": {"gt": 30.0}}, 'symbol == "GE" and price > 30'],
        }
    ),
]
Coordinate = Annotated[float, Field(strict=False, allow_inf_nan=False)]
Expires = Annotated[
    str | None,
    Field(
        description="An instant (RFC 3339) or a duration such as PT1H; without one, never.", examples=["P30D"]
    ),
]


#: seconds; a hundred years is as good as for ever, and no number of microseconds overflows
LONGEST = 3_200_000_000


def _availability(value: Any) -> float | str:
    if value == "forever":
        return "forever"
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= LONGEST:
        return value
    raise ValueError(f'0, a number of seconds up to {LONGEST}, or "forever"')


Availability = Annotated[
    Any,
    PlainValidator(_availability),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "minimum": 0, "maximum": LONGEST},
                {"type": "string", "const": "forever"},
            ]
        }
    ),
]


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class TopicBody(Body):
    attributes: dict[str, Any] = Field(
        description="Name → number, integer, string, boolean or time.",
        examples=[{"symbol": "string", "price": "number"}],
    )
    engine: str | None = Field(None, description="Name or URI of the matcher.", max_length=256)
    availability: Availability | None = Field(
        None,
        description="How long events stay available to later subscribers, if they do not say: 0, seconds, or "
        "forever.",
    )


class SinkBody(Body):
    url: str = Field(description="Where notifications are posted.", max_length=2048)
    recipient: str | None = Field(
        None, description="Whom they are for, in the sink's own terms.", min_length=1, max_length=256
    )
    format: Literal["json", "cloudevents-binary", "cloudevents-structured", "cloudevents-batch"] = Field(
        "json", description="What is posted: notifications as they are here, or CloudEvents."
    )
    consent: bool | None = Field(
        None,
        description="Of CloudEvents: whether the sink is asked for its consent before anything is posted.",
    )
    secret: str | None = Field(
        None,
        description="What notifications are signed with: whsec_… (Standard Webhooks). Without one, one is "
        "made, and shown once.",
        max_length=128,
    )


_NO_SINK = "Where notifications go; without one, the subscription is a stream (`GET …/events`)."


class SubscriptionBody(Body):
    topic: str = Field(
        max_length=256,
        description="A topic, or a subtree: `stocks.**` is `stocks` and all topics below it, `**` all.",
    )
    filter: FilterBody = None
    sink: SinkBody | None = Field(None, description=_NO_SINK)
    expires: Expires = None
    id: Name | None = Field(None, description="The client's own id makes subscribing idempotent.")
    owner: Name | None = None
    since: str | None = Field(
        None,
        alias="from",
        description="Where it begins: `now`, an instant (RFC 3339), or a duration, that long ago; else "
        "with all that is still available.",
        max_length=64,
        examples=["PT1H"],
    )
    location: list[Coordinate] | None = Field(
        None,
        description="Where the subscriber is, in the servers' coordinates: a server near by is preferred.",
        min_length=1,
        max_length=8,
        examples=[[48.1, 11.6]],
    )


class ChangeBody(Body):
    """Replaces filter, sink and expiry."""

    filter: FilterBody = None
    sink: SinkBody | None = Field(None, description=_NO_SINK)
    expires: Expires = None


class ResumeBody(Body):
    sink: SinkBody | None = Field(None, description="Where it goes on; without one, where it was.")


class RenewBody(Body):
    expires: Expires


class RecoverBody(Body):
    since: str = Field(
        description="An instant (RFC 3339): what was given up then or later.",
        max_length=64,
        examples=["2030-01-31T09:00:00Z"],
    )


class RotateBody(Body):
    secret: str | None = Field(None, description="The new one; without one, one is made.", max_length=128)
    grace: str = Field(
        "P1D", description="How long the secret before signs, too: a duration, or an instant.", max_length=64
    )


class TuningBody(Body):
    mode: str = Field("fixed", max_length=64, description="fixed, paper or model.")
    precision: float | None = Field(
        None, ge=0, le=1, strict=False, description="To hold, or to begin with; without one, the present one."
    )


class LinkBody(Body):
    bytes_per_second: float | None = Field(
        None,
        ge=1000,
        le=1e15,
        strict=False,
        description="May leave for all servers together; null: no limit.",
    )
    lag_limit: int | None = Field(
        None,
        ge=1,
        le=1 << 53,
        description="Publishers wait while a server is so many records behind; null: the log grows instead.",
    )


def _one_or_many(value: Any) -> str:
    return MANY if isinstance(value, list) else ONE


OneOrMany = Annotated[
    Annotated[SubscriptionBody, Tag(ONE)] | Annotated[list[SubscriptionBody], Tag(MANY)],
    Discriminator(_one_or_many),
]


class Topic(BaseModel):
    name: str
    attributes: dict[str, str]
    engine: str
    #: seconds, or forever
    availability: float | Literal["forever"]
    revision: int
    created: str


class TopicList(BaseModel):
    topics: list[Topic]


class Sink(BaseModel):
    url: str
    recipient: str | None
    #: of CloudEvents; else it is what this interface has
    format: str | None = None
    #: true where the sink is asked for its consent
    consent: bool | None = None
    #: only in the answer to the request that had it made
    secret: str | None = None


class JoinedTopic(BaseModel):
    topic: str
    #: the server that hosts this part of the subscription
    server: str


class LeftOutTopic(BaseModel):
    topic: str
    reason: str


class Subscription(BaseModel):
    id: str
    #: or subtree
    topic: str
    filter: dict[str, Any] | None
    #: null: it is a stream
    sink: Sink | None
    state: str
    expires: str | None
    owner: str
    #: the server that hosts it; null of a subtree, whose topics have one each
    server: str | None
    created: str
    location: list[float] | None
    #: of a subtree, when one is asked for: the topics that it has, and those that its filter does not fit
    topics: list[JoinedTopic] | None = None
    left_out: list[LeftOutTopic] | None = None
    #: when one is asked for; null while its server cannot be reached
    delivery: Delivery | None = None


class Rotation(BaseModel):
    #: the one that was made; null when it was given
    secret: str | None
    #: until when the secret before signs, too
    previous_until: str
    #: how many have this address, and its secret
    subscriptions: int


class SubscriptionList(BaseModel):
    subscriptions: list[Subscription]


class Ended(BaseModel):
    ids: list[str]


class SubscriptionPage(SubscriptionList):
    next: str | None


class Server(BaseModel):
    id: str
    url: str
    state: Literal["ready", "joining", "away"]
    #: it takes no new subscriptions: it is being emptied, or will not come back
    leaving: Literal["draining", "lost"] | None
    subscriptions: int
    backlog: int
    cpu: float
    cursor: int | None
    lag: int | None
    forwarded: int
    useful: int
    matched: int
    #: notifications that sinks took, since the server's start
    notified: int
    failure: str | None
    last_seen_seconds: float | None
    #: share of the published events that its summary contained
    hit_ratio: float | None
    precision: float


class Dispatcher(BaseModel):
    #: of its log; unknown until it has answered
    log: str | None
    url: str | None
    #: the one that was asked
    self: bool
    reachable: bool
    #: it takes events
    ready: bool
    #: of others: it has all that has changed here
    level: bool
    #: it carries out changes of topics and subscriptions
    leader: bool
    #: why it was not reached
    failure: str | None


class DispatcherList(BaseModel):
    dispatchers: list[Dispatcher]


class ServerList(BaseModel):
    servers: list[Server]
    published: int
    #: forwarded ÷ (published × servers)
    hit_ratio: float | None


class Reading(BaseModel):
    cpu: float
    throughput: float
    saturated: bool


class OperatingPoint(BaseModel):
    """One precision: what was measured, and the events a second that each part carries; null: no bound."""

    precision: float
    #: T_d, seconds an event and server
    routing: float
    #: R
    hit_ratio: float
    #: TP_IL, TP_D, TP_OL, TP_S and the least of them
    incoming: float | None
    dispatcher: float | None
    outgoing: float | None
    servers: float | None
    throughput: float | None
    bottleneck: Literal["TP_IL", "TP_D", "TP_OL", "TP_S"]


class Parameters(BaseModel):
    """What does not depend on the precision; seconds and bytes, null: no limit."""

    #: N_s
    servers: int
    #: T_f
    fixed: float
    #: T_c
    per_copy: float
    #: S_m
    message_bytes: float
    #: B
    bandwidth: float | None
    #: T_s · F
    serving: float
    #: max(T_p, T_l)
    arrival: float
    #: the part of one core that the dispatcher gets while it wants one
    core: float


class Tuning(BaseModel):
    mode: str
    precision: float
    history: list[dict[str, Any]]
    interval_seconds: float
    reading: Reading | None
    parameters: Parameters | None
    curve: list[OperatingPoint]


class Link(BaseModel):
    bytes_per_second: float | None
    lag_limit: int | None
    sent_bytes: int
    #: events that were sent, counted once a server
    copies: int
    #: publishers that had to wait
    held: int


class ExplainBody(BaseModel):
    """Either an event, as it would be published, or a filter."""

    model_config = ConfigDict(extra="forbid", strict=True)

    event: Annotated[
        Any,
        Field(description="An event's attributes."),
        WithJsonSchema({"type": "object", "examples": [{"symbol": "GE", "price": 31.5}]}),
    ] = None
    filter: FilterBody = None


class ExplainedSubscription(BaseModel):
    """A subscription whose rectangles contain the event."""

    id: str
    #: if not, its rectangle was only a cover
    matches: bool
    #: what decided that, as text
    clauses: list[str]
    paused: bool
    recipient: str | None
    filter: Any


class ExplainedServer(BaseModel):
    server: str
    state: Literal["ready", "joining", "away"]
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


class ExplainedEvent(BaseModel):
    topic: str
    event: dict[str, Any]
    precision: float | None
    matched: int
    false_positives: list[str]
    servers: list[ExplainedServer]


class MetServer(BaseModel):
    server: str
    #: it gets every event
    everything: bool
    #: rectangles in use for it that the filter's meet, and all of them
    meeting: int
    rectangles: int


class RecentMatches(BaseModel):
    events: int
    matched: int
    share: float | None
    since: str | None


class ExplainedFilter(BaseModel):
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


class FollowedAttempt(BaseModel):
    time: str
    webhook_id: str
    status: int | None
    reason: str | None
    seconds: float
    outcome: Literal["delivered", "again", "dead", "gone", "example"]


class FollowedMatch(BaseModel):
    #: empty if it has ended since
    subscription: str
    #: the oldest first
    attempts: list[FollowedAttempt]


class FollowedServer(BaseModel):
    server: str
    #: when it had applied the event; null if it has not, or does not know any more
    taken: str | None
    matches: list[FollowedMatch]
    failure: str | None


class FollowedEvent(BaseModel):
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


class Stop(BaseModel):
    at: float
    label: str


class Axis(BaseModel):
    attribute: str
    type: str
    #: of the coordinates of what is shown; null if there is none
    range: list[float] | None
    #: of strings and booleans: the places that are named, in order
    stops: list[Stop] | None


class ProjectedServer(BaseModel):
    server: str
    #: it gets every event
    everything: bool
    #: that route to it, and those of its precise summary
    rectangles: int
    maximal: int
    #: x from, x to, y from, y to of the 300 largest distinct ones; null is unbounded
    shadows: list[list[float | None]]


class ProjectedEvent(BaseModel):
    x: float
    y: float
    #: the servers that it is sent to
    to: list[str]


class Projection(BaseModel):
    """Times are microseconds since 1970; strings lie by their first six bytes."""

    topic: str
    x: Axis
    y: Axis
    #: that is shown, and that is in force
    precision: float | None
    in_force: float | None
    servers: list[ProjectedServer]
    events: list[ProjectedEvent]
    #: recent events that were asked about, and how many servers one of them goes to at each precision
    sampled: int
    copies: float | None
    copies_in_force: float | None


class Problem(BaseModel):
    """RFC 9457."""

    type: str
    title: str
    status: int
    detail: str
    errors: list[dict[str, Any]] | None = None
    index: int | None = None
    column: int | None = None
