"""The interface of a server's store: its identity, one writer, any number of readers.

The engines are `database` (a SQLite file in the data folder) and `postgres` (the shard of this server in the
network's database).
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

from edn.runtime.group_writer import CommitFigures
from edn_server.storage.interface import Connection, Identity, Reader, Result
from edn_server.storage.writer import Job, Writer


class Store(ABC):
    """An open store that this process owns. Any thread may call it."""

    identity: Identity
    _writer: Writer | None = None

    @abstractmethod
    def load(self, function: Callable[[Connection], Result]) -> Result:
        """Calls a function with the writer's connection, before `start`."""

    @abstractmethod
    def start(self, on_fatal: Callable[[BaseException], None], on_full: Callable[[], None]) -> None:
        """Starts the writer; for the callbacks see `Writer`."""

    @abstractmethod
    def reader(self, name: str) -> Reader:
        """Opens a connection for reading, with a thread of this name."""

    @abstractmethod
    async def backup(self) -> Path:
        """Writes a consistent, compact copy to a file that the caller deletes."""

    @abstractmethod
    def close(self) -> None:
        """Commits queued jobs, stops the writer, and ends the ownership."""

    async def shrink_memory(self) -> None:
        """Frees the memory that the engine caches in this process."""
        return

    @property
    def unavailable(self) -> str | None:
        """Why nothing can be committed at the moment; None if it can."""
        return None

    @property
    def is_owned(self) -> bool:
        """Whether no other process can own the store at the moment; without it nothing may be sent."""
        return True

    @property
    def commit_figures(self) -> tuple[CommitFigures, float] | None:
        """Figures of commits to a database elsewhere, and the seconds that are left of the lease."""
        return None

    @property
    def writer(self) -> Writer:
        assert self._writer is not None
        return self._writer

    def commit(self, job: Job[Result]) -> Future[Result]:
        """Queues a job for the writer."""
        return self.writer.submit(job)

    async def committed(self, job: Job[Result]) -> Result:
        """Queues a job and waits for it; a cancelled caller does not cancel the job."""
        return await asyncio.shield(asyncio.wrap_future(self.commit(job)))
