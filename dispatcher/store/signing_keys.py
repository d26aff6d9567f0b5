"""Key rings: the secrets that sign notifications, by tenant, owner, URL and fingerprint of a given secret."""

from __future__ import annotations

from collections.abc import Iterable

from dispatcher.store.interface import Connection, Transaction
from edn import protocol
from edn.formats.webhooks import KeyRing
from edn.model import namespace

#: tenant, owner, URL, fingerprint of a secret that was given
Key = tuple[str, str, str, str]


def read(connection: Connection, ids: Iterable[str]) -> list[KeyRing]:
    """Return rings by id; the empty id is none."""
    found = []
    for id in sorted(set(ids) - {""}):
        row = connection.execute(
            "SELECT id, current, previous, until, version FROM rings WHERE id = ?", (id,)
        ).fetchone()
        if row is not None:
            found.append(KeyRing(*row))
    return found


def find_used(connection: Connection, key: Key) -> str | None:
    """Return the ring of a key: any for a given secret; one that is in use for a generated secret.

    Nobody knows a generated secret any more whose last subscription is gone: the next one gets a new one.
    """
    row = connection.execute(
        "SELECT id FROM rings r WHERE tenant = ? AND owner = ? AND url = ? AND given = ?"
        " AND (given != '' OR EXISTS (SELECT 1 FROM subscriptions s WHERE s.ring = r.id AND s.ring != ''))"
        " LIMIT 1",
        key,
    ).fetchone()
    return None if row is None else str(row[0])


def insert(transaction: Transaction, id: str, key: Key, secret: str) -> None:
    transaction.connection.execute(
        "INSERT INTO rings VALUES (?, ?, ?, ?, ?, ?, NULL, 0, 1)", (id, *key, secret)
    )


def take(transaction: Transaction, state: protocol.RingState) -> None:
    """Insert a ring of another dispatcher, or replace the one of its id."""
    transaction.connection.execute(
        "INSERT OR REPLACE INTO rings VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            state.id,
            state.tenant,
            state.owner,
            state.url,
            state.given,
            state.current,
            state.previous,
            state.until,
            state.version,
        ),
    )


def update(transaction: Transaction, ring: KeyRing) -> None:
    transaction.connection.execute(
        "UPDATE rings SET current = ?, previous = ?, until = ?, version = ? WHERE id = ?",
        (ring.current, ring.previous, ring.until, ring.version, ring.id),
    )


def of_subscription(connection: Connection, subscription: str) -> str | None:
    """Return the ring id of a subscription, empty for none; None if there is no such subscription."""
    row = connection.execute("SELECT ring FROM subscriptions WHERE id = ?", (subscription,)).fetchone()
    return None if row is None else str(row[0])


def hosts(connection: Connection, ring: str) -> list[str]:
    """Return the servers that host subscriptions of a ring."""
    rows = connection.execute(
        "SELECT DISTINCT server FROM subscriptions WHERE ring = ? AND ring != '' AND server != ''", (ring,)
    )
    return [server for (server,) in rows]


def count(connection: Connection, ring: str) -> int:
    """Count the subscriptions of a ring; one to a subtree counts once."""
    row = connection.execute(
        "SELECT count(*) FROM subscriptions WHERE ring = ? AND ring != '' AND instr(id, ?) = 0",
        (ring, namespace.MEMBER),
    ).fetchone()
    return int(row[0])
