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
are the id's beginning and the offset. The order is that of the offsets alone. A record's time is the network
time of its commit (`edn.clock`), which falls back when a wrong clock is corrected: what must grow, as the
versions of subscriptions, is numbered by `next_version`.
`incarnation` counts the starts of this log's dispatcher.

Reading is done from the event loop on a connection of its own, which sees what is committed.

Truncation and vacuum run between the transactions of others (`upkeep`), in steps that are bounded in bytes,
so that they succeed on a disk that is nearly full (see `edn.storage`). An I/O error ends the process: what
the file holds then is known only after it was opened anew.
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
from typing import Any, Generic, Literal, TypeVar

import numpy as np
import structlog

from dispatcher import retention
from dispatcher.records import (
    ControlRecord,
    EventsRecord,
    Record,
    events_payload,
    expiries_of,
    load_control,
    load_events,
)
from edn import defects, storage, wire
from edn.arrays import Floats
from edn.errors import EdnError, Unavailable
from edn.process import wrong_format

logger = structlog.get_logger()
T = TypeVar("T")

#: what one step of a truncation deletes at most: records, bytes of their payloads, and event ids, which lie
#: scattered in their index, so that each may cost a page
_STEP = 1000
_STEP_BYTES = 8 << 20
_STEP_IDS = 250
#: seconds that truncation may take at the start; the rest follows while the dispatcher runs
_START_SECONDS = 10.0
#: bytes of the emergency reserve beside the log
_RESERVE_BYTES = 8 << 20

#: raised with every change of the tables below; a file of any other format is refused
FORMAT = 6

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
    ring TEXT NOT NULL DEFAULT '', paused INTEGER NOT NULL DEFAULT 0, subtree TEXT,
    predicates INTEGER NOT NULL DEFAULT 0);
CREATE INDEX IF NOT EXISTS subscriptions_by_topic ON subscriptions (topic, serial);
CREATE INDEX IF NOT EXISTS subscriptions_by_owner ON subscriptions (owner, serial);
CREATE INDEX IF NOT EXISTS subscriptions_by_server ON subscriptions (server);
CREATE INDEX IF NOT EXISTS subscriptions_by_expiry ON subscriptions (expires) WHERE expires IS NOT NULL;
-- the secrets that notifications are signed with: those that subscribers gave, by fingerprint, or ours
CREATE TABLE IF NOT EXISTS rings (
    id TEXT PRIMARY KEY, tenant TEXT NOT NULL, owner TEXT NOT NULL, url TEXT NOT NULL, given TEXT NOT NULL,
    current TEXT NOT NULL, previous TEXT, until INTEGER NOT NULL, version INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS rings_by_url ON rings (tenant, owner, url, given);
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


class LogFull(Unavailable):
    """The disk had no room for a transaction of the log."""


class WrongFormat(EdnError):
    """The data folder was written by an older or a newer version of the program."""


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
    #: the steady time, for ages, and the best guess of the civil time, for stamps and new expiries
    steady: int = 0
    estimate: int = 0
    records: list[Record] = field(default_factory=list)
    #: whether changes are kept for other dispatchers, and whether there were any (see `changes`)
    noting: bool = False
    noted: bool = False

    def __post_init__(self) -> None:
        self.steady = self.steady or self.time
        self.estimate = max(self.estimate, self.time)

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
        stamped = np.full(count, self.estimate, dtype=np.int64)
        if stamps.count(None) < count:
            stamped[:] = [self.estimate if stamp is None else stamp for stamp in stamps]
        expiries = None if availability is None else expiries_of(self.estimate, availability)
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


def _forget(transaction: Transaction, upto: int, ids_before: int) -> bool:
    """Delete one step's worth of records and event ids; whether there is more."""
    connection = transaction.connection
    connection.execute(
        "INSERT INTO meta VALUES ('floor', ?1) ON CONFLICT (key) DO UPDATE SET value = max(value, ?1)",
        (upto,),
    )
    (end,) = connection.execute("SELECT coalesce(max(last), 0) FROM records").fetchone()
    going, more = _within(
        connection.execute(
            "SELECT last, length(payload) FROM records WHERE expires IS NULL AND last <= ? AND last < ?"
            " ORDER BY last LIMIT ?",
            (upto, end, _STEP),
        ).fetchall()
    )
    if not more:
        expired, more = _within(
            connection.execute(
                "SELECT last, length(payload) FROM records WHERE expires <= ? AND last <= ? AND last < ?"
                " LIMIT ?",
                (_unneeded_before(transaction), upto, end, _STEP),
            ).fetchall()
        )
        going += expired
    connection.executemany("DELETE FROM records WHERE last = ?", [(last,) for last in going])
    ids = connection.execute(
        "DELETE FROM event_ids WHERE (topic, id) IN (SELECT topic, id FROM event_ids WHERE time < ? LIMIT ?)",
        (ids_before, _STEP_IDS),
    ).rowcount
    return more or ids == _STEP_IDS


def _within(found: list[tuple[int, int]]) -> tuple[list[int], bool]:
    """The first of these records that one step may delete, at least one, and whether there are more."""
    size = 0
    for place, (_, length) in enumerate(found):
        size += length
        if size > _STEP_BYTES and place:
            return [last for last, _ in found[:place]], True
    return [last for last, _ in found], len(found) == _STEP


def _unneeded_before(transaction: Transaction) -> int:
    """Events that expired by then are needed by nobody, not even by a subscription that began before."""
    (oldest,) = transaction.connection.execute("SELECT min(time) FROM replays").fetchone()
    return transaction.time if oldest is None else min(transaction.time, int(oldest))


@dataclass(slots=True)
class _Waiting(Generic[T]):
    operation: Callable[[Transaction], T]
    future: asyncio.Future[T]
    size: int
    #: in a transaction with others, in one of its own, or outside any
    mode: Literal["shared", "alone", "bare"] = "shared"
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
        steady: Callable[[], float] | None = None,
        estimate: Callable[[], float] | None = None,
        resume: Callable[[object, float], None] | None = None,
        watermark: int = 0,
        on_failure: Callable[[], None] = storage.end_process,
    ) -> None:
        """`clock`, `steady` and `estimate`: seconds, as in `edn.clock`; by default all are `clock`.

        `resume` is called with the saved clock and the time of the last record, before anything is forgotten.

        `watermark`: bytes that the log leaves free on its disk; `on_failure` is called, in the writer's
        thread, after an I/O error. Nothing is committed any more then.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / "dispatcher.db"
        self._on_failure = on_failure
        self._failed = False
        self.disk = storage.Disk(self._path, watermark=watermark, reserve=min(_RESERVE_BYTES, watermark // 8))
        self._on_commit = on_commit
        self.clock: Callable[[], float] = clock
        self._steady = steady
        self._estimate = estimate
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
        #: called on the event loop when the disk had no room for a transaction
        self.on_full: Callable[[], object] | None = None
        self._writer = storage.connect(self._path)
        storage.recover(self._writer)
        self._open()
        if resume is not None:
            resume(self.saved_clock, self.time / 1e6)
        self._truncate_at_start()
        self.reader = self.connect_reader()
        self.disk.keep_reserve(self.disk.measure(self.reader))
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="log-writer", daemon=True)

    def _open(self) -> None:
        connection = self._writer
        connection.execute("BEGIN IMMEDIATE")
        known = connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'meta'").fetchone()
        meta = dict(connection.execute("SELECT key, value FROM meta").fetchall()) if known else {}
        found = meta.get("format", FORMAT)
        if found != FORMAT:
            connection.execute("ROLLBACK")
            connection.close()
            raise WrongFormat(wrong_format(str(self._path), found, FORMAT))
        for statement in _TABLES.split(";"):
            connection.execute(statement)
        for statement in (*_INDEXES.split(";"), retention.TABLE, *retention.TRIGGERS):
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
        #: what `edn.clock` saved here; the greatest number that `next_version` may have returned
        self.saved_clock: object = meta.get("clock")
        (newest,) = connection.execute("SELECT coalesce(max(version), 0) FROM subscriptions").fetchone()
        self._version: int = max(self.time, meta.get("version", 0), newest)
        #: everything after this offset is still here
        self.floor: int = meta.get("floor", 0)
        self.touched = self._last_touched()

    def _last_touched(self) -> int:
        # Not the greatest that is there: what has ended is forgotten, and its place is never given again.
        row = self._writer.execute("SELECT seq FROM sqlite_sequence WHERE name = 'changes'").fetchone()
        return int(row[0]) if row else 0

    def perform_at_start(self, operation: Callable[[Transaction], None]) -> None:
        """Carry out an operation that appends nothing, before `start`."""
        transaction = self._transaction()
        self._writer.execute("BEGIN IMMEDIATE")
        operation(transaction)
        self._writer.execute("COMMIT")
        self.touched = self._last_touched()

    def connect_reader(self) -> sqlite3.Connection:
        """One more connection that reads what is committed; whoever asks for it closes it."""
        return storage.connect(self._path, read_only=True)

    def now(self) -> int:
        """Return the network time, microseconds. Only an adopted correction of the clock sets it back."""
        return int(self.clock() * 1e6)

    def steady(self) -> int:
        """Return the steady time, microseconds: for ages."""
        return self.now() if self._steady is None else int(self._steady() * 1e6)

    def estimate(self) -> int:
        """Return the best guess of the civil time, microseconds: for stamps and new expiries."""
        now = self.now()
        return now if self._estimate is None else max(now, int(self._estimate() * 1e6))

    def next_version(self) -> int:
        """Return a number above all that it returned before, in any life: the time, or one more.

        Any thread: two that get the same number at once number different subscriptions.
        """
        self._version = version = max(self._version + 1, self.now())
        return version

    async def save_clock(self, text: str) -> None:
        """Keep what the clock and `next_version` need after a restart."""

        def operation(transaction: Transaction) -> None:
            transaction.connection.executemany(
                "INSERT INTO meta VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
                [("clock", text), ("version", self._version)],
            )

        await self.submit(operation)

    def _transaction(self) -> Transaction:
        return Transaction(
            self._writer,
            self.id,
            self.incarnation,
            self.head,
            self.now(),
            self.steady(),
            self.estimate(),
            noting=self.noting,
        )

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

    def upkeep(self, operation: Callable[[Transaction], T], *, bare: bool = False) -> asyncio.Future[T]:
        """Run `operation` between the transactions of others, in one of its own; `bare`: outside any."""
        assert self._loop is not None
        future: asyncio.Future[T] = self._loop.create_future()
        self._queue.put(_Waiting(operation, future, 0, "bare" if bare else "alone"))
        return future

    async def truncate(self, upto: int, ids_before: int) -> None:
        """Forget records up to an offset, and chosen event ids of before a steady time, in small steps.

        Events that are available to later subscribers stay until they no longer are. The last record stays:
        the log's end is read from it.
        """
        upto = self._forgettable(self.reader, upto)
        while await self.upkeep(lambda transaction: _forget(transaction, upto, ids_before)):
            pass
        self.floor = max(self.floor, upto)

    def _forgettable(self, connection: sqlite3.Connection, upto: int) -> int:
        (needed,) = connection.execute("SELECT min(after) FROM replays").fetchone()
        return min(upto, self.head) if needed is None else min(upto, self.head, int(needed))

    def _truncate_at_start(self) -> None:
        """Forget what every server has read, as far as that was noted: a full disk has room again then."""
        connection = self._writer
        (lost,) = connection.execute("SELECT count(*) FROM leaving WHERE state = 'lost'").fetchone()
        (read,) = connection.execute(
            "SELECT min(coalesce(c.cursor, 0)) FROM servers s LEFT JOIN cursors c ON c.server = s.id"
        ).fetchone()
        upto = self._forgettable(connection, 0 if lost else int(read or 0))
        until = time.monotonic() + _START_SECONDS
        try:
            more = upto > 0
            while more and time.monotonic() < until:
                transaction = self._transaction()
                connection.execute("BEGIN IMMEDIATE")
                more = _forget(transaction, upto, 0)
                connection.execute("COMMIT")
                self.floor = max(self.floor, upto)
            slack = self.disk.slack(self.disk.measure(connection))
            while storage.reclaim(connection, slack) and time.monotonic() < until:
                pass
        except sqlite3.Error as error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            if not storage.is_full(error):
                raise
            freed = self.disk.free_reserve()
            logger.warning("truncation_failed", error=str(error), reserve_freed=freed)

    async def reclaim(self, slack: int, seconds: float) -> None:
        """Return free pages beyond `slack` bytes to the disk, for some seconds at most."""
        until = time.monotonic() + seconds

        def step(transaction: Transaction) -> bool:
            return storage.reclaim(transaction.connection, slack)

        while await self.upkeep(step, bare=True) and time.monotonic() < until:
            pass

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
        try:
            self._work()
        except BaseException as error:
            # Nobody would be answered any more: only another process can go on.
            logger.critical("log_writer_failed", exc_info=error)
            self._on_failure()
            raise

    def _work(self) -> None:
        stopping, company = False, False
        held: _Waiting[Any] | None = None
        while not stopping:
            batch: list[_Waiting[Any]] = []
            waiting = held or self._queue.get()
            held = None
            if company and self.patience:
                time.sleep(self.patience)
            while True:
                if waiting is None:
                    stopping = True
                    break
                if waiting.mode != "shared":
                    held = waiting
                    break
                batch.append(waiting)
                try:
                    waiting = self._queue.get_nowait()
                except queue.Empty:
                    break
            company = len(batch) > 1
            if batch:
                self._commit(batch)
            elif held is not None:
                single, held = held, None
                self._commit([single])
            if self._failed:
                self._on_failure()
                return  # the file is left as it is
        self._writer.close()

    def _commit(self, batch: list[_Waiting[Any]]) -> None:
        connection = self._writer
        transaction = self._transaction()
        try:
            if batch[0].mode == "bare":
                batch[0].result = batch[0].operation(transaction)
            else:
                connection.execute("BEGIN IMMEDIATE")
                for waiting in batch:
                    self._perform(transaction, waiting)
            if defects.planted("route-before-commit") and transaction.records:  # for tests only
                assert self._loop is not None
                self._loop.call_soon_threadsafe(self._on_commit, list(transaction.records))
                time.sleep(defects.WINDOW)
            elif defects.planted("acknowledge-before-commit") and transaction.records:  # for tests only
                time.sleep(defects.WINDOW)
            if connection.in_transaction:
                connection.execute("COMMIT")
        except sqlite3.Error as error:
            # Nothing of this batch is on disk: not even an operation that seemed to go well.
            self._failed = storage.is_failure(error)
            if connection.in_transaction and not self._failed:
                connection.execute("ROLLBACK")
            logger.error(
                "commit_failed",
                error=str(error),
                code=getattr(error, "sqlite_errorname", None),
                operations=len(batch),
                ending=self._failed,
            )
            full = storage.is_full(error)
            for waiting in batch:
                waiting.error = (
                    LogFull(f"disk: the log has no room: {error}", retry_after=5)
                    if full
                    else Unavailable(f"the log could not be written: {error}", retry_after=1)
                )
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
        except Exception as error:
            if isinstance(error, sqlite3.OperationalError) or storage.is_failure(error):
                raise  # a full disk and its like concern the whole transaction
            waiting.error = error
            connection.execute("ROLLBACK TO operation")
            transaction.head = head
            del transaction.records[kept:]
        connection.execute("RELEASE operation")

    def _finish(self, batch: list[_Waiting[Any]], records: list[Record], changed: bool) -> None:
        if changed and self.on_change is not None:
            self.on_change()
        if self.on_full is not None and isinstance(batch[0].error, LogFull):
            self.on_full()
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
