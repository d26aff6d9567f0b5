"""Sources: which broker is consumed into which topic, who runs it, and the messages that were not accepted.

The URL is stored sealed, because it may contain a password. A source is run by the dispatcher that **claims**
it: the claim is a lease, which its owner renews. In a data folder there is one dispatcher, and no claim.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dispatcher.store.interface import (
    Connection,
    Transaction,
    column_names,
    first_column,
    insert_row,
    read_int,
    row_of,
)
from edn.runtime.sql import SealedColumn

#: sealed, because it may contain a password
URL = SealedColumn("sources", "id", "url")
#: dead letters of one source; the oldest is dropped for another one
LETTERS = 1000


@dataclass(frozen=True, slots=True)
class Source:
    #: key: the id, with the tenant if there is one (`edn.model.namespace`)
    id: str
    tenant: str
    #: name of the topic
    topic: str
    #: the URL without its password; `open_url` returns the whole
    shown: str
    #: name of the source at the broker: an MQTT client id, a JetStream consumer
    consumer: str
    #: id and name of the API key that created it, and its quota as JSON: its events count for it
    api_key: str
    owner: str
    quota: str
    #: microseconds since 1970
    created: int


@dataclass(frozen=True, slots=True)
class Letter:
    """A message that was not accepted."""

    #: message id at the broker, if there is one
    message: str | None
    reason: str
    #: beginning of the body, and its whole size
    body: bytes
    size: int
    #: microseconds since 1970; 0 until it is stored
    time: int = 0
    id: int = 0


_FIELDS = column_names(Source)


def all_sources(connection: Connection) -> list[Source]:
    """Return all sources in the order of creation."""
    return [Source(*row) for row in connection.execute(f"SELECT {_FIELDS} FROM sources ORDER BY created, id")]


def find(connection: Connection, id: str) -> Source | None:
    row = connection.execute(f"SELECT {_FIELDS} FROM sources WHERE id = ?", (id,)).fetchone()
    return None if row is None else Source(*row)


def count(connection: Connection, tenant: str) -> int:
    return read_int(connection, "SELECT count(*) FROM sources WHERE tenant = ?", tenant)


def insert(transaction: Transaction, source: Source, url: str) -> None:
    sealed = URL.seal(transaction.connection, source.id, url)
    insert_row(transaction.connection, "sources", row_of(source) | {"url": sealed})


def open_url(connection: Connection, id: str) -> str | None:
    """Return the URL of a source, None if it does not exist; raises `UnreadableSecret`."""
    row = connection.execute("SELECT url FROM sources WHERE id = ?", (id,)).fetchone()
    return None if row is None else URL.require(connection, id, row[0])


def delete(transaction: Transaction, id: str) -> bool:
    """Delete a source with its dead letters; return whether it existed."""
    transaction.connection.execute("DELETE FROM source_letters WHERE source = ?", (id,))
    return bool(transaction.connection.execute("DELETE FROM sources WHERE id = ?", (id,)).rowcount)


def claim(transaction: Transaction, ids: Sequence[str], owner: str, seconds: float) -> list[str]:
    """Claim sources for a dispatcher, or renew its claims; return those that it has."""
    connection = transaction.connection
    connection.execute(
        "UPDATE sources SET runner = ?, until = ? WHERE (runner = ? OR until < ?)"
        f" AND {connection.any_of('id')}",
        (
            owner,
            transaction.time + int(seconds * 1e6),
            owner,
            transaction.time,
            connection.array(list(ids)),
        ),
    )
    return first_column(connection, "SELECT id FROM sources WHERE runner = ?", owner)


# -- dead letters ---------------------------------------------------------------------------------------


def insert_letters(transaction: Transaction, source: str, letters: Sequence[Letter]) -> int:
    """Store messages that were not accepted; return how many older ones were dropped for them."""
    connection = transaction.connection
    first = connection.next_ids("source_letters", len(letters))
    connection.executemany(
        "INSERT INTO source_letters (id, source, message, reason, body, size, time)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        [
            (first + place, source, one.message, one.reason, one.body, one.size, transaction.estimate)
            for place, one in enumerate(letters)
        ],
    )
    return connection.execute(
        "DELETE FROM source_letters WHERE source = ?1 AND id <= (SELECT id FROM source_letters"
        " WHERE source = ?1 ORDER BY id DESC LIMIT 1 OFFSET ?2)",
        (source, LETTERS),
    ).rowcount


def letters(connection: Connection, source: str, limit: int, before: int | None = None) -> list[Letter]:
    """Return dead letters, the newest first; `before`: only those with smaller ids."""
    rows = connection.execute(
        "SELECT message, reason, body, size, time, id FROM source_letters"
        " WHERE source = ?1 AND (CAST(?2 AS BIGINT) IS NULL OR id < ?2) ORDER BY id DESC LIMIT ?3",
        (source, before, limit),
    )
    return [Letter(message, reason, bytes(body), *rest) for message, reason, body, *rest in rows]


def count_letters(connection: Connection) -> dict[str, int]:
    """Return the number of dead letters by source; sources without any are missing."""
    return dict(connection.execute("SELECT source, count(*) FROM source_letters GROUP BY source").fetchall())


def delete_letters(transaction: Transaction, source: str) -> int:
    """Delete the dead letters of a source; return their number."""
    return transaction.connection.execute("DELETE FROM source_letters WHERE source = ?", (source,)).rowcount
