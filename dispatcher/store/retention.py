"""Bytes that each tenant's retained events occupy in the log, and event ids that publishers chose.

An event that stays available to later subscribers stays in the log as long as its publisher said, for ever if
it said so. Triggers (`schema`) count the bytes per tenant in the transaction that writes or deletes a record,
so the sum is exact and never computed. Beyond the limit publishing *with* availability is refused; events
without go on.
"""

from __future__ import annotations

from dispatcher.store.interface import Connection
from edn.errors import Overloaded

#: seconds after which trying again is worth it: events expire, topics are deleted
PATIENCE = 60.0


def used(connection: Connection, tenant: str) -> int:
    row = connection.execute("SELECT bytes FROM retained WHERE tenant = ?", (tenant,)).fetchone()
    return int(row[0]) if row else 0


def check(connection: Connection, tenant: str, limit: int | None) -> None:
    """Raise `Overloaded` if a tenant's retained events are beyond its limit; None is no limit."""
    if limit is not None and (found := used(connection, tenant)) > limit:
        raise Overloaded(
            f"retained_bytes: events that stay available would occupy {found} bytes, the limit is {limit}; "
            "publish without availability, or wait until some expire",
            retry_after=PATIENCE,
        )


def find_event(connection: Connection, topic: int, id: str) -> bytes | None:
    """Return the digest of the event that has an id that its publisher chose."""
    row = connection.execute(
        "SELECT digest FROM event_ids WHERE topic = ? AND id = ?", (topic, id)
    ).fetchone()
    return bytes(row[0]) if row else None


def insert_event(connection: Connection, topic: int, id: str, digest: bytes, time: int) -> None:
    """Remember an id that a publisher chose; `time`: steady, microseconds."""
    connection.execute("INSERT INTO event_ids VALUES (?, ?, ?, ?)", (topic, id, digest, time))
