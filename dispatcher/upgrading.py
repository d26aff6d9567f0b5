"""Brings a data folder that an older program wrote to the present format, inside the opening transaction."""

from __future__ import annotations

import sqlite3

import msgspec

from edn import wire


class _Events1(msgspec.Struct, frozen=True, array_like=True):
    """What format 1 kept of a request's events: a body an event, all ids spelt out."""

    ids: list[str]
    stamps: list[int]
    bodies: list[bytes]
    width: int
    points: bytes


def from_format_1(connection: sqlite3.Connection) -> None:
    """Signed notifications, pauses, availability, and events as lines."""
    _add_column(connection, "subscriptions", "location", "TEXT")
    _add_column(connection, "subscriptions", "ring", "TEXT NOT NULL DEFAULT ''")
    _add_column(connection, "subscriptions", "paused", "INTEGER NOT NULL DEFAULT 0")
    _add_column(connection, "topics", "availability", "REAL NOT NULL DEFAULT 0")
    _add_column(connection, "records", "expires", "INTEGER")
    first = connection.execute("SELECT last - count FROM records ORDER BY last LIMIT 1").fetchone()
    if first is not None:
        connection.execute("INSERT OR REPLACE INTO meta VALUES ('floor', ?)", first)
    decoder = msgspec.msgpack.Decoder(_Events1)
    found = connection.execute("SELECT last, payload FROM records WHERE topic IS NOT NULL").fetchall()
    for last, payload in found:
        old = decoder.decode(payload)
        lines = b"".join(body + b"\n" for body in old.bodies)
        fresh = (old.ids, wire.int64_bytes(old.stamps), lines, old.width, old.points, b"")
        connection.execute(
            "UPDATE records SET payload = ? WHERE last = ?", (msgspec.msgpack.encode(fresh), last)
        )


def from_format_2(connection: sqlite3.Connection) -> None:
    """Subscriptions that move from server to server."""
    _add_column(connection, "changes", "former", "TEXT")
    _add_column(connection, "replays", "after", "INTEGER")


def from_format_3(connection: sqlite3.Connection) -> None:
    """Subscriptions to subtrees; matchers that are bound to names."""
    _add_column(connection, "subscriptions", "subtree", "TEXT")
    _add_column(connection, "topics", "chosen", "INTEGER NOT NULL DEFAULT 0")
    # Nobody wrote down who chose an engine; one that is not the default was chosen.
    connection.execute("UPDATE topics SET chosen = 1 WHERE engine != 'bitmap'")


def from_format_4(connection: sqlite3.Connection) -> None:
    """What subscriptions that have ended wanted of the past."""
    _add_column(connection, "changes", "wanted", "TEXT")


def _add_column(connection: sqlite3.Connection, table: str, column: str, kind: str) -> None:
    if column not in {name for _, name, *_ in connection.execute(f"PRAGMA table_info({table})")}:
        connection.execute(f"ALTER TABLE {table} ADD COLUMN {column} {kind}")
