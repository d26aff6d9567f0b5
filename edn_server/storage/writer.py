"""Runs the thread that writes and owns the registry of subscriptions (see `edn.runtime.group_writer`).

A job changes memory in `done`, after the commit, and reverts earlier changes in `undo`, when its transaction
fails. All of its methods run in the writer's thread, so the state needs no locks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

import structlog

from edn.runtime import disk
from edn.runtime.disk import SqliteConnection
from edn.runtime.group_writer import GroupWriter, Mode, Operation
from edn.runtime.sql import Connection
from edn.runtime.sqlite_writer import SqliteWriter

logger = structlog.get_logger()

Result = TypeVar("Result")


class Job(Generic[Result]):
    """A unit of durable work."""

    #: whether it must see the changes of every earlier job in memory
    fresh: bool = False
    #: whether it runs alone and outside any transaction
    bare: bool = False

    def work(self, db: Connection) -> Result:
        """Writes; an exception rolls the job back."""
        raise NotImplementedError

    def done(self, result: Result) -> None:
        """Changes memory after the commit."""

    def undo(self) -> None:
        """Reverts changes of memory after a failed transaction."""


class Call(Job[Result]):
    """Runs a function as a job; one that is not `fresh` must not read the registry."""

    def __init__(self, function: Callable[[Connection], Result], *, fresh: bool = True) -> None:
        self._function = function
        self.fresh = fresh

    def work(self, db: Connection) -> Result:
        return self._function(db)


class Entry(Operation[Connection]):
    """A queued job and its caller's future."""

    __slots__ = ("future", "job")

    def __init__(self, job: Job[Any], future: Future[Any]) -> None:
        super().__init__(Mode.BARE if job.bare else Mode.FRESH if job.fresh else Mode.SHARED)
        self.job = job
        self.future = future

    def is_wanted(self) -> bool:
        return self.future.set_running_or_notify_cancel()

    def work(self, context: Connection) -> Any:
        return self.job.work(context)

    def undo(self) -> None:
        self.job.undo()


class Writer:
    """Queues jobs for the thread of an engine, and applies committed jobs to memory."""

    #: jobs per transaction
    GROUP = 256

    def __init__(
        self,
        engine: Callable[[Writer], GroupWriter[Connection]],
        on_fatal: Callable[[BaseException], None],
        *,
        on_full: Callable[[], None] = lambda: None,
    ) -> None:
        """Starts the thread, which calls the callbacks.

        `on_fatal`: memory and disk no longer agree; `on_full`: the disk has no room.
        """
        self._on_fatal = on_fatal
        self._on_full = on_full
        self._closed = False
        self._engine = engine(self)
        self._engine.start()

    def submit(self, job: Job[Result]) -> Future[Result]:
        future: Future[Result] = Future()
        if self._closed:
            future.set_exception(RuntimeError("the server is stopping"))
        else:
            self._engine.put(Entry(job, future))
        return future

    def close(self) -> None:
        """Commits all queued jobs, then stops."""
        self._closed = True
        self._engine.close()

    @property
    def broken(self) -> BaseException | None:
        """The error after which all jobs fail."""
        return self._engine.broken

    def finish(self, operations: Sequence[Operation[Connection]], error: Exception | None) -> None:
        """Passes the results of a transaction to memory and to the callers; in the writer's thread."""
        entries = [one for one in operations if isinstance(one, Entry)]
        if error is None:
            error = self._apply([entry for entry in entries if entry.error is None])
        if any(disk.is_full(failed) for failed in (error, *(entry.error for entry in entries)) if failed):
            self._on_full()
        for entry in entries:
            if failed := entry.error or error:
                entry.future.set_exception(failed)
            else:
                entry.future.set_result(entry.result)

    def _apply(self, entries: list[Entry]) -> Exception | None:
        """Applies committed jobs to memory; returns the error if that fails."""
        try:
            for entry in entries:
                entry.job.done(entry.result)
        except Exception as error:
            # The disk is right and the memory may not be: only a restart repairs that.
            logger.critical("memory_differs_from_disk", exc_info=error)
            self._engine.broken = error
            self._on_fatal(error)
            return error
        return None


class SqliteJobs(SqliteWriter[Connection]):
    """Writes jobs to a SQLite file."""

    def __init__(
        self, writer: Writer, db: SqliteConnection, on_failure: Callable[[], None] = disk.end_process
    ) -> None:
        """`on_failure` runs in the thread after an I/O error."""
        super().__init__(db, name="writer", group=Writer.GROUP, on_failure=on_failure)
        self._writer = writer

    def begin(self) -> Connection:
        return self.connection

    def finish(
        self, context: Connection, operations: Sequence[Operation[Connection]], error: Exception | None
    ) -> None:
        self._writer.finish(operations, error)
