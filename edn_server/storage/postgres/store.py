"""A server's shard in PostgreSQL, owned by a lease (`edn.runtime.postgres.lease`).

The name of the shard is the server's id. A process that is started elsewhere with the same id waits until the
lease is over, and continues: key, row ids, cursors and rows are in the database.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path

from edn.errors import Conflict
from edn.runtime.group_writer import Operation
from edn.runtime.ownership import owned
from edn.runtime.postgres import database as limits
from edn.runtime.postgres.database import READ_SECONDS, Database
from edn.runtime.postgres.schema import Scope
from edn.runtime.postgres.writer import Link, PostgresWriter, end_process
from edn.runtime.sql import Connection, DatabaseUnavailable
from edn_server.storage.interface import Identity, Reader, Result
from edn_server.storage.postgres.schema import MIGRATIONS
from edn_server.storage.store import Store
from edn_server.storage.writer import Call, Entry, Writer


class _Jobs(PostgresWriter[Connection]):
    """Writes jobs to the shard."""

    def __init__(self, link: Link, on_failure: Callable[[], None]) -> None:
        super().__init__(link, name="writer", group=Writer.GROUP, on_failure=on_failure)
        self._writer: Writer | None = None

    def serve(self, writer: Writer) -> _Jobs:
        self._writer = writer
        return self

    def put(self, operation: Operation[Connection]) -> None:
        if self.outage is not None and isinstance(operation, Entry):
            operation.future.set_exception(DatabaseUnavailable(self.outage, retry_after=1))
        else:
            super().put(operation)

    def begin(self) -> Connection:
        return self.link.connection

    def finish(
        self, context: Connection, operations: Sequence[Operation[Connection]], error: Exception | None
    ) -> None:
        assert self._writer is not None
        self._writer.finish(operations, error)


@owned("any")
class PostgresStore(Store):
    """The shard of this server."""

    def __init__(
        self,
        database: Database,
        shard: str,
        *,
        on_wait: Callable[[float], None] = lambda _: None,
        on_failure: Callable[[], None] = end_process,
    ) -> None:
        """Waits until no other process owns the shard; raises `CannotStart`.

        `on_wait` gets the seconds of another process's lease; `on_failure` runs in the writer's thread when
        another process owns the shard.
        """
        database.check()
        self._link = Link(database, Scope("shard", shard), "server", MIGRATIONS, on_wait=on_wait)
        self._jobs = _Jobs(self._link, on_failure)
        # Loading reads whole tables.
        self._link.connection.session.seconds = READ_SECONDS
        try:
            self.identity = Identity(self.load(_prepare), self._link.lease.fence)
        except BaseException:
            self._jobs.close()
            raise

    def load(self, function: Callable[[Connection], Result]) -> Result:
        assert self._writer is None
        entry = Entry(Call(function), Future())
        self._jobs.perform_now(entry)
        result: Result = entry.result
        return result

    def start(self, on_fatal: Callable[[BaseException], None], on_full: Callable[[], None]) -> None:
        self._link.connection.session.seconds = limits.COMMIT_SECONDS
        self._writer = Writer(self._jobs.serve, on_fatal, on_full=on_full)

    @property
    def unavailable(self) -> str | None:
        return self._jobs.outage

    def reader(self, name: str) -> Reader:
        return Reader(self._link.reader(), name)

    async def backup(self) -> Path:
        raise Conflict("the network's database is PostgreSQL: back it up with pg_basebackup or pg_dump")

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        else:
            self._jobs.close()


def _prepare(db: Connection) -> str:
    """Creates the identity of a new shard; returns its key."""
    db.executemany(
        "INSERT INTO meta (name, value) VALUES (?, ?) ON CONFLICT (name) DO NOTHING",
        [("key", secrets.token_hex(16)), ("seq", "0")],
    )
    return str(db.execute("SELECT value FROM meta WHERE name = 'key'").fetchone()[0])
