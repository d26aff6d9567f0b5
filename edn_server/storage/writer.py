"""The one thread that writes, and that owns the hosting state in memory.

What is queued is grouped into one transaction, so that a commit's sync is shared. Each job runs in a
savepoint of its own: one that fails takes nothing with it. What a job changes in memory it changes in `done`,
after the commit; what it had to change before, it takes back in `undo` when its transaction fails. Both, like
`work`, run in this thread only, so the state needs no locks.

A job that is `bare` runs outside any transaction. After an I/O error nothing is committed any more and the
process ends: what the file holds is known only after it was opened anew (see `edn.storage`).

A job that reads state which `done` of an earlier one may change (`fresh`) begins a transaction of its own.
"""

from __future__ import annotations

import queue
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

import structlog

from edn import storage

logger = structlog.get_logger()

Result = TypeVar("Result")


class Job(Generic[Result]):
    """One unit of durable work."""

    #: whether it must see what every earlier job did in memory
    fresh: bool = False
    #: whether it runs by itself and outside any transaction
    bare: bool = False

    def work(self, db: sqlite3.Connection) -> Result:
        """Write; raise to write nothing."""
        raise NotImplementedError

    def done(self, result: Result) -> None:
        """The transaction is committed."""

    def undo(self) -> None:
        """The transaction is not."""


class Call(Job[Result]):
    """A job made of a function; `fresh`, so it may also just look at the state."""

    fresh = True

    def __init__(self, function: Callable[[sqlite3.Connection], Result]) -> None:
        self._function = function

    def work(self, db: sqlite3.Connection) -> Result:
        return self._function(db)


_Entry = tuple[Job[Any], "Future[Any]"]


class Writer:
    #: jobs of one transaction
    GROUP = 256

    def __init__(
        self,
        db: sqlite3.Connection,
        on_fatal: Callable[[BaseException], None],
        *,
        on_full: Callable[[], None] = lambda: None,
        on_failure: Callable[[], None] = storage.end_process,
    ) -> None:
        """All in this thread: `on_fatal` hears of a state in memory that no longer follows the disk,
        `on_full` of a disk without room, `on_failure` of an I/O error.
        """
        self._on_full = on_full
        self._on_failure = on_failure
        self._db = db
        self._on_fatal = on_fatal
        self._queue: queue.SimpleQueue[_Entry | None] = queue.SimpleQueue()
        self._broken: BaseException | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)
        self._thread.start()

    def submit(self, job: Job[Result]) -> Future[Result]:
        future: Future[Result] = Future()
        if self._closed:
            future.set_exception(RuntimeError("the server is stopping"))
        else:
            self._queue.put((job, future))
        return future

    def close(self) -> None:
        """Commit what is queued, then stop."""
        self._closed = True
        self._queue.put(None)
        self._thread.join()
        self._db.close()

    def _run(self) -> None:
        held: _Entry | None = None
        stopping = False
        while True:
            entry = held or (None if stopping else self._queue.get())
            held = None
            if entry is None:
                return
            group = [entry]
            while len(group) < self.GROUP and not entry[0].bare:
                try:
                    following = self._queue.get_nowait()
                except queue.Empty:
                    break
                if following is None:
                    stopping = True
                    break
                if following[0].fresh or following[0].bare:
                    held = following
                    break
                group.append(following)
            self._commit(group)

    def _commit(self, group: list[_Entry]) -> None:
        if self._broken is not None:
            for _, future in group:
                if future.set_running_or_notify_cancel():
                    future.set_exception(RuntimeError(f"the server failed: {self._broken}"))
            return
        worked: list[tuple[Job[Any], Future[Any], Any]] = []
        try:
            if group[0][0].bare:
                self._work_bare(*group[0], worked)
            else:
                self._db.execute("BEGIN IMMEDIATE")
                for job, future in group:
                    self._work(job, future, worked)
                self._db.execute("COMMIT")
        except Exception as error:
            failed = storage.is_failure(error)
            if self._db.in_transaction and not failed:
                self._db.execute("ROLLBACK")
            for job, _, _ in reversed(worked):
                job.undo()
            if failed:
                logger.critical(
                    "disk_failed", error=str(error), code=getattr(error, "sqlite_errorname", None)
                )
                self._broken = error
            elif storage.is_full(error):
                self._on_full()
            for _, future in group:
                if future.running() or (not future.done() and future.set_running_or_notify_cancel()):
                    future.set_exception(error)
            if failed:
                self._on_failure()
            return
        try:
            for job, _, result in worked:
                job.done(result)
        except Exception as error:
            # The disk is right and the memory may not be: only a restart mends that.
            logger.critical("memory does not follow the disk", exc_info=error)
            self._broken = error
            for _, future, _ in worked:
                future.set_exception(error)
            self._on_fatal(error)
            return
        for _, future, result in worked:
            future.set_result(result)

    def _work_bare(
        self, job: Job[Any], future: Future[Any], worked: list[tuple[Job[Any], Future[Any], Any]]
    ) -> None:
        if future.set_running_or_notify_cancel():
            worked.append((job, future, job.work(self._db)))

    def _work(
        self, job: Job[Any], future: Future[Any], worked: list[tuple[Job[Any], Future[Any], Any]]
    ) -> None:
        if not future.set_running_or_notify_cancel():
            return
        self._db.execute("SAVEPOINT job")
        try:
            result = job.work(self._db)
            self._db.execute("RELEASE job")
        except Exception as error:
            job.undo()
            # After some failures (a full disk) SQLite has given up the whole transaction already.
            if not self._db.in_transaction or storage.is_failure(error):
                raise
            if storage.is_full(error):
                self._on_full()
            self._db.execute("ROLLBACK TO job")
            self._db.execute("RELEASE job")
            future.set_exception(error)
            return
        worked.append((job, future, result))
