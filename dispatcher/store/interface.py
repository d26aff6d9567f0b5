"""The store of the event log and the directory, as its callers see it.

One store holds the log *and* every table that changes together with it. An **operation** is a function of a
`Transaction`; operations that are submitted at the same time share a commit. After the commit `on_commit`
gets the new records, in order, and only then are the callers answered.

No read is free: on the event loop state is read with `await store.reading(function)`. SQLite runs the
function at once; another engine may use a thread, and other tasks run meanwhile. So a check and the act that
relies on it belong into one operation, or under the lock that guards both.

SQL here is portable where that costs nothing: `?` parameters, `ON CONFLICT`, `RETURNING`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from edn.errors import Unavailable

if TYPE_CHECKING:
    from dispatcher.store.event_log import Transaction
    from dispatcher.store.records import Record

T = TypeVar("T")


class Fenced(Unavailable):
    """Another process owns the log now; this one must stop. An embedded store never raises it."""


class InDoubt(Unavailable):
    """A commit was neither acknowledged nor refused. An embedded store never raises it."""


class Rows(Protocol):
    """The answer to a statement."""

    @property
    def rowcount(self) -> int: ...
    @property
    def lastrowid(self) -> int | None: ...
    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[Any]: ...
    def close(self) -> None: ...
    def __iter__(self) -> Iterator[Any]: ...


class Connection(Protocol):
    """Runs statements with `?` parameters: the part of a database connection that queries use."""

    def execute(self, sql: str, parameters: Sequence[Any] = ..., /) -> Rows: ...
    def executemany(self, sql: str, parameters: Iterable[Sequence[Any]], /) -> Rows: ...
    def close(self) -> None: ...


class LogStore(Protocol):
    """Opened by its constructor: `id`, `incarnation`, `head`, `time` and `floor` are known from then on."""

    id: str
    #: counts the opens of this log
    incarnation: int
    #: the last committed offset, and the log's time then
    head: int
    time: int
    #: everything after this offset is still here
    floor: int

    def start(self) -> None: ...
    async def stop(self) -> None: ...

    def submit(self, operation: Callable[[Transaction], T], size: int = 0) -> asyncio.Future[T]:
        """Run an operation in the next transaction; the future is done after the commit."""
        ...

    async def reading(self, function: Callable[[Connection], T]) -> T:
        """Run a short read of committed state."""
        ...

    async def scanning(self, function: Callable[[Connection], T]) -> T:
        """Run a long read of committed state in a thread, on a connection of its own."""
        ...

    async def read(self, after: int, limit_bytes: int) -> list[Record]:
        """Return committed records beyond an offset, up to about `limit_bytes` of payload."""
        ...

    async def truncate(self, upto: int, ids_before: int) -> None:
        """Delete records up to an offset, and event ids of before a steady time."""
        ...

    async def renew(self) -> None:
        """Prove that this process still owns the log; raises `Fenced` if it does not."""
        ...

    async def backup(self, target: Path) -> None:
        """Write a whole copy, as of one moment, to a file."""
        ...
