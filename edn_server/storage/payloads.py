"""Payloads of the events in the outbox: each is stored once per server.

A frame has an id, and an event in it a **place**, its rank. A row has the events of up to `PER_ROW`
neighbouring places: in PostgreSQL a row per event would cost half of the throughput. An event with a large
body has a row of its own, so that it is not read with its neighbours.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

import msgspec

from edn_server.storage.interface import Connection

#: keys of a frame's rows begin at frame_id << FRAME_BITS
FRAME_BITS = 24
#: in the key of a row with several events, beside the row's number; the key of a single event has its place
_SHARED = 1 << 23
PER_ROW = 64
#: bytes of a body from which on an event has a row of its own
LARGE = 8192


class Event(NamedTuple):
    topic: int
    id: str
    #: microseconds: time of the event
    stamp: int
    body: bytes
    #: trace context of the publisher (`edn.formats.trace_context`)
    trace: str = ""


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[tuple[int, Event]]).decode


def write(db: Connection, frame_id: int, events: Iterable[tuple[int, Event]]) -> None:
    """Insert the events of a frame by place."""
    first = frame_id << FRAME_BITS
    rows: dict[int, list[tuple[int, Event]]] = {}
    for one in events:
        alone = len(one[1].body) >= LARGE
        rows.setdefault(first | (one[0] if alone else _SHARED | one[0] // PER_ROW), []).append(one)
    db.executemany("INSERT INTO events VALUES (?, ?)", [(key, _encode(some)) for key, some in rows.items()])


def read(db: Connection, frame_id: int, places: Sequence[int]) -> dict[int, Event]:
    """Return events of a frame by place."""
    first, wanted = frame_id << FRAME_BITS, frozenset(places)
    keys = {key for place in wanted for key in (first | place, first | _SHARED | place // PER_ROW)}
    found = db.execute(
        f"SELECT payloads FROM events WHERE {db.any_of('key')} ORDER BY key", (db.array(sorted(keys)),)
    )
    return {place: event for (some,) in found for place, event in _decode(some) if place in wanted}


def delete_unused(db: Connection, frames: Iterable[int]) -> None:
    """Delete the events of frames without rows in the outbox."""
    # Decided by the database: a query in between would cost a round trip per frame.
    db.executemany(
        "DELETE FROM events WHERE key >= ? AND key < ?"
        " AND NOT EXISTS (SELECT 1 FROM outbox WHERE frame_id = ?)",
        [(*_keys(frame_id), frame_id) for frame_id in frames],
    )


def trim(db: Connection, frame_id: int, needed: Collection[int]) -> int:
    """Delete the events of a frame that are not at the needed places; returns their number."""
    deleted = 0
    stored = db.execute("SELECT key, payloads FROM events WHERE key >= ? AND key < ?", _keys(frame_id))
    for key, payloads in stored.fetchall():
        events = _decode(payloads)
        kept = [one for one in events if one[0] in needed]
        deleted += len(events) - len(kept)
        if not kept:
            db.execute("DELETE FROM events WHERE key = ?", (key,))
        elif len(kept) < len(events):
            db.execute("UPDATE events SET payloads = ? WHERE key = ?", (_encode(kept), key))
    return deleted


def newest_frame_id(db: Connection) -> int:
    """Return the newest frame with payloads."""
    (newest,) = db.execute("SELECT coalesce(max(key), 0) FROM events").fetchone()
    return int(newest) >> FRAME_BITS


def _keys(frame_id: int) -> tuple[int, int]:
    return frame_id << FRAME_BITS, (frame_id + 1) << FRAME_BITS
