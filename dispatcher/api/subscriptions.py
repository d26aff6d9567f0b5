"""Routes of subscriptions: create, list, change, renew, pause, resume, delete."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body, Query, Response

from dispatcher.advertisements.reach import Reach
from dispatcher.api import bodies, delivery
from dispatcher.api.bodies import Who
from dispatcher.auth.caller import Need, needs
from dispatcher.servers.client import ServerClient
from dispatcher.store import directory
from dispatcher.store.event_log import Log
from dispatcher.subscriptions.expiry import parse_expires
from dispatcher.subscriptions.requests import Change, SubscriptionRequests
from dispatcher.subscriptions.service import Subscriptions
from dispatcher.subscriptions.topics import Topic
from edn.api import subscriptions as api
from edn.api.document import document
from edn.errors import EdnError, InvalidInput
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
    reach: Reach,
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
        """Create one or many subscriptions, all or nothing. They match events accepted after the response."""
        content, response.status_code, headers = await requests.subscribe(bodies.to_requests(body), who)
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
            str | None, Query(max_length=256, description="text in id, owner, sink, recipient or filter")
        ] = None,
        members: Annotated[
            bool, Query(description="list the members of subtree subscriptions: one per topic and server")
        ] = False,
        dead: Annotated[
            bool, Query(description="only those that no advertisement of their topic can match")
        ] = False,
    ) -> Any:
        """List subscriptions in order of creation. The operator sees those of all tenants."""
        wanted = await requests.resolve(topic, who) if topic is not None else None
        tenant = None if who.is_operator else who.tenant
        found, following = await subscriptions.page(
            limit=limit,
            cursor=cursor,
            topic=wanted,
            owner=owner,
            tenant=tenant,
            search=search or None,
            members=members,
            serials=await _dead(tenant, members=members) if dead else None,
        )
        advertised = [False] * len(found) if dead else await reach.advertised(found)
        views = [
            {**requests.view(one, who), "advertised": state}
            for one, state in zip(found, advertised, strict=True)
        ]
        return {"subscriptions": views, "next": following}

    async def _dead(tenant: str | None, *, members: bool) -> list[int]:
        """Return the serials of dead subscriptions; of subtree subscriptions, if all members are dead."""
        visible = subscriptions.topics_in(None, tenant)
        advertised = [one for one in await reach.advertised_topics() if visible is None or one in visible]
        everywhere: list[int] = (await reach.dead_serials(advertised)).tolist()
        if members or not everywhere:
            return everywhere
        # Listed with the topic or subtree that they belong to, like all others.
        return everywhere + await log.reading(directory.parents_of_all, everywhere)

    @router.delete("", response_model=document(api.Ended), response_model_exclude_unset=True)
    @needs(Need.SUBSCRIBE)
    async def unsubscribe_covered(
        who: Who,
        topic: Annotated[str | None, Query(max_length=256)] = None,
        filter: Annotated[
            str | None, Query(max_length=65_536, description="a filter as text or as JSON")
        ] = None,
        owner: Annotated[str | None, Query(max_length=128)] = None,
        sequence: Annotated[
            str | None, Query(max_length=65_536, description="steps of a sequence, as JSON")
        ] = None,
    ) -> Any:
        """Delete all subscriptions of an owner whose filters this filter covers, or whose sequences."""
        if (filter is None) == (sequence is None):
            raise InvalidInput("one of filter and sequence must be given", pointer="/filter")
        if sequence is not None:
            steps = strict_json.decode(sequence.encode())
            first, bound = await requests.bind_sequence(steps, topic, who)
            keys = await subscriptions.delete_covered_sequences(first, owner or who.name, bound)
            return {"ids": [namespace.public_id(key) for key in keys]}
        if topic is None or filter is None:
            raise InvalidInput("topic must be given with a filter", pointer="/topic")
        place = await requests.resolve(topic, who)
        given = strict_json.decode(filter.encode()) if filter.lstrip().startswith("{") else filter
        try:
            parsed = Filter.parse(given)
            if isinstance(place, Topic):
                parsed.bind(place.schema)
        except EdnError as error:
            error.pointer = "/filter" + (error.pointer or "")
            raise
        left: list[str] = []
        ended = await subscriptions.delete_covered(place, owner or who.name, parsed, left)
        found = {"ids": [namespace.public_id(key) for key in ended]}
        return {**found, "sequences": len(left)} if left else found

    @router.get("/{id}", response_model=document(api.Subscription), response_model_exclude_unset=True)
    @needs(Need.SUBSCRIBE)
    async def get_subscription(id: str, who: Who) -> Any:
        """Get a subscription with its delivery state and counters."""
        found = await requests.find(who, id)
        view = await requests.full_view(found, who)
        [view["advertised"]] = await reach.advertised([found])
        state = await delivery.delivery_state(log, calls, found)
        if state is not None and state.sequence is not None:
            view["sequence_state"] = state.sequence
        return {**view, "delivery": state}

    @router.put("/{id}", response_model=document(api.Subscription), response_model_exclude_unset=True)
    @needs(Need.SUBSCRIBE)
    async def change_subscription(id: str, body: bodies.ChangeBody, who: Who) -> Any:
        """Replace filter, sink and expiry in place, without a gap."""
        return await requests.change(id, body.request(), who)

    @router.post("/{id}/renew", response_model=document(api.Subscription), response_model_exclude_unset=True)
    @needs(Need.SUBSCRIBE)
    async def renew_subscription(id: str, body: bodies.RenewBody, who: Who) -> Any:
        """Set a new expiry, or remove it."""
        key = (await requests.find(who, id)).id
        expires = (
            None if body.expires is None else parse_expires(body.expires, log.now(), estimate=log.estimate())
        )
        return requests.view(await subscriptions.renew(key, expires), who)

    @router.post("/{id}/pause", response_model=document(api.Subscription), response_model_exclude_unset=True)
    @needs(Need.SUBSCRIBE)
    async def pause_subscription(id: str, who: Who) -> Any:
        """Stop delivery; notifications are buffered in order."""
        key = (await requests.find(who, id)).id
        return requests.view(await subscriptions.pause(key, True), who)

    @router.post("/{id}/resume", response_model=document(api.Subscription), response_model_exclude_unset=True)
    @needs(Need.SUBSCRIBE)
    async def resume_subscription(id: str, who: Who, body: bodies.ResumeBody | None = None) -> Any:
        """Deliver buffered and new notifications, to a new sink if one is given."""
        found = await requests.find(who, id)
        if body is not None and body.sink is not None:
            expires = None if found.expires is None else rfc3339(found.expires)
            changed = Change(stored=found.filter, sink=body.sink.request(), expires=expires)
            await requests.change(id, changed, who)
        return requests.view(await subscriptions.pause(found.id, False), who)

    @router.delete("/{id}", status_code=204)
    @needs(Need.SUBSCRIBE)
    async def unsubscribe(id: str, who: Who) -> None:
        """Delete a subscription; events accepted after the response are not delivered."""
        await subscriptions.delete((await requests.find(who, id)).id)

    return router
