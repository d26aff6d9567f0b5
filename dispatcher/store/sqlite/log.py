"""The event log in a SQLite file.

One file holds the log and the tables that change together with it (topics, directory, servers). A commit
syncs the file (WAL, synchronous=FULL). Truncation and vacuum succeed on a disk that is nearly full
(`edn.runtime.disk`). An I/O error ends the process.
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
from typing import Concatenate, ParamSpec, TypeVar

import structlog

from dispatcher.store import meta, retention, servers
from dispatcher.store.event_log import Log, LogFull
from dispatcher.store.interface import Connection, Transaction
from dispatcher.store.records import Record
from dispatcher.store.sqlite import schema
from edn.errors import CannotStart, Unavailable
from edn.runtime import disk
from edn.runtime.group_writer import GroupWriter, Operation
from edn.runtime.process import copy_in
from edn.runtime.secret_box import SecretBox, open_folder_box
from edn.runtime.sqlite_writer import SqliteWriter

logger = structlog.get_logger()
T = TypeVar("T")
P = ParamSpec("P")

#: raised if the file cannot be opened, for example on a full disk
DatabaseError = sqlite3.Error

#: seconds for truncation at the start; the rest follows while the dispatcher runs
_START_SECONDS = 10.0
#: bytes of the emergency reserve beside the log
_RESERVE_BYTES = 8 << 20


class _LogWriter(SqliteWriter[Transaction]):
    def __init__(
        self, log: SqliteLog, connection: disk.SqliteConnection, on_failure: Callable[[], None]
    ) -> None:
        super().__init__(connection, name="log-writer", on_failure=on_failure)
        self._log = log

    def begin(self) -> Transaction:
        return self._log.transaction()

    def flush(self, context: Transaction) -> None:
        context.flush()

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
        self._log.committed(context, operations, failed=error is not None)


class SqliteLog(Log):
    """Owns the file."""

    def __init__(
        self,
        folder: Path,
        *,
        box: SecretBox | None = None,
        on_commit: Callable[[list[Record]], object] = lambda _: None,
        clock: Callable[[], float] = time.time,
        steady: Callable[[], float] | None = None,
        estimate: Callable[[], float] | None = None,
        resume: Callable[[object, float], None] | None = None,
        watermark: int = 0,
        on_failure: Callable[[], None] = disk.end_process,
    ) -> None:
        """For the clocks see `Log`. `box`: by default that of the folder's key file. `resume` receives the
        saved clock and the time of the last record, before anything is deleted. `watermark`: bytes to leave
        free on the disk. `on_failure` runs in the writer's thread after an I/O error, which ends all commits.
        """
        super().__init__(on_commit=on_commit, clock=clock, steady=steady, estimate=estimate)
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / "dispatcher.db"
        self.place = str(self._path)
        self._box = box or open_folder_box(folder)
        self.disk = disk.Disk(self._path, watermark=watermark, reserve=min(_RESERVE_BYTES, watermark // 8))
        connection = self._connect()
        disk.recover(connection)
        self._writer = _LogWriter(self, connection, on_failure)
        self._open(connection)
        if resume is not None:
            resume(self.saved_clock, self.time / 1e6)
        self._truncate_at_start(connection)
        self._reader = self.connect_reader()
        self.disk.keep_reserve(self.measure_space())

    def _open(self, connection: disk.SqliteConnection) -> None:
        connection.execute("BEGIN IMMEDIATE")
        try:
            schema.prepare(connection, str(self._path))
        except schema.WrongFormat:
            connection.execute("ROLLBACK")
            connection.close()
            raise
        found = meta.read(connection, "log", "incarnation")
        self.id = found.get("log") or secrets.token_hex(16)
        self.incarnation = found.get("incarnation", 0) + 1
        meta.write(connection, {"log": self.id, "incarnation": self.incarnation})
        connection.execute("COMMIT")
        try:
            self._restore(connection)
        except CannotStart:
            connection.close()
            raise

    def _connect(self, *, read_only: bool = False) -> disk.SqliteConnection:
        connection = disk.connect(self._path, read_only=read_only)
        connection.box = self._box
        return connection

    @property
    def writer(self) -> GroupWriter[Transaction]:
        return self._writer

    @property
    def connection(self) -> disk.SqliteConnection:
        return self._writer.connection

    def perform_at_start(self, operation: Callable[[Transaction], T]) -> T:
        transaction = self.transaction()
        connection = self.connection
        connection.execute("BEGIN IMMEDIATE")
        result = operation(transaction)
        connection.execute("COMMIT")
        return result

    async def stop(self) -> None:
        await asyncio.to_thread(self._writer.close)
        self._reader.close()

    def close(self) -> None:
        self._writer.close()
        self._reader.close()

    async def reading(
        self, function: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        return function(self._reader, *args, **kwargs)

    async def scanning(
        self, function: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        def scan() -> T:
            with contextlib.closing(self.connect_reader()) as reader:
                return function(reader, *args, **kwargs)

        return await asyncio.to_thread(scan)

    def load(self, function: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        return function(self._reader, *args, **kwargs)

    def connect_reader(self) -> disk.SqliteConnection:
        return self._connect(read_only=True)

    def measure_space(self) -> disk.Space:
        return self.disk.measure(self._reader)

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
        until = time.monotonic() + seconds
        connection = self.connection
        while await self.upkeep(lambda _: disk.reclaim(connection, slack), bare=True):
            if time.monotonic() >= until:
                return

    async def backup(self) -> Path:
        target = copy_in(self._path.parent)
        await asyncio.to_thread(disk.copy, self._path, target, watermark=self.disk.watermark)
        return target
