"""The event log in SQLite: accepted events and changes of subscriptions, in one durable order.

Theory of operation
-------------------
One SQLite file holds the log and the tables that must change together with it (topics, directory, servers).
Callers `submit` an operation, a function of a `Transaction`; one thread commits them in groups
(`edn.runtime.sqlite_writer`). After the commit (WAL, synchronous=FULL: the file is synced) the records become
visible, in order, to `on_commit`, and only then are the callers answered. So nothing is routed, and nothing
acknowledged, before it is on disk.

Offsets count events and changes from 1. The log's id is random; event ids that a publisher did not choose are
the id's beginning and the offset. The order is that of the offsets alone. A record's time is the network time
of its commit (`edn.runtime.clock`), which falls back when a wrong clock is corrected: numbers that must grow,
such as the versions of subscriptions, come from `next_version`. `incarnation` counts the starts of this log's
dispatcher.

Readers have connections of their own, which see committed state.

Truncation and vacuum run between the transactions of others (`upkeep`), in steps that are bounded in bytes,
so that they succeed on a disk that is nearly full (see `edn.runtime.disk`). An I/O error ends the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import structlog

from dispatcher.store import meta, schema
from dispatcher.store.interface import Connection, LogStore, Transaction
from dispatcher.store.records import (
    Record,
    load_control,
    load_events,
)
from edn.errors import Unavailable
from edn.runtime import disk
from edn.runtime.sqlite_writer import Mode, Operation, SqliteWriter

logger = structlog.get_logger()
T = TypeVar("T")

#: raised where the file cannot be opened: a full disk, say
DatabaseError = sqlite3.Error


#: what one step of a truncation deletes at most: records, bytes of their payloads, and event ids, which lie
#: scattered in their index, so that each may cost a page
_STEP = 1000
_STEP_BYTES = 8 << 20
_STEP_IDS = 250
#: seconds that truncation may take at the start; the rest follows while the dispatcher runs
_START_SECONDS = 10.0
#: bytes of the emergency reserve beside the log
_RESERVE_BYTES = 8 << 20


class LogFull(Unavailable):
    """The disk had no room for a transaction of the log."""


def _delete_step(transaction: Transaction, upto: int, ids_before: int) -> tuple[bool, int]:
    """Delete one step's worth of records and event ids; whether there is more, and up to which offset.

    Records that a replay needs stay.
    """
    connection = transaction.connection
    (needed,) = connection.execute("SELECT min(after) FROM replays").fetchone()
    upto = min(upto, transaction.head) if needed is None else min(upto, transaction.head, int(needed))
    meta.raise_to(connection, "floor", upto)
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
    return more or ids == _STEP_IDS, upto


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


def _last_touched(connection: Connection) -> int:
    # Not the greatest that is there: tombstones are deleted, and their places are never given again.
    row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'changes'").fetchone()
    return int(row[0]) if row else 0


def read_records(connection: Connection, after: int, limit_bytes: int) -> list[Record]:
    """Return the records beyond an offset, up to about `limit_bytes` of payload."""
    rows = connection.execute(
        "SELECT last, count, time, topic, server, payload FROM records WHERE last > ? ORDER BY last",
        (after,),
    )
    found: list[Record] = []
    size = 0
    for last, count, at, topic, server, payload in rows:
        if server is not None:
            found.append(load_control(server, payload))
        else:
            found.append(load_events(last - count + 1, at, topic, payload))
        size += len(payload)
        if size >= limit_bytes:
            break
    rows.close()
    return found


class _Submitted(Operation[Transaction]):
    """An operation in the queue, and its caller's future."""

    __slots__ = ("future", "operation")

    def __init__(
        self, operation: Callable[[Transaction], Any], future: asyncio.Future[Any], mode: Mode, size: int
    ) -> None:
        super().__init__(mode, size)
        self.operation = operation
        self.future = future

    def work(self, context: Transaction) -> Any:
        head, kept = context.head, len(context.records)
        try:
            return self.operation(context)
        except Exception:
            context.head = head
            del context.records[kept:]
            raise


class _LogWriter(SqliteWriter[Transaction]):
    """The writer's thread of a log."""

    def __init__(self, log: Log, connection: sqlite3.Connection, on_failure: Callable[[], None]) -> None:
        super().__init__(connection, name="log-writer", on_failure=on_failure)
        self._log = log

    def begin(self) -> Transaction:
        return self._log.transaction()

    def finish(
        self, context: Transaction, operations: Sequence[Operation[Transaction]], error: Exception | None
    ) -> None:
        if error is not None:
            # Nothing of this transaction is on disk: not even an operation that seemed to go well.
            failure: Exception = error
            if disk.is_full(error):
                failure = LogFull(f"disk: the log has no room: {error}", retry_after=5)
            elif isinstance(error, sqlite3.Error) or self.broken is not None:
                failure = Unavailable(f"the log could not be written: {error}", retry_after=1)
            for operation in operations:
                operation.error = failure
            context.records.clear()
            context.noted = False
        self._log.committed(context, operations, failed=error is not None)


class Log:
    """Owns the file; `submit` from the event loop only."""

    def __init__(
        self,
        folder: Path,
        *,
        on_commit: Callable[[list[Record]], object] = lambda _: None,
        clock: Callable[[], float] = time.time,
        steady: Callable[[], float] | None = None,
        estimate: Callable[[], float] | None = None,
        resume: Callable[[object, float], None] | None = None,
        watermark: int = 0,
        on_failure: Callable[[], None] = disk.end_process,
    ) -> None:
        """`clock`, `steady` and `estimate`: seconds, as in `edn.runtime.clock`; by default all are `clock`.

        `resume` is called with the saved clock and the time of the last record, before anything is deleted.

        `watermark`: bytes that the log leaves free on its disk; `on_failure` is called, in the writer's
        thread, after an I/O error. Nothing is committed any more then.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / "dispatcher.db"
        self.disk = disk.Disk(self._path, watermark=watermark, reserve=min(_RESERVE_BYTES, watermark // 8))
        self.on_commit = on_commit
        self.clock: Callable[[], float] = clock
        self._steady = steady
        self._estimate = estimate
        #: bytes submitted and not yet committed; what back-pressure looks at
        self.pending = 0
        #: whether other dispatchers learn of changes; the last place among those that is taken, and who hears
        #: of another one
        self.noting = False
        self.touched = 0
        self.on_change: Callable[[], None] | None = None
        #: called on the event loop when the disk had no room for a transaction
        self.on_full: Callable[[], object] | None = None
        connection = disk.connect(self._path)
        disk.recover(connection)
        self._writer = _LogWriter(self, connection, on_failure)
        self._open(connection)
        if resume is not None:
            resume(self.saved_clock, self.time / 1e6)
        self._truncate_at_start(connection)
        self._reader = self.connect_reader()
        self.disk.keep_reserve(self.measure_space())
        self._loop: asyncio.AbstractEventLoop | None = None

    def _open(self, connection: sqlite3.Connection) -> None:
        connection.execute("BEGIN IMMEDIATE")
        try:
            schema.prepare(connection, str(self._path))
        except schema.WrongFormat:
            connection.execute("ROLLBACK")
            connection.close()
            raise
        found = meta.read(connection, "log", "incarnation", "clock", "version", "floor")
        self.id: str = found.get("log") or secrets.token_hex(16)
        self.incarnation: int = found.get("incarnation", 0) + 1
        meta.write(connection, {"log": self.id, "incarnation": self.incarnation})
        connection.execute("COMMIT")
        last = connection.execute("SELECT last, time FROM records ORDER BY last DESC LIMIT 1").fetchone()
        #: the last committed offset, and the log's time then
        self.head: int = last[0] if last else 0
        self.time: int = last[1] if last else 0
        #: what `edn.runtime.clock` saved here; the greatest number that `next_version` may have returned
        self.saved_clock: object = found.get("clock")
        (newest,) = connection.execute("SELECT coalesce(max(version), 0) FROM subscriptions").fetchone()
        self._version: int = max(self.time, found.get("version", 0), newest)
        #: everything after this offset is still here
        self.floor: int = found.get("floor", 0)
        self.touched = _last_touched(connection)

    # -- time -------------------------------------------------------------------------------------------

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
        """Store the state that the clock and `next_version` need after a restart."""
        values = {"clock": text, "version": self._version}
        await self.submit(lambda transaction: meta.write(transaction.connection, values))

    # -- life -------------------------------------------------------------------------------------------

    def perform_at_start(self, operation: Callable[[Transaction], None]) -> None:
        """Carry out an operation that appends nothing, before `start`."""
        transaction = self.transaction()
        connection = self._writer.connection
        connection.execute("BEGIN IMMEDIATE")
        operation(transaction)
        connection.execute("COMMIT")
        self.touched = _last_touched(connection)

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._writer.start()

    async def stop(self) -> None:
        """Commit all queued operations, then close the file."""
        await asyncio.get_running_loop().run_in_executor(None, self._writer.close)
        self._reader.close()

    def close(self) -> None:
        """Close the file of a log that was never started."""
        self._writer.close()
        self._reader.close()

    # -- writing ----------------------------------------------------------------------------------------

    @property
    def patience(self) -> float:
        """Seconds that a commit waits for more operations, when the last one had several."""
        return self._writer.patience

    @patience.setter
    def patience(self, seconds: float) -> None:
        self._writer.patience = seconds

    def submit(self, operation: Callable[[Transaction], T], size: int = 0) -> asyncio.Future[T]:
        """Run `operation` in the next transaction; the future is done after the commit."""
        assert self._loop is not None
        future: asyncio.Future[T] = self._loop.create_future()
        self.pending += size
        self._writer.put(_Submitted(operation, future, Mode.SHARED, size))
        return future

    def upkeep(self, operation: Callable[[Transaction], T], *, bare: bool = False) -> asyncio.Future[T]:
        """Run `operation` between the transactions of others, in one of its own; `bare`: outside any."""
        assert self._loop is not None
        future: asyncio.Future[T] = self._loop.create_future()
        self._writer.put(_Submitted(operation, future, Mode.BARE if bare else Mode.ALONE, 0))
        return future

    # -- reading ----------------------------------------------------------------------------------------

    async def reading(self, function: Callable[[Connection], T]) -> T:
        """Run a short read of committed state; here at once, in other engines in a thread."""
        return function(self._reader)

    async def scanning(self, function: Callable[[Connection], T]) -> T:
        """Run a long read of committed state in a thread, on a connection of its own."""

        def scan() -> T:
            with contextlib.closing(self.connect_reader()) as reader:
                return function(reader)

        return await asyncio.to_thread(scan)

    def load(self, function: Callable[[Connection], T]) -> T:
        """Read committed state while the dispatcher starts, before it serves anybody."""
        return function(self._reader)

    def connect_reader(self) -> sqlite3.Connection:
        """Open one more connection that reads committed state; the caller closes it."""
        return disk.connect(self._path, read_only=True)

    def measure_space(self) -> disk.Space:
        """Measure the disk below the file, and the free pages in it; cheap enough for every second."""
        return self.disk.measure(self._reader)

    async def read(self, after: int, limit_bytes: int) -> list[Record]:
        """Return committed records beyond `after`, from disk, up to about `limit_bytes` of payload."""
        return await self.reading(lambda connection: read_records(connection, after, limit_bytes))

    async def has_expired(self) -> bool:
        """Return whether an event that was available to later subscribers no longer is."""
        now = self.now()
        found = await self.reading(
            lambda connection: connection.execute(
                "SELECT 1 FROM records WHERE expires <= ? LIMIT 1", (now,)
            ).fetchone()
        )
        return found is not None

    # -- upkeep -----------------------------------------------------------------------------------------

    async def truncate(self, upto: int, ids_before: int) -> None:
        """Delete records up to an offset, and chosen event ids of before a steady time, in small steps.

        Events that are available to later subscribers stay until they no longer are. The last record stays:
        the log's end is read from it.
        """
        more = True
        while more:
            more, deleted = await self.upkeep(lambda transaction: _delete_step(transaction, upto, ids_before))
            self.floor = max(self.floor, deleted)

    def _truncate_at_start(self, connection: sqlite3.Connection) -> None:
        """Delete the records that every server has read, so that a full disk has room again."""
        (lost,) = connection.execute("SELECT count(*) FROM leaving WHERE state = 'lost'").fetchone()
        (read,) = connection.execute(
            "SELECT min(coalesce(c.cursor, 0)) FROM servers s LEFT JOIN cursors c ON c.server = s.id"
        ).fetchone()
        upto = 0 if lost else int(read or 0)
        until = time.monotonic() + _START_SECONDS
        try:
            more = upto > 0
            while more and time.monotonic() < until:
                transaction = self.transaction()
                connection.execute("BEGIN IMMEDIATE")
                more, deleted = _delete_step(transaction, upto, 0)
                connection.execute("COMMIT")
                self.floor = max(self.floor, deleted)
            slack = self.disk.slack(self.disk.measure(connection))
            while disk.reclaim(connection, slack) and time.monotonic() < until:
                pass
        except sqlite3.Error as error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            if not disk.is_full(error):
                raise
            freed = self.disk.free_reserve()
            logger.warning("truncation_failed", error=str(error), reserve_freed=freed)

    async def reclaim(self, slack: int, seconds: float) -> None:
        """Return free pages beyond `slack` bytes to the disk, for some seconds at most."""
        until = time.monotonic() + seconds
        connection = self._writer.connection
        while await self.upkeep(lambda _: disk.reclaim(connection, slack), bare=True):
            if time.monotonic() >= until:
                return

    async def renew(self) -> None:
        """Do nothing: the lock of the data folder makes this process its owner."""

    async def backup(self, target: Path) -> None:
        """Write a whole and compact copy, as of one moment."""
        await asyncio.to_thread(disk.copy, self._path, target, watermark=self.disk.watermark)

    # -- the writer thread ------------------------------------------------------------------------------

    def transaction(self) -> Transaction:
        return Transaction(
            self._writer.connection,
            self.id,
            self.incarnation,
            self.head,
            self.now(),
            self.steady(),
            self.estimate(),
            noting=self.noting,
        )

    def committed(
        self, transaction: Transaction, operations: Sequence[Operation[Transaction]], *, failed: bool
    ) -> None:
        """Answer the callers of a transaction on the event loop; in the writer's thread."""
        if not failed:
            self.head, self.time = transaction.head, transaction.time
            if transaction.noted:
                self.touched = _last_touched(self._writer.connection)
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._answer, operations, transaction.records, transaction.noted)

    # -- the event loop ---------------------------------------------------------------------------------

    def _answer(
        self, operations: Sequence[Operation[Transaction]], records: list[Record], changed: bool
    ) -> None:
        if changed and self.on_change is not None:
            self.on_change()
        if self.on_full is not None and isinstance(operations[0].error, LogFull):
            self.on_full()
        if records:
            self.on_commit(records)
        for submitted in operations:
            assert isinstance(submitted, _Submitted)
            self.pending -= submitted.size
            if submitted.future.done():
                continue  # its caller went away; what it asked for is committed all the same
            if submitted.error is not None:
                submitted.future.set_exception(submitted.error)
            else:
                submitted.future.set_result(submitted.result)


if TYPE_CHECKING:

    def _check(log: Log) -> LogStore:
        return log
