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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np

from dispatcher.store.records import ControlRecord, EventsRecord, Record, events_payload, expiries_of
from edn import protocol
from edn.arrays import Floats
from edn.errors import Unavailable

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


@dataclass(slots=True)
class Transaction:
    """A transaction of the log: its connection, and the end of the log inside it."""

    connection: Connection
    log: str
    incarnation: int
    #: last offset given out
    head: int
    #: the log's time of this transaction, microseconds
    time: int
    #: the steady time, for ages, and the best guess of the civil time, for stamps and new expiries
    steady: int = 0
    estimate: int = 0
    records: list[Record] = field(default_factory=list)
    #: whether changes are kept for other dispatchers, and whether there were any (see `change_feed`)
    noting: bool = False
    noted: bool = False

    def __post_init__(self) -> None:
        self.steady = self.steady or self.time
        self.estimate = max(self.estimate, self.time)

    def append_control(self, server: str, kind: protocol.Kind, **fields: Any) -> int:
        """Append a change that concerns `server`; its offset."""
        self.head += 1
        control = protocol.Control(offset=self.head, time=self.time, kind=kind, **fields)
        self.connection.execute(
            "INSERT INTO records VALUES (?, 1, ?, NULL, ?, ?, NULL)",
            (self.head, self.time, server, protocol.encode(control)),
        )
        self.records.append(ControlRecord(self.head, server, control))
        return self.head

    def append_events(
        self,
        topic: int,
        ids: list[str | None],
        stamps: list[int | None],
        lines: bytes,
        points: Floats,
        availability: Floats | None = None,
        trace: str = "",
    ) -> list[str]:
        """Append events of one topic; their ids, made here where the publisher chose none.

        `availability`: for how many seconds each stays available to later subscribers; None is 0 for all.
        `trace`: the trace context that they came with (`edn.formats.trace_context`).
        """
        first, count = self.head + 1, len(ids)
        made = protocol.generated_ids(self.log, first, count)
        chosen = ids.count(None) < count
        named = [own or name for own, name in zip(ids, made, strict=True)] if chosen else made
        stamped = np.full(count, self.estimate, dtype=np.int64)
        if stamps.count(None) < count:
            stamped[:] = [self.estimate if stamp is None else stamp for stamp in stamps]
        expiries = None if availability is None else expiries_of(self.estimate, availability)
        record = EventsRecord(
            first, self.time, topic, named if chosen else [], stamped, lines, points, expiries
        )
        if trace:
            record.traces = [trace] * count
        self.head = record.last
        until = None if expiries is None else int(expiries.max())
        self.connection.execute(
            "INSERT INTO records VALUES (?, ?, ?, ?, NULL, ?, ?)",
            (self.head, count, self.time, topic, events_payload(record), until),
        )
        self.records.append(record)
        return named


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
