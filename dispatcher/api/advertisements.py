"""Routes of advertisements: create, list, change, delete, delete by covering, watch; documents of topics."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query, Response
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import Field, WithJsonSchema

from dispatcher.advertisements.documents import Documents
from dispatcher.advertisements.guard import BoundCache
from dispatcher.advertisements.reach import Reach
from dispatcher.advertisements.service import Advertisements, NewAdvertisement
from dispatcher.advertisements.wanted import Wanted
from dispatcher.api.bodies import Body, Expires, Name, Who
from dispatcher.api.streams import RETRY, EventStream, while_valid
from dispatcher.auth.access import Guard
from dispatcher.auth.caller import Caller, Need, needs
from dispatcher.store.advertisement_rows import Advertisement as Row
from dispatcher.subscriptions.topics import Topics
from edn.api import events as api
from edn.api.document import document
from edn.api.subscriptions import Ended
from edn.errors import InvalidInput, NotFound
from edn.formats import strict_json
from edn.http.asgi import StrictRoute
from edn.model import namespace

#: media type of JSON Schema
SCHEMA_JSON = "application/schema+json"

AdvertisementBody = Annotated[
    Any,
    Field(
        description="Attribute → a list of alternatives, each a literal or an object of operators, or `any`. "
        'An attribute that is not named must be missing, unless `"$others": "any"` leaves the others free.'
    ),
    WithJsonSchema(
        {
            "type": "object",
            "examples": [{"what": ["alarm", "login"], "level": [{"gt": 3, "lt": 7}], "username": "any"}],
        }
    ),
]


class NewAdvertisementBody(Body):
    topic: str = Field(max_length=256, description="Name of the topic.")
    advertisement: AdvertisementBody
    publisher: Name | None = Field(
        None, description="Name of the key that publishes: the caller's, or another one with the scope admin."
    )
    expires: Expires = None
    id: Name | None = Field(None, description="An id chosen by the client makes the request idempotent.")


class ChangedAdvertisementBody(Body):
    """Replaces what is advertised, and the expiry."""

    advertisement: AdvertisementBody
    expires: Expires = None


def routes(
    advertisements: Advertisements,
    topics: Topics,
    reach: Reach,
    wanted: Wanted,
    cache: BoundCache,
    guard: Guard,
) -> APIRouter:
    router = APIRouter(prefix="/v1/advertisements", tags=["advertisements"], route_class=StrictRoute)

    async def is_wanted(found: Row) -> bool:
        topic = topics.by_uid(found.topic)
        if topic is None:
            return False
        return await wanted.is_wanted(topic.uid, found.id, cache.get(found, topic.schema).rects())

    async def view(found: Row, who: Caller) -> dict[str, Any]:
        return {**advertisements.view(found, who), "wanted": await is_wanted(found)}

    @router.post(
        "",
        status_code=201,
        response_model=document(api.Advertisement),
        response_model_exclude_unset=True,
        responses={200: {"model": document(api.Advertisement)}},
    )
    @needs(Need.PUBLISH)
    async def advertise(body: NewAdvertisementBody, response: Response, who: Who) -> Any:
        """Declare which events a publisher will send to a topic."""
        found, new = await advertisements.create(NewAdvertisement(**dict(body)), who)
        shown = await view(found, who)
        response.status_code = 201 if new else 200
        response.headers["location"] = f"/v1/advertisements/{shown['id']}"
        return shown

    @router.get("", response_model=document(api.AdvertisementPage), response_model_exclude_unset=True)
    @needs(Need.KEY)
    async def list_advertisements(
        who: Who,
        topic: Annotated[str | None, Query(max_length=256)] = None,
        publisher: Annotated[str | None, Query(max_length=128)] = None,
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
        cursor: Annotated[str | None, Query(max_length=64)] = None,
    ) -> Any:
        """List advertisements in order of creation. The operator sees those of all tenants."""
        found, following = await advertisements.page(
            who, limit=limit, cursor=cursor, topic=topic, publisher=publisher
        )
        await advertisements.refresh()
        return {"advertisements": [await view(one, who) for one in found], "next": following}

    @router.delete("", response_model=document(Ended))
    @needs(Need.PUBLISH)
    async def unadvertise_covered(
        who: Who,
        topic: Annotated[str, Query(max_length=256)],
        advertisement: Annotated[str, Query(max_length=65_536, description="an advertisement as JSON")],
        publisher: Annotated[str | None, Query(max_length=128)] = None,
    ) -> Any:
        """Delete all advertisements of a publisher that this one covers."""
        place = await topics.find(topic, who.tenant)
        if not advertisement.lstrip().startswith("{"):
            raise InvalidInput(
                'advertisement must be a JSON object: attribute → a list of alternatives or "any", got '
                f'"{advertisement[:60]}"; advertisements have no text form',
                pointer="/advertisement",
            )
        given = strict_json.decode(advertisement.encode())
        ended = await advertisements.delete_covered(place, given, publisher, who)
        return {"ids": [namespace.id_of(key) for key in ended]}

    @router.get("/{id}", response_model=document(api.Advertisement), response_model_exclude_unset=True)
    @needs(Need.KEY)
    async def get_advertisement(id: str, who: Who) -> Any:
        """Get an advertisement, and whether anybody listens to what it covers."""
        found = await advertisements.find(who, id)
        # First: a subscription that arrives meanwhile makes it wanted before it is counted.
        count = await reach.overlapping(found.topic, found.id)
        await advertisements.refresh()
        return {**await view(found, who), "subscriptions": count}

    @router.put("/{id}", response_model=document(api.Advertisement), response_model_exclude_unset=True)
    @needs(Need.PUBLISH)
    async def change_advertisement(id: str, body: ChangedAdvertisementBody, who: Who) -> Any:
        """Replace what is advertised, and the expiry."""
        changed = await advertisements.change(id, body.advertisement, body.expires, who)
        return await view(changed, who)

    @router.delete("/{id}", status_code=204)
    @needs(Need.PUBLISH)
    async def unadvertise(id: str, who: Who) -> None:
        """Delete an advertisement; events accepted after the response are checked without it."""
        await advertisements.delete(id, who)

    @router.get(
        "/{id}/wanted",
        response_class=StreamingResponse,
        responses={200: {"description": "server-sent events", "content": {"text/event-stream": {}}}},
    )
    @needs(Need.KEY)
    async def watch_wanted(id: str, who: Who) -> StreamingResponse:
        """Stream whether an advertisement is wanted: now, and whenever that changes."""
        await advertisements.find(who, id)
        resources = contextlib.AsyncExitStack()
        resources.enter_context(guard.quotas.open_stream(who))

        async def ask() -> bool | None:
            try:
                return await is_wanted(await advertisements.find(who, id))
            except NotFound:
                return None  # it has ended

        async def parts() -> AsyncIterator[bytes]:
            yield b"retry: %d\n\n" % RETRY
            watching = wanted.watch(ask)
            async with contextlib.aclosing(watching):
                async for state in watching:
                    yield b"event: wanted\ndata: %b\n\n" % msgspec.json.encode({"wanted": state})

        valid = while_valid(parts(), lambda: guard.is_valid(who))
        return EventStream(valid, resources, {"x-accel-buffering": "no"})

    return router


def document_routes(documents: Documents) -> APIRouter:
    router = APIRouter(tags=["topics"], route_class=StrictRoute)

    @router.get(
        "/v1/topics/{name}/schema",
        response_class=JSONResponse,
        responses={200: {"description": "JSON Schema 2020-12", "content": {SCHEMA_JSON: {}}}},
    )
    @needs(Need.KEY)
    async def get_topic_schema(
        name: str,
        who: Who,
        publisher: Annotated[
            str | None, Query(description="only the advertisements of this publisher", max_length=128)
        ] = None,
    ) -> JSONResponse:
        """Get the JSON Schema of a topic's events, with its advertisements as alternatives."""
        return JSONResponse(await documents.schema(name, publisher, who), media_type=SCHEMA_JSON)

    @router.get(
        "/v1/asyncapi",
        response_class=JSONResponse,
        responses={200: {"description": "AsyncAPI 3.0", "content": {"application/json": {}}}},
    )
    @needs(Need.KEY)
    async def get_asyncapi(who: Who) -> JSONResponse:
        """Get an AsyncAPI document of the topics, advertisements and sinks that the caller may see."""
        return JSONResponse(await documents.asyncapi(who))

    return router
