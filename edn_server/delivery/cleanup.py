"""Drops the rows of a failing address whose subscriptions have ended.

A row is dropped if no version that it names is live, here or on another server. A row that also names a live
version stays unchanged, because its body must not change between attempts; so does a recorded batch of which
any row stays.
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
    """Return (id, batch) of the rows to drop."""
    idle = {row.id: row.frame_id for row in outbox.rows_at(db, address) if not _has_recipient(row, view)}
    for members in outbox.batches_at(db, address):
        if not all(member in idle for member in members):
            for member in members:
                idle.pop(member, None)
    return list(idle.items())


def _has_recipient(row: Row, view: RegistryView) -> bool:
    if row.frame_id is None:
        return any(
            view.members_of(subscription) for subscription in dead_letters.recipients(row.body, row.address)
        )
    return view.is_named(row.numbers)


class Drop(Job[int]):
    """Deletes rows and their recorded batches; returns the number of notifications."""

    def __init__(self, rows: Sequence[tuple[int, int | None]]) -> None:
        self._rows = rows

    def work(self, db: Connection) -> int:
        return outbox.drop_rows(db, self._rows)
