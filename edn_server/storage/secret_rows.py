"""Sealed secrets: the server's identity key, and the signing secrets of key rings (`versions`)."""

from __future__ import annotations

import asyncio
import secrets
import time

from edn import protocol
from edn.runtime.sql import Resealing, SealedColumn, check_keys, count_sealed
from edn_server.storage.interface import Connection
from edn_server.storage.store import Store
from edn_server.storage.writer import Call

#: columns of `secrets` and `rings`
_OWN = SealedColumn("secrets", "name", "sealed")
CURRENT = SealedColumn("rings", "id", "current")
PREVIOUS = SealedColumn("rings", "id", "previous")
CREDENTIALS = SealedColumn("sink_settings", "id", "credentials")
#: all secrets that a server stores
SEALED = (_OWN, CURRENT, PREVIOUS, CREDENTIALS)


def create_key(db: Connection) -> None:
    """Creates the identity key of a new store."""
    db.execute(
        "INSERT INTO secrets (name, sealed) VALUES (?, ?) ON CONFLICT (name) DO NOTHING",
        ("key", _OWN.seal(db, "key", secrets.token_hex(16))),
    )


def key(db: Connection) -> str:
    """Returns the identity key."""
    (sealed,) = db.execute("SELECT sealed FROM secrets WHERE name = 'key'").fetchone()
    return _OWN.require(db, "key", sealed)


def check(db: Connection, place: str) -> None:
    """Raises `CannotStart` if a secret is sealed with a key that this process does not have."""
    check_keys(db, SEALED, place)


async def reseal(store: Store, seconds: float) -> protocol.SealedSecrets:
    """Seals secrets of other keys with the first key, for some seconds, and counts all secrets."""
    resealing, until = Resealing(SEALED), time.monotonic() + seconds
    while time.monotonic() < until and await store.committed(Call(resealing.step)):
        pass
    reader = store.reader("secrets")
    try:
        return await reader.reading(_count, resealing.resealed)
    finally:
        await asyncio.to_thread(reader.close)


def _count(db: Connection, resealed: int) -> protocol.SealedSecrets:
    return protocol.SealedSecrets(list(db.box.key_ids), count_sealed(db, SEALED), resealed)
