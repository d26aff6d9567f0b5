"""Request bodies of topics and subscriptions, and parameters that several routes share.

`edn.api` declares the responses.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Depends
from pydantic import BaseModel, ConfigDict, Discriminator, Field, PlainValidator, Tag, WithJsonSchema
from starlette.requests import HTTPConnection

from dispatcher.auth.access import caller_of
from dispatcher.auth.caller import Caller
from dispatcher.subscriptions.requests import Change, NewSubscription
from dispatcher.subscriptions.sinks import Sink
from edn.errors import InvalidSink
from edn.formats import duration
from edn.formats.sink_settings import (
    MAX_PEM,
    ApiKey,
    Basic,
    Bearer,
    Certificate,
    Credentials,
    Exponential,
    OAuth2,
    Retry,
)


def _caller(connection: HTTPConnection) -> Caller:
    return caller_of(connection.scope)


#: the caller of a request, as a parameter of a route
Who = Annotated[Caller, Depends(_caller)]

# Not identifiers: pointers would lose a key of a body that equals a tag.
ONE, MANY = "<one>", "<many>"
#: tags that pydantic adds to locations of errors, and that pointers leave out
UNION_TAGS = frozenset({ONE, MANY})

Name = Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9_.:~@-]+$")]
#: any type: errors of `edn.model.filter` are better than those of a union
FilterBody = Annotated[
    Any,
    Field(description="A filter as an object or as text. Without a filter, every event matches."),
    WithJsonSchema(
        {
            "anyOf": [{"type": "object"}, {"type": "string"}, {"type": "null"}],
            "examples": [{"symbol": "GE", "price": {"gt": 30.0}}, 'symbol == "GE" and price > 30'],
        }
    ),
]
_WATCH: dict[str, Any] = {
    "topic": {"type": "string", "maxLength": 256},
    "filter": {"anyOf": [{"type": "object"}, {"type": "string"}, {"type": "null"}]},
}
#: any type: errors of `edn.model.sequence` are better
SequenceBody = Annotated[
    Any,
    Field(description="Steps of a sequence, in place of a filter: events that follow each other."),
    WithJsonSchema(
        {
            "anyOf": [
                {
                    "type": "array",
                    "minItems": 2,
                    "maxItems": 16,
                    "items": {
                        "type": "object",
                        "properties": {
                            **_WATCH,
                            "times": {"type": "integer", "minimum": 1, "maximum": 100},
                            "unless": {"type": "object", "properties": _WATCH, "additionalProperties": False},
                        },
                        "additionalProperties": False,
                    },
                },
                {"type": "null"},
            ],
            "examples": [
                [{"topic": "logins", "filter": "ok == false", "times": 3}, {"filter": "ok == true"}]
            ],
        }
    ),
]
ByBody = Annotated[
    Any,
    Field(description="Attributes of all topics of a sequence: events with different values never meet."),
    WithJsonSchema({"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}]}),
]
Length = Annotated[
    Any, WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "null"}], "examples": ["PT5M"]})
]
Coordinate = Annotated[float, Field(strict=False, allow_inf_nan=False)]
Location = Annotated[
    list[Coordinate] | None,
    Field(
        description="Location of the subscriber, in the servers' coordinates. A close server is preferred.",
        min_length=1,
        max_length=8,
    ),
]
Recipient = Annotated[
    str | None, Field(description="The person or program behind the sink.", min_length=1, max_length=256)
]
AskConsent = Annotated[
    bool | None, Field(description="Ask the sink for its consent before the first delivery.")
]
SigningKey = Annotated[
    str | None,
    Field(
        description="Signing key: whsec_… (Standard Webhooks). Without it, one is generated and shown once.",
        max_length=128,
    ),
]
Expires = Annotated[
    str | None,
    Field(
        description="A time (RFC 3339) or a duration such as 1h or PT1H. Without it, never.",
        examples=["P30D"],
    ),
]


#: seconds, about a hundred years: in microseconds it does not overflow
LONGEST = 3_200_000_000


def _availability(value: Any) -> float | str:
    if value == "forever":
        return "forever"
    given = duration.seconds(value) if isinstance(value, str) else value
    if isinstance(given, int | float) and not isinstance(given, bool) and 0 <= given <= LONGEST:
        return given
    raise ValueError(f'must be seconds from 0 to {LONGEST}, {duration.EXAMPLES}, or "forever"')


Availability = Annotated[
    Any,
    PlainValidator(_availability),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "minimum": 0, "maximum": LONGEST},
                {"type": "string", "description": "forever, or a duration such as 1h or PT1H"},
            ]
        }
    ),
]


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class TopicBody(Body):
    attributes: dict[str, Any] = Field(
        description=(
            "Name → number, integer, string, boolean, time or bytes, or for an array a list with one of "
            "them. Dots in a name lead into nested objects."
        ),
        examples=[{"symbol": "string", "price": "number", "seller.city": "string", "tags": ["string"]}],
    )
    closed: bool | None = Field(
        None,
        description=(
            "Whether events with other fields than the attributes are refused. By default such fields are "
            "delivered as they were sent; no filter can use them."
        ),
    )
    engine: str | None = Field(None, description="Name or URI of the matcher.", max_length=256)
    advertising: Literal["off", "deliver", "guard"] | None = Field(
        None,
        description="What happens to an event that its publisher has not advertised: it is accepted (`off`), "
        "dropped (`deliver`) or refused (`guard`).",
    )
    availability: Availability | None = Field(
        None,
        description="Default availability of events: seconds, a duration, or forever. 0: not replayed.",
    )


def _seconds(value: Any) -> float:
    given = duration.seconds(value) if isinstance(value, str) else value
    if isinstance(given, int | float) and not isinstance(given, bool):
        return float(given)
    raise ValueError(f"must be seconds or {duration.EXAMPLES}")


Seconds = Annotated[
    Any,
    PlainValidator(_seconds),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number"},
                {"type": "string", "description": "a duration such as 90s, 1h or PT1H"},
            ]
        }
    ),
]


class ExponentialBody(Body):
    first: Seconds = Field(description="First delay.")
    factor: float = Field(2.0, strict=False, description="Each delay is this multiple of the one before.")
    longest: Seconds = Field(description="Longest delay, which repeats.")


class RetryBody(Body):
    """When a failed attempt is repeated. Without a schedule, the server's is used."""

    schedule: list[Seconds] | None = Field(
        None, description="Delays between attempts; the last one repeats.", examples=[["5s", "1m", "1h"]]
    )
    exponential: ExponentialBody | None = None
    give_up: Seconds | None = Field(
        None,
        description="Age at which a notification becomes a dead letter. Required with a schedule.",
        examples=["1d"],
    )
    permanent: list[int] = Field(
        [],
        description="Statuses after which a notification becomes a dead letter at once.",
        max_length=300,
        examples=[[400, 422]],
    )

    def request(self) -> Retry:
        growth = self.exponential
        return Retry(
            schedule=None if self.schedule is None else tuple(self.schedule),
            exponential=None if growth is None else Exponential(growth.first, growth.factor, growth.longest),
            give_up=self.give_up,
            permanent=tuple(self.permanent),
        )


_Secret = Annotated[str | None, Field(max_length=MAX_PEM, repr=False)]
_CREDENTIALS: dict[str, type[Credentials]] = {
    "bearer": Bearer,
    "basic": Basic,
    "api_key": ApiKey,
    "oauth2": OAuth2,
    "certificate": Certificate,
}


class CredentialsBody(Body):
    """Credentials for the sink, by type; they are never shown again.

    `bearer`: token. `basic`: user, password. `api_key`: header, value. `oauth2` (client credentials):
    token_url, client_id, client_secret, scope, audience, authentication. `certificate` (mutual TLS):
    certificate, key. A change of a subscription with the type alone keeps the stored credentials.
    """

    type: Literal["bearer", "basic", "api_key", "oauth2", "certificate"]
    token: _Secret = None
    user: _Secret = None
    password: _Secret = None
    header: _Secret = None
    value: _Secret = None
    token_url: _Secret = None
    client_id: _Secret = None
    client_secret: _Secret = None
    scope: _Secret = None
    audience: _Secret = None
    authentication: Literal["basic", "body"] | None = None
    certificate: _Secret = None
    key: _Secret = None

    def request(self) -> Credentials | None:
        """Return the credentials; None: the stored ones are kept. Raises `InvalidSink`."""
        struct = _CREDENTIALS[self.type]
        given = {name: value for name, value in self if name != "type" and value is not None}
        for name in given:
            if name not in struct.__struct_fields__:
                raise InvalidSink(
                    f"credentials.{name} must not be given with type {self.type}",
                    pointer=f"/sink/credentials/{name}",
                )
        if not given:
            return None
        for name in struct.__struct_fields__[
            : len(struct.__struct_fields__) - len(struct.__struct_defaults__)
        ]:
            if name not in given:
                raise InvalidSink(
                    f"credentials.{name} must be given with type {self.type}",
                    pointer=f"/sink/credentials/{name}",
                )
        return struct(**given)


class SinkBody(Body):
    url: str = Field(description="URL that notifications are sent to.", max_length=2048)
    recipient: Recipient = None
    format: Literal["json", "cloudevents-binary", "cloudevents-structured", "cloudevents-batch"] = Field(
        "json", description="Format of notifications."
    )
    consent: AskConsent = None
    secret: SigningKey = None
    headers: dict[str, str] = Field(
        {},
        description="Static headers of every request. They are stored as they are: secrets belong into "
        "`credentials`. Answers show `***` for values of names such as `x-api-key`; a change that sends it "
        "back keeps the value.",
        examples=[{"x-environment": "production"}],
    )
    credentials: CredentialsBody | None = None
    timeout: Seconds | None = Field(None, description="Timeout of an attempt. Default: the server's.")
    retry: RetryBody | None = None
    rate: float | None = Field(
        None, strict=False, description="Deliveries per second at most, per server.", examples=[10]
    )
    ordered: bool = Field(
        True,
        description="Whether a failing notification holds back later ones. With `false`, each notification "
        "is a request of its own and is retried alone.",
    )

    def request(self) -> Sink:
        given = self.credentials
        credentials = None if given is None else given.request()
        return Sink(
            **{
                **dict(self),
                "credentials": credentials,
                "kept_credentials": given.type if given is not None and credentials is None else "",
                "retry": None if self.retry is None else self.retry.request(),
            }
        )


_SINK = "Destination of notifications. Without a sink, the subscription is a stream (`GET …/events`)."


def _sink(body: SinkBody | None) -> Sink | None:
    return None if body is None else body.request()


class SubscriptionBody(Body):
    topic: str | None = Field(
        None,
        max_length=256,
        description="A topic or a subtree: `stocks.**` is `stocks` and all topics below it, `**` all topics. "
        "With a sequence: the topic of steps that name none.",
    )
    filter: FilterBody = None
    sequence: SequenceBody = None
    by: ByBody = None
    within: Length = Field(None, description="Longest time between the first and the last event.")
    settle: Length = Field(None, description="How long events are put in order; at most one hour.")
    sink: SinkBody | None = Field(None, description=_SINK)
    expires: Expires = None
    id: Name | None = Field(None, description="An id chosen by the client makes the request idempotent.")
    owner: Name | None = None
    since: str | None = Field(
        None,
        alias="from",
        description="Start of the subscription: `now`, a time (RFC 3339), or a duration before now. Default: "
        "all retained events are replayed.",
        max_length=64,
        examples=["PT1H"],
    )
    location: Location = Field(None, examples=[[48.1, 11.6]])
    state: Literal["active", "paused"] = Field(
        "active", description="`paused`: notifications are buffered from the beginning, until it is resumed."
    )

    def request(self) -> NewSubscription:
        given = {name: value for name, value in self if name != "state"}
        return NewSubscription(**{**given, "sink": _sink(self.sink), "is_paused": self.state == "paused"})


class ChangeBody(Body):
    """Replaces filter or sequence, sink and expiry."""

    filter: FilterBody = None
    sequence: SequenceBody = None
    by: ByBody = None
    within: Length = None
    settle: Length = None
    sink: SinkBody | None = Field(None, description=_SINK)
    expires: Expires = None

    def request(self) -> Change:
        return Change(**{**dict(self), "sink": _sink(self.sink)})


class ResumeBody(Body):
    sink: SinkBody | None = Field(None, description="New sink. Without it, the sink stays the same.")


class RenewBody(Body):
    expires: Expires


def _one_or_many(value: Any) -> str:
    return MANY if isinstance(value, list) else ONE


OneOrMany = Annotated[
    Annotated[SubscriptionBody, Tag(ONE)] | Annotated[list[SubscriptionBody], Tag(MANY)],
    Discriminator(_one_or_many),
]


def to_requests(body: SubscriptionBody | list[SubscriptionBody]) -> NewSubscription | list[NewSubscription]:
    if not isinstance(body, list):
        return body.request()
    made = []
    for place, one in enumerate(body):
        try:
            made.append(one.request())
        except InvalidSink as error:
            error.pointer = f"/{place}{error.pointer or ''}"
            raise
    return made
