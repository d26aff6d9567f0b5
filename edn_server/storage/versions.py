"""Tables of subscriptions: topics, versions with their rectangles, intervals per log, key rings, counters.

A version is **over** once no log matches it any more: `over` is then the last outbox row that can name it,
and `collect` deletes the version once no row up to that one waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import numpy as np

from edn.formats import sink_settings
from edn.formats.sink_settings import SinkSettings
from edn.formats.webhooks import KeyRing
from edn.model.rect import Rects
from edn_server.storage.interface import Connection
from edn_server.storage.secret_rows import CREDENTIALS, CURRENT, PREVIOUS

#: an offset or a time that is never reached
NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class StoredVersion:
    number: int
    id: str
    version: int
    topic: int
    #: JSON text; bound again only if an event needs the exact predicate
    filter: str
    #: see `addresses`
    address: str
    recipient: str | None
    #: microseconds; NEVER without an expiry
    expires: int
    log: str
    incarnation: int
    #: as wide as the topic was when the filter was bound; none if it is a sequence
    rects: Rects
    #: of a sequence (`storage.sequences`): its roles, with their rectangles
    steps: Sequence[Any] = ()


def pack_rects(rects: Rects) -> bytes:
    """Encodes lo, hi and exact as raw arrays; `unpack_rects` needs the width."""
    lo = np.ascontiguousarray(rects.lo, dtype="<f8").tobytes()
    hi = np.ascontiguousarray(rects.hi, dtype="<f8").tobytes()
    return lo + hi + np.ascontiguousarray(rects.exact, dtype=np.uint8).tobytes()


def unpack_rects(data: bytes, width: int) -> Rects:
    rows = len(data) // (16 * width + 1)
    side = rows * width
    bounds = np.frombuffer(data, dtype="<f8", count=2 * side)
    exact = np.frombuffer(data, dtype=np.uint8, offset=16 * side).astype(np.bool_)
    return Rects(bounds[:side].reshape(rows, width), bounds[side:].reshape(rows, width), exact)


# -- topics ----------------------------------------------------------------------------------------------


class TopicRow(NamedTuple):
    uid: int
    tenant: str
    name: str
    columns: list[tuple[str, str]]
    engine: str


def topics(db: Connection) -> list[TopicRow]:
    found = db.execute("SELECT uid, tenant, name, columns, engine FROM topics").fetchall()
    return [
        TopicRow(uid, tenant, name, _columns(columns), engine) for uid, tenant, name, columns, engine in found
    ]


def columns_of(db: Connection, uid: int) -> list[tuple[str, str]] | None:
    """Returns the columns of a topic; None if it is not stored."""
    row = db.execute("SELECT columns FROM topics WHERE uid = ?", (uid,)).fetchone()
    return None if row is None else _columns(row[0])


def store_topic(db: Connection, topic: TopicRow) -> None:
    """Inserts a topic, or replaces the columns of a stored one."""
    columns = msgspec.json.encode(topic.columns).decode()
    db.execute(
        "INSERT INTO topics VALUES (?, ?, ?, ?, ?)"
        " ON CONFLICT (uid) DO UPDATE SET columns = excluded.columns",
        (topic.uid, topic.tenant, topic.name, columns, topic.engine),
    )


def forget_topics(db: Connection, uids: Iterable[int]) -> None:
    """Deletes topics."""
    db.executemany("DELETE FROM topics WHERE uid = ?", [(uid,) for uid in uids])


def _columns(text: str) -> list[tuple[str, str]]:
    return msgspec.json.decode(text, type=list[tuple[str, str]])


# -- versions --------------------------------------------------------------------------------------------


class ExistingVersion(NamedTuple):
    """The fields of a living version that a store request compares."""

    number: int
    topic: int
    filter: str
    address: str
    recipient: str | None
    log: str
    incarnation: int
    #: whether a log has activated it
    activated: bool


def stores(db: Connection) -> int:
    """Returns the number of committed store requests."""
    (seq,) = db.execute("SELECT value FROM meta WHERE name = 'seq'").fetchone()
    return int(seq)


def count_store(db: Connection) -> None:
    """Counts a store request."""
    db.execute("UPDATE meta SET value = CAST(value AS BIGINT) + 1 WHERE name = 'seq'")


def find(db: Connection, id: str, version: int) -> ExistingVersion | None:
    """Returns a living version."""
    row = db.execute(
        "SELECT number, topic, filter, address, recipient, log, incarnation,"
        " EXISTS (SELECT 1 FROM intervals i WHERE i.number = v.number AND i.since IS NOT NULL)"
        " FROM versions v WHERE id = ? AND version = ? AND over IS NULL",
        (id, version),
    ).fetchone()
    return None if row is None else ExistingVersion(*row)


def insert(db: Connection, stored: StoredVersion, *, owner: str, ring: str, settings: str = "") -> None:
    db.execute(
        "INSERT INTO versions (number, id, version, owner, topic, filter, address, recipient, expires, log,"
        " incarnation, width, rects, ring, settings) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            stored.number, stored.id, stored.version, owner, stored.topic, stored.filter, stored.address,
            stored.recipient, _or_null(stored.expires), stored.log, stored.incarnation, stored.rects.width,
            pack_rects(stored.rects), ring, settings,
        ),
    )  # fmt: skip


def adopt(db: Connection, number: int, log: str, incarnation: int, expires: int) -> None:
    """Assigns a version to another incarnation."""
    db.execute(
        "UPDATE versions SET log = ?, incarnation = ?, expires = ? WHERE number = ?",
        (log, incarnation, _or_null(expires), number),
    )


def end(db: Connection, numbers: Iterable[int], last_row: int) -> None:
    """Marks versions as over; rows up to the last may still name them."""
    db.executemany("UPDATE versions SET over = ? WHERE number = ?", [(last_row, n) for n in numbers])


def mark_moved(db: Connection, numbers: Iterable[int]) -> None:
    """Marks versions whose subscription has migrated to another server."""
    db.executemany("UPDATE versions SET moved = 1 WHERE number = ?", [(number,) for number in numbers])


def numbers(db: Connection) -> set[int]:
    """Returns all numbers in use."""
    return {number for (number,) in db.execute("SELECT number FROM versions")}


def moved(db: Connection) -> list[int]:
    """Returns the numbers of versions whose subscription has migrated to another server."""
    return [number for (number,) in db.execute("SELECT number FROM versions WHERE moved != 0")]


def living(db: Connection) -> list[StoredVersion]:
    """Returns the versions that are not over."""
    found = db.execute(
        "SELECT number, id, version, topic, filter, address, recipient, expires, log, incarnation, width,"
        " rects FROM versions WHERE over IS NULL"
    )
    versions = []
    for *head, expires, log, incarnation, width, data in found:
        fields = (*head, _or_never(expires), log, incarnation, unpack_rects(data, width))
        versions.append(StoredVersion(*fields))
    return versions


def ended(db: Connection) -> list[tuple[int, str, str | None, int]]:
    """Returns (number, id, recipient, topic) of versions that are over; rows may still name them."""
    return db.execute("SELECT number, id, recipient, topic FROM versions WHERE over IS NOT NULL").fetchall()


class Predicate(NamedTuple):
    """The stored predicate of a version."""

    id: str
    version: int
    filter: str
    width: int
    topic: int
    columns: str

    def schema_columns(self) -> list[tuple[str, str]]:
        """Returns the columns that the filter was bound to."""
        return _columns(self.columns)[: self.width]


def predicate(db: Connection, number: int) -> Predicate | None:
    row = db.execute(
        "SELECT v.id, v.version, v.filter, v.width, t.uid, t.columns FROM versions v"
        " JOIN topics t ON t.uid = v.topic WHERE v.number = ?",
        (number,),
    ).fetchone()
    return None if row is None else Predicate(*row)


def collect(db: Connection, most: int) -> list[int]:
    """Deletes versions that are over and that no waiting row can name; returns their numbers."""
    found = db.execute(
        "SELECT number FROM versions v WHERE over IS NOT NULL AND NOT EXISTS"
        " (SELECT 1 FROM outbox o WHERE o.id <= v.over AND o.address IN"
        "  (SELECT v.address UNION ALL"
        "   SELECT w.address FROM versions w WHERE w.id = v.id AND w.over IS NULL))"
        " AND NOT EXISTS (SELECT 1 FROM outbox k WHERE k.subscription = v.id AND k.id <= v.over"
        "  AND k.state IN ('buffered', 'waiting'))"
        # Nor a version whose predicate an undecided row still needs.
        " AND NOT EXISTS (SELECT 1 FROM outbox d WHERE d.doubt = v.number + 1 AND d.doubt > 0)"
        # Nor a migrated sequence that still has to hand its monitor over.
        " AND NOT (v.moved != 0 AND EXISTS (SELECT 1 FROM monitors m WHERE m.number = v.number)) LIMIT ?",
        (most,),
    )
    collected = [number for (number,) in found.fetchall()]
    keys = [(number,) for number in collected]
    db.executemany("DELETE FROM versions WHERE number = ?", keys)
    db.executemany("DELETE FROM intervals WHERE number = ?", keys)
    return collected


def has_waiting(db: Connection, id: str, before: int, stream: str) -> bool:
    """Returns whether a waiting row may name an older version of a subscription.

    Such a row is at one of its addresses, except its stream's, and not newer than its end.
    """
    found = db.execute(
        "SELECT 1 FROM outbox WHERE id <= (SELECT max(over) FROM versions WHERE id = ?1 AND version < ?2)"
        " AND address IN (SELECT v.address FROM versions v WHERE v.id = ?1 AND v.version < ?2)"
        " AND address != ?3 LIMIT 1",
        (id, before, stream),
    )
    return found.fetchone() is not None


# -- intervals -------------------------------------------------------------------------------------------


class Interval(NamedTuple):
    """The interval of a version in a log, and its expiry there; NEVER is "not yet"."""

    number: int
    log: str
    since: int
    until: int
    expires: int


def store_intervals(db: Connection, intervals: Iterable[Interval]) -> None:
    """Inserts or replaces intervals."""
    db.executemany(
        "INSERT INTO intervals VALUES (?, ?, ?, ?, ?) ON CONFLICT (number, log)"
        " DO UPDATE SET since = excluded.since, until = excluded.until, expires = excluded.expires",
        [(n, log, _or_null(since), _or_null(until), expires) for n, log, since, until, expires in intervals],
    )


def intervals(db: Connection) -> list[Interval]:
    return [
        Interval(number, log, _or_never(since), _or_never(until), expires)
        for number, log, since, until, expires in db.execute(
            "SELECT number, log, since, until, expires FROM intervals"
        )
    ]


# -- key rings -------------------------------------------------------------------------------------------


def store_rings(db: Connection, rings: Sequence[KeyRing]) -> None:
    """Inserts or replaces key rings, unless the stored version is newer."""
    db.executemany(
        "INSERT INTO rings VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (id) DO UPDATE"
        " SET current = ?2, previous = ?3, until = ?4, version = ?5 WHERE rings.version <= ?5",
        [
            (
                ring.id,
                CURRENT.seal(db, ring.id, ring.current),
                PREVIOUS.seal(db, ring.id, ring.previous),
                ring.until,
                ring.version,
            )
            for ring in rings
        ],
    )


def rings(db: Connection) -> list[KeyRing]:
    """Deletes the key rings that no version names, and returns the others."""
    db.execute("DELETE FROM rings WHERE id NOT IN (SELECT ring FROM versions)")
    rows = db.execute("SELECT id, current, previous, until, version FROM rings")
    return [
        KeyRing(id, CURRENT.require(db, id, current), PREVIOUS.open(db, id, previous), until, version)
        for id, current, previous, until, version in rows
    ]


# -- settings of sinks -----------------------------------------------------------------------------------


class StoredSink(NamedTuple):
    """The settings of a sink, and its credentials as JSON."""

    settings: SinkSettings
    credentials: str | None

    def __repr__(self) -> str:
        return f"StoredSink({self.settings.id!r}, …)"


def store_sinks(db: Connection, sinks: Iterable[StoredSink]) -> None:
    """Inserts settings by their id, which stands for all of them."""
    db.executemany(
        "INSERT INTO sink_settings (id, settings, credentials) VALUES (?, ?, ?) ON CONFLICT (id) DO NOTHING",
        [
            (
                settings.id,
                sink_settings.encode(settings),
                CREDENTIALS.seal(db, settings.id, credentials),
            )
            for settings, credentials in sinks
        ],
    )


def sinks(db: Connection) -> list[StoredSink]:
    """Deletes the settings that no version names, and returns the others."""
    db.execute("DELETE FROM sink_settings WHERE id NOT IN (SELECT settings FROM versions)")
    rows = db.execute("SELECT id, settings, credentials FROM sink_settings")
    return [
        StoredSink(sink_settings.decode(text), CREDENTIALS.open(db, id, sealed)) for id, text, sealed in rows
    ]


# -- counters --------------------------------------------------------------------------------------------


def counter_pages(db: Connection) -> list[tuple[int, bytes]]:
    """Returns the pages of counters per version, in order."""
    return db.execute("SELECT page, counts FROM tallies ORDER BY page").fetchall()


def topic_counters(db: Connection) -> str | None:
    """Returns the event counts per topic, as JSON."""
    row = db.execute("SELECT value FROM meta WHERE name = 'evaluated'").fetchone()
    return None if row is None else str(row[0])


def store_counters(db: Connection, pages: Iterable[tuple[int, bytes]], evaluated: str) -> None:
    """Stores changed pages, and the event counts per topic."""
    db.executemany(
        "INSERT INTO tallies VALUES (?, ?) ON CONFLICT (page) DO UPDATE SET counts = excluded.counts", pages
    )
    db.execute(
        "INSERT INTO meta VALUES ('evaluated', ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        (evaluated,),
    )


def _or_null(value: int) -> int | None:
    return None if value == NEVER else value


def _or_never(value: int | None) -> int:
    return NEVER if value is None else value
