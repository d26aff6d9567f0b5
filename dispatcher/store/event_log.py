"""The event log: events and control records, in one durable order, and the tables that change with it.

Theory of operation
-------------------
Callers `submit` an operation, a function of a `Transaction`; one thread commits the operations in groups
(`edn.runtime.group_writer`). After the commit `on_commit` receives the records, in order, and only then do
the callers get their results. So nothing is routed or acknowledged before it is durable.

Offsets count events and control records from 1 and alone define the order. The log's id is random; a
generated event id is the beginning of the log's id and the offset. A record's time is the network time of its
commit (`edn.runtime.clock`), which moves backward when a wrong clock is corrected. Numbers that must grow,
such as the versions of subscriptions, come from `next_version`.

Truncation runs in separate transactions (`upkeep`), in steps that are bounded in bytes. The engines are
`sqlite.log` and `postgres.log`.

In PostgreSQL several dispatchers share the directory, each with its own log. Before the records of a commit,
`on_gap` receives what others have changed since the last one (`changes`), so an event is never routed by a
table that lacks an earlier subscription.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import time as wall_clock
from typing import Any, Concatenate, ParamSpec, TypeVar

from dispatcher.store import meta, retention, signing_keys
from dispatcher.store.changes import Gap
from dispatcher.store.interface import Connection, Stream, Transaction, read_int
from dispatcher.store.records import Record, load_control, load_events
from edn.api.ownership import Ownership
from edn.errors import Unavailable
from edn.runtime.disk import Disk, Space
from edn.runtime.group_writer import GroupWriter, Mode, Operation
from edn.runtime.sql import check_keys

#: microseconds by which the clocks of one transaction differ because they are read one after the other
SAME_INSTANT = 50_000

T = TypeVar("T")
P = ParamSpec("P")


@dataclass(frozen=True, slots=True)
class LogRow:
    """The log of a dispatcher, as all dispatchers of the network see it."""

    log: str
    #: of its dispatcher
    name: str
    url: str | None
    #: `open`, or `draining`: another dispatcher forwards the rest
    state: str
    #: seconds until the end of its lease, by the database's clock; negative if it is over
    lease: float
    #: state of the lease; it changes whenever its owner renews it
    fence: int = 0
    commits: int = 0
    #: length of the lease
    seconds: float = 0.0


class LogFull(Unavailable):
    """The disk is full: a transaction of the log failed."""


def read_records(connection: Connection, after: int, limit_bytes: int) -> list[Record]:
    rows = connection.execute(
        "SELECT last, count, time, topic, server, payload FROM records WHERE last > ? ORDER BY last",
        (after,),
    )
    found: list[Record] = []
    size = 0
    for last, count, at, topic, server, payload in rows:
        if server is not None:
            record = load_control(server, payload)
            if record.control.rings:
                record = replace(record, control=signing_keys.fill_rings(connection, record.control))
            found.append(record)
        else:
            found.append(load_events(last - count + 1, at, topic, payload))
        size += len(payload)
        if size >= limit_bytes:
            break
    rows.close()
    return found


class Submitted(Operation[Transaction]):
    __slots__ = ("changes", "future", "operation")

    def __init__(
        self,
        operation: Callable[[Transaction], Any],
        future: asyncio.Future[Any],
        mode: Mode,
        size: int,
        *,
        changes: bool = True,
        is_deferred: bool = False,
    ) -> None:
        super().__init__(mode, size, is_deferred=is_deferred)
        self.operation = operation
        self.future = future
        self.changes = changes

    def work(self, context: Transaction) -> Any:
        mark = context.mark()
        try:
            return self.operation(context)
        except Exception:
            context.reset(mark)
            raise


class Log(ABC):
    """A log with its tables, opened by the constructor of an engine. Call `submit` on the event loop only."""

    id: str
    incarnation: int
    #: last committed offset
    head: int
    #: network time of the last commit
    time: int
    #: offset after which no record is deleted
    floor: int
    #: state of `edn.runtime.clock`
    saved_clock: object
    #: what the log is in, for messages
    place: str
    #: the disk below the database, if it is on this machine
    disk: Disk
    #: whether other dispatchers may have logs beside this one
    shared = False
    #: number of the last change of the directory that this dispatcher knows; 0 if it is not shared
    revision = 0

    def __init__(
        self,
        *,
        on_commit: Callable[[list[Record]], object] = lambda _: None,
        clock: Callable[[], float] = wall_clock,
        steady: Callable[[], float] | None = None,
        estimate: Callable[[], float] | None = None,
    ) -> None:
        """`clock`, `steady`, `estimate`: seconds, as in `edn.runtime.clock`; by default all are `clock`."""
        self.on_commit = on_commit
        self.clock: Callable[[], float] = clock
        self._steady = steady
        self._estimate = estimate
        #: bytes submitted and not yet committed, for backpressure
        self.pending = 0
        #: called on the event loop with changes of other dispatchers
        self.on_gap: Callable[[Gap], object] = lambda _: None
        #: called on the event loop when a transaction failed on a full disk
        self.on_full: Callable[[], object] | None = None
        self._version = 0
        self._loop: asyncio.AbstractEventLoop | None = None

    def _restore(self, connection: Connection) -> None:
        """Read the state of the log from its tables; raises `CannotStart` if a key is missing."""
        check_keys(connection, signing_keys.SEALED, self.place)
        found = meta.read(connection, "clock", "version", "floor")
        last = connection.execute("SELECT last, time FROM records ORDER BY last DESC LIMIT 1").fetchone()
        self.head = last[0] if last else 0
        self.time = last[1] if last else 0
        self.saved_clock = found.get("clock")
        newest = read_int(connection, "SELECT coalesce(max(version), 0) FROM subscriptions")
        #: largest number that `next_version` may have returned
        self._version = max(self.time, found.get("version", 0), newest)
        self.floor = found.get("floor", 0)

    # -- the engine -------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def writer(self) -> GroupWriter[Transaction]: ...

    @property
    @abstractmethod
    def connection(self) -> Connection:
        """The writer's connection; for its thread only."""

    @abstractmethod
    def perform_at_start(self, operation: Callable[[Transaction], T]) -> T:
        """Run an operation that appends nothing, before `start`."""

    async def ownership(self) -> Ownership:
        """Return who owns the parts of the network's database; nothing for a data folder."""
        return Ownership(engine="sqlite")

    @property
    def lease_seconds(self) -> float | None:
        """The seconds for which no other process can own the log; None without leases."""
        return None

    @abstractmethod
    async def stop(self) -> None: ...

    @abstractmethod
    def close(self) -> None:
        """Close a log that was never started."""

    @abstractmethod
    async def reading(
        self, function: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run a short read of committed state; SQLite runs it at once, PostgreSQL in a thread."""

    @abstractmethod
    async def scanning(
        self, function: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run a long read of committed state in a thread."""

    @abstractmethod
    def load(self, function: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Read committed state while the dispatcher starts, before it serves requests."""

    @abstractmethod
    def connect_reader(self) -> Connection:
        """Open another connection that reads committed state; the caller closes it."""

    @abstractmethod
    async def backup(self) -> Path:
        """Write a consistent copy of the database to a file that the caller deletes."""

    def measure_space(self) -> Space:
        """Measure the free space of the disk and in the file; cheap enough for every second."""
        return Space(0, 0, 0)

    async def reclaim(self, slack: int, seconds: float) -> None:
        """Return free pages beyond `slack` bytes to the disk, for `seconds` at most."""
        return

    async def renew(self) -> None:
        """Renew the ownership of the log; raises `Fenced` if another process owns it."""
        return  # the lock of a data folder lasts as long as the process

    @property
    def unavailable(self) -> str | None:
        """Why nothing can be committed at the moment; None if it can."""
        return None

    async def living(self) -> list[LogRow]:
        """Return the logs of all dispatchers that share the directory; empty if it is not shared."""
        return []

    async def settled(self) -> None:
        """Wait until all dispatchers that are alive know the changes so far, at most for a lease."""
        return

    async def adopt(self, log: LogRow) -> Log | None:
        """Take over the log of a dead dispatcher; None if its lease has changed."""
        return None

    async def retire(self, log: str, head: int, readers: Sequence[str]) -> bool:
        """Retire an adopted log that servers have read up to `head`; return False if there is more in it."""
        return False

    async def is_needed(self) -> bool:
        """Return whether this log has replays to finish, or events that are retained."""
        return True

    async def forget(self) -> None:
        """Delete the records of this log, which is retired."""
        return

    @property
    def is_lost(self) -> bool:
        """Whether another process owns the log."""
        return False

    async def refresh(self) -> None:
        """Learn the changes that other dispatchers have made so far."""
        if self.shared:
            await self.submit(lambda _: None, changes=False)

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
        await self.submit(lambda transaction: meta.write(transaction.connection, values), changes=False)

    # -- writing ----------------------------------------------------------------------------------------

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.writer.start()

    def set_patience(self, seconds: float) -> None:
        """Let a commit wait for more operations if the last one had more than one."""
        self.writer.patience = seconds

    def submit(
        self,
        operation: Callable[[Transaction], T],
        size: int = 0,
        mode: Mode = Mode.SHARED,
        *,
        changes: bool = True,
        is_deferred: bool = False,
    ) -> asyncio.Future[T]:
        """Run `operation` in the next transaction; the future is done after the commit.

        `changes`: it may change the directory. Otherwise it writes only the own log and its tables, and it
        may run twice, so it must not change anything but the database. `is_deferred`: it only reads, and
        calls `Transaction.append_events`.
        """
        assert self._loop is not None
        future: asyncio.Future[T] = self._loop.create_future()
        self.pending += size
        self.writer.put(Submitted(operation, future, mode, size, changes=changes, is_deferred=is_deferred))
        return future

    def upkeep(self, operation: Callable[[Transaction], T], *, bare: bool = False) -> asyncio.Future[T]:
        """Run `operation` on the own log in a separate transaction; `bare`: outside any transaction."""
        return self.submit(operation, mode=Mode.BARE if bare else Mode.ALONE, changes=False)

    # -- reading and truncating -------------------------------------------------------------------------

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

    # -- the writer thread ------------------------------------------------------------------------------

    def transaction(self) -> Transaction:
        now, estimate = self.now(), self.estimate()
        if estimate - now < SAME_INSTANT:
            # Read one after the other. A stamp that equals the time of its record was made by the log, which
            # orders the events of a request for sequences (`edn_server.ingest.apply_frame`).
            estimate = now
        return Transaction(
            self.connection,
            Stream(self.id, self.incarnation, self.head),
            now,
            self.steady(),
            max(now, estimate),
            shared=self.shared,
        )

    def committed(
        self,
        transaction: Transaction,
        operations: Sequence[Operation[Transaction]],
        *,
        failed: bool,
        gap: Gap | None = None,
    ) -> None:
        """Pass the results of a transaction to the event loop; called in the writer's thread.

        `gap`: what other dispatchers had changed before it.
        """
        if not failed:
            self.head, self.time = transaction.head, transaction.time
        assert self._loop is not None
        if operations or gap is not None:
            self._loop.call_soon_threadsafe(self._answer, operations, transaction.records, gap)

    def _answer(
        self, operations: Sequence[Operation[Transaction]], records: list[Record], gap: Gap | None
    ) -> None:
        if gap is not None:
            self.on_gap(gap)
            if gap.records:
                self.on_commit(gap.records)
        if self.on_full is not None and operations and isinstance(operations[0].error, LogFull):
            self.on_full()
        if records:
            self.on_commit(records)
        for submitted in operations:
            assert isinstance(submitted, Submitted)
            self.pending -= submitted.size
            if submitted.future.done():
                continue  # the caller was cancelled; its operation is committed all the same
            if submitted.error is not None:
                submitted.future.set_exception(submitted.error)
            else:
                submitted.future.set_result(submitted.result)
