"""The routes of whoever runs the network: its servers, its dispatchers, and whether this one lives and is
ready.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec
from fastapi import APIRouter

from dispatcher.auth.caller import Need, needs
from dispatcher.observe.servers import ServerDescriptions
from dispatcher.routing.table import RoutingTable
from dispatcher.servers.admission import Admission, Leadership
from dispatcher.servers.pipeline import Pipeline
from dispatcher.servers.registry import HEARTBEAT_SECONDS, ServerRegistry
from edn.api.document import document
from edn.api.servers import DispatcherList, ServerList
from edn.errors import NotFound, Unavailable
from edn.http.asgi import StrictRoute


def routes(
    members: ServerRegistry,
    table: RoutingTable,
    pipeline: Pipeline,
    descriptions: ServerDescriptions,
    leadership: Leadership,
    admission: Admission,
) -> APIRouter:
    router = APIRouter(tags=["operations"], route_class=StrictRoute)

    @router.get("/v1/servers", response_model=document(ServerList))
    @needs(Need.OPERATOR)
    async def list_servers() -> Any:
        servers = descriptions.all()
        asked = pipeline.published * len(servers)
        forwarded = sum(server["forwarded"] for server in servers)
        return {
            "servers": servers,
            "published": pipeline.published,
            "hit_ratio": forwarded / asked if asked else None,
        }

    @router.get("/v1/dispatchers", response_model=document(DispatcherList))
    @needs(Need.OPERATOR)
    async def list_dispatchers() -> Any:
        """All dispatchers as this one sees them, itself first; alone, it is always ready."""
        return {"dispatchers": leadership.describe()}

    @router.get("/v1/servers/{id}/summary", response_model=dict[str, Any])
    @needs(Need.OPERATOR)
    async def server_summary(id: str) -> Any:
        """The summary of a server in the routing table: rectangles in use, precision, size."""
        if members.get(id) is None:
            raise NotFound(f'no server "{id[:80]}"')
        return msgspec.to_builtins(table.describe(id))

    @router.get("/livez", response_model=dict[str, str])
    @needs(Need.PUBLIC)
    async def livez() -> Any:
        return {"status": "alive"}

    @router.get("/readyz", response_model=dict[str, Any])
    @needs(Need.PUBLIC)
    async def readyz() -> Any:
        """Ready when at least one server can host subscriptions, and this dispatcher may take events."""
        admission.check()
        ready = len(members.ready())
        if not ready:
            raise Unavailable("no server is ready", retry_after=math.ceil(HEARTBEAT_SECONDS))
        return {"status": "ready", "servers": ready}

    return router
