"""The routes of whoever runs the network: its servers, its dispatchers, and whether this one lives and is
ready.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import msgspec
from fastapi import APIRouter
from pydantic import BaseModel

from dispatcher.access import Need, needs
from dispatcher.network import HEARTBEAT_SECONDS, Network
from dispatcher.peers import Peers
from edn.asgi import StrictRoute
from edn.errors import NotFound, Unavailable


class Server(BaseModel):
    id: str
    url: str
    state: Literal["ready", "joining", "away"]
    #: it takes no new subscriptions: it is being emptied, or will not come back
    leaving: Literal["draining", "lost"] | None
    subscriptions: int
    backlog: int
    cpu: float
    cursor: int | None
    lag: int | None
    forwarded: int
    useful: int
    matched: int
    #: notifications that sinks took, since the server's start
    notified: int
    #: seconds by which its wall clock is suspect
    clock_suspect: float | None
    failure: str | None
    last_seen_seconds: float | None
    #: share of the published events that its summary contained
    hit_ratio: float | None
    precision: float


class ServerList(BaseModel):
    servers: list[Server]
    published: int
    #: forwarded ÷ (published × servers)
    hit_ratio: float | None


class Dispatcher(BaseModel):
    #: of its log; unknown until it has answered
    log: str | None
    url: str | None
    #: the one that was asked
    self: bool
    reachable: bool
    #: it takes events
    ready: bool
    #: of others: it has all that has changed here
    level: bool
    #: it carries out changes of topics and subscriptions
    leader: bool
    #: why it was not reached
    failure: str | None


class DispatcherList(BaseModel):
    dispatchers: list[Dispatcher]


def routes(network: Network, peers: Peers | None) -> APIRouter:
    router = APIRouter(tags=["operations"], route_class=StrictRoute)

    @router.get("/v1/servers", response_model=ServerList)
    @needs(Need.OPERATOR)
    async def list_servers() -> Any:
        servers = network.describe_servers()
        asked = network.published * len(servers)
        forwarded = sum(server["forwarded"] for server in servers)
        return {
            "servers": servers,
            "published": network.published,
            "hit_ratio": forwarded / asked if asked else None,
        }

    @router.get("/v1/dispatchers", response_model=DispatcherList)
    @needs(Need.OPERATOR)
    async def list_dispatchers() -> Any:
        """All dispatchers as this one sees them, itself first; alone, it is always ready."""
        if peers is not None:
            return {"dispatchers": peers.describe()}
        own = {"log": network.log.id, "url": network.settings.url, "self": True, "reachable": True}
        return {"dispatchers": [{**own, "ready": True, "level": True, "leader": True, "failure": None}]}

    @router.get("/v1/servers/{id}/summary", response_model=dict[str, Any])
    @needs(Need.OPERATOR)
    async def server_summary(id: str) -> Any:
        """What the dispatcher holds of a server: rectangles in use, precision, size."""
        if network.members.get(id) is None:
            raise NotFound(f'no server "{id[:80]}"')
        return msgspec.to_builtins(network.table.describe(id))

    @router.get("/livez", response_model=dict[str, str])
    @needs(Need.PUBLIC)
    async def livez() -> Any:
        return {"status": "alive"}

    @router.get("/readyz", response_model=dict[str, Any])
    @needs(Need.PUBLIC)
    async def readyz() -> Any:
        """Ready when at least one server can host subscriptions, and this dispatcher may take events."""
        if peers is not None and not peers.accepting():
            raise Unavailable("not level with the other dispatchers", retry_after=1)
        if network.shortage is not None:
            raise Unavailable(f"{network.shortage}; no events are accepted", retry_after=5)
        ready = len(network.members.ready())
        if not ready:
            raise Unavailable("no server is ready", retry_after=math.ceil(HEARTBEAT_SECONDS))
        return {"status": "ready", "servers": ready}

    return router
