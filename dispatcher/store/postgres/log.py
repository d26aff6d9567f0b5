"""The event log of a dispatcher in PostgreSQL.

The dispatcher owns the log by a lease (`edn.runtime.postgres.lease`). A second dispatcher of the same name
waits until the lease is over, and continues the log. A dispatcher of another name has a log of its own; all
share the directory.

Theory of operation
-------------------
A transaction of the own log alone, such as that of published events, locks only its row in `leases`. One that
changes the directory locks the row of `directory` first, then the rows of all open logs in the order of their
names, and appends its control records to each log. It gives the change a number, the **revision**, and
writes that into the rows of all open logs.

`claim` compares the revision that the owner knows, under the lock. If the directory has changed, nothing of
the transaction is committed: it is repeated, and reads the gap first (`changes.read`). So the events of a
transaction are behind the control records of all changes before it, and the event loop gets both in that
order: it widens the routing table before it routes the events.

An idle dispatcher hears of changes by NOTIFY, or when it renews its lease. NOTIFY is not used for events,
because it serialises commits.

Short reads (`reading`) and long ones (`scanning`) have threads of their own, with one session per thread, so
that no event loop waits for the database.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from time import time as wall_clock
from typing import Concatenate, ParamSpec, TypeVar

import structlog

from dispatcher.store import changes, retention, servers
from dispatcher.store.changes import Gap, TooFarBehind
from dispatcher.store.event_log import Log, LogRow, Submitted, read_records
from dispatcher.store.interface import Connection, TopicState, Transaction, read_int
from dispatcher.store.postgres import logs, ownership
from dispatcher.store.postgres.schema import MIGRATIONS
from dispatcher.store.records import ControlRecord, Record
from edn.api.ownership import Ownership
from edn.errors import Conflict
from edn.runtime.disk import NoDisk
from edn.runtime.group_writer import GroupWriter, Mode, Operation
from edn.runtime.postgres.connection import ReaderConnection
from edn.runtime.postgres.database import Database
from edn.runtime.postgres.lease import Seen
from edn.runtime.postgres.listener import Listener
from edn.runtime.postgres.schema import Scope
from edn.runtime.postgres.writer import Link, NotTaken, PostgresWriter, end_process
from edn.runtime.secret_box import SecretBox
from edn.runtime.sql import DatabaseUnavailable, Fenced

logger = structlog.get_logger()
T = TypeVar("T")
P = ParamSpec("P")

#: threads of short and of long reads
_READERS, _SCANNERS = 4, 4
#: seconds between two looks at whether all dispatchers know a change
_SETTLE_SECONDS = 0.02
#: how long a change waits for the locks of other dispatchers
_LOCK = "4s"


class _LogWriter(PostgresWriter[Transaction]):
    def __init__(self, log: PostgresLog, link: Link, on_failure: Callable[[], None]) -> None:
        super().__init__(link, name="log-writer", on_failure=on_failure)
        self._log = log
        #: what others had changed before the present transaction
        self._gap: Gap | None = None
        #: states of topics, and the revision of the directory that they belong to
        self._topics: dict[int, TopicState] = {}
        self._topics_revision = -1

    def begin(self) -> Transaction:
        self._gap = None
        return self._log.transaction()

    def flush(self, context: Transaction) -> None:
        context.flush()

    def enter(
        self, context: Transaction, operations: Sequence[Operation[Transaction]], *, again: bool
    ) -> None:
        log, lease, connection = self._log, self.link.lease, self.link.connection
        context.others = None
        is_change = any(isinstance(one, Submitted) and one.changes for one in operations)
        claim = connection.cursor()
        self.repeats = not is_change
        if not is_change and not again:
            lease.claim(claim, log.revision)
            # `claim` refuses the transaction if topics have changed since: they need not be read.
            if self._topics_revision != log.revision:
                self._topics, self._topics_revision = {}, log.revision
            context.topics = self._topics
            return
        self._topics_revision = -1
        if is_change:
            connection.execute(f"SET LOCAL lock_timeout = '{_LOCK}'")
            context.others, newest = logs.lock(connection, log.id)
            context.revision = newest + 1
        lease.claim(claim)
        row = claim.fetchone()
        assert row is not None
        if row[0] != log.revision:
            self._gap = self._read_gap(connection, row[0])
            context.own.head = self._gap.head
            logs.learned(connection, log.id, self._gap.revision)
            connection.end_operation()

    def _read_gap(self, connection: Connection, revision: int) -> Gap:
        log = self._log
        records = read_records(connection, log.head, 1 << 40)
        head = records[-1].last if records else log.head
        try:
            return changes.read(connection, log.revision, revision, head, records)
        except TooFarBehind as error:
            self.broken = Fenced(f"the dispatcher must start again: {error}")
            raise self.broken from None

    def leave(self, context: Transaction) -> None:
        is_known_to_all = not context.changes and not any(
            isinstance(record, ControlRecord) for record in context.records
        )
        if context.others is None or is_known_to_all:
            context.revision = 0
        else:
            logs.publish(self.link.connection, context.revision, context.streams, context.changes)

    def finish(
        self, context: Transaction, operations: Sequence[Operation[Transaction]], error: Exception | None
    ) -> None:
        gap, self._gap = self._gap, None
        if error is None:
            self._log.revision = max(context.revision, gap.revision if gap else 0, self._log.revision)
        else:
            for operation in operations:
                operation.error = error
            context.records.clear()
            gap = None
        self._log.committed(context, operations, failed=error is not None, gap=gap)


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

    shared = True

    def __init__(
        self,
        database: Database,
        name: str = "dispatcher",
        *,
        box: SecretBox,
        url: str | None = None,
        adopted: LogRow | None = None,
        on_commit: Callable[[list[Record]], object] = lambda _: None,
        clock: Callable[[], float] = wall_clock,
        steady: Callable[[], float] | None = None,
        estimate: Callable[[], float] | None = None,
        resume: Callable[[object, float], None] | None = None,
        on_failure: Callable[[], None] = end_process,
        on_wait: Callable[[float], None] = lambda _: None,
    ) -> None:
        """Opens the log of a dispatcher, by its name; waits until no other process owns it.

        `url`: where servers reach the dispatcher. `adopted`: takes over this log of a dead dispatcher
        instead, without a wait; raises `NotTaken` if its lease has changed. For the clocks see `Log`, for
        `resume` see `SqliteLog`. `on_failure` runs in the writer's thread when another process owns the log;
        `on_wait` gets the seconds of another process's lease. Raises `CannotStart`.
        """
        super().__init__(on_commit=on_commit, clock=clock, steady=steady, estimate=estimate)
        self.disk = NoDisk()
        self.database = database
        self.place = f'schema "{database.schema}" of the database {database}'
        self.name = name
        if adopted is None:
            database.check()
            self._link = logs.open_link(database, name, self.now(), on_wait, box)
        else:
            seen = Seen(adopted.fence, adopted.commits)
            self._link = Link(
                database, Scope("log", adopted.log), "dispatcher", MIGRATIONS, box=box, seen=seen
            )
        self.id = self._link.scope.name
        #: grows with every ownership
        self.incarnation = self._link.lease.fence
        self._writer = _LogWriter(self, self._link, on_failure)
        self._loader = self._link.reader()
        self._listener: Listener | None = None
        try:
            self._restore(self._loader)
            if resume is not None:
                resume(self.saved_clock, self.time / 1e6)
            state = "open" if adopted is None else "draining"
            self.perform_at_start(lambda transaction: logs.take(transaction, state, url, self.revision))
            upto = servers.least_cursor(self._loader)
            if upto:
                step = partial(retention.delete_step, upto=upto, ids_before=0)
                self.floor = max(self.floor, self.perform_at_start(step)[1])
        except BaseException:
            self.close()
            raise
        self._readers = _Readers(self._link, _READERS, "log-reader")
        self._scanners = _Readers(self._link, _SCANNERS, "log-scanner")

    def _restore(self, connection: Connection) -> None:
        # Before everything else is read: what changes meanwhile is read again with the first gap.
        self.revision = read_int(
            connection, "SELECT revision FROM leases WHERE name = ?", self._link.lease.name
        )
        super()._restore(connection)

    @property
    def writer(self) -> GroupWriter[Transaction]:
        return self._writer

    @property
    def connection(self) -> Connection:
        return self._link.connection

    @property
    def unavailable(self) -> str | None:
        return self._writer.outage

    def start(self) -> None:
        super().start()
        self._listener = Listener(self.database, logs.channel(self.database), self._on_change)

    def _on_change(self, revision: str) -> None:
        if int(revision) > self.revision and self._writer.outage is None:
            assert self._loop is not None
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._catch_up)

    def _catch_up(self) -> None:
        # An error is repeated with the next transaction.
        self.submit(lambda _: None, changes=False).add_done_callback(lambda done: done.exception())

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
        if self._listener is not None:
            self._listener.close()
        await asyncio.to_thread(self._writer.close)
        for readers in (self._readers, self._scanners):
            await asyncio.to_thread(readers.close)
        self._loader.close()

    def close(self) -> None:
        if self._listener is not None:
            self._listener.close()
        self._writer.close()
        self._loader.close()
        with contextlib.suppress(AttributeError):  # opening failed
            self._readers.close()
            self._scanners.close()

    def submit(
        self,
        operation: Callable[[Transaction], T],
        size: int = 0,
        mode: Mode = Mode.SHARED,
        *,
        changes: bool = True,
        is_deferred: bool = False,
    ) -> asyncio.Future[T]:
        if self._writer.outage is not None:
            assert self._loop is not None
            refused: asyncio.Future[T] = self._loop.create_future()
            refused.set_exception(DatabaseUnavailable(self._writer.outage, retry_after=1))
            return refused
        return super().submit(operation, size, mode, changes=changes, is_deferred=is_deferred)

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

    async def ownership(self) -> Ownership:
        return await self.reading(ownership.read)

    @property
    def lease_seconds(self) -> float:
        return self._link.lease.left

    async def living(self) -> list[LogRow]:
        return await self.reading(logs.living)

    async def settled(self) -> None:
        revision = self.revision
        while await self.reading(logs.unaware, revision):  # noqa: ASYNC110  nothing signals it
            await asyncio.sleep(_SETTLE_SECONDS)

    async def adopt(self, log: LogRow) -> Log | None:
        def open_log() -> PostgresLog:
            return PostgresLog(
                self.database,
                self.name,
                box=self._link.connection.box,
                adopted=log,
                clock=self.clock,
                steady=self._steady,
                estimate=self._estimate,
                on_failure=lambda: None,
            )

        try:
            return await asyncio.to_thread(open_log)
        except NotTaken:
            return None

    async def retire(self, log: str, head: int, readers: Sequence[str]) -> bool:
        return await self.submit(lambda transaction: logs.retire(transaction, log, head, readers))

    async def is_needed(self) -> bool:
        return await self.reading(logs.is_needed, self.id, self.now())

    async def forget(self) -> None:
        await self.submit(logs.forget, mode=Mode.ALONE, changes=False)

    @property
    def is_lost(self) -> bool:
        return isinstance(self._writer.broken, Fenced)

    async def renew(self) -> None:
        """Renew the lease by a commit; raises `Fenced` if another process owns the log."""
        await self.submit(lambda _: None, mode=Mode.ALONE, changes=False)

    async def backup(self) -> Path:
        raise Conflict("the network's database is PostgreSQL: back it up with `edn backup --database URL`")
