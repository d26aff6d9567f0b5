"""Rows that wait at a failing address for subscriptions that are no more: which they are, and their end.

A row goes if nobody that it names lives, here or, having moved, elsewhere. One that also names somebody who
does must stay as it is, because its body must not change between attempts; and so must a parcel of which any
row stays.
"""

from __future__ import annotations

from collections.abc import Sequence

from edn_server.delivery import dead_letters
from edn_server.storage import outbox
from edn_server.storage.interface import Connection
from edn_server.storage.outbox import Row
from edn_server.storage.writer import Job
from edn_server.subscriptions.view import RegistryView


def find(db: Connection, address: str, view: RegistryView) -> list[tuple[int, int | None]]:
    """Return (id, batch) of the rows that can go."""
    idle = {row.id: row.batch for row in outbox.rows_at(db, address) if not _anybody(row, view)}
    for members in outbox.parcels_at(db, address):
        if not all(member in idle for member in members):
            for member in members:
                idle.pop(member, None)
    return list(idle.items())


def _anybody(row: Row, view: RegistryView) -> bool:
    if row.batch is None:
        return any(
            view.members_of(subscription) for subscription in dead_letters.recipients(row.body, row.address)
        )
    return view.is_named(row.numbers)


class Drop(Job[int]):
    """Deletes these rows and their batches; returns how many notifications."""

    def __init__(self, rows: Sequence[tuple[int, int | None]]) -> None:
        self._rows = rows

    def work(self, db: Connection) -> int:
        return outbox.drop_rows(db, self._rows)
