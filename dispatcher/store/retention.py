"""Retention: which records and event ids the log still needs, and the bytes of retained events per tenant.

A retained event stays in the log until its availability ends, which may be never. Triggers (`schema`) count
the bytes per tenant in the transaction that writes or deletes a record. Beyond a tenant's limit, publishing
*with* availability is refused; events without availability are accepted.
"""

from __future__ import annotations

from collections.abc import Mapping

from dispatcher.store import meta
from dispatcher.store.interface import Connection, Transaction, first_column, has_rows, read_int
from edn.errors import Overloaded

#: seconds of `Retry-After` at the limit: events expire, topics are deleted
RETRY_SECONDS = 60.0

#: records, bytes of payload and event ids that one step of a truncation deletes at most; event ids are
#: scattered in their index, so that each may cost a page
STEP_RECORDS = 1000
STEP_BYTES = 8 << 20
STEP_IDS = 250


def used(connection: Connection, tenant: str) -> int:
    return read_int(
        connection, "SELECT coalesce(max(bytes), 0) FROM retained_by_all WHERE tenant = ?", tenant
    )


def check(connection: Connection, tenant: str, limit: int | None) -> None:
    """Raise `Overloaded` if the bytes of a tenant's retained events exceed its limit; None is no limit."""
    if limit is not None and (found := used(connection, tenant)) > limit:
        raise Overloaded(
            f"retained_bytes must be at most {limit}, got {found} bytes of retained events; "
            "publish without availability, or wait until some expire",
            retry_after=RETRY_SECONDS,
        )


def insert_events(
    connection: Connection, topic: int, digests: Mapping[str, bytes], time: int
) -> dict[str, bytes]:
    """Insert event ids that were set by a publisher; return the digests of those that exist already.

    `time`: steady, microseconds. The ids of all dispatchers are in one table, so an event that was sent to
    two of them at once is inserted by one; the other waits for its commit.
    """
    # In one order, so that two dispatchers do not wait for each other.
    rows = [(topic, id, digest, time) for id, digest in sorted(digests.items())]
    inserted = set(connection.insert_new("event_ids", "topic, id", rows, "id"))
    others = [id for id in digests if id not in inserted]
    if not others:
        return {}
    found = connection.execute(
        f"SELECT id, digest FROM event_ids WHERE topic = ? AND {connection.any_of('id')}",
        (topic, connection.array(others)),
    )
    return {id: bytes(digest) for id, digest in found}


def known_events(connection: Connection, topic: int, ids: list[str]) -> frozenset[str]:
    """Return those of the event ids that accepted events have."""
    query = f"SELECT id FROM event_ids WHERE topic = ? AND {connection.any_of('id')}"
    return frozenset(first_column(connection, query, topic, connection.array(ids)))


# -- truncation -----------------------------------------------------------------------------------------


def has_expired(connection: Connection, now: int) -> bool:
    """Return whether the availability of a retained event has ended."""
    return has_rows(connection, "SELECT 1 FROM records WHERE expires <= ? LIMIT 1", now)


def delete_step(transaction: Transaction, upto: int, ids_before: int) -> tuple[bool, int]:
    """Delete a bounded number of records and event ids; return whether there are more, and the new floor.

    Records that a replay needs stay, and so does the last record: the head of the log is read from it.
    """
    connection = transaction.connection
    first, oldest = connection.execute("SELECT min(after), min(time) FROM replays").fetchone()
    upto = min(upto, transaction.head, transaction.head if first is None else int(first))
    # A replay may need events that expired after it began.
    expired_by = transaction.time if oldest is None else min(transaction.time, int(oldest))
    meta.raise_to(connection, "floor", upto)
    end = read_int(connection, "SELECT coalesce(max(last), 0) FROM records")
    query = "SELECT last, length(payload) FROM records WHERE {} AND last <= ? AND last < ? {} LIMIT ?"
    deleted, more = _limit_bytes(
        connection.execute(
            query.format("expires IS NULL", "ORDER BY last"), (upto, end, STEP_RECORDS)
        ).fetchall()
    )
    if not more:
        expired, more = _limit_bytes(
            connection.execute(
                query.format("expires <= ?", ""), (expired_by, upto, end, STEP_RECORDS)
            ).fetchall()
        )
        deleted += expired
    if deleted:
        where = connection.any_of("last")
        connection.execute(f"DELETE FROM records WHERE {where}", (connection.array(deleted),))
    ids = connection.execute(
        "DELETE FROM event_ids WHERE (topic, id) IN (SELECT topic, id FROM event_ids WHERE time < ? LIMIT ?)",
        (ids_before, STEP_IDS),
    ).rowcount
    return more or ids == STEP_IDS, upto


def _limit_bytes(found: list[tuple[int, int]]) -> tuple[list[int], bool]:
    """Return the first records whose payloads fit into one step, at least one, and whether there are more."""
    size = 0
    for place, (_, length) in enumerate(found):
        size += length
        if size > STEP_BYTES and place:
            return [last for last, _ in found[:place]], True
    return [last for last, _ in found], len(found) == STEP_RECORDS
