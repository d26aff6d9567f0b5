"""Routes of operation: servers, dispatchers, liveness and readiness, clocks."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import msgspec
from fastapi import APIRouter

from dispatcher.auth.caller import Need, needs
from dispatcher.network.membership import Membership
from dispatcher.observe.servers import ServerDescriptions
from dispatcher.routing.table import RoutingTable
from dispatcher.servers.admission import Admission
from dispatcher.servers.client import ServerClient
from dispatcher.servers.pipeline import Pipeline
from dispatcher.servers.registry import HEARTBEAT_SECONDS, ServerRegistry
from dispatcher.subscriptions.service import Subscriptions
from edn.api.document import document
from edn.api.servers import Clock, DispatcherList, ServerClock, ServerList
from edn.errors import EdnError, NotFound, Unavailable
from edn.http.asgi import StrictRoute
from edn.http.control_client import CallFailed
from edn.model.coordinates import rfc3339
from edn.runtime import clock


def routes(
    registry: ServerRegistry,
    table: RoutingTable,
    pipeline: Pipeline,
    descriptions: ServerDescriptions,
    membership: Membership,
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
        """List the logs of all dispatchers, that of the asked one first."""
        return {"dispatchers": membership.describe()}

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


def clock_routes(registry: ServerRegistry, calls: ServerClient, subscriptions: Subscriptions) -> APIRouter:
    router = APIRouter(tags=["operations"], route_class=StrictRoute)

    @router.get("/v1/clock", response_model=document(Clock))
    @needs(Need.OPERATOR)
    async def show_clock() -> Any:
        """Show whether a wall clock has jumped, and when it will be trusted."""
        return _describe([ServerClock(server.id, server.suspect) for server in registry])

    @router.post("/v1/clock/confirm", response_model=document(Clock))
    @needs(Need.OPERATOR)
    async def confirm_clock() -> Any:
        """Trust the wall clocks of the dispatcher and of all servers now; subscriptions expire by them."""
        clock.keeper.observe()
        await subscriptions.step_clock(confirmed=True)
        return _describe(await asyncio.gather(*(confirm(server.id) for server in registry)))

    async def confirm(id: str) -> ServerClock:
        try:
            response = await calls.call(id, "POST", "/internal/clock/confirm")
            response.raise_for_status()
        except (EdnError, CallFailed) as error:
            return ServerClock(id, failure=str(error) or type(error).__name__)
        server = registry.get(id)
        if server is not None:
            server.suspect = None
        return ServerClock(id)

    return router


def _describe(servers: list[ServerClock]) -> Clock:
    keeper = clock.keeper
    suspicion = keeper.suspicion
    left = None
    if suspicion is not None:
        left = max(0.0, keeper.limits.trust - (clock.monotonic() - suspicion.since))
    return Clock(
        time=rfc3339(int(keeper.now() * 1e6)),
        wall=rfc3339(int(clock.wall() * 1e6)),
        suspect=clock.suspect(),
        trusted_in=None if left is None else round(left, 1),
        adoptions=keeper.adoptions,
        adopted=round(keeper.adopted, 3),
        servers=servers,
    )
