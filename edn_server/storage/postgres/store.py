"""A server's shard in PostgreSQL, owned by a lease (`edn.runtime.postgres.lease`).

The name of the shard is the server's id. A process that is started elsewhere with the same id waits until the
lease is over, and continues: key, row ids, cursors and rows are in the database. So does a spare (`spares`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path

from edn.errors import Conflict
from edn.runtime.group_writer import CommitFigures, Operation
from edn.runtime.ownership import owned
from edn.runtime.postgres import database as limits
from edn.runtime.postgres import lease as leases
from edn.runtime.postgres.database import READ_SECONDS, Database
from edn.runtime.postgres.lease import Owned, Seen
from edn.runtime.postgres.schema import Scope
from edn.runtime.postgres.writer import Link, PostgresWriter, end_process
from edn.runtime.process import CannotStart
from edn.runtime.secret_box import SecretBox
from edn.runtime.sql import Connection, DatabaseUnavailable
from edn_server.storage import secret_rows
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


class ServerRuns(CannotStart):
    """Another process is this server."""


@owned("any")
class PostgresStore(Store):
    """The shard of this server."""

    def __init__(
        self,
        database: Database,
        shard: str,
        *,
        box: SecretBox,
        on_wait: Callable[[float], None] = lambda _: None,
        on_failure: Callable[[], None] = end_process,
        seen: Seen | None = None,
    ) -> None:
        """Takes the shard when the lease of its last owner is over; raises `CannotStart` if that owner lives.

        `on_wait` gets the seconds of another process's lease; `on_failure` runs in the writer's thread when
        another process owns the shard. `seen`: the lease of a dead owner (`spares`), who is replaced;
        raises `NotTaken` if that is not possible.
        """
        database.check()
        try:
            self._link = Link(
                database,
                Scope("shard", shard),
                "server",
                MIGRATIONS,
                box=box,
                on_wait=on_wait,
                refuse_living=True,
                seen=seen,
            )
        except Owned as other:
            raise ServerRuns(
                f'server "{shard}" must not run twice: the process on {other.holder} owns its shard and'
                " renews the lease; stop that process, or start this one with another --id or with --spare"
            ) from None
        self._jobs = _Jobs(self._link, on_failure)
        # Loading reads whole tables, and the lease must last as long as that.
        self._link.connection.session.seconds = READ_SECONDS
        self._link.lease.seconds = READ_SECONDS
        place = f'shard {shard} in schema "{database.schema}" of the database {database}'
        try:
            self.load(lambda db: secret_rows.check(db, place))
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
        self._link.lease.seconds = leases.LEASE_SECONDS
        self._writer = Writer(self._jobs.serve, on_fatal, on_full=on_full)

    @property
    def unavailable(self) -> str | None:
        return self._jobs.outage

    @property
    def is_owned(self) -> bool:
        return self._link.lease.left > 0

    @property
    def commit_figures(self) -> tuple[CommitFigures, float]:
        return self._jobs.figures, self._link.lease.left

    def reader(self, name: str) -> Reader:
        return Reader(self._link.reader(), name)

    async def backup(self) -> Path:
        raise Conflict("the network's database is PostgreSQL: back it up with `edn backup --database URL`")

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        else:
            self._jobs.close()


def _prepare(db: Connection) -> str:
    """Creates the identity of a new shard; returns its key."""
    db.execute("INSERT INTO meta (name, value) VALUES ('seq', '0') ON CONFLICT (name) DO NOTHING")
    secret_rows.create_key(db)
    return secret_rows.key(db)
