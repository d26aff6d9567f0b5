"""Where sinks of CloudEvents may consent later, by a call: `WebHook-Request-Callback` named it to them.

The server that asked is named in the path, and knows the token, which nobody else can make
(`edn_server.sinks.consent`). Whoever holds it needs no key: a person may follow it as a link.
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

_taken = msgspec.msgpack.Decoder(protocol.Taken)

Token = Annotated[str, Query(max_length=64, description="As it was given to the sink.")]
Rate = Annotated[
    str | None,
    Header(
        alias="webhook-allowed-rate",
        max_length=32,
        description="POSTs a minute that are allowed, or *; without it, as many as were asked for.",
    ),
]


class Consent(BaseModel):
    consent: Literal["granted"]


def routes(members: ServerRegistry, calls: ServerClient) -> APIRouter:
    router = APIRouter(prefix="/cloudevents/consent", tags=["CloudEvents"], route_class=StrictRoute)

    async def consented(server: str, token: str, rate: str | None) -> dict[str, Any]:
        if members.get(server) is not None:
            message = protocol.Consented(token, rate or "")
            if not _taken.decode(await calls.send(server, "/internal/consents", message)).unknown:
                return {"consent": "granted"}
        raise NotFound("nobody asked for this consent, or it is not awaited any more")

    @router.get("/{server}", response_model=Consent)
    @needs(Need.PUBLIC)
    async def follow_consent(server: str, token: Token, rate: Rate = None) -> Any:
        """Consent to be posted to: the link that a sink was given."""
        return await consented(server, token, rate)

    @router.post("/{server}", response_model=Consent)
    @needs(Need.PUBLIC)
    async def give_consent(server: str, token: Token, rate: Rate = None) -> Any:
        """The same, for programs."""
        return await consented(server, token, rate)

    return router
