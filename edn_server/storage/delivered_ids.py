"""Recipients of events with client-chosen ids, as short hashes (see `ingest.dedup`)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from edn_server.storage.interface import Connection

Hashes = npt.NDArray[np.uint32]


class Delivered(NamedTuple):
    #: log time of the event, microseconds
    time: int
    recipients: Hashes


def find(db: Connection, topic: int, event: str) -> Delivered | None:
    """Returns the recipients of an event."""
    row = db.execute(
        "SELECT time, recipients FROM delivered_ids WHERE topic = ? AND id = ?", (topic, event)
    ).fetchone()
    return None if row is None else Delivered(row[0], np.frombuffer(row[1], dtype="<u4"))


def store(db: Connection, topic: int, event: str, delivered: Delivered) -> None:
    """Stores the recipients of an event."""
    db.execute(
        "INSERT INTO delivered_ids VALUES (?, ?, ?, ?) ON CONFLICT (topic, id)"
        " DO UPDATE SET time = excluded.time, recipients = excluded.recipients",
        (topic, event, delivered.time, delivered.recipients.astype("<u4", copy=False).tobytes()),
    )


def page(db: Connection, after: tuple[int, str], most: int) -> list[tuple[int, str, Delivered]]:
    """Returns the next events in the order of (topic, id)."""
    rows = db.execute(
        "SELECT topic, id, time, recipients FROM delivered_ids WHERE (topic, id) > (?, ?)"
        " ORDER BY topic, id LIMIT ?",
        (*after, most),
    ).fetchall()
    return [(topic, id, Delivered(time, np.frombuffer(data, "<u4"))) for topic, id, time, data in rows]


def forget(db: Connection, before: int, most: int) -> int:
    """Deletes up to `most` events older than a time; returns how many."""
    return db.execute(
        "DELETE FROM delivered_ids WHERE (topic, id) IN"
        " (SELECT topic, id FROM delivered_ids WHERE time < ? LIMIT ?)",
        (before, most),
    ).rowcount
