"""Connections to the database, as the rest of the process sees them.

SQL stands only in this package, in functions that take a `Connection`. Jobs of the writer and functions of
readers get a connection and pass it on.
"""

from __future__ import annotations

import asyncio
import functools
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Concatenate, ParamSpec, TypeVar

from edn.runtime.ownership import owned
from edn.runtime.sql import Connection as Connection
from edn.runtime.sql import DatabaseUnavailable

Result = TypeVar("Result")
Given = ParamSpec("Given")

#: raised by every operation that fails: no room, an I/O error, a locked file, no answer
StoreError = (sqlite3.Error, DatabaseUnavailable)


@dataclass(frozen=True, slots=True)
class Identity:
    #: secret that distinguishes this folder's server from others with the same id
    key: str
    #: how often this folder was opened
    epoch: int


@owned("any")
class Reader:
    """A connection for reading, with its own thread."""

    def __init__(self, db: Connection, name: str) -> None:
        self._db = db
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)

    async def reading(
        self,
        function: Callable[Concatenate[Connection, Given], Result],
        *arguments: Given.args,
        **named: Given.kwargs,
    ) -> Result:
        """Calls a function with the connection, in the reader's thread."""
        call = functools.partial(function, self._db, *arguments, **named)
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)

    def close(self) -> None:
        """Waits for the running call, and closes the connection."""
        self._thread.shutdown()
        self._db.close()
