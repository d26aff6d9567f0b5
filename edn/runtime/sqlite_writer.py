"""Writes a SQLite file from one thread, and groups operations into transactions.

Theory of operation
-------------------
One thread owns the only writing connection. All queued operations go into one transaction, so that they share
the sync of its commit. Each operation runs in its own savepoint, so a failing one does not affect the others.
An `OperationalError`, such as a full disk, fails the whole transaction. `finish` runs after the commit, in
the order of the queue, so callers get no result before it is on disk.

    SHARED   in a transaction with its neighbours
    FRESH    begins a transaction: it must see the results of every earlier one
    ALONE    in a transaction of its own
    BARE     alone and outside any transaction, such as a vacuum

A transaction is bounded by the number of its operations and by the sum of their `size`, in bytes.

After an I/O error the content of the file is unknown until it is opened again (`edn.runtime.disk`): every
operation fails, and the file is left unchanged.
"""

from __future__ import annotations

import enum
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import structlog

from edn.runtime import disk

logger = structlog.get_logger()

Context = TypeVar("Context")

#: maximal operations per transaction
GROUP = 4096
#: maximal bytes per transaction
GROUP_BYTES = 32 << 20


class Mode(enum.Enum):
    """The neighbours that an operation may share its transaction with."""

    SHARED = enum.auto()
    FRESH = enum.auto()
    ALONE = enum.auto()
    BARE = enum.auto()


class Operation(Generic[Context]):
    """One unit of durable work. All methods run in the writer's thread."""

    __slots__ = ("error", "mode", "result", "size")

    def __init__(self, mode: Mode = Mode.SHARED, size: int = 0) -> None:
        self.mode = mode
        self.size = size
        self.result: Any = None
        #: why the operation is not on disk
        self.error: Exception | None = None

    def is_wanted(self) -> bool:
        """Tells whether a caller still waits for it; otherwise it is skipped."""
        return True

    def work(self, context: Context) -> Any:
        """Writes and returns the result; raises to write nothing."""
        raise NotImplementedError

    def undo(self) -> None:
        """Reverts changes in memory after a failed commit."""


class SqliteWriter(Generic[Context]):
    """Owns the writing connection. Subclasses implement `begin` and `finish`."""

    def __init__(
        self,
        connection: disk.SqliteConnection,
        *,
        name: str,
        group: int = GROUP,
        on_failure: Callable[[], None] = disk.end_process,
    ) -> None:
        """`on_failure` runs in the writer's thread after an I/O error."""
        self.connection = connection
        #: seconds that a commit waits for more operations if the last one had several
        self.patience = 0.0
        #: error after which all operations fail
        self.broken: BaseException | None = None
        self._group = group
        self._on_failure = on_failure
        self._failed = False
        self._queue: queue.SimpleQueue[Operation[Context] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    # -- for subclasses ---------------------------------------------------------------------------------

    def begin(self) -> Context:
        raise NotImplementedError

    def finish(
        self, context: Context, operations: Sequence[Operation[Context]], error: Exception | None
    ) -> None:
        """Passes results to the callers after the commit, in order; `error`: why the transaction failed.

        An operation that failed alone has its own `error`. Unwanted operations are left out.
        """
        raise NotImplementedError

    # -- for any thread ---------------------------------------------------------------------------------

    def start(self) -> None:
        self._thread.start()

    def put(self, operation: Operation[Context]) -> None:
        self._queue.put(operation)

    def close(self) -> None:
        """Commits all queued operations, then closes the file; blocks."""
        self._queue.put(None)
        if self._thread.ident is not None:
            self._thread.join()
        if not self._failed:
            self.connection.close()

    # -- the thread -------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._turn()
        except BaseException as error:
            # No caller would get a result any more: the process must be restarted.
            logger.critical("writer_failed", exc_info=error)
            self._on_failure()
            raise

    def _turn(self) -> None:
        following: Operation[Context] | None = None
        stopping, shared = False, False
        while True:
            first = following or (None if stopping else self._queue.get())
            following = None
            if first is None:
                return
            if shared and self.patience:
                time.sleep(self.patience)
            group, size = [first], first.size
            grows = first.mode in (Mode.SHARED, Mode.FRESH)
            while grows and len(group) < self._group and size < GROUP_BYTES:
                try:
                    following = self._queue.get_nowait()
                except queue.Empty:
                    break
                if following is None:
                    stopping = True
                    break
                if following.mode is not Mode.SHARED:
                    break
                group.append(following)
                size += following.size
                following = None
            shared = len(group) > 1
            self._commit(group)

    def _commit(self, group: list[Operation[Context]]) -> None:
        context = self.begin()
        wanted = [operation for operation in group if operation.is_wanted()]
        worked: list[Operation[Context]] = []
        failure: Exception | None = None
        try:
            if self.broken is not None:
                raise RuntimeError(f"the writer has failed: {self.broken}")
            if group[0].mode is Mode.BARE:
                for operation in wanted:
                    operation.result = operation.work(context)
            else:
                self.connection.execute("BEGIN IMMEDIATE")
                self._perform_all(context, wanted, worked)
                self.connection.execute("COMMIT")
        except Exception as error:
            failure = error
            self._roll_back(error, worked)
        self.finish(context, wanted, failure)
        if failure is not None and disk.is_failure(failure):
            self._on_failure()

    def _perform_all(
        self,
        context: Context,
        operations: Sequence[Operation[Context]],
        worked: list[Operation[Context]],
    ) -> None:
        """Runs the operations of a transaction; `worked` collects the successful ones."""
        for operation in operations:
            self.connection.execute("SAVEPOINT operation")
            try:
                operation.result = operation.work(context)
            except Exception as error:
                operation.undo()
                if isinstance(error, sqlite3.OperationalError) or disk.is_failure(error):
                    raise  # the whole transaction fails
                operation.error = error
                self.connection.execute("ROLLBACK TO operation")
            else:
                worked.append(operation)
            self.connection.execute("RELEASE operation")

    def _roll_back(self, error: Exception, worked: list[Operation[Context]]) -> None:
        """Reverts all operations of a failed transaction, also successful ones."""
        if disk.is_failure(error):
            self.broken, self._failed = error, True
        elif self.connection.in_transaction:
            self.connection.execute("ROLLBACK")
        for operation in reversed(worked):
            operation.undo()
        if self.broken is None or self._failed:
            logger.error(
                "commit_failed",
                error=str(error),
                code=getattr(error, "sqlite_errorname", None),
                ending=self._failed,
            )
