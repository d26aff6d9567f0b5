"""Groups operations into transactions, in one thread that writes.

All queued operations go into one transaction, so that they share the cost of its commit. `finish` runs after
the commit, in the order of the queue, so callers get no result before it is durable. The engines
(`edn.runtime.sqlite_writer`, `edn.runtime.postgres.writer`) implement `commit`.

    SHARED   in a transaction with its neighbours
    FRESH    begins a transaction: it must see the results of every earlier one
    ALONE    in a transaction of its own
    BARE     alone and outside any transaction, such as a vacuum

A deferred operation writes nothing itself. It leaves its rows in the context, and `flush` writes those of
many operations at once: before an operation that is not deferred, and before the commit.

A transaction is bounded by the number of its operations and by the sum of their `size`, in bytes.
"""

from __future__ import annotations

import enum
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import structlog

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

    __slots__ = ("error", "is_deferred", "mode", "result", "size")

    def __init__(self, mode: Mode = Mode.SHARED, size: int = 0, *, is_deferred: bool = False) -> None:
        self.mode = mode
        self.size = size
        self.is_deferred = is_deferred
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


@dataclass(slots=True)
class CommitFigures:
    """Counts of an engine whose commits go to another machine; of others they stay 0."""

    commits: int = 0
    #: sum of their durations
    seconds: float = 0.0
    #: commits without an answer
    doubts: int = 0
    #: how often the database was lost
    outages: int = 0


class GroupWriter(Generic[Context]):
    """Owns the thread. An engine implements `commit` and `disconnect`; its user the other three."""

    def __init__(self, *, name: str, group: int, on_failure: Callable[[], None]) -> None:
        """`on_failure` runs in the writer's thread when it can write no more."""
        #: seconds that a commit waits for more operations if the last one had several
        self.patience = 0.0
        #: error after which all operations fail
        self.broken: BaseException | None = None
        self.figures = CommitFigures()
        #: seconds without an operation after which `idle` is called
        self.idle_seconds: float | None = None
        self._group = group
        self._on_failure = on_failure
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

    def commit(self, group: list[Operation[Context]]) -> None:
        """Runs the operations in one transaction and calls `finish`."""
        raise NotImplementedError

    def flush(self, context: Context) -> None:
        """Writes what deferred operations left in the context."""

    def idle(self) -> None:
        """Called every `idle_seconds` without operations."""

    def disconnect(self) -> None:
        """Closes the database after the last transaction."""
        raise NotImplementedError

    # -- for any thread ---------------------------------------------------------------------------------

    def start(self) -> None:
        self._thread.start()

    def put(self, operation: Operation[Context]) -> None:
        self._queue.put(operation)

    def close(self) -> None:
        """Commits all queued operations, then closes the database; blocks."""
        self._queue.put(None)
        if self._thread.ident is not None:
            self._thread.join()
        self.disconnect()

    # -- the thread -------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._turn()
        except BaseException as error:
            # No caller would get a result any more: the process must be restarted.
            logger.critical("writer_failed", exc_info=error)
            self._on_failure()
            raise

    def _next(self) -> Operation[Context] | None:
        while True:
            try:
                return self._queue.get(timeout=self.idle_seconds)
            except queue.Empty:
                self.idle()

    def _turn(self) -> None:
        following: Operation[Context] | None = None
        stopping, shared = False, False
        while True:
            first = following or (None if stopping else self._next())
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
            self.commit(group)
