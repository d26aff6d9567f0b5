"""Routes of operation: servers, dispatchers, liveness and readiness."""

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
    registry: ServerRegistry,
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
        pairs = pipeline.published * len(servers)
        forwarded = sum(server["forwarded"] for server in servers)
        return {
            "servers": servers,
            "published": pipeline.published,
            "hit_ratio": forwarded / pairs if pairs else None,
        }

    @router.get("/v1/dispatchers", response_model=document(DispatcherList))
    @needs(Need.OPERATOR)
    async def list_dispatchers() -> Any:
        """List all dispatchers as this one sees them, itself first."""
        return {"dispatchers": leadership.describe()}

    @router.get("/v1/servers/{id}/summary", response_model=dict[str, Any])
    @needs(Need.OPERATOR)
    async def server_summary(id: str) -> Any:
        """Get the summary of a server in the routing table: rectangles in use, precision, size."""
        if registry.get(id) is None:
            raise NotFound(f'server "{id[:80]}" does not exist')
        return msgspec.to_builtins(table.describe(id))

    @router.get("/livez", response_model=dict[str, str])
    @needs(Need.PUBLIC)
    async def livez() -> Any:
        return {"status": "alive"}

    @router.get("/readyz", response_model=dict[str, Any])
    @needs(Need.PUBLIC)
    async def readyz() -> Any:
        """Report ready if a server can host subscriptions and this dispatcher accepts events."""
        admission.check()
        ready = len(registry.ready())
        if not ready:
            raise Unavailable("no server is ready", retry_after=math.ceil(HEARTBEAT_SECONDS))
        return {"status": "ready", "servers": ready}

    return router
