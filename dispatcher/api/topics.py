"""Routes of topics: create, change, read, delete."""

from __future__ import annotations

import math
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from dispatcher.api import bodies
from dispatcher.api.bodies import Who
from dispatcher.auth.caller import Need, needs
from dispatcher.auth.quotas import Quotas
from dispatcher.subscriptions.subtree_sync import SubtreeSync
from dispatcher.subscriptions.topics import Topic, Topics
from edn.api import topics as api
from edn.api.document import document
from edn.api.fields import fill
from edn.http.asgi import StrictRoute
from edn.model.coordinates import rfc3339


def routes(topics: Topics, subtree_sync: SubtreeSync, quotas: Quotas) -> APIRouter:
    router = APIRouter(prefix="/v1/topics", tags=["topics"], route_class=StrictRoute)

    @router.put(
        "/{name}", response_model=document(api.FullTopic), responses={201: {"model": document(api.FullTopic)}}
    )
    @needs(Need.ADMIN)
    async def put_topic(name: str, body: bodies.TopicBody, response: Response, who: Who) -> Any:
        """Create a topic, or change its schema. Attributes that filters use cannot be removed."""
        availability = math.inf if body.availability == "forever" else body.availability
        topic, new = await subtree_sync.put(
            name, body.attributes, body.engine, availability, tenant=who.tenant, room=quotas.room(who)
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

    return router


def _view(topic: Topic) -> api.FullTopic:
    return fill(
        api.FullTopic,
        topic,
        attributes=topic.schema.attributes,
        availability="forever" if math.isinf(topic.availability) else topic.availability,
        created=rfc3339(topic.created),
    )
