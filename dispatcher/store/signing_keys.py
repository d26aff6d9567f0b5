"""Key rings of webhook signatures, by tenant, owner, URL and fingerprint of a given secret.

Their secrets are sealed. A control record of the log names the rings only (`fill_rings`).
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from dispatcher.store import directory, sources
from dispatcher.store.interface import Connection, Transaction, first_column, read_int
from edn import protocol
from edn.formats.webhooks import KeyRing
from edn.model import namespace
from edn.runtime.sql import SealedColumn

_CURRENT = SealedColumn("rings", "id", "current")
_PREVIOUS = SealedColumn("rings", "id", "previous")
#: all secrets that the dispatcher stores
SEALED = (_CURRENT, _PREVIOUS, sources.URL, directory.CREDENTIALS)

#: tenant, owner, URL, fingerprint of the secret that the subscriber gave, empty if it was generated
Key = tuple[str, str, str, str]


def read(connection: Connection, ids: Iterable[str]) -> list[KeyRing]:
    """Return the rings with these ids; the empty id is ignored."""
    found = []
    for id in sorted(set(ids) - {""}):
        row = connection.execute(
            "SELECT id, current, previous, until, version FROM rings WHERE id = ?", (id,)
        ).fetchone()
        if row is not None:
            _, current, previous, *rest = row
            found.append(KeyRing(id, *open_secrets(connection, id, current, previous), *rest))
    return found


def open_secrets(
    connection: Connection, id: str, current: bytes, previous: bytes | None
) -> tuple[str, str | None]:
    """Return the secrets in a row."""
    return _CURRENT.require(connection, id, current), _PREVIOUS.open(connection, id, previous)


def fill_rings(connection: Connection, control: protocol.Control) -> protocol.Control:
    """Return a stored control record with the current secrets of its rings."""
    return msgspec.structs.replace(control, rings=read(connection, [ring.id for ring in control.rings]))


def find_used(connection: Connection, key: Key) -> str | None:
    """Return the ring of a key; a ring with a generated secret only while a subscription uses it.

    Once its last subscription has ended, nobody knows a generated secret, so the next one gets a new secret.
    """
    row = connection.execute(
        "SELECT id FROM rings r WHERE tenant = ? AND owner = ? AND url = ? AND given = ?"
        " AND (given != '' OR EXISTS (SELECT 1 FROM subscriptions s WHERE s.ring = r.id AND s.ring != ''))"
        " LIMIT 1",
        key,
    ).fetchone()
    return None if row is None else str(row[0])


def insert(transaction: Transaction, id: str, key: Key, secret: str) -> None:
    sealed = _CURRENT.seal(transaction.connection, id, secret)
    transaction.connection.execute(
        "INSERT INTO rings VALUES (?, ?, ?, ?, ?, ?, NULL, 0, 1)", (id, *key, sealed)
    )


def update(transaction: Transaction, ring: KeyRing) -> None:
    connection = transaction.connection
    sealed = _CURRENT.seal(connection, ring.id, ring.current)
    previous = _PREVIOUS.seal(connection, ring.id, ring.previous)
    connection.execute(
        "UPDATE rings SET current = ?, previous = ?, until = ?, version = ? WHERE id = ?",
        (sealed, previous, ring.until, ring.version, ring.id),
    )


def of_subscription(connection: Connection, subscription: str) -> str | None:
    """Return the ring id of a subscription, empty for none; None if the subscription does not exist."""
    row = connection.execute("SELECT ring FROM subscriptions WHERE id = ?", (subscription,)).fetchone()
    return None if row is None else str(row[0])


def hosts(connection: Connection, ring: str) -> list[str]:
    return first_column(
        connection,
        "SELECT DISTINCT server FROM subscriptions WHERE ring = ? AND ring != '' AND server != ''",
        ring,
    )


def count(connection: Connection, ring: str) -> int:
    """Count the subscriptions of a ring; a subtree subscription counts once."""
    return read_int(
        connection,
        "SELECT count(*) FROM subscriptions WHERE ring = ? AND ring != '' AND instr(id, ?) = 0",
        ring,
        namespace.MEMBER,
    )
