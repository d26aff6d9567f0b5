"""Rows of API keys: who a key stands for, what it may do and use up; of the key itself only the digest."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import msgspec

from dispatcher.store.interface import Connection, Transaction
from edn import protocol

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
    """Limits of a key; None is no limit. `dispatcher.auth.quotas` enforces them."""

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
    #: streams that are read with it at the same time; None is `dispatcher.auth.quotas.STREAMS`
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


def all_keys(connection: Connection) -> dict[str, Key]:
    """Return every key by its id."""
    return {row[0]: _load(row) for row in connection.execute(f"SELECT {_FIELDS} FROM keys ORDER BY id")}


def insert(transaction: Transaction, key: Key) -> None:
    """Insert a key, or replace the one of its id."""
    transaction.connection.execute(
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


def take(transaction: Transaction, state: protocol.KeyState) -> None:
    """Insert a key that another dispatcher has made."""
    fields = (state.id, state.digest, state.name, state.tenant, state.scopes, state.quota)
    insert(transaction, _load((*fields, state.created, state.expires)))


def delete(transaction: Transaction, id: str) -> bool:
    """Return whether there was one."""
    return bool(transaction.connection.execute("DELETE FROM keys WHERE id = ?", (id,)).rowcount)


def _load(row: tuple[Any, ...]) -> Key:
    id, digest, name, tenant, scopes, quota, created, expires = row
    may = frozenset(map(Scope, msgspec.json.decode(scopes)))
    return Key(id, digest, name, tenant, may, created, expires, msgspec.json.decode(quota, type=Quota))
