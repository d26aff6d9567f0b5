"""The notifications that wait: how matches become rows, rows become bodies, and what nothing needs goes.

A row tells an address of some events and, for each, whom. It is written before the first attempt and never
changes, and neither does which rows go together in one POST (see `batches`): so every attempt carries the
same body under the same webhook-id. Payloads are kept once a server, in `events`; a frame's events are one
**batch**, and an event's **place** is its rank in it. A row of batch 0 holds its body itself.

An **address** is a tenant, a sink's URL and, where its notifications are signed, the id of its key ring (see
`addresses`): matches of two subscriptions merge only if they are one tenant's and one receiver can verify
both. A **held** address is nobody's yet: rows that a subscription keeps for itself, in order, until
`buffered` lets them go.

What goes, and when: an outbox row once it is settled; a batch's payloads with its last row, and those that no
waiting row names once the batch is old (`Trim`), so that one dead address does not keep what others were
told; a version that is over with the last row at its address that can name it (`Collect`).

A row in **doubt** names versions whose exact predicates were not asked yet, because that takes too long for
the writer's thread (see `undecided`). It holds up its address, and nothing else, until it is decided.
"""

from __future__ import annotations

import functools
import sqlite3
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from edn import clock, tracing
from edn.coordinates import rfc3339
from edn_server.storage import usage
from edn_server.storage.addresses import FIRST, HELD, PAST, STREAM, WAITING, is_sink
from edn_server.storage.database import BATCH_BITS
from edn_server.storage.usage import Drops, Limits
from edn_server.storage.writer import Job
from edn_server.subscriptions.registry import Hosting
from edn_server.subscriptions.topic_index import Flags, Int32s, Int64s

#: a row holds no more events, and no more estimated bytes, than this
ROW_EVENTS = 500
ROW_BYTES = 1 << 20
#: rows are read until their compositions have so many bytes
PAGE_BYTES = 4 << 20
#: what one match and one event add to a body, about, besides the payload
MATCH_BYTES = 64
EVENT_BYTES = 128

#: of a row that holds its body itself
READY = 0
#: of a row whose versions are yet to be asked
OWN = -1

_HEADER = struct.Struct("<II")


class Event(NamedTuple):
    topic: int
    id: str
    #: microseconds: the event's own time
    stamp: int
    body: bytes
    #: the trace context that it came with (`edn.tracing`)
    trace: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """An outbox row as the notifier reads it."""

    id: int
    address: str
    batch: int
    composition: bytes
    events: int = 0
    #: microseconds: when it was written
    created: int = 0
    #: 0: all of its matches are exact; else the exact predicates are yet to be asked: those of the versions
    #: that it names (`OWN`), or, of a row that was renamed, that of the version with the number before this
    doubt: int = 0

    @property
    def places(self) -> list[int]:
        events, _ = _HEADER.unpack_from(self.composition)
        places: list[int] = np.frombuffer(self.composition, "<i4", events, _HEADER.size).tolist()
        return places

    def recipients(self) -> list[list[int]]:
        """For each event, the version numbers that matched it."""
        events, pairs = _HEADER.unpack_from(self.composition)
        counts = np.frombuffer(self.composition, "<i4", events, _HEADER.size + 4 * events)
        numbers = np.frombuffer(self.composition, "<i4", pairs, _HEADER.size + 8 * events)
        ends = np.cumsum(counts).tolist()
        plain = numbers.tolist()
        return [plain[end - count : end] for end, count in zip(ends, counts.tolist(), strict=True)]


def numbers_of(row: Row) -> Int32s:
    """The version of each match of a row that is composed."""
    events, pairs = _HEADER.unpack_from(row.composition)
    return np.frombuffer(row.composition, "<i4", pairs, _HEADER.size + 8 * events)


def renamed(composition: bytes, number: int) -> bytes:
    """The same in the name of one version: for a row that is one subscription's alone."""
    events, pairs = _HEADER.unpack_from(composition)
    return composition[: _HEADER.size + 8 * events] + np.full(pairs, number, dtype="<i4").tobytes()


class NewRow(NamedTuple):
    address: int
    events: int
    composition: bytes
    #: as `Row.doubt`
    doubt: int = 0


def group(places: Int64s, numbers: Int32s, addresses: Int32s, sizes: Int64s) -> Iterator[NewRow]:
    """Rows for matches given in the order of places: (place, number, number's address); `sizes` by place."""
    if not len(places):
        return
    order = np.argsort(_compact(addresses), kind="stable")
    places, numbers, addresses = places[order], numbers[order], addresses[order]
    address_changes = _changes(addresses)
    new_address = np.flatnonzero(address_changes)
    new_event = np.flatnonzero(address_changes | _changes(places))
    counts = np.diff(new_event, append=len(places))
    event_places = places[new_event]
    weights = sizes[event_places] + EVENT_BYTES + counts * MATCH_BYTES
    # The first event of each address, as an index into the events of all of them.
    firsts = np.searchsorted(new_event, new_address)
    lasts = np.append(firsts[1:], len(new_event))
    places32 = event_places.astype("<i4")
    counts32 = counts.astype("<i4")
    numbers32 = numbers.astype("<i4", copy=False)
    ends = np.append(new_event, len(places))
    for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True):
        address = int(addresses[new_event[first]])
        for begin, end in _pieces(weights, first, last):
            low, high = int(ends[begin]), int(ends[end])
            composition = compose(places32[begin:end], counts32[begin:end], numbers32[low:high])
            yield NewRow(address, end - begin, composition)


def compose(places: npt.NDArray[Any], counts: npt.NDArray[Any], numbers: npt.NDArray[Any]) -> bytes:
    """The blob of a row: its events, how many versions matched each, and which."""
    parts = (part.astype("<i4", copy=False).tobytes() for part in (places, counts, numbers))
    return _HEADER.pack(len(places), len(numbers)) + b"".join(parts)


def _changes(values: Int32s | Int64s) -> Flags:
    """Where a value differs from the one before it; the first one does."""
    changes = np.ones(len(values), dtype=np.bool_)
    np.not_equal(values[1:], values[:-1], out=changes[1:])
    return changes


def _compact(addresses: Int32s) -> npt.NDArray[np.integer]:
    """Ranks of the addresses; sixteen bits wide if they fit, because those are sorted by radix."""
    present = np.zeros(int(addresses.max()) + 1, dtype=np.bool_)
    present[addresses] = True
    ranks = np.cumsum(present) - 1
    narrow = ranks.astype(np.uint16) if ranks[-1] < 1 << 16 else ranks
    compact: npt.NDArray[np.integer] = narrow[addresses]
    return compact


def _pieces(weights: Int64s, first: int, last: int) -> Iterator[tuple[int, int]]:
    """Cut one address's events where a row would grow beyond its limits; a row has at least one event."""
    while first < last:
        end = min(last, first + ROW_EVENTS)
        total = np.cumsum(weights[first:end])
        if total[-1] > ROW_BYTES:
            end = first + max(1, int(np.searchsorted(total, ROW_BYTES, "right")))
        yield first, end
        first = end


def key(batch: int, place: int) -> int:
    return (batch << BATCH_BITS) | place


def event_fragment(event: Event, topic: str) -> bytes:
    """An entry of a notification up to its matches; the payload goes in as the bytes that it came in."""
    return b'{%b"topic":%b,"event":{"id":%b,"time":"%b","attributes":%b},"matches":[' % (
        _traced(event.trace) if event.trace else b"",
        msgspec.json.encode(topic),
        msgspec.json.encode(event.id),
        rfc3339(event.stamp).encode(),
        event.body,
    )


_TRACED = b'{"traceparent":"'
_STATE = b',"tracestate":'


def _traced(trace: str) -> bytes:
    """The first members of an entry whose event has a trace context."""
    fields = tracing.headers(trace)
    return b"".join(b'"%b":%b,' % (name.encode(), msgspec.json.encode(value)) for name, value in fields)


def trace_of(fragment: bytes) -> str:
    """The trace context that `event_fragment` wrote into an entry, if any."""
    if not fragment.startswith(_TRACED):
        return ""
    begin = len(_TRACED)
    parent, rest = fragment[begin : begin + 55], fragment[begin + 56 :]
    if not rest.startswith(_STATE):
        return parent.decode()
    state: str = msgspec.json.decode(rest[len(_STATE) : rest.index(b',"topic":')])
    return f"{parent.decode()} {state}"


def each_entry(row: Row, events: Sequence[bytes], fragments: Sequence[bytes | None]) -> list[bytes]:
    """The event fragments of a row, in its order, each with its matches."""
    entries = []
    for event, numbers in zip(events, row.recipients(), strict=True):
        matches = [fragments[number] for number in numbers]
        entries.append(event + b",".join([match for match in matches if match is not None]) + b"]}")
    return entries


def entries_of(row: Row, events: Sequence[bytes], fragments: Sequence[bytes | None]) -> bytes:
    """What a row adds to a body."""
    return b",".join(each_entry(row, events, fragments))


def enclose(entries: Sequence[bytes]) -> bytes:
    return b'{"notifications":[' + b",".join(entries) + b"]}"


# -- rows on disk ---------------------------------------------------------------------------------------


def write(
    db: sqlite3.Connection,
    batch: int,
    events: Sequence[tuple[int, Event]],
    rows: Sequence[tuple[str, NewRow]],
    limits: Limits,
) -> Drops:
    """Inside the frame's transaction: payloads by place, rows by address; what went at a tenant's limit."""
    first = batch << BATCH_BITS
    now = int(clock.steady() * 1e6)
    db.executemany(
        "INSERT INTO events VALUES (?, ?, ?, ?, ?, ?)", ((first | place, *event) for place, event in events)
    )
    db.executemany(
        "INSERT INTO outbox (address, batch, events, composition, created, doubt) VALUES (?, ?, ?, ?, ?, ?)",
        (
            (address, batch, row.events, row.composition, now, row.doubt)
            for address, row in rows
            if not address.startswith(usage.COUNTED)
        ),
    )
    counted = [(address, row) for address, row in rows if address.startswith(usage.COUNTED)]
    if not counted:
        return Drops()
    sizes = {place: len(event.body) + EVENT_BYTES for place, event in events}
    db.executemany(
        "INSERT INTO outbox (address, batch, events, composition, created, doubt, bytes)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        (
            (address, batch, row.events, row.composition, now, row.doubt, _weight(row, sizes))
            for address, row in counted
        ),
    )
    touched = dict.fromkeys(address for address, _ in counted)
    return usage.enforce(db, limits, touched, functools.partial(_drop, db))


def _drop(db: sqlite3.Connection, address: str, rows: Sequence[tuple[int, int]]) -> int:
    """Delete the oldest rows of an address that nobody has seen; how many notifications they held."""
    if address.startswith(STREAM):
        mark(db, DROPPED, address, rows[-1][0])
    return Settle(rows).work(db)


def _weight(row: NewRow, sizes: dict[int, int]) -> int:
    """Bytes that a row counts for."""
    events, _ = _HEADER.unpack_from(row.composition)
    places = np.frombuffer(row.composition, "<i4", events, _HEADER.size).tolist()
    return len(row.composition) + sum(sizes[place] for place in places)


def last_row(db: sqlite3.Connection) -> int:
    """The id of the newest row that ever was."""
    found = db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'outbox'").fetchone()
    return int(found[0]) if found else 0


def restored(db: sqlite3.Connection) -> int:
    """The newest row that came with a backup, 0 if this folder never did."""
    found = db.execute("SELECT value FROM meta WHERE name = 'restored'").fetchone()
    return int(found[0]) if found else 0


def waiting_addresses(db: sqlite3.Connection) -> list[str]:
    """Who has rows; each is found by one step of the index, however many rows it has."""
    found = db.execute(
        "WITH RECURSIVE next(address) AS (SELECT min(address) FROM outbox UNION ALL"
        " SELECT (SELECT min(o.address) FROM outbox o WHERE o.address > next.address) FROM next"
        " WHERE next.address IS NOT NULL) SELECT address FROM next WHERE address IS NOT NULL"
    )
    return [address for (address,) in found if is_sink(address)]


def stream_addresses(db: sqlite3.Connection) -> list[str]:
    """Streams that have rows."""
    found = db.execute(
        "WITH RECURSIVE next(address) AS (SELECT min(address) FROM outbox WHERE address >= ?1 UNION ALL"
        " SELECT (SELECT min(o.address) FROM outbox o WHERE o.address > next.address) FROM next"
        " WHERE next.address < ?2) SELECT address FROM next WHERE address < ?2",
        (STREAM, STREAM[:-1] + ";"),
    )
    return [address for (address,) in found]


ROW = "id, address, batch, composition, events, created, doubt"


def page(db: sqlite3.Connection, address: str, rows: int, after: int = 0) -> list[Row]:
    """The next rows of an address, oldest first, up to the first in doubt; fewer if they are large."""
    found = db.execute(
        f"SELECT {ROW} FROM outbox WHERE address = ?1 AND id > ?2 AND id < coalesce("
        "(SELECT min(id) FROM outbox WHERE address = ?1 AND doubt != 0), 9223372036854775807)"
        " ORDER BY id LIMIT ?3",
        (address, after, rows),
    )
    taken: list[Row] = []
    size = 0
    for values in found:
        taken.append(Row(*values))
        size += len(taken[-1].composition)
        if size > PAGE_BYTES:
            break
    found.close()
    return taken


def rows_of(db: sqlite3.Connection, ids: Sequence[int]) -> list[Row]:
    """Those of these rows that wait, in the order of their ids."""
    found = db.execute(
        f"SELECT {ROW} FROM outbox WHERE id IN (SELECT value FROM json_each(?)) ORDER BY id",
        (msgspec.json.encode(list(ids)).decode(),),
    )
    return [Row(*values) for values in found]


def read_events(db: sqlite3.Connection, batch: int, places: Sequence[int]) -> dict[int, Event]:
    first = batch << BATCH_BITS
    found = db.execute(
        "SELECT key, topic, id, stamp, body, trace FROM events"
        " WHERE key IN (SELECT value FROM json_each(?)) ORDER BY key",
        (msgspec.json.encode([first | place for place in places]).decode(),),
    )
    return {key - first: Event(*values) for key, *values in found}


class Settle(Job[int]):
    """Rows that need no further attempt go, and with a batch's last row its payloads."""

    def __init__(self, rows: Sequence[tuple[int, int]], *, parcel: int | None = None) -> None:
        """`rows` are (id, batch); `parcel` is that which they were."""
        self._rows = rows
        self._parcel = parcel

    def work(self, db: sqlite3.Connection) -> int:
        events = 0
        if self._parcel is not None:
            db.execute("DELETE FROM parcels WHERE id = ?", (self._parcel,))
        for id, batch in self._rows:
            gone = db.execute("DELETE FROM outbox WHERE id = ? RETURNING events", (id,)).fetchall()
            events += sum(count for (count,) in gone)
            if (
                batch != READY
                and not db.execute("SELECT 1 FROM outbox WHERE batch = ? LIMIT 1", (batch,)).fetchone()
            ):
                db.execute(
                    "DELETE FROM events WHERE key >= ? AND key < ?", (key(batch, 0), key(batch + 1, 0))
                )
        return events


class Gone(NamedTuple):
    """The last rows of a stream that went."""

    #: because nobody read them in time
    dropped: int = 0
    #: because a reader came back with a later id
    passed: int = 0


#: begin the names in `meta` of what `Gone` holds
DROPPED = "dropped "
PASSED = "passed "


def mark(db: sqlite3.Connection, kind: str, address: str, row: int) -> None:
    """Write down that the rows of a stream up to this one went."""
    db.execute(
        "INSERT INTO meta VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET value = max(value, ?2)",
        (kind + address, row),
    )


def gone(db: sqlite3.Connection, address: str) -> Gone:
    """Read which rows of a stream went."""
    names = (DROPPED + address, PASSED + address)
    found = dict(db.execute("SELECT name, value FROM meta WHERE name IN (?, ?)", names).fetchall())
    return Gone(*(int(found.get(name, 0)) for name in names))


def forget_marks(db: sqlite3.Connection, lives: Callable[[str], bool]) -> None:
    """Remove the marks of streams that are no more."""
    for kind in (DROPPED, PASSED):
        found = db.execute("SELECT name FROM meta WHERE name >= ? AND name < ?", (kind, kind[:-1] + "!"))
        ended = [(name,) for (name,) in found.fetchall() if not lives(name[len(kind) :])]
        db.executemany("DELETE FROM meta WHERE name = ?", ended)


class Pass(Job[int]):
    """Rows of a stream before this one were read, and go."""

    def __init__(self, address: str, row: int) -> None:
        self._address = address
        self._row = row

    def work(self, db: sqlite3.Connection) -> int:
        rows = db.execute(
            "SELECT id, batch FROM outbox WHERE address = ? AND id < ? ORDER BY id",
            (self._address, self._row),
        ).fetchall()
        if rows:
            mark(db, PASSED, self._address, rows[-1][0])
        return Settle(rows).work(db)


class Collect(Job[int]):
    """Versions that are over and that no waiting row can name go; their numbers are free again."""

    fresh = True
    LIMIT = 1000

    def __init__(self, hosting: Hosting) -> None:
        self._hosting = hosting
        self._numbers: list[int] = []

    def work(self, db: sqlite3.Connection) -> int:
        found = db.execute(
            "SELECT number FROM versions v WHERE over IS NOT NULL AND NOT EXISTS"
            " (SELECT 1 FROM outbox o WHERE o.id <= v.over AND o.address IN"
            "  (SELECT v.address UNION ALL SELECT ?1 || v.id UNION ALL SELECT ?1 || v.id || ?3"
            "   UNION ALL SELECT ?1 || v.id || ?4 UNION ALL SELECT ?1 || v.id || ?5 UNION ALL"
            "   SELECT w.address FROM versions w WHERE w.id = v.id AND w.over IS NULL))"
            # Nor one whose predicate a renamed row is yet to ask.
            " AND NOT EXISTS (SELECT 1 FROM outbox d WHERE d.doubt = v.number + 1 AND d.doubt > 0)"
            " LIMIT ?2",
            (HELD, self.LIMIT, PAST, FIRST, WAITING),
        )
        self._numbers = [number for (number,) in found]
        keys = [(number,) for number in self._numbers]
        db.executemany("DELETE FROM versions WHERE number = ?", keys)
        db.executemany("DELETE FROM intervals WHERE number = ?", keys)
        return len(keys)

    def done(self, result: int) -> None:
        for number in self._numbers:
            self._hosting.free_number(number)


class ForgetTopics(Job[int]):
    """Topics of which no version is left go, with all that is counted of them.

    While a version is in the database, a waiting row may need the topic's name; `Collect` frees versions, so
    this follows it. A store that comes later brings the topic along again.
    """

    fresh = True

    def __init__(self, hosting: Hosting) -> None:
        self._hosting = hosting
        self._topics: list[int] = []

    def work(self, db: sqlite3.Connection) -> int:
        self._topics = self._hosting.unused_topics()
        db.executemany("DELETE FROM topics WHERE uid = ?", [(uid,) for uid in self._topics])
        return len(self._topics)

    def done(self, result: int) -> None:
        self._hosting.forget_topics(self._topics)


class Trim(Job[int]):
    """Payloads of one old batch that no waiting row names."""

    def __init__(self, batch: int) -> None:
        self._batch = batch

    def work(self, db: sqlite3.Connection) -> int:
        needed: set[int] = set()
        for values in db.execute(f"SELECT {ROW} FROM outbox WHERE batch = ?", (self._batch,)):
            needed.update(Row(*values).places)
        bounds = (key(self._batch, 0), key(self._batch + 1, 0))
        stored = db.execute("SELECT key FROM events WHERE key >= ? AND key < ?", bounds).fetchall()
        idle = [(found,) for (found,) in stored if found - bounds[0] not in needed]
        db.executemany("DELETE FROM events WHERE key = ?", idle)
        return len(idle)
