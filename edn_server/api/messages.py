"""Routes that the dispatcher calls often: plain ASGI, a msgpack message in (or none), a msgpack message out.

One table describes them for the router and for the OpenAPI document at /docs; the types of the messages are
those of the handlers' annotations.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, get_type_hints

import msgspec
import structlog
from fastapi import FastAPI
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from edn import protocol
from edn.errors import EdnError
from edn.http.asgi import PROBLEM, problem_response, read_body
from edn_server.api.refusals import Refusals
from edn_server.handover.exchange import Handover
from edn_server.ingest.intake import Intake
from edn_server.observe.event_trace import EventTraces
from edn_server.observe.server_status import ServerStatus
from edn_server.sinks.consent import Consents
from edn_server.subscriptions.view import RegistryView

logger = structlog.get_logger()

PROBLEM_BODY: dict[str, Any] = {"content": {PROBLEM: {"schema": {"type": "object"}}}}
UNAUTHORIZED: dict[int | str, dict[str, Any]] = {
    "401": {"description": "the network secret is missing or wrong", **PROBLEM_BODY}
}
_MESSAGE_BODY: dict[str, Any] = {
    "content": {protocol.MSGPACK: {"schema": {"type": "string", "format": "binary"}}}
}

#: a frame after the cursor is answered with the cursor
_GAP: dict[str, Any] = {
    "description": "`edn.protocol.FrameAck`: the frame starts after the cursor",
    "content": {**_MESSAGE_BODY["content"], **PROBLEM_BODY["content"]},
}
_STORE_REFUSALS = {
    "409": {"description": "an earlier incarnation, or different content", **PROBLEM_BODY},
    "422": {"description": "a filter does not bind, or a sink does not consent", **PROBLEM_BODY},
}
_CONSENT_REFUSALS = {"422": {"description": "the rate is invalid", **PROBLEM_BODY}}

#: answers a message
Handler = Callable[..., Awaitable[msgspec.Struct]]


class _Gap(Exception):
    """A frame starts after the cursor."""

    def __init__(self, ack: protocol.FrameAck) -> None:
        self.ack = ack


@dataclass(frozen=True, slots=True)
class _Message:
    """A route: a POST, or a GET if its handler takes no message."""

    path: str
    summary: str
    handler: Handler
    #: status → response, besides those of every route
    responses: Mapping[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def request(self) -> type[msgspec.Struct] | None:
        return next((kind for name, kind in get_type_hints(self.handler).items() if name != "return"), None)

    @property
    def method(self) -> str:
        return "GET" if self.request is None else "POST"

    def operation(self) -> dict[str, Any]:
        """Describes the route for the OpenAPI document."""
        request, answer = self.request, get_type_hints(self.handler)["return"]
        described: dict[str, Any] = {
            "tags": ["internal"],
            "summary": self.summary,
            "responses": {
                "200": {"description": f"`edn.protocol.{answer.__name__}`", **_MESSAGE_BODY},
                **UNAUTHORIZED,
                **self.responses,
            },
        }
        if request is not None:
            described["responses"] |= {
                "400": {"description": "not a message of this route", **PROBLEM_BODY},
                "413": {"description": "longer than the limit", **PROBLEM_BODY},
                "503": {"description": "the disk has no room; try again", **PROBLEM_BODY},
            }
            message = {"description": f"`edn.protocol.{request.__name__}`", "required": True}
            described["requestBody"] = {**message, **_MESSAGE_BODY}
        return described


class _Endpoint:
    def __init__(self, refusals: Refusals, message: _Message) -> None:
        self._refusals = refusals
        request = message.request
        self._decoder = None if request is None else protocol.Decoder(request)
        self._handler = message.handler

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        response: Response
        try:
            self._refusals.check(scope)
            body = await read_body(receive)
            if self._decoder is None:
                answer = await self._handler()
            else:
                answer = await self._handler(self._decoder.decode(body))
            response = Response(protocol.encode(answer), media_type=protocol.MSGPACK)
        except _Gap as gap:
            response = Response(protocol.encode(gap.ack), status_code=409, media_type=protocol.MSGPACK)
        except EdnError as error:
            response = problem_response(error)
        except Exception as error:
            logger.error("unhandled", path=scope["path"], exc_info=error)
            response = problem_response(EdnError("the server failed at this request; its log says why"))
        await response(scope, receive, send)


class Answerers(Protocol):
    """The services that answer messages."""

    refusals: Refusals
    intake: Intake
    handover: Handover
    status: ServerStatus
    traces: EventTraces
    consents: Consents
    view: RegistryView

    async def reseal(self, message: protocol.Reseal) -> protocol.SealedSecrets: ...


def mount(app: FastAPI, services: Answerers) -> None:
    """Adds the routes to an app and to its OpenAPI document."""
    table = _table(services)
    app.router.routes.extend(
        Route(one.path, _Endpoint(services.refusals, one), methods=[one.method]) for one in table
    )
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        document = generate()
        for one in table:
            document["paths"].setdefault(one.path, {one.method.lower(): one.operation()})
        return document

    app.openapi = openapi  # type: ignore[method-assign]  # FastAPI's documented way to extend the document


def _table(services: Answerers) -> list[_Message]:
    """Returns all routes; `edn.protocol` explains how they work together."""
    intake, handover, status = services.intake, services.handover, services.status

    async def stream(frame: protocol.Frame) -> protocol.FrameAck:
        applied = await intake.apply(frame)
        if applied.gap:
            raise _Gap(applied.ack)
        return applied.ack

    async def journey(question: protocol.TraceQuery) -> protocol.EventTrace:
        return services.traces.find(services.view, question.log, question.offset)

    async def consented(message: protocol.Consented) -> protocol.Accepted:
        is_known = await services.consents.consented(message.token, message.rate)
        return protocol.Accepted(unknown=not is_known)

    def route(
        path: str, summary: str, handler: Handler, responses: Mapping[str, dict[str, Any]] | None = None
    ) -> _Message:
        return _Message(f"/internal/{path}", summary, handler, responses or {})

    return [
        route(
            "subscriptions",
            "Store versions of subscriptions, inactive",
            intake.store_versions,
            _STORE_REFUSALS,
        ),
        route("stream", "Apply a frame of a log", stream, {"409": _GAP}),
        route("replay", "Replay retained events to a new subscription", intake.replay),
        route("explain", "Explain which subscriptions an event would match", status.explain),
        route("journey", "Trace a recent event", journey),
        route("summary", "Read the summary of all topics", status.summary),
        route("departures", "Report the rest of migrated subscriptions", handover.report_departures),
        route("departures/kept", "Read notifications buffered for a subscription", handover.read_buffered),
        route("departures/progress", "Read the half matches of a migrated sequence", handover.read_progress),
        route("arrivals", "Start delivering migrated subscriptions", handover.finish_arrivals),
        route("arrivals/kept", "Store notifications that the old server buffered", handover.store_buffered),
        route("arrivals/progress", "Store the half matches of a migrated sequence", handover.store_progress),
        route("secrets", "Seal stored secrets again, and count them", services.reseal),
        route("consents", "Store the consent of a sink", consented, _CONSENT_REFUSALS),
    ]
