"""The dashboard's routes: the page and its files, the live stream, projections."""

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

from dispatcher.api.caller import Who
from dispatcher.api.streams import EventStream, while_valid
from dispatcher.auth.access import Guard
from dispatcher.auth.caller import Need, needs
from dispatcher.observe.projection import Projector
from dispatcher.observe.sampler import Sampler
from dispatcher.subscriptions.topics import Topics
from edn.errors import NotFound
from edn.http.asgi import StrictRoute

_STATIC = Path(str(files("dispatcher.api.dashboard") / "static"))
#: what the page may load: itself; Plotly writes styles into its own elements
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
    #: of the coordinates of what is shown; null if there is none
    range: list[float] | None
    #: of strings and booleans: the places that are named, in order
    stops: list[Stop] | None


class ProjectedServer(BaseModel):
    server: str
    #: it gets every event
    everything: bool
    #: that route to it, and those of its precise summary
    rectangles: int
    maximal: int
    #: x from, x to, y from, y to of the 300 largest distinct ones; null is unbounded
    shadows: list[list[float | None]]


class ProjectedEvent(BaseModel):
    x: float
    y: float
    #: the servers that it is sent to
    to: list[str]


class Projection(BaseModel):
    """Times are microseconds since 1970; strings lie by their first six bytes."""

    topic: str
    x: Axis
    y: Axis
    #: that is shown, and that is in force
    precision: float | None
    in_force: float | None
    servers: list[ProjectedServer]
    events: list[ProjectedEvent]
    #: recent events that were asked about, and how many servers one of them goes to at each precision
    sampled: int
    copies: float | None
    copies_in_force: float | None


def _plotly() -> Path | None:
    """Plotly's browser bundle, found without importing the package, which takes long."""
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
        """The dashboard."""
        return FileResponse(_STATIC / "index.html", media_type="text/html", headers=_HEADERS)

    @router.get(
        "/dashboard/{file}",
        response_class=Response,
        responses={200: {"content": {kind: {"schema": {"type": "string"}} for kind in _TYPES.values()}}},
    )
    @needs(Need.PUBLIC)
    async def file(file: str) -> Response:
        """A file of the dashboard: script, style or picture."""
        path = served.get(file)
        if path is None:
            raise NotFound(f'the dashboard has no file "{file[:80]}"')
        # Ours change with the program, and are small; Plotly is neither.
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
        """Server-sent events: `history`, the last ten minutes, then a `sample` every second, until you go."""
        held = contextlib.AsyncExitStack()
        held.enter_context(guard.quotas.stream(who))
        return EventStream(while_valid(sampler.stream(), lambda: guard.is_valid(who)), held)

    @router.get("/v1/topics/{name}/projection", response_model=Projection)
    @needs(Need.OPERATOR)
    async def projection(
        name: str,
        who: Who,
        x: Annotated[str, Query(max_length=256, description="an attribute")],
        y: Annotated[str, Query(max_length=256, description="another one")],
        precision: Annotated[
            float | None, Query(ge=0, le=1, description="as it would be; without one, as it is")
        ] = None,
    ) -> Any:
        """Routes to each server as rectangles on two attributes, and recent events."""
        picture = await projector.project(topics.get(name, who.tenant), x, y, precision)
        # Thousands of numbers: to check each of them would cost more than to find them.
        return Response(msgspec.json.encode(picture), media_type="application/json")

    return router
