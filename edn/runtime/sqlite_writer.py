"""Writes a SQLite file from one thread (`edn.runtime.group_writer`).

Theory of operation
-------------------
The thread owns the only writing connection. Each operation that writes runs in its own savepoint, so a
failing one does not affect the others. An `OperationalError`, such as a full disk, fails the whole
transaction.

After an I/O error the content of the file is unknown until it is opened again (`edn.runtime.disk`): every
operation fails, and the file is left unchanged.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence

import structlog

from edn.runtime import disk
from edn.runtime.group_writer import GROUP, Context, GroupWriter, Mode, Operation

logger = structlog.get_logger()


class SqliteWriter(GroupWriter[Context]):
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
        super().__init__(name=name, group=group, on_failure=on_failure)
        self.connection = connection
        self._failed = False

    def disconnect(self) -> None:
        if not self._failed:
            self.connection.close()

    def commit(self, group: list[Operation[Context]]) -> None:
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
            if not operation.is_deferred:
                self.flush(context)
                self.connection.execute("SAVEPOINT operation")
            try:
                operation.result = operation.work(context)
            except Exception as error:
                operation.undo()
                if isinstance(error, sqlite3.OperationalError) or disk.is_failure(error):
                    raise  # the whole transaction fails
                operation.error = error
                if not operation.is_deferred:
                    self.connection.execute("ROLLBACK TO operation")
            else:
                worked.append(operation)
            if not operation.is_deferred:
                self.connection.execute("RELEASE operation")
        self.flush(context)

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
