"""The event log in SQLite: events and control records, in one durable order.

Theory of operation
-------------------
One SQLite file holds the log and the tables that change together with it (topics, directory, servers).
Callers `submit` an operation, a function of a `Transaction`; one thread commits the operations in groups
(`edn.runtime.sqlite_writer`). After the commit (WAL, synchronous=FULL: the file is synced) `on_commit`
receives the records, in order, and only then do the callers get their results. So nothing is routed or
acknowledged before it is on disk.

Offsets count events and control records from 1 and alone define the order. The log's id is random; a
generated event id is the beginning of the log's id and the offset. A record's time is the network time of its
commit (`edn.runtime.clock`), which moves backward when a wrong clock is corrected. Numbers that must grow,
such as the versions of subscriptions, come from `next_version`.

Truncation and vacuum run in separate transactions (`upkeep`), in steps that are bounded in bytes, so that
they succeed on a disk that is nearly full (`edn.runtime.disk`). An I/O error ends the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import sqlite3
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import structlog

from dispatcher.store import meta, retention, schema, servers
from dispatcher.store.interface import Connection, LogStore, Transaction, read_int
from dispatcher.store.records import Record, load_control, load_events
from edn.errors import Unavailable
from edn.runtime import disk
from edn.runtime.sqlite_writer import Mode, Operation, SqliteWriter

logger = structlog.get_logger()
T = TypeVar("T")
P = ParamSpec("P")

#: raised if the file cannot be opened, for example on a full disk
DatabaseError = sqlite3.Error

#: seconds for truncation at the start; the rest follows while the dispatcher runs
_START_SECONDS = 10.0
#: bytes of the emergency reserve beside the log
_RESERVE_BYTES = 8 << 20


class LogFull(Unavailable):
    """The disk is full: a transaction of the log failed."""


def _last_touched(connection: Connection) -> int:
    # Not the maximum in the table: tombstones are deleted, and their places are never reused.
    row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'changes'").fetchone()
    return int(row[0]) if row else 0


def read_records(connection: Connection, after: int, limit_bytes: int) -> list[Record]:
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
    def __init__(self, log: Log, connection: disk.SqliteConnection, on_failure: Callable[[], None]) -> None:
        super().__init__(connection, name="log-writer", on_failure=on_failure)
        self._log = log

    def begin(self) -> Transaction:
        return self._log.transaction()

    def finish(
        self, context: Transaction, operations: Sequence[Operation[Transaction]], error: Exception | None
    ) -> None:
        if error is not None:
            # Nothing of this transaction is on disk, not even operations that succeeded by themselves.
            failure: Exception = error
            if disk.is_full(error):
                failure = LogFull(f"disk: no space left for the log: {error}", retry_after=5)
            elif isinstance(error, sqlite3.Error) or self.broken is not None:
                failure = Unavailable(f"the log could not be written: {error}", retry_after=1)
            for operation in operations:
                operation.error = failure
            context.records.clear()
            context.noted = False
        self._log.committed(context, operations, failed=error is not None)


class Log(LogStore):
    """Owns the file. Call `submit` on the event loop only."""

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

        `resume` receives the saved clock and the time of the last record, before anything is deleted.
        `watermark`: bytes to leave free on the disk. `on_failure` runs in the writer's thread after an I/O
        error, which ends all commits.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / "dispatcher.db"
        self.disk = disk.Disk(self._path, watermark=watermark, reserve=min(_RESERVE_BYTES, watermark // 8))
        self.on_commit = on_commit
        self.clock: Callable[[], float] = clock
        self._steady = steady
        self._estimate = estimate
        #: bytes submitted and not yet committed, for backpressure
        self.pending = 0
        #: whether other dispatchers learn of changes; the last place among those that is taken, and who hears
        #: of another one
        self.noting = False
        self.touched = 0
        self.on_change: Callable[[], None] | None = None
        #: called on the event loop when a transaction failed on a full disk
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

    def _open(self, connection: disk.SqliteConnection) -> None:
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
        #: last committed offset
        self.head: int = last[0] if last else 0
        #: network time of the last commit
        self.time: int = last[1] if last else 0
        #: state of `edn.runtime.clock`
        self.saved_clock: object = found.get("clock")
        newest = read_int(connection, "SELECT coalesce(max(version), 0) FROM subscriptions")
        #: largest number that `next_version` may have returned
        self._version: int = max(self.time, found.get("version", 0), newest)
        #: offset after which no record is deleted
        self.floor: int = found.get("floor", 0)
        self.touched = _last_touched(connection)

    # -- time -------------------------------------------------------------------------------------------

    def now(self) -> int:
        """Return the network time in microseconds. Only a correction of the clock moves it backward."""
        return int(self.clock() * 1e6)

    def steady(self) -> int:
        """Return the steady time in microseconds, for ages."""
        return self.now() if self._steady is None else int(self._steady() * 1e6)

    def estimate(self) -> int:
        """Return the best estimate of the time of day in microseconds, for event times and new expiries."""
        now = self.now()
        return now if self._estimate is None else max(now, int(self._estimate() * 1e6))

    def next_version(self) -> int:
        """Return the time, or a number above all that were returned before, also by earlier processes.

        Two threads may get the same number, because they number different subscriptions.
        """
        self._version = version = max(self._version + 1, self.now())
        return version

    async def save_clock(self, text: str) -> None:
        """Store the state of the clock and of `next_version` for the next start."""
        values = {"clock": text, "version": self._version}
        await self.submit(lambda transaction: meta.write(transaction.connection, values))

    # -- start and stop ---------------------------------------------------------------------------------

    def perform_at_start(self, operation: Callable[[Transaction], T]) -> T:
        """Run an operation that appends nothing, before `start`."""
        transaction = self.transaction()
        connection = self._writer.connection
        connection.execute("BEGIN IMMEDIATE")
        result = operation(transaction)
        connection.execute("COMMIT")
        self.touched = _last_touched(connection)
        return result

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._writer.start()

    async def stop(self) -> None:
        await asyncio.to_thread(self._writer.close)
        self._reader.close()

    def close(self) -> None:
        """Close the file of a log that was never started."""
        self._writer.close()
        self._reader.close()

    # -- writing ----------------------------------------------------------------------------------------

    def set_patience(self, seconds: float) -> None:
        """Let a commit wait for more operations if the last one had more than one."""
        self._writer.patience = seconds

    def submit(
        self, operation: Callable[[Transaction], T], size: int = 0, mode: Mode = Mode.SHARED
    ) -> asyncio.Future[T]:
        """Run `operation` in the next transaction; the future is done after the commit."""
        assert self._loop is not None
        future: asyncio.Future[T] = self._loop.create_future()
        self.pending += size
        self._writer.put(_Submitted(operation, future, mode, size))
        return future

    def upkeep(self, operation: Callable[[Transaction], T], *, bare: bool = False) -> asyncio.Future[T]:
        """Run `operation` in a separate transaction; `bare`: outside any transaction."""
        return self.submit(operation, mode=Mode.BARE if bare else Mode.ALONE)

    # -- reading ----------------------------------------------------------------------------------------

    async def reading(
        self, function: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run a short read of committed state; here at once, in other engines in a thread."""
        return function(self._reader, *args, **kwargs)

    async def scanning(
        self, function: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run a long read of committed state in a thread, on its own connection."""

        def scan() -> T:
            with contextlib.closing(self.connect_reader()) as reader:
                return function(reader, *args, **kwargs)

        return await asyncio.to_thread(scan)

    def load(self, function: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Read committed state while the dispatcher starts, before it serves requests."""
        return function(self._reader, *args, **kwargs)

    def connect_reader(self) -> disk.SqliteConnection:
        """Open another connection that reads committed state; the caller closes it."""
        return disk.connect(self._path, read_only=True)

    def measure_space(self) -> disk.Space:
        """Measure the free space of the disk and in the file; cheap enough for every second."""
        return self.disk.measure(self._reader)

    async def read(self, after: int, limit_bytes: int) -> list[Record]:
        """Return committed records after an offset, from disk, up to about `limit_bytes` of payload."""
        return await self.reading(read_records, after, limit_bytes)

    async def truncate(self, upto: int, ids_before: int) -> None:
        """Delete records up to an offset, except retained events, and event ids older than a steady time."""
        step = partial(retention.delete_step, upto=upto, ids_before=ids_before)
        more = True
        while more:
            more, floor = await self.upkeep(step)
            self.floor = max(self.floor, floor)

    def _truncate_at_start(self, connection: disk.SqliteConnection) -> None:
        """Delete the records that every server has read, so that the log can be opened on a full disk."""
        upto = servers.least_cursor(connection)
        until = time.monotonic() + _START_SECONDS
        try:
            more = upto > 0
            while more and time.monotonic() < until:
                more, floor = self.perform_at_start(partial(retention.delete_step, upto=upto, ids_before=0))
                self.floor = max(self.floor, floor)
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
        """Return free pages beyond `slack` bytes to the disk, for `seconds` at most."""
        until = time.monotonic() + seconds
        connection = self._writer.connection
        while await self.upkeep(lambda _: disk.reclaim(connection, slack), bare=True):
            if time.monotonic() >= until:
                return

    async def renew(self) -> None:
        """Do nothing: the lock of the data folder ensures the ownership."""

    async def backup(self, target: Path) -> None:
        await asyncio.to_thread(disk.copy, self._path, target, watermark=self.disk.watermark)

    # -- the writer thread ------------------------------------------------------------------------------

    def transaction(self) -> Transaction:
        now = self.now()
        return Transaction(
            self._writer.connection,
            self.id,
            self.incarnation,
            self.head,
            now,
            self.steady(),
            max(now, self.estimate()),
            noting=self.noting,
        )

    def committed(
        self, transaction: Transaction, operations: Sequence[Operation[Transaction]], *, failed: bool
    ) -> None:
        """Pass the results of a transaction to the event loop; called in the writer's thread."""
        if not failed:
            self.head, self.time = transaction.head, transaction.time
            if transaction.noted:
                self.touched = _last_touched(self._writer.connection)
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._answer, operations, transaction.records, transaction.noted)

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
                continue  # the caller was cancelled; its operation is committed all the same
            if submitted.error is not None:
                submitted.future.set_exception(submitted.error)
            else:
                submitted.future.set_result(submitted.result)
