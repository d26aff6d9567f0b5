"""The routes of the clock: whether a wall clock of the network is suspect, and an operator's word that it is
right.
"""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel

from dispatcher.access import Need, needs
from dispatcher.door import Door
from edn import clock
from edn.asgi import StrictRoute
from edn.coordinates import rfc3339
from edn.errors import EdnError
from edn.runtime.control_client import CallFailed


class ServerClock(BaseModel):
    id: str
    #: seconds by which its wall clock departs from its network time, where it is suspect
    suspect: float | None
    #: of a confirmation: what went wrong
    failure: str | None = None


class Clock(BaseModel):
    #: of the dispatcher: network time, by which everything expires, and its wall clock
    time: str
    wall: str
    #: seconds by which the wall clock departs from network time, where it is suspect
    suspect: float | None
    #: seconds after which a suspect wall clock is trusted, if it goes on like this
    trusted_in: float | None
    #: corrections that were adopted since the start, and their sum in seconds
    adoptions: int
    adopted: float
    servers: list[ServerClock]


def routes(door: Door) -> APIRouter:
    router = APIRouter(tags=["operations"], route_class=StrictRoute)
    network = door.network

    @router.get("/v1/clock", response_model=Clock)
    @needs(Need.OPERATOR)
    async def show_clock() -> Any:
        """Show whether a wall clock has jumped, and when it will be trusted."""
        servers = [{"id": member.id, "suspect": member.suspect} for member in network.members]
        return {**_described(), "servers": servers}

    @router.post("/v1/clock/confirm", response_model=Clock)
    @needs(Need.OPERATOR)
    async def confirm_clock() -> Any:
        """Trust the wall clocks of the dispatcher and of all servers now: what is old by them expires."""
        clock.keeper.observe()
        await door.subscriptions.step_clock(confirmed=True, sweep=door.leads())
        servers = await asyncio.gather(*(_confirm(member.id) for member in network.members))
        return {**_described(), "servers": servers}

    async def _confirm(server: str) -> dict[str, Any]:
        try:
            answer = await network.calls.call(server, "POST", "/internal/clock/confirm")
            answer.raise_for_status()
        except (EdnError, CallFailed) as error:
            return {"id": server, "suspect": None, "failure": str(error) or type(error).__name__}
        member = network.members.get(server)
        if member is not None:
            member.suspect = None
        return {"id": server, "suspect": None}

    return router


def _described() -> dict[str, Any]:
    keeper = clock.keeper
    suspicion = keeper.suspicion
    left = None
    if suspicion is not None:
        left = max(0.0, keeper.limits.trust - (clock.monotonic() - suspicion.since))
    return {
        "time": rfc3339(int(keeper.now() * 1e6)),
        "wall": rfc3339(int(clock.wall() * 1e6)),
        "suspect": clock.suspect(),
        "trusted_in": None if left is None else round(left, 1),
        "adoptions": keeper.adoptions,
        "adopted": round(keeper.adopted, 3),
    }
