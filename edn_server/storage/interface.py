"""The storage of one server as the rest of the process sees it.

`ShardStore` is what another engine would implement. SQL stands only in this package, in functions that take a
`Connection`: jobs of the writer and functions of readers get one and pass it on.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from edn_server.storage.writer import Job

Result = TypeVar("Result")
Given = ParamSpec("Given")

#: raised by every operation of the store that fails: no room, an I/O error, a locked file
StoreError = sqlite3.Error


class Cursor(Protocol):
    """The answer of a statement."""

    @property
    def rowcount(self) -> int: ...

    @property
    def lastrowid(self) -> int | None: ...

    def fetchone(self) -> Any: ...

    def fetchall(self) -> list[Any]: ...

    def __iter__(self) -> Iterator[Any]: ...

    def close(self) -> None: ...


class Connection(Protocol):
    """Executes statements with `?` parameters; only this package calls it."""

    def execute(self, sql: str, parameters: Sequence[Any] = ..., /) -> Cursor: ...

    def executemany(self, sql: str, parameters: Iterable[Sequence[Any]], /) -> Cursor: ...


@dataclass(frozen=True, slots=True)
class Identity:
    #: secret that tells this folder's server from any other of the same id
    key: str
    #: how often this folder was opened
    epoch: int


class Reader(Protocol):
    """A connection for reading, in a thread of its own."""

    async def reading(
        self,
        function: Callable[Concatenate[Connection, Given], Result],
        *arguments: Given.args,
        **named: Given.kwargs,
    ) -> Result:
        """Call a function with the connection, in the reader's thread."""

    def close(self) -> None:
        """Wait for the call under way, and close the connection."""


class ShardStore(Protocol):
    """The durable state of one server: one writer, any number of readers."""

    def open(self) -> Identity:
        """Take the store; nobody else may open it until `close`."""

    def commit(self, job: Job[Result]) -> Future[Result]:
        """Queue a job for the writer; jobs are grouped into transactions, in their order."""

    def reader(self, name: str) -> Reader:
        """Open a connection for reading, with a thread of this name."""

    async def last_row(self) -> int:
        """Return the id of the newest row of the outbox that ever was."""

    async def copy(self, target: Path) -> None:
        """Write a consistent copy of everything to a file."""

    def close(self) -> None:
        """Commit queued jobs, stop the writer, and let others open the store."""
