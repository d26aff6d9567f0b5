"""Routes of sources and their dead letters. Administrators manage those of their tenant."""

from __future__ import annotations

import base64
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import Field

from dispatcher.api.bodies import Body, Name, Who
from dispatcher.auth.caller import Need, needs
from dispatcher.sources.service import Described, Sources
from dispatcher.store.sources import Letter
from edn.api import sources as api
from edn.api.document import document
from edn.errors import Forbidden
from edn.http.asgi import StrictRoute
from edn.model import namespace
from edn.model.coordinates import rfc3339


class SourceBody(Body):
    topic: str = Field(description="Topic whose events the messages become.", max_length=256)
    url: str = Field(
        description=(
            "amqp://host/vhost?queue=NAME, mqtt://host/filter or nats://host/STREAM; amqps, mqtts and tls "
            "over TLS. Only this request contains the password."
        ),
        max_length=2048,
        examples=["amqps://edn:password@rabbit.example.org/orders?queue=events"],
    )
    id: Name | None = Field(None, description="An id chosen by the client makes the request idempotent.")


def routes(sources: Sources) -> APIRouter:
    router = APIRouter(prefix="/v1/sources", tags=["sources"], route_class=StrictRoute)

    @router.post(
        "",
        status_code=201,
        response_model=document(api.Source),
        responses={200: {"model": document(api.Source)}},
    )
    @needs(Need.ADMIN)
    async def create_source(body: SourceBody, who: Who, response: Response) -> Any:
        """Create a source: messages of a broker become events of a topic. It connects after the response."""
        found, is_new = await sources.create(who, id=body.id, topic=body.topic, url=body.url)
        view = _view(found)
        response.status_code = 201 if is_new else 200
        response.headers["location"] = f"/v1/sources/{view.id}"
        return view

    @router.get("", response_model=document(api.SourceList))
    @needs(Need.ADMIN)
    async def list_sources(
        who: Who,
        tenant: Annotated[
            str | None, Query(description="Of this tenant; `*` of all. For operators.", max_length=64)
        ] = None,
    ) -> Any:
        """List sources with their state and counters."""
        if tenant is None or (not who.is_operator and tenant == who.tenant):
            return api.SourceList([_view(one) for one in await sources.all(who.tenant)])
        if not who.is_operator:
            raise Forbidden("tenant must be that of the key; an operator's key sees all", pointer="/tenant")
        found = await sources.all(None if tenant == "*" else tenant)
        return api.SourceList([_view(one, id=one.source.id) for one in found])

    @router.get("/{id}", response_model=document(api.Source))
    @needs(Need.ADMIN)
    async def get_source(id: str, who: Who) -> Any:
        return _view(await sources.get(who, id))

    @router.delete("/{id}", status_code=204)
    @needs(Need.ADMIN)
    async def delete_source(id: str, who: Who) -> None:
        """Delete a source, its dead letters, and its session or consumer at the broker."""
        await sources.delete(who, id)

    @router.get("/{id}/dead-letters", response_model=document(api.SourceLetters))
    @needs(Need.ADMIN)
    async def list_source_letters(
        id: str,
        who: Who,
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
        before: Annotated[
            int | None, Query(ge=1, lt=1 << 63, description="only letters with smaller ids")
        ] = None,
    ) -> Any:
        """List messages that were not accepted as events, the newest first."""
        return api.SourceLetters([_letter(one) for one in await sources.letters(who, id, limit, before)])

    @router.delete("/{id}/dead-letters", response_model=document(api.SourceLettersDeleted))
    @needs(Need.ADMIN)
    async def delete_source_letters(id: str, who: Who) -> Any:
        """Delete the dead letters of a source."""
        return api.SourceLettersDeleted(await sources.delete_letters(who, id))

    return router


def _view(found: Described, id: str | None = None) -> api.Source:
    source, runner = found.source, found.runner
    view = api.Source(
        id=id or namespace.public_id(source.id),
        topic=source.topic,
        url=source.shown,
        state="elsewhere",
        consumer=source.consumer,
        owner=source.owner,
        created=rfc3339(source.created),
        dead_letters=found.letters,
    )
    if runner is None:
        return view
    counters = runner.counters
    return api.Source(
        **{field: getattr(view, field) for field in ("id", "topic", "url", "consumer", "owner", "created")},
        state=runner.state,
        received=counters.received,
        published=counters.published,
        rejected=counters.rejected,
        dropped=counters.dropped,
        dead_letters=found.letters,
        dead_letters_dropped=counters.letters_dropped,
        connections=counters.connections,
        last_message=None if runner.last_message is None else rfc3339(runner.last_message),
        last_error=runner.error,
        last_error_time=None if runner.error_time is None else rfc3339(runner.error_time),
    )


def _letter(letter: Letter) -> api.SourceLetter:
    return api.SourceLetter(
        id=letter.id,
        time=rfc3339(letter.time),
        reason=letter.reason,
        message_id=letter.message,
        size=letter.size,
        body=letter.body.decode("utf-8", "replace"),
        body_base64=base64.b64encode(letter.body).decode(),
    )
