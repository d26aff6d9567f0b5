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
from edn.formats import duration


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
            "Name → number, integer, string, boolean or time, or for an array a list with one of them. "
            "Dots in a name lead into nested objects."
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
    availability: Availability | None = Field(
        None,
        description="Default availability of events: seconds, a duration, or forever. 0: not replayed.",
    )


class SinkBody(Body):
    url: str = Field(description="URL that notifications are sent to.", max_length=2048)
    recipient: Recipient = None
    format: Literal["json", "cloudevents-binary", "cloudevents-structured", "cloudevents-batch"] = Field(
        "json", description="Format of notifications."
    )
    consent: AskConsent = None
    secret: SigningKey = None

    def request(self) -> Sink:
        return Sink(**dict(self))


_SINK = "Destination of notifications. Without a sink, the subscription is a stream (`GET …/events`)."


def _sink(body: SinkBody | None) -> Sink | None:
    return None if body is None else body.request()


class SubscriptionBody(Body):
    topic: str = Field(
        max_length=256,
        description="A topic or a subtree: `stocks.**` is `stocks` and all topics below it, `**` all topics.",
    )
    filter: FilterBody = None
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

    def request(self) -> NewSubscription:
        return NewSubscription(**{**dict(self), "sink": _sink(self.sink)})


class ChangeBody(Body):
    """Replaces filter, sink and expiry."""

    filter: FilterBody = None
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
    return [one.request() for one in body] if isinstance(body, list) else body.request()
