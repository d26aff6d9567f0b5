"""Commits groups of operations to PostgreSQL from one thread (`edn.runtime.group_writer`).

Theory of operation
-------------------
A transaction is sent in one piece where its operations read nothing: BEGIN, `claim`, the writes, COMMIT. Its
results come after the commit, and the first error is raised then. An error of the database fails all
operations of a transaction; an operation that raises fails alone (`WriterConnection`).

    open        ──no answer before COMMIT is sent──────> disconnected   the operations fail, nothing is stored
    open        ──no answer after COMMIT is sent───────> in doubt       the callers wait
    open        ──the token is another's──────────────> fenced         the process ends
    disconnected ─────regain───────────────────────────> open
    in doubt    ──regain: `commits` counts it or not───> open           the operations are committed, or fail

While the writer is disconnected or in doubt, `outage` has the reason, and callers should refuse new
operations at once. Without operations the thread renews the lease, or tries to connect.

A transaction that the database refuses because its owner lacks changes of others, or because of a deadlock,
is repeated once, if the subclass allows it.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Sequence

import psycopg
import structlog

from edn.errors import Unavailable
from edn.runtime import clock
from edn.runtime.group_writer import GROUP, Context, GroupWriter, Operation
from edn.runtime.postgres import database as limits
from edn.runtime.postgres.connection import ReaderConnection, WriterConnection
from edn.runtime.postgres.database import Database, Session, unavailable
from edn.runtime.postgres.lease import RENEW_SECONDS, Lease, Seen
from edn.runtime.postgres.schema import Scope, migrate
from edn.runtime.process import CannotStart
from edn.runtime.secret_box import SecretBox
from edn.runtime.sql import DatabaseUnavailable, Fenced, InDoubt

logger = structlog.get_logger()

#: exit code of a process whose log or shard another process owns
EXIT_FENCED = 6
#: seconds between attempts to connect
RETRY_SECONDS = 0.5
#: SQLSTATE of `claim` for a wrong token
_FENCED = "EDN01"
#: SQLSTATEs after which a transaction is repeated: changes that the owner does not know, deadlock
_REPEATED = ("EDN02", "40P01")


class _Repeat(Exception):
    """The transaction has no effect and should be repeated."""


def end_process() -> None:
    """Ends a process that owns nothing any more, after a moment for pending responses."""
    time.sleep(0.2)
    os._exit(EXIT_FENCED)


class NotTaken(Exception):
    """Another process took the row first, or its owner lives."""


class Link:
    """The ownership of a log or shard, and the sessions of its owner."""

    def __init__(
        self,
        database: Database,
        scope: Scope,
        component: str,
        migrations: Sequence[str],
        *,
        box: SecretBox,
        on_wait: Callable[[float], None] = lambda _: None,
        check: Callable[[Session], None] = lambda _: None,
        refuse_living: bool = False,
        seen: Seen | None = None,
    ) -> None:
        """Checks the database, migrates its schema and acquires the lease; raises `CannotStart`.

        `check` may end the wait for the lease; `refuse_living`: see `Lease.acquire`. `seen`: the state of a
        dead owner's row; the link takes it from that owner, without a wait, or raises `NotTaken`.
        """
        self.database = database
        self.scope = scope
        self.lease = Lease(scope.lease)
        self.connection = WriterConnection(scope, box)
        #: counts the sessions of the writer; readers use no session that is older than the writer's
        self.generation = 0
        with database.refusing():
            with contextlib.closing(database.connect("edn: migration")) as session:
                migrate(session, database, component, migrations)
            if seen is not None:
                session = self._take_from(seen)
            else:
                session = self.lease.acquire(
                    lambda: self._connect("writer"), on_wait=on_wait, check=check, refuse_living=refuse_living
                )
            self._enter(session)

    def _take_from(self, seen: Seen) -> Session:
        session = self._connect("writer")
        try:
            if not self.lease.take_from(session, seen):
                raise NotTaken
        except BaseException:
            session.close()
            raise
        return session

    def _connect(self, purpose: str) -> Session:
        return self.database.connect(f"edn: {self.scope.lease} {purpose}"[:63])

    def _enter(self, session: Session) -> None:
        """Prepares a session that has the lease for transactions."""
        try:
            self.scope.apply(session, self.database)
            session.seconds = limits.COMMIT_SECONDS
        except BaseException:
            session.close()
            raise
        self.connection.use(session)
        self.generation += 1

    def reconnect(self) -> None:
        """Opens another session of the writer and takes the lease; raises `Fenced` or `psycopg.Error`."""
        self.connection.close()
        session = self._connect("writer")
        session.seconds = limits.COMMIT_SECONDS
        try:
            self.lease.regain(session)
        except BaseException:
            session.close()
            raise
        self._enter(session)

    def reader(self) -> ReaderConnection:
        """Returns a connection that reads; it connects when it is first used."""
        box = self.connection.box
        return ReaderConnection(self.scope, box, self._connect_reader, lambda: self.generation)

    def _connect_reader(self) -> Session:
        session = self._connect("reader")
        try:
            self.lease.prove(session)
            self.scope.apply(session, self.database)
            session.execute("SET default_transaction_read_only = on")
        except BaseException:
            session.close()
            raise
        return session

    def release(self) -> None:
        """Gives the lease up and closes the writer's session."""
        session = self.connection.session
        if not session.closed:
            self.lease.release(session)
            with contextlib.suppress(psycopg.Error):
                self.connection.sync()
        self.connection.close()


class _Keeper:
    """A thread that renews a lease while its owner loads its state, before the writer's thread runs."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._ended = threading.Event()
        threading.Thread(target=self._run, name="lease-keeper", daemon=True).start()

    def _run(self) -> None:
        session: Session | None = None
        while not self._ended.wait(RENEW_SECONDS):
            try:
                session = session or self._link.database.connect("edn: keeper", seconds=limits.COMMIT_SECONDS)
                if not self._link.lease.renew(session):
                    break
            except psycopg.Error:
                session = None  # the owner finds out itself
        if session is not None:
            session.close()

    def end(self) -> None:
        self._ended.set()


class PostgresWriter(GroupWriter[Context]):
    """Owns the link's writing session. Subclasses implement `begin` and `finish`."""

    #: whether operations change nothing but the database, so that a transaction can be repeated
    repeats = False

    def __init__(
        self,
        link: Link,
        *,
        name: str,
        group: int = GROUP,
        on_failure: Callable[[], None] = end_process,
    ) -> None:
        """`on_failure` runs in the writer's thread when another process owns the log or shard."""
        super().__init__(name=name, group=group, on_failure=on_failure)
        self.link = link
        self.idle_seconds = RENEW_SECONDS
        #: why nothing can be committed at the moment
        self.outage: str | None = None
        self._is_connected = True
        self._closing = threading.Event()
        self._keeper = _Keeper(link)

    # -- for subclasses ---------------------------------------------------------------------------------

    def enter(self, context: Context, operations: Sequence[Operation[Context]], *, again: bool) -> None:
        """Begins the transaction of some operations; `again`: it was refused, and is repeated."""
        self.link.lease.claim(self.link.connection.cursor())

    def leave(self, context: Context) -> None:
        """Called before the commit."""

    # -- for any thread ---------------------------------------------------------------------------------

    def start(self) -> None:
        self._keeper.end()
        super().start()

    def close(self) -> None:
        self._keeper.end()
        self._closing.set()
        super().close()

    def disconnect(self) -> None:
        if isinstance(self.broken, Fenced):
            self.link.connection.close()
        else:
            self.link.release()

    # -- the thread -------------------------------------------------------------------------------------

    def idle(self) -> None:
        """Renews the lease, or connects again."""
        if self.broken is not None:
            return
        if self.outage is None:
            self.commit([])
        else:
            with contextlib.suppress(Unavailable):  # `outage` says it
                self._ensure()
            self._end_if_fenced()

    def commit(self, group: list[Operation[Context]]) -> None:
        wanted = [operation for operation in group if operation.is_wanted()]
        worked: list[Operation[Context]] = []
        failure: Exception | None = None
        context: Context | None = None
        try:
            if self.broken is not None:
                raise Fenced(f"the writer has failed: {self.broken}")
            self._ensure()
            context = self.begin()
            try:
                self._transact(context, wanted, worked)
            except _Repeat:
                for operation in reversed(worked):
                    operation.undo()
                worked.clear()
                for operation in wanted:
                    operation.result = operation.error = None
                context = self.begin()
                self._transact(context, wanted, worked, again=True)
        except InDoubt as error:
            failure = self._resolve(error)
        except Exception as error:
            failure = error
        if failure is not None:
            for operation in reversed(worked):
                operation.undo()
            logger.error("commit_failed", error=str(failure), operations=len(wanted))
        self.finish(self.begin() if context is None else context, wanted, failure)
        self._end_if_fenced()

    def perform_now(self, operation: Operation[Context]) -> None:
        """Runs an operation in a transaction of its own, before the thread starts; raises its error."""
        self._transact(self.begin(), [operation], [], again=True)
        if operation.error is not None:
            raise operation.error

    def _perform_all(
        self, context: Context, operations: Sequence[Operation[Context]], worked: list[Operation[Context]]
    ) -> None:
        """Runs the operations of a transaction; `worked` collects the successful ones."""
        connection = self.link.connection
        for operation in operations:
            if not operation.is_deferred:
                self._flush(context)
            try:
                operation.result = operation.work(context)
                connection.end_operation()
            except Exception as error:
                operation.undo()
                if isinstance(error, psycopg.Error):
                    raise  # the whole transaction fails
                operation.error = error
                connection.fail_operation()
            else:
                worked.append(operation)
        self._flush(context)

    def _flush(self, context: Context) -> None:
        self.flush(context)
        self.link.connection.end_operation()

    def _transact(
        self,
        context: Context,
        operations: Sequence[Operation[Context]],
        worked: list[Operation[Context]],
        *,
        again: bool = False,
    ) -> None:
        """Runs operations in a transaction; raises `_Repeat`, `Fenced`, `InDoubt`, `DatabaseUnavailable`."""
        link = self.link
        connection, lease = link.connection, link.lease
        began, is_sent = clock.monotonic(), False
        try:
            session = connection.session
            session.doubtful = False
            cursor = psycopg.RawCursor(session)
            cursor.execute(b"BEGIN")
            self.enter(context, operations, again=again)
            self._perform_all(context, operations, worked)
            self.leave(context)
            connection.end_operation()
            is_sent = True
            cursor.execute(b"COMMIT", prepare=False)
            connection.sync()
        except psycopg.Error as error:
            if session.closed:
                self._disconnected(error)
                if is_sent:
                    raise InDoubt(f"the outcome of a commit is unknown: {error}", retry_after=1) from None
                raise unavailable(error) from None
            self._roll_back()
            if self.repeats and error.sqlstate in _REPEATED and not again:
                raise _Repeat from None
            if error.sqlstate == _FENCED:
                self.broken = Fenced(f"another process owns {lease.name}")
                raise self.broken from None
            logger.error("transaction_refused", error=str(error), state=error.sqlstate)
            raise DatabaseUnavailable(
                f"the database refused a transaction: {str(error).splitlines()[0]}", retry_after=1
            ) from error
        except BaseException:
            self._roll_back()
            raise
        if session.doubtful:
            # The commit is not replicated, and the server stopped waiting for it.
            self._disconnected("the commit is not replicated")
            raise InDoubt("the outcome of a commit is unknown: it is not replicated", retry_after=1)
        lease.committed(began)
        self.figures.commits += 1
        self.figures.seconds += clock.monotonic() - began

    def _roll_back(self) -> None:
        try:
            self.link.connection.roll_back()
        except psycopg.Error as error:
            self._disconnected(error)

    def _disconnected(self, reason: object) -> None:
        self.link.connection.close()
        if self._is_connected:
            logger.warning("database_lost", lease=self.link.lease.name, reason=str(reason))
            self.figures.outages += 1
        self._is_connected = False
        self.outage = f"the database does not answer: {reason}"

    def _ensure(self) -> None:
        """Connects again after a failure; raises `Fenced` or `DatabaseUnavailable`."""
        if self._is_connected:
            return
        try:
            self.link.reconnect()
        except Fenced as error:
            self.broken = error
            raise
        except psycopg.Error as error:
            self.outage = f"the database does not answer: {error}"
            raise unavailable(error) from None
        except CannotStart as error:
            raise DatabaseUnavailable(str(error), retry_after=1) from None
        self._is_connected, self.outage = True, None
        logger.info("database_connected", lease=self.link.lease.name, fence=self.link.lease.fence)

    def _resolve(self, doubt: InDoubt) -> Exception | None:
        """Waits until a commit in doubt is known to be stored (None) or not (the error)."""
        lease = self.link.lease
        number = lease.commits + 1
        logger.warning("commit_in_doubt", lease=lease.name, number=number)
        self.figures.doubts += 1
        while True:
            try:
                self._ensure()
                break
            except Fenced as error:
                return error
            except Unavailable:
                if self._closing.wait(RETRY_SECONDS):
                    return doubt
        stored = lease.commits >= number
        logger.info("doubt_resolved", lease=lease.name, number=number, stored=stored)
        if stored:
            return None
        return DatabaseUnavailable("the database did not store the transaction", retry_after=1)

    def _end_if_fenced(self) -> None:
        if isinstance(self.broken, Fenced) and not self._closing.is_set():
            logger.critical("fenced", lease=self.link.lease.name)
            self._on_failure()
