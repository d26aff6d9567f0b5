"""Routes of topics: create, change, read, delete; trace events, explain events and filters."""

from __future__ import annotations

import math
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import Field, WithJsonSchema

from dispatcher.api import bodies
from dispatcher.api.bodies import Body, FilterBody, Who
from dispatcher.auth.caller import Need, needs
from dispatcher.auth.quotas import Quotas
from dispatcher.observe.event_trace import EventTrace
from dispatcher.observe.explain import Explainer
from dispatcher.subscriptions.subtree_sync import SubtreeSync
from dispatcher.subscriptions.topics import Topic, Topics
from edn.api import topics as api
from edn.api.document import document
from edn.api.explain import ExplainedEvent, ExplainedFilter, FollowedEvent
from edn.api.fields import fill
from edn.errors import InvalidInput, TooLarge
from edn.http.asgi import StrictRoute
from edn.model.coordinates import rfc3339


class ExplainBody(Body):
    """An event as it would be published, or a filter."""

    event: Annotated[
        Any,
        Field(description="The event, any JSON object."),
        WithJsonSchema({"type": "object", "examples": [{"symbol": "GE", "price": 31.5}]}),
    ] = None
    filter: FilterBody = None


def routes(
    topics: Topics, subtree_sync: SubtreeSync, quotas: Quotas, explainer: Explainer, trace: EventTrace
) -> APIRouter:
    router = APIRouter(prefix="/v1/topics", tags=["topics"], route_class=StrictRoute)

    @router.put(
        "/{name}", response_model=document(api.FullTopic), responses={201: {"model": document(api.FullTopic)}}
    )
    @needs(Need.ADMIN)
    async def put_topic(name: str, body: bodies.TopicBody, response: Response, who: Who) -> Any:
        """Create a topic, or change its schema. Attributes that filters use cannot be removed."""
        availability = math.inf if body.availability == "forever" else body.availability
        topic, new = await subtree_sync.put(
            name,
            body.attributes,
            body.engine,
            availability,
            closed=body.closed,
            tenant=who.tenant,
            room=quotas.room(who),
        )
        if new:
            response.status_code = 201
            response.headers["location"] = f"/v1/topics/{topic.name}"
        return _view(topic)

    @router.get("", response_model=document(api.TopicList))
    @needs(Need.KEY)
    async def list_topics(who: Who) -> Any:
        return api.TopicList([_view(topic) for topic in topics.all(who.tenant)])

    @router.get("/{name}", response_model=document(api.FullTopic))
    @needs(Need.KEY)
    async def get_topic(name: str, who: Who) -> Any:
        return _view(topics.get(name, who.tenant))

    @router.delete("/{name}", status_code=204)
    @needs(Need.ADMIN)
    async def delete_topic(
        name: str,
        who: Who,
        cascade: Annotated[bool, Query(description="delete its subscriptions, too")] = False,
    ) -> None:
        """Delete a topic; refused while it has subscriptions, unless `cascade` deletes them."""
        await subtree_sync.delete(name, cascade=cascade, tenant=who.tenant)

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
                raise InvalidInput("event must be a JSON object", pointer="/event")
            return await explainer.event(topic, body.event)
        if isinstance(body.filter, str) and len(body.filter) > 65_536:
            raise TooLarge(
                f"a filter as text must be at most 65,536 characters, got {len(body.filter):,}",
                pointer="/filter",
            )
        return await explainer.filter(topic, body.filter)

    return router


def _view(topic: Topic) -> api.FullTopic:
    return fill(
        api.FullTopic,
        topic,
        attributes=topic.schema.attributes,
        availability="forever" if math.isinf(topic.availability) else topic.availability,
        created=rfc3339(topic.created),
    )
