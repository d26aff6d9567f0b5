"""Routes of sealed secrets: count them, and seal them again with the first key."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import msgspec
from fastapi import APIRouter

from dispatcher.auth.caller import Need, needs
from dispatcher.servers.client import ServerClient
from dispatcher.servers.registry import ServerRegistry
from dispatcher.store.event_log import Log
from dispatcher.store.interface import Connection
from dispatcher.store.signing_keys import SEALED
from edn import protocol
from edn.api.document import document
from edn.api.secrets import SealedSecrets, SealedStore
from edn.errors import EdnError
from edn.http.asgi import StrictRoute
from edn.runtime.sql import Resealing, count_sealed

#: seconds of work per process and call; a caller repeats the call while secrets are left
STEP_SECONDS = 8.0
_decoder = msgspec.msgpack.Decoder(protocol.SealedSecrets)


def routes(log: Log, registry: ServerRegistry, calls: ServerClient) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["operations"], route_class=StrictRoute)

    @router.get("/secrets", response_model=document(SealedSecrets))
    @needs(Need.OPERATOR)
    async def count_secrets() -> Any:
        """Count the stored secrets by the key that sealed them."""
        return await _everywhere(0.0)

    @router.post("/secrets/reseal", response_model=document(SealedSecrets))
    @needs(Need.OPERATOR)
    async def reseal_secrets() -> Any:
        """Seal stored secrets of other keys with the first key of each process, for some seconds.

        Repeat the call until `done`: then keys but the first can be removed. Servers that are offline are
        reported, and nothing is done there.
        """
        return await _everywhere(STEP_SECONDS)

    async def _everywhere(seconds: float) -> SealedSecrets:
        return _total(
            [
                await _own(log, seconds),
                *await asyncio.gather(*(ask(server.id, seconds) for server in registry)),
            ]
        )

    async def ask(id: str, seconds: float) -> SealedStore:
        try:
            found = _decoder.decode(await calls.send(id, "/internal/secrets", protocol.Reseal(seconds)))
        except (EdnError, msgspec.MsgspecError) as error:
            return SealedStore(id, failure=str(error))
        return _describe(id, found.keys, found.counts, found.resealed)

    return router


async def _own(log: Log, seconds: float) -> SealedStore:
    """Seals the dispatcher's secrets again, and counts them."""
    resealing, until = Resealing(SEALED), time.monotonic() + seconds
    try:
        while time.monotonic() < until and await log.upkeep(
            lambda transaction: resealing.step(transaction.connection)
        ):
            pass
        counts, keys = await log.scanning(_count)
    except EdnError as error:
        return SealedStore("dispatcher", failure=str(error))
    return _describe("dispatcher", keys, counts, resealing.resealed)


def _count(connection: Connection) -> tuple[dict[str, int], Sequence[str]]:
    return count_sealed(connection, SEALED), connection.box.key_ids


def _describe(process: str, keys: Sequence[str], counts: dict[str, int], resealed: int) -> SealedStore:
    left = sum(count for id, count in counts.items() if id != keys[0])
    return SealedStore(process, list(keys), counts, resealed, left)


def _total(processes: list[SealedStore]) -> SealedSecrets:
    left = sum(one.left for one in processes)
    return SealedSecrets(
        processes,
        resealed=sum(one.resealed for one in processes),
        left=left,
        done=not left and all(one.failure is None for one in processes),
    )
