"""The HTTP app of a server: msgpack routes for the dispatcher, JSON for subscribers, health and metrics.

Frequent routes of the dispatcher are plain ASGI with msgspec (`api.messages`). The OpenAPI document at /docs
has all routes. Errors are answered as problem+json.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Header, Request
from starlette.background import BackgroundTask
from starlette.responses import FileResponse, Response, StreamingResponse

from edn import __version__, protocol
from edn.errors import Unavailable
from edn.http.asgi import BodyLimit, install
from edn_server.api import delivery, messages, metrics, proxy
from edn_server.api.figures import Figures, Health
from edn_server.api.messages import PROBLEM_BODY, UNAUTHORIZED
from edn_server.observe.metrics import read
from edn_server.services import Services

#: bytes of one frame or store request
BODY_BYTES = 64 << 20
_SQLITE = "application/vnd.sqlite3"
_DATABASE = {_SQLITE: {"schema": {"type": "string", "format": "binary"}}}
_LINES_BODY = {"content": {protocol.LINES: {"schema": {"type": "string"}}}}


def create_app(services: Services, url: str) -> FastAPI:
    """Creates the app of the server at this URL; its lifespan starts and stops the services."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await services.start(url)
        try:
            yield
        finally:
            await services.stop()

    app = FastAPI(
        title="edn server",
        version=__version__,
        description="Hosts subscriptions, matches events exactly and delivers notifications.",
        lifespan=lifespan,
        redoc_url=None,
    )
    install(app)

    async def network_only(request: Request, authorization: Annotated[str | None, Header()] = None) -> None:
        services.refusals.check(request.scope)

    internal: dict[str, Any] = {
        "tags": ["internal"],
        "dependencies": [Depends(network_only)],
        "responses": UNAUTHORIZED,
    }

    @app.get("/livez", tags=["health"], summary="Check that the process runs")
    async def livez() -> Health:
        return Health(status="alive")

    @app.get(
        "/readyz",
        tags=["health"],
        summary="Check that the server is registered and has applied every log's join record",
        responses={503: {"description": "not ready; the detail names the reason", **PROBLEM_BODY}},
    )
    async def readyz() -> Health:
        reason = services.status.not_ready()
        if reason is not None:
            raise Unavailable(f"not ready: {reason}", retry_after=1)
        return Health(status="ready")

    @app.get("/internal/stats", summary="Read the figures of the server", **internal)
    async def stats() -> Figures:
        return Figures(**await services.status.stats())

    @app.post("/internal/clock/confirm", summary="Trust the wall clock from now on", **internal)
    async def confirm_clock() -> Health:
        await services.confirm_clock()
        return Health(status="confirmed")

    app.include_router(delivery.router(services.delivery_status, network_only))

    backed_up = {**UNAUTHORIZED, "200": {"description": "an SQLite database", "content": _DATABASE}}

    @app.get(
        "/internal/backup",
        summary="Download a consistent copy of the database",
        response_class=Response,
        **internal | {"responses": backed_up},
    )
    async def backup() -> FileResponse:
        target = await services.backup()
        return FileResponse(target, media_type=_SQLITE, background=BackgroundTask(target.unlink))

    settings = services.settings
    read_metrics = partial(read, settings, services.view, services.notifier, services.status)
    app.include_router(metrics.routes(read_metrics, services.timings, services.proxy, settings.secret))

    streamed = {
        200: {"description": "lines of JSON (`edn_server.sinks.sse`)", **_LINES_BODY},
        404: {"description": "the subscription is not on this server", **PROBLEM_BODY},
        422: {"description": "Last-Event-ID is not an id of this stream", **PROBLEM_BODY},
        503: {"description": "not started yet", **PROBLEM_BODY},
        **UNAUTHORIZED,
    }

    @app.get(
        "/internal/subscriptions/{id}/events",
        summary="Follow the stream of a subscription",
        response_class=StreamingResponse,
        **internal | {"responses": streamed},
    )
    async def events(id: str, last_event_id: Annotated[str | None, Header()] = None) -> StreamingResponse:
        lines = await services.streams.follow(id, last_event_id)
        return StreamingResponse(lines, media_type=protocol.LINES)

    app.include_router(proxy.routes(services.proxy))
    app.add_middleware(BodyLimit, limit=BODY_BYTES, paths={proxy.PATH: proxy.BODY_LIMIT})
    messages.mount(app, services)
    return app
