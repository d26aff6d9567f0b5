"""Rows of servers: their addresses, up to where they have read the log, and which of them leave."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from dispatcher.store.interface import Connection, Transaction
from dispatcher.store.records import load_control
from edn import protocol

#: emptied by an operator, or given up
Leaving = Literal["draining", "lost"]


def all_servers(connection: Connection) -> list[tuple[str, str, str, int, int]]:
    """Return id, address, hash of the key, epoch and time of registration of every server."""
    return connection.execute("SELECT id, url, key, epoch, registered FROM servers ORDER BY id").fetchall()


def is_known(connection: Connection, server: str) -> bool:
    return connection.execute("SELECT 1 FROM servers WHERE id = ?", (server,)).fetchone() is not None


def put(transaction: Transaction, server: str, url: str, key: str, epoch: int) -> None:
    """Insert a server, or change its address and epoch."""
    transaction.connection.execute(
        "INSERT INTO servers VALUES (?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET "
        "url = excluded.url, epoch = excluded.epoch",
        (server, url, key, epoch, transaction.time),
    )


def delete(transaction: Transaction, server: str) -> None:
    """Delete a server, with its cursor."""
    for table, column in (("servers", "id"), ("cursors", "server"), ("leaving", "server")):
        transaction.connection.execute(f"DELETE FROM {table} WHERE {column} = ?", (server,))


def first_record(connection: Connection, server: str) -> int | None:
    """Return the offset of the first control record for a server."""
    (first,) = connection.execute("SELECT min(last) FROM records WHERE server = ?", (server,)).fetchone()
    return None if first is None else int(first)


def controls(connection: Connection, server: str, after: int) -> list[protocol.Control]:
    """Return the changes that concern a server, beyond an offset."""
    rows = connection.execute(
        "SELECT payload FROM records WHERE last > ? AND server = ? ORDER BY last", (after, server)
    )
    return [load_control(server, payload).control for (payload,) in rows]


def put_cursors(transaction: Transaction, cursors: Sequence[tuple[str, int]]) -> None:
    """Store up to where servers have read; unknown servers are left out."""
    transaction.connection.executemany(
        "INSERT OR REPLACE INTO cursors SELECT ?1, ?2 WHERE EXISTS (SELECT 1 FROM servers WHERE id = ?1)",
        cursors,
    )


def cursor(connection: Connection, server: str) -> int:
    """Return up to where a server had read when that was last stored."""
    row = connection.execute("SELECT cursor FROM cursors WHERE server = ?", (server,)).fetchone()
    return int(row[0]) if row else 0


def leaving(connection: Connection) -> list[tuple[str, Leaving]]:
    """Return the servers that are being emptied or are lost."""
    return connection.execute("SELECT server, state FROM leaving").fetchall()


def lost(connection: Connection) -> dict[str, int]:
    """Return the lost servers, and up to where each had read."""
    return dict(connection.execute("SELECT server, cursor FROM leaving WHERE state = 'lost'"))


def mark_leaving(transaction: Transaction, server: str, state: Leaving, cursor: int) -> None:
    transaction.connection.execute(
        "INSERT INTO leaving VALUES (?1, ?2, ?3) ON CONFLICT (server) DO UPDATE SET state = ?2, cursor = ?3",
        (server, state, cursor),
    )
    if state == "lost":
        # Its buffers are gone.
        transaction.connection.execute("UPDATE moves SET keeping = 0 WHERE source = ?", (server,))


def unmark_leaving(transaction: Transaction, server: str | None) -> None:
    transaction.connection.execute("DELETE FROM leaving WHERE server = ?", (server,))
