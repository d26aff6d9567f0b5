"""Queries of sequences. A sequence is a version (`storage.versions`) with entries in several topics.

steps          rectangles of each role (`edn.model.sequence`) of a version
half_matches   the events that a version's monitor has taken, by key of `by` and slot
candidates     candidates that are not fed yet: of a version that settles, or that waits for its half matches
monitors       one row per version: whether it waits for half matches of another server, how many of their
               rows have arrived, and counts
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from edn.model.rect import Rects
from edn.model.sequence import Candidate, HalfMatch
from edn_server.storage.interface import Connection
from edn_server.storage.payloads import Event
from edn_server.storage.versions import pack_rects, unpack_rects

#: the statements of SQLite
TABLES = """
CREATE TABLE steps (
    number INTEGER NOT NULL, role INTEGER NOT NULL, topic INTEGER NOT NULL, width INTEGER NOT NULL,
    rects BLOB NOT NULL, PRIMARY KEY (number, role)
) WITHOUT ROWID;
CREATE TABLE half_matches (
    number INTEGER NOT NULL, by_key BLOB NOT NULL, slot INTEGER NOT NULL, data BLOB NOT NULL,
    PRIMARY KEY (number, by_key, slot)
);
CREATE TABLE candidates (
    number INTEGER NOT NULL, serial INTEGER NOT NULL, data BLOB NOT NULL, PRIMARY KEY (number, serial)
);
CREATE TABLE monitors (
    number INTEGER PRIMARY KEY, awaiting INTEGER NOT NULL, position INTEGER NOT NULL, late INTEGER NOT NULL,
    dropped INTEGER NOT NULL
)
"""
PER_VERSION = ("steps", "half_matches", "candidates", "monitors")


class Arrived(NamedTuple):
    """An event, with the serial of its arrival on the server that took it."""

    serial: int
    event: Event


Taken = Candidate[Arrived]


class Waiting(NamedTuple):
    """A candidate that is not fed yet."""

    serial: int
    #: key of `by`
    key: bytes
    #: bits of `edn.model.sequence.monitor`
    roles: int
    candidate: Taken


class StoredStep(NamedTuple):
    role: int
    topic: int
    rects: Rects


class Monitor(NamedTuple):
    number: int
    #: whether half matches of another server are still to come
    awaiting: bool
    #: rows of them that have arrived
    position: int = 0
    late: int = 0
    dropped: int = 0


class _Row(msgspec.Struct, frozen=True, array_like=True):
    stamp: int
    origin: str
    serial: int
    topic: int
    id: str
    body: bytes
    trace: str
    #: of waiting candidates
    roles: int = 0
    key: bytes = b""


_decoder = msgspec.msgpack.Decoder(_Row)


def pack_taken(one: Taken, *, roles: int = 0, key: bytes = b"") -> bytes:
    event = one.payload.event
    row = _Row(
        one.stamp, one.origin, one.payload.serial, event.topic, event.id, event.body, event.trace, roles, key
    )
    return msgspec.msgpack.encode(row)


def unpack_taken(data: bytes) -> Taken:
    row = _decoder.decode(data)
    event = Event(row.topic, row.id, row.stamp, row.body, row.trace)
    return Candidate(row.stamp, row.origin, Arrived(row.serial, event))


def pack_waiting(one: Waiting) -> bytes:
    return pack_taken(one.candidate, roles=one.roles, key=one.key)


def unpack_waiting(data: bytes, serial: int) -> Waiting:
    row = _decoder.decode(data)
    return Waiting(serial, row.key, row.roles, unpack_taken(data))


# -- writing ---------------------------------------------------------------------------------------------


def insert(db: Connection, number: int, steps: Sequence[StoredStep]) -> None:
    """Inserts the steps of a version, and its monitor."""
    db.executemany(
        "INSERT INTO steps (number, role, topic, width, rects) VALUES (?, ?, ?, ?, ?)",
        [(number, one.role, one.topic, one.rects.width, pack_rects(one.rects)) for one in steps],
    )
    store_monitor(db, Monitor(number, awaiting=False))


def store_monitor(db: Connection, monitor: Monitor) -> None:
    db.execute(
        "INSERT INTO monitors (number, awaiting, position, late, dropped) VALUES (?, ?, ?, ?, ?)"
        " ON CONFLICT (number) DO UPDATE SET awaiting = excluded.awaiting, position = excluded.position,"
        " late = excluded.late, dropped = excluded.dropped",
        (monitor.number, int(monitor.awaiting), monitor.position, monitor.late, monitor.dropped),
    )


def delete_halves(db: Connection, keys: Sequence[tuple[int, bytes]]) -> None:
    """Deletes half matches by (number, key)."""
    db.executemany("DELETE FROM half_matches WHERE number = ? AND by_key = ?", keys)


def insert_taken(db: Connection, taken: Iterable[tuple[int, bytes, int, Taken]]) -> None:
    """Inserts taken events: (number, key, slot, event)."""
    db.executemany(
        "INSERT INTO half_matches (number, by_key, slot, data) VALUES (?, ?, ?, ?)",
        [(number, key, slot, pack_taken(one)) for number, key, slot, one in taken],
    )


def insert_waiting(db: Connection, waiting: Iterable[tuple[int, Waiting]]) -> None:
    db.executemany(
        "INSERT INTO candidates (number, serial, data) VALUES (?, ?, ?)",
        [(number, one.serial, pack_waiting(one)) for number, one in waiting],
    )


def delete_waiting(db: Connection, serials: Sequence[tuple[int, int]]) -> None:
    """Deletes waiting candidates by (number, serial)."""
    db.executemany("DELETE FROM candidates WHERE number = ? AND serial = ?", serials)


def delete_versions(db: Connection, numbers: Iterable[int]) -> None:
    """Deletes everything about versions."""
    given = db.array(list(numbers))
    for table in PER_VERSION:
        db.execute(f"DELETE FROM {table} WHERE {db.any_of('number')}", (given,))


# -- reading ---------------------------------------------------------------------------------------------


def steps(db: Connection) -> dict[int, tuple[StoredStep, ...]]:
    """Returns the steps of all versions by number."""
    found: dict[int, list[StoredStep]] = {}
    for number, role, topic, width, data in db.execute(
        "SELECT number, role, topic, width, rects FROM steps ORDER BY number, role"
    ):
        found.setdefault(number, []).append(StoredStep(role, topic, unpack_rects(data, width)))
    return {number: tuple(parts) for number, parts in found.items()}


def monitors(db: Connection) -> list[Monitor]:
    rows = db.execute("SELECT number, awaiting, position, late, dropped FROM monitors")
    return [Monitor(number, bool(awaiting), *rest) for number, awaiting, *rest in rows]


def half_matches(db: Connection) -> Iterator[tuple[int, bytes, HalfMatch[Arrived]]]:
    """Yields (number, key, half match), the oldest of each number first."""
    found: dict[tuple[int, bytes], list[Taken]] = {}
    for number, key, data in db.execute(
        "SELECT number, by_key, data FROM half_matches ORDER BY number, by_key, slot"
    ):
        found.setdefault((number, bytes(key)), []).append(unpack_taken(data))
    for (number, key), taken in sorted(found.items(), key=lambda one: one[1][0].payload.serial):
        yield number, key, tuple(taken)


def waiting(db: Connection) -> Iterator[tuple[int, Waiting]]:
    """Yields (number, candidate) in the order of arrival."""
    for number, serial, data in db.execute(
        "SELECT number, serial, data FROM candidates ORDER BY number, serial"
    ):
        yield number, unpack_waiting(data, serial)


# -- migration -------------------------------------------------------------------------------------------


class HandedRow(NamedTuple):
    """A row of a version that departs: of a half match, or a waiting candidate with the slot -1."""

    key: bytes
    slot: int
    serial: int
    data: bytes


def departing(db: Connection, id: str, before: int) -> list[int]:
    """Returns the versions of a subscription, older than `before`, that have a monitor: over or not."""
    found = db.execute(
        "SELECT v.number FROM versions v JOIN monitors m ON m.number = v.number"
        " WHERE v.id = ? AND v.version < ? ORDER BY v.version",
        (id, before),
    )
    return [number for (number,) in found.fetchall()]


def handed_rows(db: Connection, number: int) -> list[HandedRow]:
    """Returns the rows of a version in a fixed order: half matches, then waiting candidates."""
    halves = db.execute(
        "SELECT by_key, slot, data FROM half_matches WHERE number = ? ORDER BY by_key, slot", (number,)
    ).fetchall()
    rest = db.execute(
        "SELECT serial, data FROM candidates WHERE number = ? ORDER BY serial", (number,)
    ).fetchall()
    return [HandedRow(bytes(key), slot, 0, bytes(data)) for key, slot, data in halves] + [
        HandedRow(b"", -1, serial, bytes(data)) for serial, data in rest
    ]


def forget(db: Connection, id: str) -> None:
    """Deletes the monitors of a subscription's ended versions, once they are handed over."""
    ended = "(SELECT number FROM versions WHERE id = ? AND over IS NOT NULL)"
    for table in ("half_matches", "candidates", "monitors"):
        db.execute(f"DELETE FROM {table} WHERE number IN {ended}", (id,))


def counts_of(db: Connection, number: int) -> tuple[int, int]:
    """Returns (late, dropped) of a version."""
    row = db.execute("SELECT late, dropped FROM monitors WHERE number = ?", (number,)).fetchone()
    return (0, 0) if row is None else (int(row[0]), int(row[1]))
