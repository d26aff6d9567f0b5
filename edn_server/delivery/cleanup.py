"""Rows that wait at a failing address for subscriptions that are no more: which they are, and their end.

A row goes if nobody that it names lives, here or, having moved, elsewhere. One that also names somebody who
does must stay as it is, because its body must not change between attempts; and so must a parcel of which any
row stays.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

import msgspec
import numpy as np

from edn_server.delivery import dead_letters as deadletters
from edn_server.outbox import rows as outbox
from edn_server.outbox.rows import Row
from edn_server.storage.writer import Job
from edn_server.subscriptions.registry import Hosting


def find(db: sqlite3.Connection, address: str, hosting: Hosting) -> list[tuple[int, int]]:
    """(id, batch) of the rows that can go."""
    found = db.execute(f"SELECT {outbox.ROW} FROM outbox WHERE address = ?", (address,))
    idle: dict[int, int] = {}
    for values in found:
        row = Row(*values)
        if not _anybody(row, hosting):
            idle[row.id] = row.batch
    parcels = db.execute(
        "SELECT members FROM parcels WHERE id IN (SELECT id FROM outbox WHERE address = ?)", (address,)
    )
    for (data,) in parcels.fetchall():
        members = msgspec.msgpack.decode(data, type=list[int])
        if not all(member in idle for member in members):
            for member in members:
                idle.pop(member, None)
    return list(idle.items())


def _anybody(row: Row, hosting: Hosting) -> bool:
    if row.batch == outbox.READY:
        return any(
            hosting.parts(subscription)
            for subscription in deadletters.recipients(row.composition, row.address)
        )
    numbers = outbox.numbers_of(row)
    return bool(np.any(hosting.living[numbers])) or not hosting.moved.isdisjoint(numbers.tolist())


class Drop(Job[int]):
    """These rows go, and the parcels that they were; how many notifications wait no more."""

    def __init__(self, rows: Sequence[tuple[int, int]]) -> None:
        self._rows = rows

    def work(self, db: sqlite3.Connection) -> int:
        db.executemany("DELETE FROM parcels WHERE id = ?", [(id,) for id, _ in self._rows])
        return outbox.Settle(self._rows).work(db)
