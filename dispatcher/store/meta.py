"""Single values, by key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dispatcher.store.interface import Connection


def read(connection: Connection, *keys: str) -> dict[str, Any]:
    """Return the values of keys, without the missing ones."""
    found = {}
    for key in keys:
        row = connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        if row is not None:
            found[key] = connection.load(row[0])
    return found


def write(connection: Connection, values: Mapping[str, Any]) -> None:
    connection.executemany(
        "INSERT INTO meta VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        [(key, connection.dump(value)) for key, value in values.items()],
    )


def raise_to(connection: Connection, key: str, value: int) -> None:
    """Set a number that only grows."""
    if value > read(connection, key).get(key, value - 1):
        write(connection, {key: value})
