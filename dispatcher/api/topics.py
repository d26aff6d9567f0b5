"""Routes of topics: create, change, read, delete; trace events, explain events and filters."""

from __future__ import annotations

import math
import re
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Response
from pydantic import Field, WithJsonSchema

from dispatcher.advertisements.service import Advertisements
from dispatcher.api import bodies
from dispatcher.api.bodies import Body, FilterBody, Who
from dispatcher.auth.caller import Caller, Need, needs
from dispatcher.auth.quotas import Quotas
from dispatcher.observe.event_trace import EventTrace
from dispatcher.observe.explain import Explainer
from dispatcher.store.directory import Subscription
from dispatcher.subscriptions.subtree_sync import SubtreeSync
from dispatcher.subscriptions.topics import Topic, Topics
from edn.api import topics as api
from edn.api.document import document
from edn.api.explain import ExplainedEvent, ExplainedFilter, FollowedEvent
from edn.api.fields import fill
from edn.errors import Forbidden, InvalidInput, TooLarge
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
    subscription: str | None = Field(
        None, description="Also say why this subscription matches the event or not.", max_length=256
    )


def routes(
    topics: Topics,
    subtree_sync: SubtreeSync,
    quotas: Quotas,
    explainer: Explainer,
    trace: EventTrace,
    advertisements: Advertisements,
    find: Callable[[Caller, str], Awaitable[Subscription]],
) -> APIRouter:
    """`find` returns a subscription that is visible to a caller, or raises `NotFound`."""
    router = APIRouter(prefix="/v1/topics", tags=["topics"], route_class=StrictRoute)

    @router.put(
        "/{name}", response_model=document(api.Topic), responses={201: {"model": document(api.Topic)}}
    )
    @needs(Need.ADMIN)
    async def put_topic(
        name: str,
        body: bodies.TopicBody,
        response: Response,
        who: Who,
        if_none_match: Annotated[
            str | None, Header(description="`*`: only create the topic, do not change it.", max_length=64)
        ] = None,
        if_match: Annotated[
            str | None, Header(description='Only change this revision, such as `"3"`.', max_length=64)
        ] = None,
    ) -> Any:
        """Create a topic, or change its schema. Attributes that filters use cannot be removed."""
        availability = math.inf if body.availability == "forever" else body.availability
        before = topics.attributes(name, who.tenant)
        topic, new = await subtree_sync.put(
            name,
            body.attributes,
            body.engine,
            availability,
            closed=body.closed,
            advertising=body.advertising,
            tenant=who.tenant,
            room=quotas.room(who),
            expected=_expected(if_none_match, if_match),
        )
        response.headers["etag"] = f'"{topic.revision}"'
        if new:
            response.status_code = 201
            response.headers["location"] = f"/v1/topics/{topic.name}"
            return _view(topic)
        narrowed = None
        if set(topic.schema.types) - before:
            narrowed = await advertisements.count_narrowed(topic)
        return _view(topic, narrowed=narrowed)

    @router.get("", response_model=document(api.TopicList))
    @needs(Need.KEY)
    async def list_topics(
        who: Who,
        tenant: Annotated[
            str | None, Query(description="Of this tenant; `*` of all. For operators.", max_length=64)
        ] = None,
    ) -> Any:
        if tenant is None or (not who.is_operator and tenant == who.tenant):
            return api.TopicList([_view(topic) for topic in topics.all(who.tenant)])
        if not who.is_operator:
            raise Forbidden("tenant must be that of the key; an operator's key sees all", pointer="/tenant")
        found = topics.all(None if tenant == "*" else tenant)
        return api.TopicList([_view(topic, name=topic.path) for topic in found])

    @router.get("/{name}", response_model=document(api.Topic))
    @needs(Need.KEY)
    async def get_topic(name: str, response: Response, who: Who) -> Any:
        topic = await topics.find(name, who.tenant)
        response.headers["etag"] = f'"{topic.revision}"'
        return _view(topic)

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
        return await trace.follow(await topics.find(name, who.tenant), id)

    @router.post(
        "/{name}/explain",
        response_model=document(ExplainedEvent | ExplainedFilter),
        response_model_exclude_unset=True,
    )
    @needs(Need.SUBSCRIBE)
    async def explain(name: str, body: ExplainBody, who: Who) -> Any:
        """Explain how an event would be routed and matched, or what a filter would match. Changes nothing."""
        topic = await topics.find(name, who.tenant)
        if len(body.model_fields_set & {"event", "filter"}) != 1:
            raise InvalidInput('the body must be either {"event": {…}} or {"filter": …}')
        if "event" in body.model_fields_set:
            if not isinstance(body.event, dict):
                raise InvalidInput("event must be a JSON object", pointer="/event")
            asked = None if body.subscription is None else await find(who, body.subscription)
            return await explainer.event(topic, body.event, asked)
        if body.subscription is not None:
            raise InvalidInput("subscription requires an event", pointer="/subscription")
        if isinstance(body.filter, str) and len(body.filter) > 65_536:
            raise TooLarge(
                f"a filter as text must be at most 65,536 characters, got {len(body.filter):,}",
                pointer="/filter",
            )
        return await explainer.filter(topic, body.filter)

    return router


def _expected(if_none_match: str | None, if_match: str | None) -> int | None:
    """Returns the revision that a topic must have, 0 if it must not exist, None if any will do."""
    if if_none_match is not None:
        if if_none_match.strip() != "*":
            raise InvalidInput(f"If-None-Match must be *, got {if_none_match[:60]}")
        return 0
    if if_match is None:
        return None
    found = re.fullmatch(r'"(\d{1,15})"', if_match.strip(), re.ASCII)
    if found is None:
        raise InvalidInput(f'If-Match must be the revision of the topic, such as "3", got {if_match[:60]}')
    return int(found[1])


def _view(topic: Topic, name: str | None = None, narrowed: int | None = None) -> api.Topic:
    return fill(
        api.Topic,
        topic,
        name=name or topic.name,
        attributes=topic.schema.attributes,
        availability="forever" if math.isinf(topic.availability) else topic.availability,
        created=rfc3339(topic.created),
        narrowed_advertisements=narrowed,
    )
