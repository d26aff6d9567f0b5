"""The HTTP door of a server: msgpack routes for the dispatcher, JSON for subscribers, health and figures.

What the dispatcher calls often is plain ASGI with msgspec. Every route stands in the OpenAPI document at
/docs, those too. Whatever fails is answered as problem+json.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Annotated, Any, TypeVar

import msgspec
import structlog
from fastapi import Depends, FastAPI, Header
from pydantic import BaseModel
from starlette.background import BackgroundTask
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from edn import __version__, wire
from edn.asgi import PROBLEM, BodyLimit, check_bearer, install, problem_response, read_body
from edn.errors import CorruptMessage, EdnError, Unavailable
from edn_server import evidence_door, metrics, receiving
from edn_server.node import Node

logger = structlog.get_logger()

Message = TypeVar("Message", bound=msgspec.Struct)


class Health(BaseModel):
    status: str


class TopicFigures(BaseModel):
    uid: int
    name: str
    #: versions of subscriptions hosted
    versions: int
    rectangles: int
    maximal: int


class Figures(BaseModel):
    id: str
    epoch: int
    seq: int
    subscriptions: int
    cursors: dict[str, int]
    topics: list[TopicFigures]
    backlog: int
    delivered: int
    failed: int
    dropped: int
    dead: int


class MessageRoute:
    """A plain ASGI endpoint: a msgpack message in (or none), a msgpack message out."""

    def __init__(
        self,
        secret: str,
        request: type[Message] | None,
        answer: Callable[[Any], Awaitable[tuple[int, msgspec.Struct]]],
    ) -> None:
        self._secret = secret
        self._decoder = msgspec.msgpack.Decoder(request) if request is not None else None
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        response: Response
        try:
            authorization = next((v for k, v in scope["headers"] if k == b"authorization"), b"")
            check_bearer(authorization.decode("latin-1"), self._secret)
            message = self._decode(await read_body(receive))
            status, answer = await self._answer(message)
            response = Response(wire.encode(answer), status_code=status, media_type=wire.MSGPACK)
        except EdnError as error:
            response = problem_response(error)
        except Exception as error:
            logger.error("unhandled", path=scope["path"], exc_info=error)
            response = problem_response(EdnError("the server failed at this request; its log says why"))
        await response(scope, receive, send)

    def _decode(self, body: bytes) -> msgspec.Struct | None:
        if self._decoder is None:
            return None
        try:
            return self._decoder.decode(body)
        except msgspec.DecodeError as error:
            raise CorruptMessage(f"the body is not the message that this route takes: {error}") from None


def create_app(node: Node, url: str) -> FastAPI:
    """The app of a node that will be reached at this URL; its lifespan starts and stops the node."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await node.start(url)
        try:
            yield
        finally:
            await node.stop()

    app = FastAPI(
        title="edn server",
        version=__version__,
        description="Hosts subscriptions, matches the dispatcher's stream exactly and notifies.",
        lifespan=lifespan,
        redoc_url=None,
    )
    install(app)
    secret = node.settings.secret

    def network_only(authorization: Annotated[str | None, Header()] = None) -> None:
        check_bearer(authorization, secret)

    @app.get("/livez", tags=["health"], summary="The process runs")
    async def livez() -> Health:
        return Health(status="alive")

    @app.get(
        "/readyz",
        tags=["health"],
        summary="Registered, and every log's join record is read",
        responses={503: {"description": "not ready; the detail says why", **_PROBLEM_BODY}},
    )
    async def readyz() -> Health:
        reason = node.not_ready()
        if reason is not None:
            raise Unavailable(f"not ready: {reason}", retry_after=1)
        return Health(status="ready")

    @app.get(
        "/internal/stats",
        tags=["internal"],
        summary="Figures",
        dependencies=[Depends(network_only)],
        responses=_UNAUTHORIZED,
    )
    async def stats() -> Figures:
        return Figures(**await node.stats())

    app.include_router(evidence_door.router(node, network_only))

    @app.get(
        "/internal/backup",
        tags=["internal"],
        summary="The data of this server, as of one moment: an SQLite database",
        response_class=Response,
        dependencies=[Depends(network_only)],
        responses={**_UNAUTHORIZED, "200": {"description": "an SQLite database", "content": _DATABASE}},
    )
    async def backup() -> FileResponse:
        target = await node.backup()
        return FileResponse(target, media_type=_SQLITE, background=BackgroundTask(target.unlink))

    app.include_router(metrics.routes(node))

    @app.get(
        "/internal/subscriptions/{id}/events",
        tags=["internal"],
        summary="What a subscription without a sink is told, line by line",
        dependencies=[Depends(network_only)],
        response_class=StreamingResponse,
        responses={
            200: {"description": "lines of JSON (`edn_server.streams`)", **_LINES_BODY},
            404: {"description": "it is not here", **_PROBLEM_BODY},
            422: {"description": "Last-Event-ID is none of this stream", **_PROBLEM_BODY},
            503: {"description": "not started yet", **_PROBLEM_BODY},
            **_UNAUTHORIZED,
        },
    )
    async def events(id: str, last_event_id: Annotated[str | None, Header()] = None) -> StreamingResponse:
        if node.streams is None:
            raise Unavailable("not started yet", retry_after=1)
        lines = await node.streams.follow(id, last_event_id)
        return StreamingResponse(lines, media_type=wire.LINES)

    async def store(message: wire.Store) -> tuple[int, msgspec.Struct]:
        return 200, await node.store(message)

    async def stream(message: wire.Frame) -> tuple[int, msgspec.Struct]:
        applied = await node.apply(message)
        return (409 if applied.gap else 200), applied.ack

    async def replay(message: wire.ReplayPage) -> tuple[int, msgspec.Struct]:
        return 200, await node.replay(message)

    async def explain(message: wire.Explain) -> tuple[int, msgspec.Struct]:
        return 200, await node.explain(message)

    async def journey(message: wire.AskJourney) -> tuple[int, msgspec.Struct]:
        return 200, node.journey(message)

    async def summary(_: None) -> tuple[int, msgspec.Struct]:
        return 200, await node.summary()

    app.router.routes.extend(
        [
            Route("/internal/subscriptions", MessageRoute(secret, wire.Store, store), methods=["POST"]),
            Route("/internal/stream", MessageRoute(secret, wire.Frame, stream), methods=["POST"]),
            Route("/internal/replay", MessageRoute(secret, wire.ReplayPage, replay), methods=["POST"]),
            Route("/internal/explain", MessageRoute(secret, wire.Explain, explain), methods=["POST"]),
            Route("/internal/journey", MessageRoute(secret, wire.AskJourney, journey), methods=["POST"]),
            Route("/internal/summary", MessageRoute(secret, None, summary), methods=["GET"]),
            *_moving_routes(node, secret),
        ]
    )
    app.include_router(receiving.routes(node.receiving))
    limits = {receiving.PATH: receiving.BODY_LIMIT}
    app.add_middleware(BodyLimit, limit=node.settings.body_limit, paths=limits)
    _describe_plain_routes(app)
    return app


_SQLITE = "application/vnd.sqlite3"
_DATABASE = {_SQLITE: {"schema": {"type": "string", "format": "binary"}}}
_Work = Callable[[Any], Awaitable[msgspec.Struct]]


def _moving_routes(node: Node, secret: str) -> list[Route]:
    """What is asked of a server that subscriptions leave, or come to."""

    def route(path: str, request: type[msgspec.Struct], work: _Work) -> Route:
        async def answer(message: Any) -> tuple[int, msgspec.Struct]:
            return 200, await work(message)

        return Route(path, MessageRoute(secret, request, answer), methods=["POST"])

    return [
        route("/internal/departures", wire.Departures, node.departures),
        route("/internal/departures/kept", wire.KeptAfter, node.kept),
        route("/internal/departures/told", wire.ToldAfter, node.told),
        route("/internal/arrivals", wire.Arrivals, node.arrivals),
        route("/internal/arrivals/kept", wire.Kept, node.take_kept),
        route("/internal/arrivals/told", wire.Told, node.take_told),
    ]


_MSGPACK_BODY = {"content": {wire.MSGPACK: {"schema": {"type": "string", "format": "binary"}}}}
_LINES_BODY = {"content": {wire.LINES: {"schema": {"type": "string"}}}}
_PROBLEM_BODY = {"content": {PROBLEM: {"schema": {"type": "object"}}}}
_UNAUTHORIZED: dict[int | str, dict[str, Any]] = {
    "401": {"description": "the network secret is missing or wrong", **_PROBLEM_BODY}
}
#: a frame beyond the cursor is answered with where the cursor is
_GAP = {
    "409": {
        "description": "`edn.wire.FrameAck`: the frame begins beyond the cursor",
        "content": {**_MSGPACK_BODY["content"], **_PROBLEM_BODY["content"]},
    }
}


_MOVING = (
    ("departures", "What is left of subscriptions that have moved away", "Departures", "Departed"),
    ("departures/kept", "What was kept for one that was paused", "KeptAfter", "Kept"),
    ("departures/told", "Whom events were told to that may come again", "ToldAfter", "Told"),
    ("arrivals", "Nothing is left on the servers that these come from", "Arrivals", "Taken"),
    ("arrivals/kept", "What another server kept for a subscription", "Kept", "Taken"),
    ("arrivals/told", "Whom another server told of events that may come again", "Told", "Taken"),
)


def _describe_plain_routes(app: FastAPI) -> None:
    """Name the plain ASGI routes in the OpenAPI document."""

    def operation(summary: str, takes: str | None, gives: str, refusals: dict[str, str]) -> dict[str, Any]:
        described: dict[str, Any] = {
            "tags": ["internal"],
            "summary": summary,
            "responses": {
                "200": {"description": f"`edn.wire.{gives}`", **_MSGPACK_BODY},
                **_UNAUTHORIZED,
                **{status: {"description": text, **_PROBLEM_BODY} for status, text in refusals.items()},
            },
        }
        if takes is not None:
            described["responses"] |= {
                "400": {"description": "not the message that this route takes", **_PROBLEM_BODY},
                "413": {"description": "longer than the limit", **_PROBLEM_BODY},
                "503": {"description": "the disk did not take it; try again", **_PROBLEM_BODY},
            }
            described["requestBody"] = {
                "description": f"`edn.wire.{takes}`",
                "required": True,
                **_MSGPACK_BODY,
            }
        return described

    paths = {
        "/internal/subscriptions": {
            "post": operation(
                "Store versions of subscriptions, inactive",
                "Store",
                "Stored",
                {"409": "an earlier incarnation, or other content", "422": "a filter that does not bind"},
            )
        },
        "/internal/stream": {
            "post": operation(
                "Apply a frame of a log",
                "Frame",
                "FrameAck",
                {},
            )
        },
        "/internal/replay": {
            "post": operation(
                "Tell a new subscription of events that were available when it began",
                "ReplayPage",
                "ReplayAck",
                {},
            )
        },
        "/internal/explain": {
            "post": operation("What an event would be to this server", "Explain", "Explained", {})
        },
        "/internal/journey": {
            "post": operation("What became of a recent event", "AskJourney", "Journey", {})
        },
        "/internal/summary": {"get": operation("The summary of what is hosted", None, "SummarySnapshot", {})},
        **{
            f"/internal/{path}": {"post": operation(summary, takes, gives, {})}
            for path, summary, takes, gives in _MOVING
        },
    }
    paths["/internal/stream"]["post"]["responses"] |= _GAP
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        document = generate()
        for path, operations in paths.items():
            document["paths"].setdefault(path, operations)
        return document

    # FastAPI's documented way to extend the document is to replace this method.
    app.openapi = openapi  # type: ignore[method-assign]
