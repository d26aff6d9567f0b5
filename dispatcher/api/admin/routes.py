"""Routes of routing entries, and of bindings of servers and matchers to topics and subtrees."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Response
from pydantic import Field

from dispatcher.api.bodies import Body
from dispatcher.auth.caller import Need, needs
from dispatcher.observe.routes import RoutingEntries
from dispatcher.servers.bindings import Bindings
from dispatcher.servers.registry import ServerRegistry
from dispatcher.store.topic_rows import Binding
from edn.api import routes as api
from edn.api.document import document
from edn.api.fields import fill
from edn.http.asgi import StrictRoute
from edn.model import namespace
from edn.model.coordinates import rfc3339

#: tenant, slash and name
MAX_PATH = namespace.MAX_NAME + 65

Name = Annotated[
    str,
    Path(
        max_length=MAX_PATH,
        description="A topic or a subtree, such as `stocks.**`; of another tenant: `acme/stocks.**`.",
    ),
]


class BindingBody(Body):
    servers: Annotated[list[Annotated[str, Field(max_length=64)]] | None, Field(max_length=1000)] = Field(
        None, description="Servers that may host its subscriptions. Default: all.", examples=[["s1"]]
    )
    engine: str | None = Field(
        None, description="Name or URI of the matcher that its topics inherit.", max_length=256
    )


def routes(entries: RoutingEntries, bindings: Bindings, registry: ServerRegistry) -> APIRouter:
    router = APIRouter(prefix="/v1/routes", tags=["routes"], route_class=StrictRoute)

    async def view(binding: Binding) -> api.Binding:
        misplaced = await entries.misplaced(binding)
        return fill(api.Binding, binding, created=rfc3339(binding.created), misplaced=misplaced)

    @router.get("", response_model=document(api.Routes))
    @needs(Need.OPERATOR)
    async def list_routes(
        name: Annotated[
            str | None, Query(max_length=MAX_PATH, description="only entries within this topic or subtree")
        ] = None,
    ) -> Any:
        """List all routing entries, one per topic and server, and all bindings."""
        found = await entries.found(name)
        bound = [one for one in bindings.all() if name is None or namespace.includes(name, one.name)]
        return api.Routes(routes=found, bindings=[await view(one) for one in bound])

    @router.put(
        "/{name:path}",
        response_model=document(api.Binding),
        responses={201: {"model": document(api.Binding)}},
    )
    @needs(Need.OPERATOR)
    async def bind_route(name: Name, body: BindingBody, response: Response) -> Any:
        """Bind servers, a matcher or both to a name, for topics and subscriptions created later."""
        known = [server.id for server in registry]
        binding, new = await bindings.put(name, body.servers, body.engine, known)
        if new:
            response.status_code = 201
        return await view(binding)

    @router.delete("/{name:path}", status_code=204)
    @needs(Need.OPERATOR)
    async def unbind_route(name: Name) -> None:
        """Remove a binding; the binding of the nearest name above applies again."""
        await bindings.delete(name)

    return router
