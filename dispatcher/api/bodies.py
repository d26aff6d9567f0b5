"""Request bodies of topics and subscriptions, and parts of other request bodies, which stand beside their
routes. `edn.api` has the answers.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, PlainValidator, Tag, WithJsonSchema

from dispatcher.subscriptions.requests import Change, NewSubscription
from dispatcher.subscriptions.sinks import Sink

# Not words: a key of a body that is spelt like a tag would lose its place.
ONE, MANY = "<one>", "<many>"
#: what pydantic puts into the places of errors, and no pointer should show
UNION_TAGS = frozenset({ONE, MANY})

Name = Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9_.:~@-]+$")]
#: `edn.model.filter` says what is wrong with one, better than a union of types could
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
        description="Whether the sink is asked for its consent before anything is posted.",
    )
    secret: str | None = Field(
        None,
        description="What notifications are signed with: whsec_… (Standard Webhooks). Without one, one is "
        "made, and shown once.",
        max_length=128,
    )

    def request(self) -> Sink:
        return Sink(**dict(self))


_NO_SINK = "Where notifications go; without one, the subscription is a stream (`GET …/events`)."


def _sink(body: SinkBody | None) -> Sink | None:
    return None if body is None else body.request()


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

    def request(self) -> NewSubscription:
        return NewSubscription(**{**dict(self), "sink": _sink(self.sink)})


class ChangeBody(Body):
    """Replaces filter, sink and expiry."""

    filter: FilterBody = None
    sink: SinkBody | None = Field(None, description=_NO_SINK)
    expires: Expires = None

    def request(self) -> Change:
        return Change(filter=self.filter, sink=_sink(self.sink), expires=self.expires)


class ResumeBody(Body):
    sink: SinkBody | None = Field(None, description="Where it goes on; without one, where it was.")


class RenewBody(Body):
    expires: Expires


def _one_or_many(value: Any) -> str:
    return MANY if isinstance(value, list) else ONE


OneOrMany = Annotated[
    Annotated[SubscriptionBody, Tag(ONE)] | Annotated[list[SubscriptionBody], Tag(MANY)],
    Discriminator(_one_or_many),
]


def requested(body: SubscriptionBody | list[SubscriptionBody]) -> NewSubscription | list[NewSubscription]:
    return [one.request() for one in body] if isinstance(body, list) else body.request()
