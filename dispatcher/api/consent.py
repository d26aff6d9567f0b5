"""Receives the deferred consent of CloudEvents sinks, at the URL of `WebHook-Request-Callback`.

The path names the server that asked; it verifies the token (`edn_server.sinks.consent`). The token replaces a
key: a person may follow the URL as a link.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from fastapi import APIRouter, Header, Query
from pydantic import BaseModel

from dispatcher.auth.caller import Need, needs
from dispatcher.servers.client import ServerClient
from dispatcher.servers.registry import ServerRegistry
from edn import protocol
from edn.errors import NotFound
from edn.http.asgi import StrictRoute

_decoder = msgspec.msgpack.Decoder(protocol.Accepted)

Token = Annotated[str, Query(max_length=64, description="Token that the sink received.")]
Rate = Annotated[
    str | None,
    Header(
        alias="webhook-allowed-rate",
        max_length=32,
        description="Allowed POSTs per minute, or *. Default: the requested rate.",
    ),
]


class Consent(BaseModel):
    consent: Literal["granted"]


def routes(servers: ServerRegistry, calls: ServerClient) -> APIRouter:
    router = APIRouter(prefix="/cloudevents/consent", tags=["CloudEvents"], route_class=StrictRoute)

    async def grant(server: str, token: str, rate: str | None) -> dict[str, Any]:
        if servers.get(server) is not None:
            message = protocol.Consented(token, rate or "")
            if not _decoder.decode(await calls.send(server, "/internal/consents", message)).unknown:
                return {"consent": "granted"}
        raise NotFound("no such request for consent, or it is no longer pending")

    @router.get("/{server}", response_model=Consent)
    @needs(Need.PUBLIC)
    async def follow_consent(server: str, token: Token, rate: Rate = None) -> Any:
        """Grant consent by following the link that the sink received."""
        return await grant(server, token, rate)

    @router.post("/{server}", response_model=Consent)
    @needs(Need.PUBLIC)
    async def give_consent(server: str, token: Token, rate: Rate = None) -> Any:
        """Grant consent by a program."""
        return await grant(server, token, rate)

    return router
