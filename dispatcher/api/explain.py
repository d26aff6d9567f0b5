"""Routes that trace published events and explain the routing and matching of events and filters."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import Field, WithJsonSchema

from dispatcher.api.bodies import Body, FilterBody, Who
from dispatcher.auth.caller import Need, needs
from dispatcher.observe.event_trace import EventTrace
from dispatcher.observe.explain import Explainer
from dispatcher.subscriptions.topics import Topics
from edn.api.document import document
from edn.api.explain import ExplainedEvent, ExplainedFilter, FollowedEvent
from edn.errors import InvalidInput, TooLarge
from edn.http.asgi import StrictRoute


class ExplainBody(Body):
    """An event as it would be published, or a filter."""

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
        if len(body.model_fields_set) != 1:
            raise InvalidInput('the body must be either {"event": {…}} or {"filter": …}')
        if "event" in body.model_fields_set:
            if not isinstance(body.event, dict):
                raise InvalidInput("event must be an object of attributes", pointer="/event")
            return await explainer.event(topic, body.event)
        if isinstance(body.filter, str) and len(body.filter) > 65_536:
            raise TooLarge(
                f"a filter as text must be at most 65,536 characters, got {len(body.filter):,}",
                pointer="/filter",
            )
        return await explainer.filter(topic, body.filter)

    return router
