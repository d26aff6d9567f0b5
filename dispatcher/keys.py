"""API keys: made here, shown once, kept as digests; who they stand for, and what they may do.

A key reads `edn_<id>_<secret>`: the id is public and names the key in listings, logs and the audit; of the
whole only the SHA-256 is kept, which is enough for 256 random bits. All keys are in memory, so that asking
costs no disk; where there are several dispatchers they learn of each other's (see `changes`).
"""

from __future__ import annotations

import hashlib
import re
import secrets
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import msgspec

from dispatcher import changes
from dispatcher.changes import Kind
from dispatcher.log import Log, Transaction
from edn import wire
from edn.errors import InvalidInput, NotFound

_TENANT = re.compile(r"[A-Za-z0-9_-]{0,64}\Z")
_FIELDS = "id, digest, name, tenant, scopes, quota, created, expires"


class Scope(StrEnum):
    PUBLISH = "publish"
    SUBSCRIBE = "subscribe"
    ADMIN = "admin"
    #: reading the metrics of the whole network, and nothing else; of keys without a tenant only
    METRICS = "metrics"


class Pool(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The limits of a key that it shares with all keys that were made with it, directly or not.

    A copy: the pool still counts when the key itself was revoked.
    """

    #: id of the key
    key: str
    requests_per_second: float | None = None
    events_per_second: float | None = None
    streams: int | None = None


class Quota(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a key may use up; None is no limit. `dispatcher.quotas` enforces it."""

    #: calls of any kind, and events published, on the average; bursts of a few seconds' worth pass
    requests_per_second: float | None = None
    events_per_second: float | None = None
    #: that its tenant has at any time, and the comparisons that their filters make, all together
    subscriptions: int | None = None
    predicates: int | None = None
    #: that its tenant has at any time: topics, the attributes of all of them, and the topics that its
    #: subscriptions to subtrees reach, all together; for a tenant None is the default of the settings
    topics: int | None = None
    attributes: int | None = None
    members: int | None = None
    #: bytes of one body
    body: int | None = None
    #: streams that are read with it at the same time; None is `dispatcher.quotas.STREAMS`
    streams: int | None = None
    #: bytes of its tenant's events that stay available; None is the dispatcher's setting
    retained_bytes: int | None = None
    #: of the keys that it was made with, the maker first
    pools: tuple[Pool, ...] = ()

    def pooled(self, key: str, tenant: str) -> tuple[Pool, ...]:
        """Return the pools of a key that is made with the key `key`, which has this quota.

        An operator's key without limits is no pool: it makes keys for others. A tenant's always is, because
        even without limits it may read only so many streams.
        """
        own = Pool(key, self.requests_per_second, self.events_per_second, self.streams)
        return (own, *self.pools) if tenant or own != Pool(key) else self.pools


@dataclass(frozen=True, slots=True)
class Key:
    id: str
    #: SHA-256 of the whole key
    digest: bytes
    #: whose it is, for people; the default owner of subscriptions made with it
    name: str
    #: whose topics it sees; empty is the operator
    tenant: str
    scopes: frozenset[Scope]
    #: microseconds since 1970
    created: int
    #: None is never
    expires: int | None
    quota: Quota = field(default_factory=Quota)


def identifier(token: bytes) -> str:
    """The public part of what may be a key."""
    parts = token.split(b"_", 2)
    return parts[1].decode("latin-1") if len(parts) == 3 and parts[0] == b"edn" else ""


def check_tenant(name: str) -> None:
    if not _TENANT.match(name):
        raise InvalidInput(
            f'tenant "{name[:80]}": up to 64 letters, digits, "_" and "-"; none for the operator',
            pointer="/tenant",
        )


class Keys:
    """All keys by id; event loop only."""

    def __init__(self, log: Log) -> None:
        self._log = log
        #: an expired key is refused by the best guess of the time: that ends nothing that cannot begin again
        self.now: Callable[[], int] = log.estimate
        self._by_id: dict[str, Key] = {}
        self.reload()

    def reload(self) -> None:
        """What is in the log's file counts from now on."""
        self._by_id = {
            row[0]: _load(row) for row in self._log.reader.execute(f"SELECT {_FIELDS} FROM keys ORDER BY id")
        }

    def find(self, id: str) -> Key | None:
        return self._by_id.get(id)

    def get(self, id: str, tenant: str | None = None) -> Key:
        """A key by its id, of a tenant or of any; raises `NotFound`."""
        key = self._by_id.get(id)
        if key is None or (tenant is not None and key.tenant != tenant):
            raise NotFound(f'no key "{id[:80]}"')
        return key

    def all(self, tenant: str | None = None) -> list[Key]:
        """In the order in which they were made; of one tenant, or of all."""
        found = [key for key in self._by_id.values() if tenant is None or key.tenant == tenant]
        return sorted(found, key=lambda key: (key.created, key.id))

    async def create(
        self,
        *,
        name: str,
        tenant: str,
        scopes: frozenset[Scope],
        expires: int | None = None,
        quota: Quota | None = None,
    ) -> tuple[Key, str]:
        """A new key, and the whole of it, which is known to nobody afterwards but to whoever is told now."""
        check_tenant(tenant)
        id = secrets.token_hex(6)
        token = f"edn_{id}_{secrets.token_urlsafe(32)}"
        digest = hashlib.sha256(token.encode()).digest()
        key = Key(id, digest, name, tenant, scopes, self._log.estimate(), expires, quota or Quota())

        def operation(transaction: Transaction) -> None:
            insert(transaction.connection, key)
            changes.note(transaction, Kind.KEY, key.id)

        await self._log.submit(operation)
        self.reload()
        return key, token

    async def revoke(self, id: str, tenant: str | None = None) -> None:
        """From the answer on it opens nothing."""
        self.get(id, tenant)

        def operation(transaction: Transaction) -> None:
            if not delete(transaction.connection, id):
                raise NotFound(f'no key "{id[:80]}"')
            changes.note(transaction, Kind.KEY, id, gone=transaction.time)

        await self._log.submit(operation)
        self.reload()


def insert(connection: sqlite3.Connection, key: Key) -> None:
    connection.execute(
        f"INSERT OR REPLACE INTO keys ({_FIELDS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            key.id,
            key.digest,
            key.name,
            key.tenant,
            msgspec.json.encode(sorted(key.scopes)).decode(),
            msgspec.json.encode(key.quota).decode(),
            key.created,
            key.expires,
        ),
    )


def take(connection: sqlite3.Connection, state: wire.KeyState) -> None:
    """One that another dispatcher has made."""
    fields = (state.id, state.digest, state.name, state.tenant, state.scopes, state.quota)
    insert(connection, _load((*fields, state.created, state.expires)))


def delete(connection: sqlite3.Connection, id: str) -> bool:
    return bool(connection.execute("DELETE FROM keys WHERE id = ?", (id,)).rowcount)


def _load(row: tuple[Any, ...]) -> Key:
    id, digest, name, tenant, scopes, quota, created, expires = row
    may = frozenset(map(Scope, msgspec.json.decode(scopes)))
    return Key(id, digest, name, tenant, may, created, expires, msgspec.json.decode(quota, type=Quota))
