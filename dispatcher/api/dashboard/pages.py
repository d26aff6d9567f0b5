"""Routes of the dashboard: the page and its files, the live stream, projections."""

from __future__ import annotations

import contextlib
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query, Response
from pydantic import BaseModel
from starlette.responses import FileResponse, HTMLResponse, StreamingResponse

from dispatcher.api.bodies import Who
from dispatcher.api.streams import EventStream, while_valid
from dispatcher.auth.access import Guard
from dispatcher.auth.caller import Need, needs
from dispatcher.observe.projection import Projector
from dispatcher.observe.sampler import Sampler
from dispatcher.subscriptions.topics import Topics
from edn.errors import NotFound
from edn.http.asgi import StrictRoute

_STATIC = Path(str(files("dispatcher.api.dashboard") / "static"))
#: Content-Security-Policy: own files only; Plotly needs inline styles
_POLICY = (
    "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
_HEADERS = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}
_PLOTLY = "plotly.min.js"
_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
_FILES = {path.name: path for path in _STATIC.iterdir() if path.suffix in _TYPES}


class Stop(BaseModel):
    at: float
    label: str


class Axis(BaseModel):
    attribute: str
    type: str
    #: coordinates of the drawn part; null if nothing is drawn
    range: list[float] | None
    #: labelled coordinates of strings and booleans, in order
    stops: list[Stop] | None


class ProjectedServer(BaseModel):
    server: str
    #: gets every event
    everything: bool
    #: rectangles in the routing table, and in the precise summary
    rectangles: int
    maximal: int
    #: x from, x to, y from, y to of the 300 largest distinct projected rectangles; null is unbounded
    shadows: list[list[float | None]]


class ProjectedEvent(BaseModel):
    x: float
    y: float
    #: servers that it is routed to
    to: list[str]


class Projection(BaseModel):
    """Times are microseconds since 1970; coordinates of strings are their first six bytes."""

    topic: str
    x: Axis
    y: Axis
    #: precision shown, and precision in force
    precision: float | None
    in_force: float | None
    servers: list[ProjectedServer]
    events: list[ProjectedEvent]
    #: number of sampled events, and servers per event at both precisions
    sampled: int
    copies: float | None
    copies_in_force: float | None


def _plotly() -> Path | None:
    """Returns the path of Plotly's browser bundle, without the slow import of the package."""
    spec = find_spec("plotly")
    if spec is None or not spec.submodule_search_locations:
        return None
    found = Path(spec.submodule_search_locations[0]) / "package_data" / _PLOTLY
    return found if found.exists() else None


def routes(sampler: Sampler, projector: Projector, topics: Topics, guard: Guard) -> APIRouter:
    router = APIRouter(tags=["dashboard"], route_class=StrictRoute)
    served = dict(_FILES)
    plotly = _plotly()
    if plotly is not None:
        served[_PLOTLY] = plotly

    @router.get("/", response_class=HTMLResponse)
    @needs(Need.PUBLIC)
    async def page() -> Response:
        """Get the dashboard."""
        return FileResponse(_STATIC / "index.html", media_type="text/html", headers=_HEADERS)

    @router.get(
        "/dashboard/{file}",
        response_class=Response,
        responses={200: {"content": {kind: {"schema": {"type": "string"}} for kind in _TYPES.values()}}},
    )
    @needs(Need.PUBLIC)
    async def file(file: str) -> Response:
        """Get a file of the dashboard: script, style or image."""
        path = served.get(file)
        if path is None:
            raise NotFound(f'dashboard file "{file[:80]}" does not exist')
        # Plotly is large and changes rarely.
        caching = "public, max-age=86400" if file == _PLOTLY else "no-cache"
        return FileResponse(
            path, media_type=_TYPES[path.suffix], headers={**_HEADERS, "cache-control": caching}
        )

    @router.get(
        "/v1/live",
        response_class=StreamingResponse,
        responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
    )
    @needs(Need.OPERATOR)
    async def live(who: Who) -> Response:
        """Stream server-sent events: `history`, the last ten minutes, then one `sample` per second."""
        resources = contextlib.AsyncExitStack()
        resources.enter_context(guard.quotas.open_stream(who))
        return EventStream(while_valid(sampler.stream(), lambda: guard.is_valid(who)), resources)

    @router.get("/v1/topics/{name}/projection", response_model=Projection)
    @needs(Need.OPERATOR)
    async def projection(
        name: str,
        who: Who,
        x: Annotated[str, Query(max_length=256, description="attribute of the x axis")],
        y: Annotated[str, Query(max_length=256, description="attribute of the y axis")],
        precision: Annotated[
            float | None,
            Query(ge=0, le=1, description="hypothetical precision. Default: the precision in force"),
        ] = None,
    ) -> Any:
        """Project each server's rectangles and recent events on two attributes."""
        picture = await projector.project(await topics.find(name, who.tenant), x, y, precision)
        # Encoded directly: validating thousands of numbers would cost more than computing them.
        return Response(msgspec.json.encode(picture), media_type="application/json")

    return router
