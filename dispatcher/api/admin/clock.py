"""The routes of the clock: whether a wall clock of the network is suspect, and an operator's word that it is
right.
"""

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
    members: ServerRegistry, calls: ServerClient, subscriptions: Subscriptions, leadership: Leadership
) -> APIRouter:
    router = APIRouter(tags=["operations"], route_class=StrictRoute)

    @router.get("/v1/clock", response_model=document(Clock))
    @needs(Need.OPERATOR)
    async def show_clock() -> Any:
        """Show whether a wall clock has jumped, and when it will be trusted."""
        return _described([ServerClock(member.id, member.suspect) for member in members])

    @router.post("/v1/clock/confirm", response_model=document(Clock))
    @needs(Need.OPERATOR)
    async def confirm_clock() -> Any:
        """Trust the wall clocks of the dispatcher and of all servers now: what is old by them expires."""
        clock.keeper.observe()
        await subscriptions.step_clock(confirmed=True, sweep=leadership.leads())
        return _described(await asyncio.gather(*(_confirm(member.id) for member in members)))

    async def _confirm(server: str) -> ServerClock:
        try:
            answer = await calls.call(server, "POST", "/internal/clock/confirm")
            answer.raise_for_status()
        except (EdnError, CallFailed) as error:
            return ServerClock(server, failure=str(error) or type(error).__name__)
        member = members.get(server)
        if member is not None:
            member.suspect = None
        return ServerClock(server)

    return router


def _described(servers: list[ServerClock]) -> Clock:
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
