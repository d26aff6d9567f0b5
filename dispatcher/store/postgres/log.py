"""The event log in PostgreSQL.

The dispatcher owns the log by a lease (`edn.runtime.postgres.lease`). Where a second dispatcher is started on
the same schema, its constructor waits until the lease is over, and continues the log.

Short reads (`reading`) and long ones (`scanning`) have threads of their own, with one session per thread, so
that no event loop waits for the database.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from time import time as wall_clock
from typing import Any, Concatenate, ParamSpec, TypeVar

import structlog

from dispatcher.store import retention, servers
from dispatcher.store.event_log import Log, Submitted
from dispatcher.store.interface import Connection, Transaction
from dispatcher.store.postgres.schema import MIGRATIONS
from dispatcher.store.records import Record
from edn.errors import Conflict
from edn.runtime.disk import NoDisk
from edn.runtime.group_writer import GroupWriter, Mode, Operation
from edn.runtime.postgres.connection import ReaderConnection
from edn.runtime.postgres.database import Database
from edn.runtime.postgres.schema import Scope, migrate
from edn.runtime.postgres.writer import Link, PostgresWriter, end_process
from edn.runtime.sql import DatabaseUnavailable

logger = structlog.get_logger()
T = TypeVar("T")
P = ParamSpec("P")

#: threads of short and of long reads
_READERS, _SCANNERS = 4, 4


class _LogWriter(PostgresWriter[Transaction]):
    def __init__(self, log: PostgresLog, link: Link, on_failure: Callable[[], None]) -> None:
        super().__init__(link, name="log-writer", on_failure=on_failure)
        self._log = log

    def begin(self) -> Transaction:
        return self._log.transaction()

    def finish(
        self, context: Transaction, operations: Sequence[Operation[Transaction]], error: Exception | None
    ) -> None:
        if error is not None:
            for operation in operations:
                operation.error = error
            context.records.clear()
        self._log.committed(context, operations, failed=error is not None)


class _Readers:
    """Threads with one session each."""

    def __init__(self, link: Link, threads: int, name: str) -> None:
        self._link = link
        self._local = threading.local()
        self._opened: list[ReaderConnection] = []
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=name)

    async def run(self, function: Callable[[Connection], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._call, function)

    def _call(self, function: Callable[[Connection], T]) -> T:
        reader: ReaderConnection | None = getattr(self._local, "reader", None)
        if reader is None:
            reader = self._local.reader = self._link.reader()
            self._opened.append(reader)
        return function(reader)

    def close(self) -> None:
        self._threads.shutdown()
        for reader in self._opened:
            reader.close()


class PostgresLog(Log):
    """Owns a log of the network's database."""

    def __init__(
        self,
        database: Database,
        *,
        on_commit: Callable[[list[Record]], object] = lambda _: None,
        clock: Callable[[], float] = wall_clock,
        steady: Callable[[], float] | None = None,
        estimate: Callable[[], float] | None = None,
        resume: Callable[[object, float], None] | None = None,
        on_failure: Callable[[], None] = end_process,
        on_wait: Callable[[float], None] = lambda _: None,
    ) -> None:
        """Waits until no other dispatcher owns the log; raises `CannotStart`.

        For the clocks see `Log`, for `resume` see `SqliteLog`. `on_failure` runs in the writer's thread when
        another dispatcher owns the log; `on_wait` gets the seconds of another dispatcher's lease.
        """
        super().__init__(on_commit=on_commit, clock=clock, steady=steady, estimate=estimate)
        database.check()
        self.disk = NoDisk()
        self.id = _log_id(database)
        self._link = Link(database, Scope("log", self.id), "dispatcher", MIGRATIONS, on_wait=on_wait)
        #: grows with every ownership
        self.incarnation = self._link.lease.fence
        self._writer = _LogWriter(self, self._link, on_failure)
        self._loader = self._link.reader()
        try:
            self._restore(self._loader)
            if resume is not None:
                resume(self.saved_clock, self.time / 1e6)
            upto = servers.least_cursor(self._loader)
            if upto:
                step = partial(retention.delete_step, upto=upto, ids_before=0)
                self.floor = max(self.floor, self.perform_at_start(step)[1])
        except BaseException:
            self.close()
            raise
        self._readers = _Readers(self._link, _READERS, "log-reader")
        self._scanners = _Readers(self._link, _SCANNERS, "log-scanner")

    @property
    def writer(self) -> GroupWriter[Transaction]:
        return self._writer

    @property
    def connection(self) -> Connection:
        return self._link.connection

    @property
    def unavailable(self) -> str | None:
        return self._writer.outage

    def perform_at_start(self, operation: Callable[[Transaction], T]) -> T:
        loop = asyncio.new_event_loop()
        try:
            submitted = Submitted(operation, loop.create_future(), Mode.ALONE, 0)
            self._writer.perform_now(submitted)
        finally:
            loop.close()
        result: T = submitted.result
        return result

    async def stop(self) -> None:
        await asyncio.to_thread(self._writer.close)
        for readers in (self._readers, self._scanners):
            await asyncio.to_thread(readers.close)
        self._loader.close()

    def close(self) -> None:
        self._writer.close()
        self._loader.close()
        with contextlib.suppress(AttributeError):  # opening failed
            self._readers.close()
            self._scanners.close()

    def submit(
        self, operation: Callable[[Transaction], T], size: int = 0, mode: Mode = Mode.SHARED
    ) -> asyncio.Future[T]:
        if self._writer.outage is not None:
            assert self._loop is not None
            refused: asyncio.Future[T] = self._loop.create_future()
            refused.set_exception(DatabaseUnavailable(self._writer.outage, retry_after=1))
            return refused
        return super().submit(operation, size, mode)

    async def reading(
        self, function: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        return await self._readers.run(lambda connection: function(connection, *args, **kwargs))

    async def scanning(
        self, function: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        return await self._scanners.run(lambda connection: function(connection, *args, **kwargs))

    def load(self, function: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        return function(self._loader, *args, **kwargs)

    def connect_reader(self) -> Connection:
        return self._link.reader()

    async def renew(self) -> None:
        """Renew the lease by a commit; raises `Fenced` if another process owns the log."""
        await self.submit(lambda _: None, mode=Mode.ALONE)

    async def backup(self) -> Path:
        raise Conflict("the network's database is PostgreSQL: back it up with pg_basebackup or pg_dump")


def _log_id(database: Database) -> str:
    """Return the id of the network's log, a new one for an empty schema."""
    with database.refusing(), contextlib.closing(database.connect("edn: migration")) as session:
        migrate(session, database, "dispatcher", MIGRATIONS)
        new = secrets.token_hex(16)
        session.execute(
            "INSERT INTO leases (name) SELECT %s WHERE NOT EXISTS"
            " (SELECT 1 FROM leases WHERE name LIKE 'log:%%')",
            (f"log:{new}",),
        )
        row: Any = session.execute("SELECT min(name) FROM leases WHERE name LIKE 'log:%'").fetchone()
        return str(row[0]).removeprefix("log:")
