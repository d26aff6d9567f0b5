"""The routes that explain: what became of an event, what would become of one, what a filter would hear."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field, WithJsonSchema

from dispatcher.access import Need, Who, needs
from dispatcher.bodies import Body, FilterBody
from dispatcher.explaining import Explainer
from dispatcher.following import Follower
from dispatcher.topics import Topics
from edn.asgi import StrictRoute
from edn.errors import InvalidInput, TooLarge


class ExplainBody(Body):
    """Either an event, as it would be published, or a filter."""

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


def routes(topics: Topics, explainer: Explainer, follower: Follower) -> APIRouter:
    router = APIRouter(prefix="/v1/topics", tags=["topics"], route_class=StrictRoute)

    @router.get("/{name}/events", response_model=FollowedEvent)
    @needs(Need.SUBSCRIBE)
    async def follow(name: str, who: Who, id: Annotated[str, Query(max_length=512)]) -> Any:
        """What became of a recent event: where it was sent, whom it matched, how they were told."""
        return await follower.follow(topics.get(name, who.tenant), id)

    @router.post("/{name}/explain", response_model=ExplainedEvent | ExplainedFilter)
    @needs(Need.SUBSCRIBE)
    async def explain(name: str, body: ExplainBody, who: Who) -> Any:
        """What would become of an event, tier by tier; or what a filter would hear. Nothing is changed."""
        topic = topics.get(name, who.tenant)
        if _asked(body) == "event":
            return await explainer.event(topic, body.event)
        return await explainer.filter(topic, body.filter)

    return router


def _asked(body: ExplainBody) -> Literal["event", "filter"]:
    """Which of the two a request asks about; exactly one is right."""
    given = body.model_fields_set
    if len(given & {"event", "filter"}) != 1:
        raise InvalidInput('either {"event": {…}} or {"filter": …} is explained')
    if "event" in given and not isinstance(body.event, dict):
        raise InvalidInput("an event is an object of attributes", pointer="/event")
    if isinstance(body.filter, str) and len(body.filter) > 65_536:
        raise TooLarge("a filter as text has at most 65,536 characters", pointer="/filter")
    return "event" if "event" in given else "filter"
