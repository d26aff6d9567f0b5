"""The log: every accepted event and every change of a subscription, in one durable order.

Theory of operation
-------------------
One SQLite file holds the log and what must change together with it (topics, directory, servers). One thread
owns the only writing connection. Callers `submit` an operation, a function of a `Transaction`; whatever is
queued when the thread turns round goes into one SQLite transaction, each operation in a savepoint of its
own, so that one that fails takes nothing of the others with it. After the commit (WAL, synchronous=FULL: the
file is synced) the records become visible, in order, to `on_commit`, and only then are the callers answered.
So nothing is routed, and nothing acknowledged, before it is on disk.

Offsets count events and changes from 1. The log's id is random; event ids that a publisher did not choose
are the id's beginning and the offset. Time never runs backwards inside the log, whatever the clock does.
`incarnation` counts the starts of this log's dispatcher.

Reading is done from the event loop on a connection of its own, which sees what is committed.
"""

from __future__ import annotations

import asyncio
import queue
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt
import structlog

from dispatcher import upgrading
from dispatcher.records import (
    ControlRecord,
    EventsRecord,
    Record,
    events_payload,
    expiries_of,
    load_control,
    load_events,
)
from edn import defects, wire
from edn.errors import EdnError, Unavailable

logger = structlog.get_logger()
T = TypeVar("T")
Floats = npt.NDArray[np.float64]

#: rows that one step of a truncation forgets
_STEP = 1000

#: raised with every change of the tables below that older programs cannot read
FORMAT = 5

_TABLES = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID;
-- keyed by the last offset, so that "everything after a cursor" is one range
CREATE TABLE IF NOT EXISTS records (
    last INTEGER PRIMARY KEY, count INTEGER NOT NULL, time INTEGER NOT NULL,
    topic INTEGER, server TEXT, payload BLOB NOT NULL,
    -- when the last of its events ceases to be available to later subscribers, null if none ever was
    expires INTEGER);
-- what a new subscription is yet to be told of the events that were available when it began
CREATE TABLE IF NOT EXISTS replays (
    subscription TEXT NOT NULL, version INTEGER NOT NULL, server TEXT NOT NULL, topic INTEGER NOT NULL,
    filter TEXT, upto INTEGER NOT NULL, time INTEGER NOT NULL, since INTEGER,
    -- null: what was available, otherwise all that the log took after this offset, in place of a lost server
    after INTEGER,
    PRIMARY KEY (subscription, version)) WITHOUT ROWID;
-- subscriptions that have moved and whose former server may still have something to deliver: `keeping` if it
-- holds what it kept for a paused one
CREATE TABLE IF NOT EXISTS moves (
    subscription TEXT NOT NULL, version INTEGER NOT NULL, source TEXT NOT NULL, destination TEXT NOT NULL,
    keeping INTEGER NOT NULL, PRIMARY KEY (subscription, version)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS moves_by_source ON moves (source);
-- repartitions, and of those that are not over where what is to be moved shall go
CREATE TABLE IF NOT EXISTS repartitions (
    id INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, state TEXT NOT NULL, server TEXT,
    created INTEGER NOT NULL, began INTEGER, ended INTEGER, rate REAL NOT NULL,
    total INTEGER NOT NULL DEFAULT 0, moved INTEGER NOT NULL DEFAULT 0, skipped INTEGER NOT NULL DEFAULT 0,
    hit_ratio REAL, expected_hit_ratio REAL);
CREATE TABLE IF NOT EXISTS assignments (
    repartition INTEGER NOT NULL, subscription TEXT NOT NULL, server TEXT NOT NULL,
    PRIMARY KEY (repartition, subscription)) WITHOUT ROWID;
-- up to where servers have read, as last noted, and those that are being emptied or are lost, with that
CREATE TABLE IF NOT EXISTS cursors (server TEXT PRIMARY KEY, cursor INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS leaving (
    server TEXT PRIMARY KEY, state TEXT NOT NULL, cursor INTEGER) WITHOUT ROWID;
-- only ids that publishers chose: an id that we made cannot come twice
CREATE TABLE IF NOT EXISTS event_ids (
    topic INTEGER NOT NULL, id TEXT NOT NULL, digest BLOB NOT NULL, time INTEGER NOT NULL,
    PRIMARY KEY (topic, id)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS event_ids_by_time ON event_ids (time);
CREATE TABLE IF NOT EXISTS topics (
    uid INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, revision INTEGER NOT NULL,
    columns TEXT NOT NULL, attributes TEXT NOT NULL, engine TEXT NOT NULL, created INTEGER NOT NULL,
    -- seconds, Inf for ever: how long its events stay available to later subscribers, if they do not say
    availability REAL NOT NULL DEFAULT 0,
    -- whether its engine was chosen for this very name, and not inherited
    chosen INTEGER NOT NULL DEFAULT 0);
-- what operators have bound to names, of topics or subtrees: servers (JSON) and matcher, null for none
CREATE TABLE IF NOT EXISTS bindings (
    name TEXT PRIMARY KEY, servers TEXT, engine TEXT, created INTEGER NOT NULL) WITHOUT ROWID;
-- those to a subtree have its path, and no topic (0) and no server (''): these are their members'
CREATE TABLE IF NOT EXISTS subscriptions (
    serial INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, version INTEGER NOT NULL,
    owner TEXT NOT NULL, topic INTEGER NOT NULL, filter TEXT, attributes TEXT NOT NULL, url TEXT NOT NULL,
    recipient TEXT, expires INTEGER, server TEXT NOT NULL, created INTEGER NOT NULL, location TEXT,
    ring TEXT NOT NULL DEFAULT '', paused INTEGER NOT NULL DEFAULT 0, subtree TEXT);
CREATE INDEX IF NOT EXISTS subscriptions_by_topic ON subscriptions (topic, serial);
CREATE INDEX IF NOT EXISTS subscriptions_by_owner ON subscriptions (owner, serial);
CREATE INDEX IF NOT EXISTS subscriptions_by_server ON subscriptions (server);
CREATE INDEX IF NOT EXISTS subscriptions_by_expiry ON subscriptions (expires) WHERE expires IS NOT NULL;
-- the secrets that notifications are signed with: those that subscribers gave, by fingerprint, or ours
CREATE TABLE IF NOT EXISTS rings (
    id TEXT PRIMARY KEY, owner TEXT NOT NULL, url TEXT NOT NULL, given TEXT NOT NULL,
    current TEXT NOT NULL, previous TEXT, until INTEGER NOT NULL, version INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS rings_by_url ON rings (owner, url, given);
-- what other dispatchers must learn of, in the order in which it changed (see `dispatcher.changes`)
CREATE TABLE IF NOT EXISTS changes (
    touched INTEGER PRIMARY KEY AUTOINCREMENT, kind INTEGER NOT NULL, name TEXT NOT NULL,
    revision INTEGER NOT NULL, gone INTEGER, version INTEGER, server TEXT, epoch INTEGER, seq INTEGER,
    since INTEGER, renewed INTEGER NOT NULL DEFAULT 0, former TEXT,
    -- of a subscription that has ended and wanted to hear what was available: topic and filter (JSON)
    wanted TEXT, UNIQUE (kind, name));
CREATE INDEX IF NOT EXISTS changes_gone ON changes (gone) WHERE gone IS NOT NULL;
-- API keys, by digest only
CREATE TABLE IF NOT EXISTS keys (
    id TEXT PRIMARY KEY, digest BLOB NOT NULL, name TEXT NOT NULL, tenant TEXT NOT NULL,
    scopes TEXT NOT NULL, quota TEXT NOT NULL, created INTEGER NOT NULL, expires INTEGER) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS servers (
    id TEXT PRIMARY KEY, url TEXT NOT NULL, key TEXT NOT NULL, epoch INTEGER NOT NULL,
    registered INTEGER NOT NULL) WITHOUT ROWID;
"""


_INDEXES = """
CREATE INDEX IF NOT EXISTS records_passing ON records (last) WHERE expires IS NULL;
CREATE INDEX IF NOT EXISTS records_by_expiry ON records (expires) WHERE expires IS NOT NULL;
CREATE INDEX IF NOT EXISTS records_retained ON records (topic, last) WHERE expires IS NOT NULL;
CREATE INDEX IF NOT EXISTS subscriptions_by_ring ON subscriptions (ring) WHERE ring != '';
CREATE INDEX IF NOT EXISTS subscriptions_by_subtree ON subscriptions (subtree) WHERE subtree IS NOT NULL;
"""


class WrongFormat(EdnError):
    """The data folder was written by a newer program."""


@dataclass(slots=True)
class Transaction:
    """What an operation works on: the connection, and the log's end as this transaction sees it."""

    connection: sqlite3.Connection
    log: str
    incarnation: int
    #: last offset given out
    head: int
    #: the log's time of this transaction, microseconds
    time: int
    records: list[Record] = field(default_factory=list)
    #: whether changes are kept for other dispatchers, and whether there were any (see `changes`)
    noting: bool = False
    noted: bool = False

    def append_control(self, server: str, kind: wire.Kind, **fields: Any) -> int:
        """Append a change that concerns `server`; its offset."""
        self.head += 1
        control = wire.Control(offset=self.head, time=self.time, kind=kind, **fields)
        self.connection.execute(
            "INSERT INTO records VALUES (?, 1, ?, NULL, ?, ?, NULL)",
            (self.head, self.time, server, wire.encode(control)),
        )
        self.records.append(ControlRecord(self.head, server, control))
        return self.head

    def append_events(
        self,
        topic: int,
        ids: list[str | None],
        stamps: list[int | None],
        lines: bytes,
        points: Floats,
        availability: Floats | None = None,
        trace: str = "",
    ) -> list[str]:
        """Append events of one topic; their ids, made here where the publisher chose none.

        `availability`: for how many seconds each stays available to later subscribers; None is 0 for all.
        `trace`: the trace context that they came with (`edn.tracing`).
        """
        first, count = self.head + 1, len(ids)
        made = wire.made_ids(self.log, first, count)
        chosen = ids.count(None) < count
        named = [own or name for own, name in zip(ids, made, strict=True)] if chosen else made
        stamped = np.full(count, self.time, dtype=np.int64)
        if stamps.count(None) < count:
            stamped[:] = [self.time if stamp is None else stamp for stamp in stamps]
        expiries = None if availability is None else expiries_of(self.time, availability)
        record = EventsRecord(
            first, self.time, topic, named if chosen else [], stamped, lines, points, expiries
        )
        if trace:
            record.traces = [trace] * count
        self.head = record.last
        until = None if expiries is None else int(expiries.max())
        self.connection.execute(
            "INSERT INTO records VALUES (?, ?, ?, ?, NULL, ?, ?)",
            (self.head, count, self.time, topic, events_payload(record), until),
        )
        self.records.append(record)
        return named


@dataclass(slots=True)
class _Waiting(Generic[T]):
    operation: Callable[[Transaction], T]
    future: asyncio.Future[T]
    size: int
    result: Any = None
    error: BaseException | None = None


class Log:
    """Owns the file; `submit` from the event loop only."""

    def __init__(
        self,
        folder: Path,
        *,
        on_commit: Callable[[list[Record]], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / "dispatcher.db"
        self._on_commit = on_commit
        self.clock: Callable[[], float] = clock
        self._queue: queue.SimpleQueue[_Waiting[Any] | None] = queue.SimpleQueue()
        #: bytes submitted and not yet committed; what back-pressure looks at
        self.pending = 0
        #: seconds that a commit waits for company, when the last one had some; see `Network._committed`
        self.patience = 0.0
        #: whether other dispatchers learn of changes; the last place among those that is taken, and who hears
        #: of another one
        self.noting = False
        self.touched = 0
        self.on_change: Callable[[], None] | None = None
        self._writer = self._connect()
        self._open()
        self.reader = self.connect_reader()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="log-writer", daemon=True)

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA busy_timeout = 10000")
        return connection

    def _open(self) -> None:
        connection = self._writer
        connection.execute("BEGIN IMMEDIATE")
        for statement in _TABLES.split(";"):
            connection.execute(statement)
        meta = dict(connection.execute("SELECT key, value FROM meta").fetchall())
        found = meta.get("format", FORMAT)
        if found > FORMAT:
            connection.execute("ROLLBACK")
            raise WrongFormat(
                f"{self._path} has format {found}, this program reads up to {FORMAT}: run the newer program"
            )
        if found == 1:
            upgrading.from_format_1(connection)
        if found <= 2:
            upgrading.from_format_2(connection)
        if found <= 3:
            upgrading.from_format_3(connection)
        if found < 5:
            upgrading.from_format_4(connection)
            meta = dict(connection.execute("SELECT key, value FROM meta").fetchall())
        for statement in _INDEXES.split(";"):
            connection.execute(statement)
        self.id: str = meta.get("log") or secrets.token_hex(16)
        self.incarnation: int = meta.get("incarnation", 0) + 1
        connection.executemany(
            "INSERT INTO meta VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            [("format", FORMAT), ("log", self.id), ("incarnation", self.incarnation)],
        )
        connection.execute("COMMIT")
        last = connection.execute("SELECT last, time FROM records ORDER BY last DESC LIMIT 1").fetchone()
        #: the last committed offset, and the log's time then
        self.head: int = last[0] if last else 0
        self.time: int = last[1] if last else 0
        #: everything after this offset is still here
        self.floor: int = meta.get("floor", 0)
        self.touched = self._last_touched()

    def _last_touched(self) -> int:
        # Not the greatest that is there: what has ended is forgotten, and its place is never given again.
        row = self._writer.execute("SELECT seq FROM sqlite_sequence WHERE name = 'changes'").fetchone()
        return int(row[0]) if row else 0

    def perform_at_start(self, operation: Callable[[Transaction], None]) -> None:
        """Carry out an operation that appends nothing, before `start`."""
        transaction = Transaction(self._writer, self.id, self.incarnation, self.head, self.now())
        self._writer.execute("BEGIN IMMEDIATE")
        operation(transaction)
        self._writer.execute("COMMIT")
        self.touched = self._last_touched()

    def connect_reader(self) -> sqlite3.Connection:
        """One more connection that reads what is committed; whoever asks for it closes it."""
        reader = self._connect()
        reader.execute("PRAGMA query_only = ON")
        return reader

    def now(self) -> int:
        """The log's time, microseconds: the clock's, but never behind what is written."""
        return max(self.time, int(self.clock() * 1e6))

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    async def stop(self) -> None:
        """Commit what is queued, then close the file."""
        self._queue.put(None)
        await asyncio.get_running_loop().run_in_executor(None, self._thread.join)
        self.reader.close()

    def submit(self, operation: Callable[[Transaction], T], size: int = 0) -> asyncio.Future[T]:
        """Run `operation` in the next transaction; the future is done after the commit."""
        assert self._loop is not None
        future: asyncio.Future[T] = self._loop.create_future()
        self.pending += size
        self._queue.put(_Waiting(operation, future, size))
        return future

    async def truncate(self, upto: int, ids_before: int) -> None:
        """Forget records up to an offset, and chosen event ids of before a time, in small steps.

        Events that are available to later subscribers stay until they no longer are. The last record stays:
        the log's end is read from it.
        """

        (needed,) = self.reader.execute("SELECT min(after) FROM replays").fetchone()
        upto = min(upto, self.head) if needed is None else min(upto, self.head, int(needed))

        def operation(transaction: Transaction) -> bool:
            transaction.connection.execute(
                "INSERT INTO meta VALUES ('floor', ?1) ON CONFLICT (key)"
                " DO UPDATE SET value = max(value, ?1)",
                (upto,),
            )
            records = transaction.connection.execute(
                "DELETE FROM records WHERE last IN (SELECT last FROM records WHERE expires IS NULL "
                "AND last <= ?1 AND last < (SELECT max(last) FROM records) ORDER BY last LIMIT ?2) "
                "OR last IN (SELECT last FROM records WHERE expires <= ?3 AND last <= ?1 "
                "AND last < (SELECT max(last) FROM records) LIMIT ?2)",
                (upto, _STEP, self._unneeded_before(transaction)),
            ).rowcount
            ids = transaction.connection.execute(
                "DELETE FROM event_ids WHERE (topic, id) IN "
                "(SELECT topic, id FROM event_ids WHERE time < ? LIMIT ?)",
                (ids_before, _STEP),
            ).rowcount
            return records >= _STEP or ids == _STEP

        while await self.submit(operation):
            pass
        self.floor = max(self.floor, upto)

    @staticmethod
    def _unneeded_before(transaction: Transaction) -> int:
        """Events that expired by then are needed by nobody, not even by a subscription that began before."""
        (oldest,) = transaction.connection.execute("SELECT min(time) FROM replays").fetchone()
        return transaction.time if oldest is None else min(transaction.time, int(oldest))

    def expired(self) -> bool:
        """Whether there is an event that was available and no longer is."""
        found = self.reader.execute("SELECT 1 FROM records WHERE expires <= ? LIMIT 1", (self.now(),))
        return found.fetchone() is not None

    def read(self, after: int, limit_bytes: int) -> Iterator[Record]:
        """Committed records beyond `after`, from disk, up to about `limit_bytes` of payload."""
        rows = self.reader.execute(
            "SELECT last, count, time, topic, server, payload FROM records WHERE last > ? ORDER BY last",
            (after,),
        )
        size = 0
        try:
            for last, count, at, topic, server, payload in rows:
                if server is not None:
                    yield load_control(server, payload)
                else:
                    yield load_events(last - count + 1, at, topic, payload)
                size += len(payload)
                if size >= limit_bytes:
                    return
        finally:
            rows.close()

    # -- the writer thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        stopping, company = False, False
        while not stopping:
            batch: list[_Waiting[Any]] = []
            waiting = self._queue.get()
            if company and self.patience:
                time.sleep(self.patience)
            while True:
                if waiting is None:
                    stopping = True
                    break
                batch.append(waiting)
                try:
                    waiting = self._queue.get_nowait()
                except queue.Empty:
                    break
            if batch:
                self._commit(batch)
            company = len(batch) > 1
        self._writer.close()

    def _commit(self, batch: list[_Waiting[Any]]) -> None:
        connection = self._writer
        transaction = Transaction(
            connection, self.id, self.incarnation, self.head, self.now(), noting=self.noting
        )
        try:
            connection.execute("BEGIN IMMEDIATE")
            for waiting in batch:
                self._perform(transaction, waiting)
            if defects.planted("route-before-commit"):  # for tests only
                assert self._loop is not None
                self._loop.call_soon_threadsafe(self._on_commit, list(transaction.records))
                time.sleep(defects.WINDOW)
            elif defects.planted("acknowledge-before-commit"):  # for tests only
                time.sleep(defects.WINDOW)
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            # Nothing of this batch is on disk: not even an operation that seemed to go well.
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            logger.error("commit failed", error=str(error), operations=len(batch))
            for waiting in batch:
                waiting.error = Unavailable(f"the log could not be written: {error}", retry_after=1)
            transaction.records.clear()
        else:
            self.head, self.time = transaction.head, transaction.time
            if transaction.noted:
                self.touched = self._last_touched()
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._finish, batch, transaction.records, transaction.noted)

    @staticmethod
    def _perform(transaction: Transaction, waiting: _Waiting[Any]) -> None:
        connection, head, kept = transaction.connection, transaction.head, len(transaction.records)
        connection.execute("SAVEPOINT operation")
        try:
            waiting.result = waiting.operation(transaction)
        except sqlite3.OperationalError:
            raise  # a full disk and its like concern the whole transaction
        except Exception as error:
            waiting.error = error
            connection.execute("ROLLBACK TO operation")
            transaction.head = head
            del transaction.records[kept:]
        connection.execute("RELEASE operation")

    def _finish(self, batch: list[_Waiting[Any]], records: list[Record], changed: bool) -> None:
        if changed and self.on_change is not None:
            self.on_change()
        if records and not defects.planted("route-before-commit"):
            self._on_commit(records)
        for waiting in batch:
            self.pending -= waiting.size
            if waiting.future.done():
                continue  # its caller went away; what it asked for is committed all the same
            if waiting.error is not None:
                waiting.future.set_exception(waiting.error)
            else:
                waiting.future.set_result(waiting.result)
