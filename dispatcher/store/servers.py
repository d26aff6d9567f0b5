"""Servers: their URLs and cursors, and whether they are drained or lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from dispatcher.store.interface import Connection, Transaction, read_int
from dispatcher.store.records import load_control
from edn import protocol

#: an operator drains the server, or has declared it lost
Leaving = Literal["draining", "lost"]


def all_servers(connection: Connection) -> list[tuple[str, str, str, int, int]]:
    """Return id, URL, hash of the key, epoch and time of registration of all servers."""
    return connection.execute("SELECT id, url, key, epoch, registered FROM servers ORDER BY id").fetchall()


def key_of(connection: Connection, server: str) -> str | None:
    """Return the hash of a server's key; None if the server is unknown."""
    row = connection.execute("SELECT key FROM servers WHERE id = ?", (server,)).fetchone()
    return None if row is None else str(row[0])


def put(transaction: Transaction, server: str, url: str, key: str, epoch: int) -> None:
    """Insert a server, or update its URL and epoch."""
    transaction.connection.execute(
        "INSERT INTO servers VALUES (?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET "
        "url = excluded.url, epoch = excluded.epoch",
        (server, url, key, epoch, transaction.time),
    )


def delete(transaction: Transaction, server: str) -> None:
    for table, column in (("servers", "id"), ("cursors", "server"), ("leaving", "server")):
        transaction.connection.execute(f"DELETE FROM {table} WHERE {column} = ?", (server,))


def first_record(connection: Connection, server: str) -> int | None:
    (first,) = connection.execute("SELECT min(last) FROM records WHERE server = ?", (server,)).fetchone()
    return None if first is None else int(first)


def controls(connection: Connection, server: str, after: int) -> list[protocol.Control]:
    """Return the control records of a server after an offset."""
    rows = connection.execute(
        "SELECT payload FROM records WHERE last > ? AND server = ? ORDER BY last", (after, server)
    )
    return [load_control(server, payload).control for (payload,) in rows]


def put_cursors(transaction: Transaction, cursors: Sequence[tuple[str, int]]) -> None:
    """Store the cursors of servers; unknown servers are ignored."""
    transaction.connection.executemany(
        "INSERT INTO cursors SELECT ?1, ?2 WHERE EXISTS (SELECT 1 FROM servers WHERE id = ?1)"
        " ON CONFLICT (server) DO UPDATE SET cursor = excluded.cursor",
        cursors,
    )


def cursor(connection: Connection, server: str) -> int:
    return read_int(connection, "SELECT coalesce(max(cursor), 0) FROM cursors WHERE server = ?", server)


def least_cursor(connection: Connection) -> int:
    """Return the offset up to which all servers have read; 0 while a lost server must be replaced."""
    if lost(connection):
        return 0
    return read_int(
        connection,
        "SELECT coalesce(min(coalesce(c.cursor, 0)), 0) FROM servers s"
        " LEFT JOIN cursors c ON c.server = s.id",
    )


def leaving(connection: Connection) -> list[tuple[str, Leaving]]:
    """Return the servers that are drained or lost."""
    return connection.execute("SELECT server, state FROM leaving").fetchall()


def lost(connection: Connection) -> dict[str, int]:
    return dict(connection.execute("SELECT server, cursor FROM leaving WHERE state = 'lost'"))


def mark_leaving(transaction: Transaction, server: str, state: Leaving, cursor: int) -> None:
    transaction.connection.execute(
        "INSERT INTO leaving VALUES (?1, ?2, ?3) ON CONFLICT (server) DO UPDATE SET state = ?2, cursor = ?3",
        (server, state, cursor),
    )
    if state == "lost":
        # Its buffered notifications are lost, too.
        transaction.connection.execute("UPDATE moves SET keeping = 0 WHERE source = ?", (server,))


def unmark_leaving(transaction: Transaction, server: str | None) -> None:
    transaction.connection.execute("DELETE FROM leaving WHERE server = ?", (server,))
