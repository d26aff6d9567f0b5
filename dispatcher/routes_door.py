"""The calls about routes: which there are, and what is bound to names of topics and subtrees."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from dispatcher import routing_entries
from dispatcher.access import Need, needs
from dispatcher.bindings import Binding
from dispatcher.network import Network
from dispatcher.topics import Topics
from edn import namespace
from edn.asgi import StrictRoute
from edn.coordinates import rfc3339

#: tenant, slash and name
MAX_PATH = namespace.MAX_NAME + 65

Name = Annotated[
    str,
    Path(
        max_length=MAX_PATH,
        description="A topic or a subtree, such as `stocks.**`; another tenant's as `acme/stocks.**`.",
    ),
]


class BindingBody(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    servers: Annotated[list[Annotated[str, Field(max_length=64)]] | None, Field(max_length=1000)] = Field(
        None, description="Those that may host its subscriptions; without any, all may.", examples=[["s1"]]
    )
    engine: str | None = Field(
        None, description="Name or URI of the matcher that topics inherit.", max_length=256
    )


class BindingView(BaseModel):
    name: str
    #: null: any may host its subscriptions
    servers: list[str] | None
    #: null: topics inherit it from further up
    engine: str | None
    created: str
    #: subscriptions that are elsewhere; a repartition moves them
    misplaced: int


class RouteView(BaseModel):
    """What sends events of a topic to a server."""

    name: str
    server: str
    #: every event goes there: it has told no summary yet, or the precision is 0
    everything: bool
    #: that events are compared with, those of new subscriptions among them
    rectangles: int
    #: those of the precise summary
    maximal: int
    #: rectangles in use for these ÷ `maximal`
    precision: float | None
    bytes: int
    subscriptions: int
    #: epoch and number of the summary: another with each that the server tells
    revision: list[int] | None


class RouteList(BaseModel):
    routes: list[RouteView]
    bindings: list[BindingView]


def routes(network: Network, topics: Topics) -> APIRouter:
    router = APIRouter(prefix="/v1/routes", tags=["routes"], route_class=StrictRoute)

    def view(binding: Binding) -> dict[str, Any]:
        return {
            "name": binding.name,
            "servers": None if binding.servers is None else list(binding.servers),
            "engine": binding.engine,
            "created": rfc3339(binding.created),
            "misplaced": routing_entries.misplaced(network.log.reader, topics, network, binding),
        }

    @router.get("", response_model=RouteList)
    @needs(Need.OPERATOR)
    async def list_routes(
        name: Annotated[str | None, Query(max_length=MAX_PATH, description="only what is in it")] = None,
    ) -> Any:
        """Every routing entry, a topic and a server each; and what is bound to names."""
        found = [
            {
                "name": one.name,
                "server": one.server,
                "everything": one.everything,
                "rectangles": one.rectangles,
                "maximal": one.maximal,
                "precision": one.precision,
                "bytes": one.bytes,
                "subscriptions": one.subscriptions,
                "revision": None if one.revision is None else list(one.revision),
            }
            for one in routing_entries.found(network, topics, name)
        ]
        bound = [one for one in network.bindings.all() if name is None or namespace.reaches(name, one.name)]
        return {"routes": found, "bindings": [view(one) for one in bound]}

    @router.put("/{name:path}", response_model=BindingView, responses={201: {"model": BindingView}})
    @needs(Need.OPERATOR)
    async def bind_route(name: Name, body: BindingBody, response: Response) -> Any:
        """Bind servers, a matcher or both to a name: they hold for topics and subscriptions that come."""
        known = [member.id for member in network.members]
        binding, new = await network.bindings.put(name, body.servers, body.engine, known)
        if new:
            response.status_code = 201
        return view(binding)

    @router.delete("/{name:path}", status_code=204)
    @needs(Need.OPERATOR)
    async def unbind_route(name: Name) -> None:
        """What is bound further up counts again."""
        await network.bindings.delete(name)

    return router
