"""The routes that explain: what became of an event, what would become of one, what a filter would hear."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from pydantic import Field, WithJsonSchema

from dispatcher.api.bodies import Body, FilterBody
from dispatcher.api.caller import Who
from dispatcher.auth.caller import Need, needs
from dispatcher.observe.event_trace import EventTrace
from dispatcher.observe.explain import Explainer
from dispatcher.subscriptions.topics import Topics
from edn.api.document import document
from edn.api.explain import ExplainedEvent, ExplainedFilter, FollowedEvent
from edn.errors import InvalidInput, TooLarge
from edn.http.asgi import StrictRoute


class ExplainBody(Body):
    """Either an event, as it would be published, or a filter."""

    event: Annotated[
        Any,
        Field(description="An event's attributes."),
        WithJsonSchema({"type": "object", "examples": [{"symbol": "GE", "price": 31.5}]}),
    ] = None
    filter: FilterBody = None


def routes(topics: Topics, explainer: Explainer, trace: EventTrace) -> APIRouter:
    router = APIRouter(prefix="/v1/topics", tags=["topics"], route_class=StrictRoute)

    @router.get("/{name}/events", response_model=document(FollowedEvent))
    @needs(Need.SUBSCRIBE)
    async def follow(name: str, who: Who, id: Annotated[str, Query(max_length=512)]) -> Any:
        """Trace a recent event: servers, matching subscriptions, delivery attempts."""
        return await trace.follow(topics.get(name, who.tenant), id)

    @router.post("/{name}/explain", response_model=document(ExplainedEvent | ExplainedFilter))
    @needs(Need.SUBSCRIBE)
    async def explain(name: str, body: ExplainBody, who: Who) -> Any:
        """Explain how an event would be routed and matched, or what a filter would match. Changes nothing."""
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
