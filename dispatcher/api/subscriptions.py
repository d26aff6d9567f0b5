"""The routes of subscriptions: made, listed, changed, paused, ended. What they are told is `streams`',
how it reaches them `delivery`'s.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body, Query, Response

from dispatcher.api import bodies, delivery
from dispatcher.api.caller import Who
from dispatcher.auth.caller import Need, needs
from dispatcher.servers.client import ServerClient
from dispatcher.store.event_log import Log
from dispatcher.subscriptions.bulk_unsubscribe import Covering
from dispatcher.subscriptions.expiry import parse_expires
from dispatcher.subscriptions.requests import Change, SubscriptionRequests
from dispatcher.subscriptions.service import Subscriptions
from dispatcher.subscriptions.topics import Topic
from edn.api import subscriptions as api
from edn.api.document import document
from edn.errors import EdnError
from edn.formats import strict_json
from edn.http.asgi import StrictRoute
from edn.model import namespace
from edn.model.coordinates import rfc3339
from edn.model.filter import Filter


def routes(
    log: Log,
    calls: ServerClient,
    requests: SubscriptionRequests,
    subscriptions: Subscriptions,
    covering: Covering,
) -> APIRouter:
    router = APIRouter(prefix="/v1/subscriptions", tags=["subscriptions"], route_class=StrictRoute)

    @router.post(
        "",
        status_code=201,
        response_model=document(api.Subscription | api.SubscriptionList),
        response_model_exclude_unset=True,
        responses={200: {"model": document(api.Subscription | api.SubscriptionList)}},
    )
    @needs(Need.SUBSCRIBE)
    async def subscribe(body: Annotated[bodies.OneOrMany, Body()], response: Response, who: Who) -> Any:
        """Subscribe one or many, all or nothing. Events that are accepted after the answer are not missed."""
        content, response.status_code, headers = await requests.subscribe(bodies.requested(body), who)
        response.headers.update(headers)
        return content

    @router.get("", response_model=document(api.SubscriptionPage), response_model_exclude_unset=True)
    @needs(Need.SUBSCRIBE)
    async def list_subscriptions(
        who: Who,
        topic: Annotated[str | None, Query(max_length=256)] = None,
        owner: Annotated[str | None, Query(max_length=128)] = None,
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
        cursor: Annotated[str | None, Query(max_length=64)] = None,
        search: Annotated[
            str | None, Query(max_length=256, description="in id, owner, address, recipient or filter")
        ] = None,
        members: Annotated[
            bool, Query(description="of those to subtrees the members: a topic and a server each")
        ] = False,
    ) -> Any:
        """In the order of creation; `next` is the cursor of the following page. The operator sees all."""
        wanted = requests.place(topic, who) if topic is not None else None
        tenant = None if who.operates else who.tenant
        found, following = await subscriptions.page(
            limit=limit,
            cursor=cursor,
            topic=wanted,
            owner=owner,
            tenant=tenant,
            search=search or None,
            members=members,
        )
        return {"subscriptions": [requests.view(one, who) for one in found], "next": following}

    @router.delete("", response_model=document(api.Ended))
    @needs(Need.SUBSCRIBE)
    async def unsubscribe_covered(
        who: Who,
        topic: Annotated[str, Query(max_length=256)],
        filter: Annotated[str, Query(max_length=65_536, description="as text, or as JSON")],
        owner: Annotated[str | None, Query(max_length=128)] = None,
    ) -> Any:
        """Cancel all of an owner's subscriptions whose filter this one covers; none covered, no effect."""
        place = requests.place(topic, who)
        given = strict_json.decode(filter.encode()) if filter.lstrip().startswith("{") else filter
        try:
            parsed = Filter.parse(given)
            if isinstance(place, Topic):
                parsed.bind(place.schema)
        except EdnError as error:
            error.pointer = "/filter" + (error.pointer or "")
            raise
        ended = await covering.unsubscribe(place, owner or who.name, parsed)
        return {"ids": [namespace.public_id(key) for key in ended]}

    @router.get("/{id}", response_model=document(api.Subscription), response_model_exclude_unset=True)
    @needs(Need.SUBSCRIBE)
    async def get_subscription(id: str, who: Who) -> Any:
        """One subscription, with the state of its delivery and its counters."""
        found = await requests.find(who, id)
        view = await requests.whole_view(found, who)
        return {**view, "delivery": await delivery.glance(log, calls, found)}

    @router.put("/{id}", response_model=document(api.Subscription), response_model_exclude_unset=True)
    @needs(Need.SUBSCRIBE)
    async def change_subscription(id: str, body: bodies.ChangeBody, who: Who) -> Any:
        """Replace filter, sink and expiry in place, without a gap."""
        return await requests.change(id, body.request(), who)

    @router.post("/{id}/renew", response_model=document(api.Subscription), response_model_exclude_unset=True)
    @needs(Need.SUBSCRIBE)
    async def renew_subscription(id: str, body: bodies.RenewBody, who: Who) -> Any:
        """Set a new expiry, or none."""
        key = (await requests.find(who, id)).id
        expires = (
            None if body.expires is None else parse_expires(body.expires, log.now(), estimate=log.estimate())
        )
        return requests.view(await subscriptions.renew(key, expires), who)

    @router.post("/{id}/pause", response_model=document(api.Subscription), response_model_exclude_unset=True)
    @needs(Need.SUBSCRIBE)
    async def pause_subscription(id: str, who: Who) -> Any:
        """Keep notifications, in order, instead of sending them."""
        key = (await requests.find(who, id)).id
        return requests.view(await subscriptions.pause(key, True), who)

    @router.post("/{id}/resume", response_model=document(api.Subscription), response_model_exclude_unset=True)
    @needs(Need.SUBSCRIBE)
    async def resume_subscription(id: str, who: Who, body: bodies.ResumeBody | None = None) -> Any:
        """Send what was kept and go on, at another sink if one is given."""
        found = await requests.find(who, id)
        if body is not None and body.sink is not None:
            expires = None if found.expires is None else rfc3339(found.expires)
            changed = Change(filter=found.filter, sink=body.sink.request(), expires=expires)
            await requests.change(id, changed, who)
        return requests.view(await subscriptions.pause(found.id, False), who)

    @router.delete("/{id}", status_code=204)
    @needs(Need.SUBSCRIBE)
    async def unsubscribe(id: str, who: Who) -> None:
        """Events that are accepted after the answer are not notified."""
        await subscriptions.delete((await requests.find(who, id)).id)

    return router
