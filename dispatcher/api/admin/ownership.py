"""Shows who owns the logs and servers of a network on PostgreSQL."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from dispatcher.auth.caller import Need, needs
from dispatcher.store.event_log import Log
from edn.api.document import document
from edn.api.ownership import Ownership
from edn.http.asgi import StrictRoute


def routes(log: Log) -> APIRouter:
    router = APIRouter(tags=["operations"], route_class=StrictRoute)

    @router.get("/v1/ownership", response_model=document(Ownership))
    @needs(Need.OPERATOR)
    async def show_ownership() -> Any:
        """Show which process owns which log and server, the spares, and the standbys of the database."""
        return await log.ownership()

    return router
