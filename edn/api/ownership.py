"""Who owns the logs and servers of a network on PostgreSQL."""

from __future__ import annotations

import msgspec


class LeaseState(msgspec.Struct, frozen=True):
    """The lease of a log or of a server's shard."""

    #: log or server
    kind: str
    id: str
    #: owned, stopped in good order, or dead: nobody renews the lease
    state: str
    #: where the owner runs
    holder: str = ""
    #: since when
    since: str | None = None
    #: how often a process took it from a dead one
    takeovers: int = 0


class Replica(msgspec.Struct, frozen=True):
    """A standby of the database, as the primary sees it."""

    name: str
    #: sync, quorum, potential or async; empty if the database user must not see it
    sync: str = ""
    #: bytes of the write-ahead log that it has not flushed; null if the user must not see it
    lag_bytes: int | None = None


class Ownership(msgspec.Struct, frozen=True):
    #: sqlite or postgresql
    engine: str
    leases: list[LeaseState] = []
    #: processes that wait to replace a dead server
    spares: int = 0
    replicas: list[Replica] = []
