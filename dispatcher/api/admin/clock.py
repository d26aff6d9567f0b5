"""Routes of the clock: show whether wall clocks are suspect, and confirm them."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import APIRouter

from dispatcher.auth.caller import Need, needs
from dispatcher.servers.admission import Leadership
from dispatcher.servers.client import ServerClient
from dispatcher.servers.registry import ServerRegistry
from dispatcher.subscriptions.service import Subscriptions
from edn.api.document import document
from edn.api.servers import Clock, ServerClock
from edn.errors import EdnError
from edn.http.asgi import StrictRoute
from edn.http.control_client import CallFailed
from edn.model.coordinates import rfc3339
from edn.runtime import clock


def routes(
    registry: ServerRegistry, calls: ServerClient, subscriptions: Subscriptions, leadership: Leadership
) -> APIRouter:
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
        await subscriptions.step_clock(confirmed=True, sweep=leadership.leads())
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
