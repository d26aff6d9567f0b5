"""API keys: tenant, scopes and quota; of the secret only the digest is stored."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import msgspec

from dispatcher.store.interface import Connection, Transaction, insert_row, row_of

_FIELDS = "id, digest, name, tenant, scopes, quota, created, expires"


class Scope(StrEnum):
    PUBLISH = "publish"
    SUBSCRIBE = "subscribe"
    ADMIN = "admin"
    #: read the metrics of the whole network, and nothing else; only for keys without a tenant
    METRICS = "metrics"


class Pool(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The limits that a key shares with all keys that were created with it, directly or not.

    It is a copy, so the limits hold after the key itself is revoked.
    """

    #: id of the key
    key: str
    requests_per_second: float | None = None
    events_per_second: float | None = None
    streams: int | None = None


class Quota(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The quotas of a key; None is no limit. `dispatcher.auth.quotas` enforces them."""

    #: averages of all requests and of published events; bursts of a few seconds pass
    requests_per_second: float | None = None
    events_per_second: float | None = None
    #: subscriptions of the tenant, and comparisons in all their filters
    subscriptions: int | None = None
    predicates: int | None = None
    #: topics of the tenant, attributes of all topics, members of all subtree subscriptions; for a tenant None
    #: is the default of the settings
    topics: int | None = None
    attributes: int | None = None
    members: int | None = None
    #: bytes of one body
    body: int | None = None
    #: streams that are read at the same time; None is `dispatcher.auth.quotas.STREAMS`
    streams: int | None = None
    #: bytes of the tenant's retained events; None is the dispatcher's setting
    retained_bytes: int | None = None
    #: pools of the keys that created this one, the direct creator first
    pools: tuple[Pool, ...] = ()

    def pooled(self, key: str, tenant: str) -> tuple[Pool, ...]:
        """Return the pools of a key that is created with `key`, which has this quota.

        An operator's key without limits is no pool. A tenant's key always is, because the number of its
        streams is limited by default.
        """
        own = Pool(key, self.requests_per_second, self.events_per_second, self.streams)
        return (own, *self.pools) if tenant or own != Pool(key) else self.pools


@dataclass(frozen=True, slots=True)
class Key:
    id: str
    #: SHA-256 of the whole key
    digest: bytes
    #: display name, and the default owner of its subscriptions
    name: str
    #: empty for the operator
    tenant: str
    scopes: frozenset[Scope]
    #: microseconds since 1970
    created: int
    #: None is never
    expires: int | None
    quota: Quota = field(default_factory=Quota)


def all_keys(connection: Connection) -> dict[str, Key]:
    return {row[0]: _load(row) for row in connection.execute(f"SELECT {_FIELDS} FROM keys ORDER BY id")}


def insert(transaction: Transaction, key: Key) -> None:
    scopes = msgspec.json.encode(sorted(key.scopes)).decode()
    row = row_of(key, scopes=scopes, quota=msgspec.json.encode(key.quota).decode())
    insert_row(transaction.connection, "keys", row, key="id")


def delete(transaction: Transaction, id: str) -> bool:
    """Delete a key; return whether it existed."""
    return bool(transaction.connection.execute("DELETE FROM keys WHERE id = ?", (id,)).rowcount)


def _load(row: tuple[Any, ...]) -> Key:
    id, digest, name, tenant, scopes, quota, created, expires = row
    parsed = frozenset(map(Scope, msgspec.json.decode(scopes)))
    return Key(id, digest, name, tenant, parsed, created, expires, msgspec.json.decode(quota, type=Quota))
