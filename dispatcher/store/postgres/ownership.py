"""Reads who owns the logs and shards, which processes wait as spares, and the standbys of the database."""

from __future__ import annotations

from dispatcher.store.interface import Connection
from edn.api.ownership import LeaseState, Ownership, Replica
from edn.runtime.postgres.takeover import WATCHING

_KINDS = {"log": "log", "shard": "server"}


def read(connection: Connection) -> Ownership:
    leases = connection.execute(
        "SELECT name, owner = '', until < clock_timestamp(), holder, takeovers,"
        " to_char(taken AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"') FROM leases ORDER BY name"
    ).fetchall()
    spares = connection.execute(
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = ? || current_schema()", (WATCHING,)
    ).fetchone()
    # A user without the role pg_monitor sees that there are standbys, and not how far they are.
    replicas = connection.execute(
        "SELECT coalesce(application_name, ''), coalesce(sync_state, ''),"
        " pg_wal_lsn_diff(pg_current_wal_lsn(), flush_lsn)::bigint FROM pg_stat_replication ORDER BY 1"
    ).fetchall()
    return Ownership(
        engine="postgresql",
        leases=[
            LeaseState(
                kind=_KINDS[kind],
                id=id,
                state="stopped" if is_free else "dead" if is_over else "owned",
                holder="" if is_free else holder,
                since=None if is_free else since,
                takeovers=takeovers,
            )
            for name, is_free, is_over, holder, takeovers, since in leases
            for kind, _, id in [name.partition(":")]
            if kind in _KINDS
        ],
        spares=int(spares[0]),
        replicas=[Replica(name, sync, lag) for name, sync, lag in replicas],
    )
