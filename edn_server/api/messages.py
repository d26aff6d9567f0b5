"""The routes that the dispatcher calls often: plain ASGI, a msgpack message in (or none), one out.

Each is described once, for the router and for the OpenAPI document at /docs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

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

#: a frame beyond the cursor is answered with where the cursor is
_GAP: dict[str, Any] = {
    "description": "`edn.protocol.FrameAck`: the frame begins beyond the cursor",
    "content": {**_MESSAGE_BODY["content"], **PROBLEM_BODY["content"]},
}

#: status and content of the answer to a message
Answer = Callable[[Any], Awaitable[tuple[int, msgspec.Struct]]]


@dataclass(frozen=True, slots=True)
class _Described:
    """A route: a POST of what it takes, or a GET if that is nothing."""

    path: str
    summary: str
    takes: type[msgspec.Struct] | None
    gives: type[msgspec.Struct]
    answer: Answer
    #: status → what it means here, besides what every route answers
    more: Mapping[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def method(self) -> str:
        return "GET" if self.takes is None else "POST"

    def operation(self) -> dict[str, Any]:
        """As the OpenAPI document has it."""
        described: dict[str, Any] = {
            "tags": ["internal"],
            "summary": self.summary,
            "responses": {
                "200": {"description": f"`edn.protocol.{self.gives.__name__}`", **_MESSAGE_BODY},
                **UNAUTHORIZED,
                **self.more,
            },
        }
        if self.takes is not None:
            described["responses"] |= {
                "400": {"description": "not the message that this route takes", **PROBLEM_BODY},
                "413": {"description": "longer than the limit", **PROBLEM_BODY},
                "503": {"description": "the disk did not take it; try again", **PROBLEM_BODY},
            }
            message = {"description": f"`edn.protocol.{self.takes.__name__}`", "required": True}
            described["requestBody"] = {**message, **_MESSAGE_BODY}
        return described


class _Endpoint:
    def __init__(self, refusals: Refusals, described: _Described) -> None:
        self._refusals = refusals
        takes = described.takes
        self._decoder = None if takes is None else protocol.Decoder(takes)
        self._answer = described.answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        response: Response
        try:
            self._refusals.check(scope)
            body = await read_body(receive)
            message = None if self._decoder is None else self._decoder.decode(body)
            status, answer = await self._answer(message)
            response = Response(protocol.encode(answer), status_code=status, media_type=protocol.MSGPACK)
        except EdnError as error:
            response = problem_response(error)
        except Exception as error:
            logger.error("unhandled", path=scope["path"], exc_info=error)
            response = problem_response(EdnError("the server failed at this request; its log says why"))
        await response(scope, receive, send)


@dataclass(frozen=True, slots=True)
class Answerers:
    """The parts of a server that answer messages."""

    intake: Intake
    handover: Handover
    status: ServerStatus
    traces: EventTraces
    consents: Consents
    view: RegistryView


def mount(app: FastAPI, refusals: Refusals, answerers: Answerers) -> None:
    """Add the routes to an app, and to the document that describes it."""
    table = _table(answerers)
    app.router.routes.extend(Route(one.path, _Endpoint(refusals, one), methods=[one.method]) for one in table)
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        document = generate()
        for one in table:
            document["paths"].setdefault(one.path, {one.method.lower(): one.operation()})
        return document

    app.openapi = openapi  # type: ignore[method-assign]  # FastAPI's documented way to extend the document


def _table(answerers: Answerers) -> list[_Described]:
    """All of them; `edn.protocol` tells their theory of operation."""
    intake, handover, status = answerers.intake, answerers.handover, answerers.status

    def ok(work: Callable[[Any], Awaitable[msgspec.Struct]]) -> Answer:
        async def answer(message: Any) -> tuple[int, msgspec.Struct]:
            return 200, await work(message)

        return answer

    async def stream(frame: protocol.Frame) -> tuple[int, msgspec.Struct]:
        applied = await intake.apply(frame)
        return (409 if applied.gap else 200), applied.ack

    async def journey(question: protocol.TraceQuery) -> tuple[int, msgspec.Struct]:
        return 200, answerers.traces.find(answerers.view, question.log, question.offset)

    async def consented(message: protocol.Consented) -> tuple[int, msgspec.Struct]:
        known = await answerers.consents.consented(message.token, message.rate)
        return 200, protocol.Accepted(unknown=not known)

    async def summary(_: None) -> tuple[int, msgspec.Struct]:
        return 200, await status.summary()

    unbound = {
        "409": {"description": "an earlier incarnation, or other content", **PROBLEM_BODY},
        "422": {
            "description": "a filter that does not bind, or a sink that does not consent",
            **PROBLEM_BODY,
        },
    }
    rows: list[tuple[str, str, type[msgspec.Struct] | None, type[msgspec.Struct], Answer]] = [
        (
            "subscriptions",
            "Store versions of subscriptions, inactive",
            protocol.Store,
            protocol.Stored,
            ok(intake.store),
        ),
        ("stream", "Apply a frame of a log", protocol.Frame, protocol.FrameAck, stream),
        (
            "replay",
            "Tell a new subscription of events that were available when it began",
            protocol.ReplayPage,
            protocol.ReplayAck,
            ok(intake.replay),
        ),
        (
            "explain",
            "What an event would be to this server",
            protocol.Explain,
            protocol.Explained,
            ok(status.explain),
        ),
        ("journey", "What became of a recent event", protocol.TraceQuery, protocol.EventTrace, journey),
        ("summary", "The summary of what is hosted", None, protocol.SummarySnapshot, summary),
        (
            "departures",
            "What is left of subscriptions that have moved away",
            protocol.Departures,
            protocol.Departed,
            ok(handover.departures),
        ),
        (
            "departures/kept",
            "What was kept for one that was paused",
            protocol.BufferedQuery,
            protocol.BufferedPage,
            ok(handover.kept),
        ),
        (
            "departures/told",
            "Whom events were told to that may come again",
            protocol.DeliveredIdsQuery,
            protocol.DeliveredIds,
            ok(handover.told),
        ),
        (
            "arrivals",
            "Nothing is left on the servers that these come from",
            protocol.Arrivals,
            protocol.Accepted,
            ok(handover.arrivals),
        ),
        (
            "arrivals/kept",
            "What another server kept for a subscription",
            protocol.BufferedPage,
            protocol.Accepted,
            ok(handover.take_kept),
        ),
        (
            "arrivals/told",
            "Whom another server told of events that may come again",
            protocol.DeliveredIds,
            protocol.Accepted,
            ok(handover.take_told),
        ),
        ("consents", "A sink has consented later", protocol.Consented, protocol.Accepted, consented),
    ]
    more: dict[str, dict[str, dict[str, Any]]] = {
        "subscriptions": unbound,
        "stream": {"409": _GAP},
        "consents": {"422": {"description": "a rate that is none", **PROBLEM_BODY}},
    }
    return [
        _Described(f"/internal/{path}", summary, takes, gives, answer, more.get(path, {}))
        for path, summary, takes, gives, answer in rows
    ]
