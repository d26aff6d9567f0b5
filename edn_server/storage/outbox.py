"""The tables of the outbox: rows, recorded delivery batches, and marks of streams.

A row is **ready** at an address (`addresses`), or held back for one subscription: **buffered** while the
subscription is paused, **waiting** until earlier rows are stored. The **phase** of such a row is *history*
(from a replay) or *live* (`outbox.buffered`). Rows of streams are ready and name their subscription.

A row names the places of its events in a frame (`payloads`). A row without a frame contains its body.

An **undecided** row (`doubt`) names versions whose predicates are not evaluated yet (`ingest.undecided`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from edn.model.namespace import owner_of
from edn.runtime import clock
from edn_server.policies import UsageLimits
from edn_server.storage import addresses, payloads, usage
from edn_server.storage.interface import Connection
from edn_server.storage.payloads import Event
from edn_server.storage.usage import Drops

State = Literal["ready", "buffered", "waiting"]
Phase = Literal["history", "live"]

#: limit of a page, in bytes of compositions and bodies
PAGE_BYTES = 4 << 20
#: bytes that an event adds to a body besides its payload, about
EVENT_BYTES = 128
#: `doubt` of a row whose own versions are undecided
OWN = -1

#: begins a composition: number of events, number of matches
HEADER = struct.Struct("<II")


class Place(NamedTuple):
    """The queue of a row."""

    #: None unless the row is ready
    address: str | None
    #: None for rows of sinks, which may name several subscriptions
    subscription: str | None = None
    state: State = "ready"
    phase: Phase = "live"


def at(address: str) -> Place:
    """Return the place of ready rows of an address."""
    return Place(address, addresses.streaming(address))


def kept(subscription: str, state: State, phase: Phase) -> Place:
    """Return the place of rows that are held back for a subscription."""
    return Place(None, subscription, state, phase)


class Row(msgspec.Struct, frozen=True, gc=False):
    """A row of the outbox."""

    id: int
    #: empty unless the row is ready
    address: str
    #: None if the row contains its body
    frame_id: int | None
    composition: bytes
    #: number of notifications
    events: int = 0
    #: microseconds of steady time: when the row was written
    created: int = 0
    #: 0 if all matches are exact; `OWN` if the predicates of the versions that it names are undecided; for a
    #: renamed row the number + 1 of the version whose predicate is undecided
    doubt: int = 0
    #: of streams and of rows that are not ready
    subscription: str | None = None
    #: of a row without a frame
    body: bytes = b""

    @property
    def tenant(self) -> str:
        """The tenant of the row; empty is the operator."""
        return addresses.tenant_of(self.address) if self.address else owner_of(self.subscription or "")

    @property
    def places(self) -> list[int]:
        """The places of the events in the frame."""
        return _places(self.composition)

    @property
    def numbers(self) -> npt.NDArray[np.int32]:
        """The version of each match."""
        events, pairs = HEADER.unpack_from(self.composition)
        return np.frombuffer(self.composition, "<i4", pairs, HEADER.size + 8 * events)

    def matches(self) -> list[tuple[int, Sequence[int]]]:
        """Return the place of each event, with the version numbers that matched it."""
        # Without numpy: most rows have one event and few matches, and this runs for every POST.
        values = struct.unpack(f"<{len(self.composition) // 4}i", self.composition)
        events = values[0]
        if events == 1:
            return [(values[2], values[4:])]
        found: list[tuple[int, Sequence[int]]] = []
        begin = 2 + 2 * events
        for place, count in zip(values[2 : 2 + events], values[2 + events : begin], strict=True):
            found.append((place, values[begin : begin + count]))
            begin += count
        return found


class NewRow(NamedTuple):
    events: int
    composition: bytes
    #: as `Row.doubt`
    doubt: int = 0


class Written(NamedTuple):
    """The result of writing rows."""

    #: rows that were dropped at a tenant's limit
    drops: Drops = Drops()
    #: rows that a sink may receive now, in the order of their ids
    ready: Sequence[Row] = ()


def compose(places: npt.NDArray[Any], counts: npt.NDArray[Any], numbers: npt.NDArray[Any]) -> bytes:
    """Compose the blob of a row: places of events, number of matches of each, versions."""
    parts = (part.astype("<i4", copy=False).tobytes() for part in (places, counts, numbers))
    return HEADER.pack(len(places), len(numbers)) + b"".join(parts)


def renamed(composition: bytes, number: int) -> bytes:
    """Return a composition with one version in all matches."""
    events, pairs = HEADER.unpack_from(composition)
    return composition[: HEADER.size + 8 * events] + np.full(pairs, number, dtype="<i4").tobytes()


def _places(composition: bytes) -> list[int]:
    (events,) = struct.unpack_from("<I", composition)
    return list(struct.unpack_from(f"<{events}i", composition, HEADER.size))


# -- writing --------------------------------------------------------------------------------------------


def write(
    db: Connection,
    frame_id: int,
    events: Sequence[tuple[int, Event]],
    rows: Sequence[tuple[Place, NewRow]],
    limits: UsageLimits,
) -> Written:
    """Insert payloads by place, and rows."""
    now = int(clock.steady() * 1e6)
    payloads.write(db, frame_id, events)
    if not rows:
        return Written()
    # Rows of sinks are not counted (see `usage`), so their bytes need not be known.
    counted = [place for place, _ in rows if place.subscription is not None]
    sizes = {place: len(event.body) + EVENT_BYTES for place, event in events} if counted else {}
    # One writer and no gaps in a transaction: the ids of these rows follow each other.
    id = db.next_ids("outbox", len(rows))
    db.executemany(
        "INSERT INTO outbox (id, address, subscription, state, phase, frame_id, events, composition, created,"
        " doubt, bytes) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            (
                number,
                *place,
                frame_id,
                row.events,
                row.composition,
                now,
                row.doubt,
                _weight(place, row, sizes),
            )
            for number, (place, row) in enumerate(rows, id)
        ),
    )
    touched = {(usage.kind_of(place.state), place.subscription) for place in counted}
    drops = usage.enforce(db, limits, touched, lambda kind, key, going: _drop(db, kind, key, going))
    ready = [
        Row(number, place.address, frame_id, row.composition, row.events, now)
        for number, (place, row) in enumerate(rows, id)
        if place.address is not None and place.subscription is None and not row.doubt
    ]
    return Written(drops, ready)


def write_body(
    db: Connection, address: str, body: bytes, events: int, *, created: int, id: int | None = None
) -> None:
    """Insert a row that contains its body; under a new id unless one is given."""
    place = at(address)
    size = 0 if place.subscription is None else len(body)
    db.execute(
        "INSERT INTO outbox (id, address, subscription, events, body, created, bytes)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        (id or db.next_ids("outbox", 1), address, place.subscription, events, body, created, size),
    )


def _weight(place: Place, row: NewRow, sizes: dict[int, int]) -> int:
    """Return the bytes of a row for limits."""
    if place.subscription is None:
        return 0
    return len(row.composition) + sum(sizes[event] for event in _places(row.composition))


def _drop(db: Connection, kind: str, subscription: str, going: Sequence[tuple[int, int | None]]) -> int:
    """Delete the oldest unread rows of a subscription; returns the number of notifications."""
    if kind == usage.UNREAD:
        mark(db, "dropped", addresses.stream_of(subscription), going[-1][0])
    return settle(db, going)


def settle(db: Connection, rows: Iterable[tuple[int, int | None]], batches: Sequence[int] = ()) -> int:
    """Delete rows, (id, frame_id), and with a frame's last row its payloads; returns the notifications.

    `batches` are ids of delivery batches, whose records are deleted with them.
    """
    given = list(rows)
    where, ids = db.any_of("id"), (db.array([id for id, _ in given]),)
    # Two statements: with RETURNING, every row is a step of SQLite that gives the interpreter lock away.
    (events,) = db.execute(f"SELECT coalesce(sum(events), 0) FROM outbox WHERE {where}", ids).fetchone()
    db.execute(f"DELETE FROM outbox WHERE {where}", ids)
    if batches:
        db.execute(f"DELETE FROM batches WHERE {db.any_of('id')}", (db.array(batches),))
    payloads.delete_unused(db, dict.fromkeys(frame_id for _, frame_id in given if frame_id is not None))
    return int(events)


def shorten(db: Connection, id: int, composition: bytes, events: int, *, decided: bool = False) -> None:
    """Replace a row by one with fewer matches; `decided`: it is no longer undecided."""
    db.execute(
        "UPDATE outbox SET composition = ?, events = ?, doubt = CASE WHEN ? != 0 THEN 0 ELSE doubt END"
        " WHERE id = ?",
        (composition, events, decided, id),
    )


def trim_frame(db: Connection, frame_id: int) -> int:
    """Delete the unused payloads of a frame; returns their number."""
    needed: set[int] = set()
    for (composition,) in db.execute("SELECT composition FROM outbox WHERE frame_id = ?", (frame_id,)):
        needed.update(_places(composition))
    return payloads.trim(db, frame_id, needed)


def take_id(db: Connection) -> int:
    """Reserve a row id; there was a row before."""
    return db.skip_id("outbox")


class Page(NamedTuple):
    """Rows of one address."""

    rows: list[Row]
    #: whether further rows follow
    has_more: bool = False
    #: whether an undecided row follows
    is_blocked: bool = False


# -- reading --------------------------------------------------------------------------------------------

_ROW = (
    "id, coalesce(address, ''), frame_id, coalesce(composition, CAST('' AS BLOB)), events, created, doubt,"
    " subscription, coalesce(body, CAST('' AS BLOB))"
)


def last_row(db: Connection) -> int:
    """Return the id of the newest row ever written."""
    return db.last_id("outbox")


def backlog(db: Connection) -> int:
    """Return the number of notifications in the outbox."""
    (waiting,) = db.execute("SELECT coalesce(sum(events), 0) FROM outbox").fetchone()
    return int(waiting)


def has_row(db: Connection, id: int) -> bool:
    """Return whether a row exists."""
    return db.execute("SELECT 1 FROM outbox WHERE id = ?", (id,)).fetchone() is not None


def waiting_addresses(db: Connection) -> list[str]:
    """Return the addresses of sinks with rows; one index step per address, not per row."""
    found = db.execute(
        "WITH RECURSIVE next(address) AS (SELECT min(address) FROM outbox UNION ALL"
        " SELECT (SELECT min(o.address) FROM outbox o WHERE o.address > next.address) FROM next"
        " WHERE next.address IS NOT NULL) SELECT address FROM next WHERE address IS NOT NULL"
    )
    return [address for (address,) in found if addresses.is_sink(address)]


def page(db: Connection, address: str, rows: int, after: int = 0) -> Page:
    """Return the next rows of an address, oldest first, up to the first undecided row."""
    found = db.execute(
        f"SELECT {_ROW} FROM outbox WHERE address = ? AND id > ? ORDER BY id LIMIT ?",
        (address, after, rows + 1),
    )
    taken: list[Row] = []
    size = 0
    for values in found:
        row = Row(*values)
        if row.doubt:
            found.close()
            return Page(taken, is_blocked=True)
        if len(taken) == rows or size > PAGE_BYTES:
            found.close()
            return Page(taken, has_more=True)
        taken.append(row)
        size += len(row.composition) + len(row.body)
    return Page(taken)


def rows_at(db: Connection, address: str) -> list[Row]:
    """Return all rows of an address."""
    return [Row(*values) for values in db.execute(f"SELECT {_ROW} FROM outbox WHERE address = ?", (address,))]


def rows_by_id(db: Connection, ids: Sequence[int]) -> list[Row]:
    """Return existing rows by id, in order."""
    found = db.execute(
        f"SELECT {_ROW} FROM outbox WHERE {db.any_of('id')} ORDER BY id", (db.array(list(ids)),)
    )
    return [Row(*values) for values in found]


def undecided_rows(db: Connection, most: int) -> list[Row]:
    """Return the oldest undecided rows of each address, and of each subscription with rows held back."""
    found: list[Row] = []
    for column, others in (("address", "address IS NOT NULL"), ("subscription", "address IS NULL")):
        doubtful = f"{others} AND doubt != 0"
        queues = db.execute(
            f"WITH RECURSIVE next(name) AS (SELECT min({column}) FROM outbox WHERE {doubtful} UNION ALL"
            f" SELECT (SELECT min({column}) FROM outbox WHERE {column} > next.name AND {doubtful})"
            " FROM next WHERE next.name IS NOT NULL) SELECT name FROM next WHERE name IS NOT NULL"
        ).fetchall()
        for (name,) in queues:
            rows = db.execute(
                f"SELECT {_ROW} FROM outbox WHERE {column} = ? AND {doubtful} ORDER BY id LIMIT ?",
                (name, most),
            )
            found.extend(Row(*values) for values in rows)
    return sorted(found, key=lambda row: row.id)


def is_undecided(db: Connection, row: Row) -> bool:
    """Return whether a row is still undecided and unchanged."""
    found = db.execute(
        "SELECT 1 FROM outbox WHERE id = ? AND composition = ? AND doubt != 0", (row.id, row.composition)
    )
    return found.fetchone() is not None


# -- rows that are held back for a subscription ----------------------------------------------------------


def has_kept(db: Connection, subscription: str, state: State, phase: Phase) -> bool:
    """Return whether a subscription has rows of this state and phase."""
    found = db.execute(
        "SELECT 1 FROM outbox WHERE subscription = ? AND state = ? AND phase = ? LIMIT 1",
        (subscription, state, phase),
    )
    return found.fetchone() is not None


def holdings(db: Connection, subscription: str) -> list[Row]:
    """Return the rows of a subscription's stream, then its buffered rows."""
    found = db.execute(
        f"SELECT {_ROW} FROM outbox WHERE subscription = ? AND state IN ('ready', 'buffered')"
        " ORDER BY state DESC, phase, id",
        (subscription,),
    )
    return [Row(*values) for values in found]


def has_holdings(db: Connection, subscription: str, *, undecided: bool = False) -> bool:
    """Return whether a subscription has `holdings`, or undecided ones."""
    found = db.execute(
        "SELECT 1 FROM outbox WHERE subscription = ? AND state IN ('ready', 'buffered')"
        f"{' AND doubt != 0' if undecided else ''} LIMIT 1",
        (subscription,),
    )
    return found.fetchone() is not None


def purge(db: Connection, subscription: str) -> int:
    """Delete the `holdings` of a subscription; returns the number of notifications."""
    return settle(db, [(row.id, row.frame_id) for row in holdings(db, subscription)])


def resume(db: Connection, subscription: str, number: int) -> None:
    """Make buffered rows waiting, in the same order, in the name of one version."""
    found = db.execute(
        f"SELECT {_ROW} FROM outbox WHERE subscription = ? AND state = 'buffered'", (subscription,)
    ).fetchall()
    db.executemany(
        "UPDATE outbox SET state = 'waiting', composition = ?, doubt = ? WHERE id = ?",
        [
            (renamed(row.composition, number), _asked(row), row.id)
            for row in (Row(*values) for values in found)
        ],
    )


def _asked(row: Row) -> int:
    """Return the `doubt` of a renamed row: the version that matched coarsely is evaluated."""
    return int(row.numbers[0]) + 1 if row.doubt == OWN else row.doubt


def release(db: Connection, subscription: str, phases: Sequence[Phase]) -> list[str]:
    """Make waiting rows ready, at the end of the outbox, each at the address of its version.

    No attempt was made, so no receiver knows their ids. Their age counts from now: they could not be
    delivered before. Returns the addresses.
    """
    now = int(clock.steady() * 1e6)
    found: dict[int, Place] = {}
    for phase in phases:
        rows = db.execute(
            "SELECT id, composition FROM outbox WHERE subscription = ? AND state = 'waiting' AND phase = ?"
            " ORDER BY id",
            (subscription, phase),
        ).fetchall()
        for id, composition in rows:
            number = int(Row(id, "", None, composition).numbers[0])
            if number not in found:
                (address,) = db.execute("SELECT address FROM versions WHERE number = ?", (number,)).fetchone()
                found[number] = at(address)
            address, stream, *_ = found[number]
            # Rows of streams count for limits (see `usage`), rows of sinks do not.
            db.execute(
                "INSERT INTO outbox (id, address, subscription, frame_id, events, composition, created,"
                " doubt, bytes) SELECT ?1, ?2, ?3, frame_id, events, composition, ?4, doubt,"
                " CASE WHEN CAST(?3 AS TEXT) IS NULL THEN 0 ELSE bytes END FROM outbox WHERE id = ?5",
                (db.next_ids("outbox", 1), address, stream, now, id),
            )
            db.execute("DELETE FROM outbox WHERE id = ?", (id,))
    # Newer rows name an ended version now.
    db.executemany(
        "UPDATE versions SET over = ? WHERE number = ? AND over IS NOT NULL",
        [(last_row(db), number) for number in found],
    )
    return list(dict.fromkeys(place.address for place in found.values() if place.address is not None))


# -- streams ---------------------------------------------------------------------------------------------


class Gone(NamedTuple):
    """The newest deleted rows of a stream."""

    #: dropped unread
    dropped: int = 0
    #: passed by a reader with a later id
    passed: int = 0


def mark(db: Connection, kind: Literal["dropped", "passed"], address: str, row: int) -> None:
    """Store up to which row a stream was dropped or passed."""
    db.execute(
        f"INSERT INTO stream_marks (address, {kind}) VALUES (?1, ?2)"
        f" ON CONFLICT (address) DO UPDATE SET {kind} = ?2 WHERE stream_marks.{kind} < ?2",
        (address, row),
    )


def gone(db: Connection, address: str) -> Gone:
    """Return up to which rows a stream was dropped and passed."""
    found = db.execute("SELECT dropped, passed FROM stream_marks WHERE address = ?", (address,)).fetchone()
    return Gone(*found) if found else Gone()


def forget_marks(db: Connection, lives: Callable[[str], bool]) -> None:
    """Delete the marks of ended streams."""
    found = db.execute("SELECT address FROM stream_marks").fetchall()
    ended = [(address,) for (address,) in found if not lives(address)]
    db.executemany("DELETE FROM stream_marks WHERE address = ?", ended)


def pass_rows(db: Connection, address: str, before: int) -> int:
    """Delete the rows of a stream before one, because they were read; returns the number of notifications."""
    rows = db.execute(
        "SELECT id, frame_id FROM outbox WHERE address = ? AND id < ? ORDER BY id", (address, before)
    ).fetchall()
    if rows:
        mark(db, "passed", address, rows[-1][0])
    return settle(db, rows)


def old_stream_rows(db: Connection, oldest: int, most: int) -> list[tuple[str, int, int | None]]:
    """Return (address, id, frame_id) of the oldest rows of streams before a time."""
    return db.execute(
        "SELECT address, id, frame_id FROM outbox WHERE subscription IS NOT NULL AND state = 'ready'"
        " AND created < ? ORDER BY created, id LIMIT ?",
        (oldest, most),
    ).fetchall()


def rows_before(db: Connection, address: str, time: int, most: int) -> list[tuple[int, int | None]]:
    """Return (id, frame_id) of the oldest rows of an address before a time."""
    return db.execute(
        "SELECT id, frame_id FROM outbox WHERE address = ? AND created < ? ORDER BY id LIMIT ?",
        (address, time, most),
    ).fetchall()


def oldest_rows(db: Connection, address: str, most: int) -> list[tuple[int, int | None, int]]:
    """Return (id, frame_id, events) of the oldest rows of an address."""
    return db.execute(
        "SELECT id, frame_id, events FROM outbox WHERE address = ? ORDER BY id LIMIT ?", (address, most)
    ).fetchall()


# -- rows that are retried on their own -------------------------------------------------------------------


class Aside(NamedTuple):
    """A row of an unordered address whose attempts failed."""

    id: int
    attempts: int
    #: microseconds of steady time: when it is attempted again
    due: int


def put_aside(db: Connection, row: Aside) -> None:
    """Store the attempts of a row, and when the next one follows."""
    db.execute("UPDATE outbox SET attempts = ?, due = ? WHERE id = ?", (row.attempts, row.due, row.id))


def asides(db: Connection, address: str) -> list[Aside]:
    """Return the rows of an address that were put aside."""
    found = db.execute(
        "SELECT id, attempts, due FROM outbox WHERE address = ? AND attempts > 0 ORDER BY id", (address,)
    )
    return [Aside(*values) for values in found]


# -- recorded delivery batches ----------------------------------------------------------------------------


def store_batches(db: Connection, batches: Iterable[Sequence[int]]) -> None:
    """Record the rows of delivery batches, under the id of the first row."""
    db.executemany(
        "INSERT INTO batches VALUES (?, ?)", [(rows[0], msgspec.msgpack.encode(rows)) for rows in batches]
    )


def find_batch(db: Connection, first: int) -> list[Row] | None:
    """Return the rows of the recorded batch that begins with a row; None if there is none."""
    found = db.execute("SELECT members FROM batches WHERE id = ?", (first,)).fetchone()
    return None if found is None else rows_by_id(db, msgspec.msgpack.decode(found[0], type=list[int]))


def batches_at(db: Connection, address: str) -> list[list[int]]:
    """Return the row ids of each recorded batch of an address."""
    found = db.execute(
        "SELECT members FROM batches WHERE id IN (SELECT id FROM outbox WHERE address = ?)", (address,)
    )
    return [msgspec.msgpack.decode(data, type=list[int]) for (data,) in found.fetchall()]


def drop_rows(db: Connection, rows: Sequence[tuple[int, int | None]]) -> int:
    """Delete rows and their recorded batches; returns the number of notifications."""
    return settle(db, rows, [id for id, _ in rows])
