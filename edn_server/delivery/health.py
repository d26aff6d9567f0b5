"""How it is with each address, on disk: those that fail or are disabled; what is not there is healthy."""

from __future__ import annotations

import sqlite3
from dataclasses import fields

import msgspec

from edn_server.delivery.circuit_breaker import Health
from edn_server.storage.writer import Job

_FIELDS = frozenset(field.name for field in fields(Health))


def load(db: sqlite3.Connection) -> dict[str, Health]:
    found: dict[str, Health] = {}
    for address, data in db.execute("SELECT address, health FROM health"):
        values = msgspec.json.decode(data)
        found[address] = Health(**{name: value for name, value in values.items() if name in _FIELDS})
    return found


class Save(Job[None]):
    """Write it down; None is healthy."""

    def __init__(self, address: str, health: Health | None) -> None:
        self._address = address
        self._health = health

    def work(self, db: sqlite3.Connection) -> None:
        if self._health is None:
            db.execute("DELETE FROM health WHERE address = ?", (self._address,))
        else:
            data = msgspec.json.encode({name: getattr(self._health, name) for name in sorted(_FIELDS)})
            db.execute("INSERT OR REPLACE INTO health VALUES (?, ?)", (self._address, data))
