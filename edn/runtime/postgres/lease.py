"""Who owns a log or a shard: a lease on the database's clock, and a fencing token.

Theory of operation
-------------------
`leases` has one row per log and shard. Its owner renews `until` with every commit, and every `RENEW_SECONDS`
without one. When `until` has passed, another process may take the row: it raises `fence`, the token.

The lease is for liveness only; clocks and pauses cannot break safety. Every transaction of an owner begins
with `claim`, which compares the token under the lock of the row and holds that lock until its end. So either
the transaction of the former owner is committed before the new one takes the row, or it is refused. A former
owner that was stopped inside a transaction holds the lock: the new one ends that backend, and its transaction
with it.

`commits` counts the transactions of the owner. After a commit without an answer, the owner takes its own row
again (`regain`), by a *write*, and waits for the commit of that write: only the primary with its replica can
acknowledge it. Then `commits` says whether the transaction in doubt is there. A read could come from a former
primary, which may show a commit that no replica has.

For the same reason a session that only reads first commits something (`prove`).

A process that looks for a dead owner, such as a spare server, does not compare clocks. It reads `fence` and
`commits` again and again in one session (`edn.runtime.postgres.takeover`): if they stay the same for the
length of the lease, measured by its own elapsed time, the owner is dead. So neither a wrong clock of the
database nor a failover, during which nobody can renew, costs a living owner its row. The owner for its part
knows until when no other process can have the row (`Lease.until`), also by elapsed time: it started to renew
before the others could see it.

`revision` counts changes that other processes make under the lock of the row. An owner passes the number
that it knows to `claim`, which refuses the transaction if there are changes that it has not learned.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import psycopg
import structlog
from psycopg import errors

from edn.runtime import clock
from edn.runtime.postgres.database import Session
from edn.runtime.sql import DatabaseUnavailable, Fenced

logger = structlog.get_logger()

#: how long an owner that does not answer keeps its row
LEASE_SECONDS = 6.0
RENEW_SECONDS = 2.0
#: how long a new owner waits for the lock of the row before it ends the backend that holds it
_LOCK = "300ms"


@dataclass(frozen=True, slots=True)
class Seen:
    """The state of a row; every renewal and every new owner change it."""

    fence: int
    commits: int


class Silence:
    """How long rows have been the same, by the elapsed time of this process."""

    def __init__(self) -> None:
        self._since: dict[str, tuple[Seen, float]] = {}

    def of(self, name: str, seen: Seen, now: float) -> float:
        """Returns the seconds for which a row has not changed; `now`: elapsed time after it was read."""
        before = self._since.get(name)
        if before is None or before[0] != seen:
            self._since[name] = seen, now
            return 0.0
        return now - before[1]


@dataclass(frozen=True, slots=True)
class _Row:
    seen: Seen
    #: length of the lease
    seconds: float
    holder: str
    #: seconds that are left by the database's clock
    left: float


@dataclass(slots=True)
class _Waited:
    """What a process that waits for a row has seen so far."""

    first: Seen | None = None
    #: elapsed time after which a row that changes has a living owner
    deadline: float = 0.0
    silence: Silence = field(default_factory=Silence)


class Owned(Exception):
    """Another process owns the row, and lives."""

    def __init__(self, holder: str) -> None:
        super().__init__(holder)
        #: where it runs
        self.holder = holder


class Lease:
    """The ownership of one row; one thread at a time."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.seconds = LEASE_SECONDS
        #: identifies this process in the row
        self.owner = secrets.token_hex(16)
        #: names this process to people
        self.holder = f"{socket.gethostname()} pid {os.getpid()}"
        #: token of this owner; it grows with every acquisition
        self.fence = 0
        #: transactions of all owners that are committed, as last known
        self.commits = 0
        #: elapsed time (`clock.monotonic`) until which no other process can own the row
        self.until = 0.0

    @property
    def left(self) -> float:
        """The seconds for which no other process can own the row; any thread may ask."""
        return self.until - clock.monotonic()

    def acquire(
        self,
        connect: Callable[[], Session],
        *,
        on_wait: Callable[[float], None] = lambda _: None,
        sleep: Callable[[float], None] = time.sleep,
        check: Callable[[Session], None] = lambda _: None,
        refuse_living: bool = False,
    ) -> Session:
        """Waits until the row is free, takes it, and returns the session; raises `psycopg.Error`.

        `on_wait` is called once with the seconds of another owner's lease. `check` is called before every
        wait; it raises to give up. `refuse_living`: raise `Owned` if that owner renews it.
        """
        session = connect()
        waited = _Waited()
        while True:
            try:
                self._await(session, waited, on_wait, sleep, check, refuse_living)
            except (errors.OperationalError, errors.InterfaceError, DatabaseUnavailable) as error:
                session.close()
                if waited.first is None:
                    raise
                # A failover: the other owner cannot renew either.
                logger.warning("lease_wait_interrupted", lease=self.name, error=str(error).strip())
                waited.silence = Silence()
                session = _connect_again(connect, sleep)
            except BaseException:
                session.close()
                raise
            else:
                return session

    def _await(
        self,
        session: Session,
        waited: _Waited,
        on_wait: Callable[[float], None],
        sleep: Callable[[float], None],
        check: Callable[[Session], None],
        refuse_living: bool,
    ) -> None:
        # Without a row only: to insert into an existing one would wait for the transaction of its owner.
        session.execute(
            "INSERT INTO leases (name) SELECT %s WHERE NOT EXISTS (SELECT 1 FROM leases WHERE name = %s)"
            " ON CONFLICT DO NOTHING",
            (self.name, self.name),
        )
        # By the clock of the database only at first: after a failover the leases of the living are over, too.
        condition = "owner IN ('', %s)" + (" OR until < clock_timestamp()" if waited.first is None else "")
        while not self._take(session, condition, (self.owner,)):
            row = self._look(session)
            check(session)
            now = clock.monotonic()
            if waited.first is None:
                waited.first, waited.deadline = row.seen, now + row.left + 1.0
                condition = "owner IN ('', %s)"
                on_wait(row.left)
            if waited.silence.of(self.name, row.seen, now) > row.seconds and self.take_from(
                session, row.seen
            ):
                return
            if refuse_living and row.seen != waited.first and now > waited.deadline:
                raise Owned(row.holder)
            sleep(min(max(row.left, 0.1), 0.5))

    def _look(self, session: Session) -> _Row:
        row = session.execute(
            "SELECT fence, commits, seconds, holder,"
            " greatest(0, extract(epoch FROM until - clock_timestamp()))::float8 FROM leases WHERE name = %s",
            (self.name,),
        ).fetchone()
        if row is None:
            raise errors.UndefinedObject(f"the row of {self.name} was deleted")
        return _Row(Seen(int(row[0]), int(row[1])), float(row[2]), str(row[3]), float(row[4]))

    def take_from(self, session: Session, seen: Seen) -> bool:
        """Takes the row of a dead owner if it is still in the state that was seen."""
        return self._take(session, "fence = %s AND commits = %s", (seen.fence, seen.commits))

    def regain(self, session: Session) -> None:
        """Takes the own row again in a new session, and reads `commits`; raises `Fenced` if it has gone."""
        while not self._take(session, "owner = %s", (self.owner,)):
            row = session.execute("SELECT owner FROM leases WHERE name = %s", (self.name,)).fetchone()
            if row is None or row[0] != self.owner:
                raise Fenced(f"another process owns {self.name}")

    def _take(self, session: Session, condition: str, values: tuple[Any, ...]) -> bool:
        """Takes the row under a condition; returns whether it was taken and committed."""
        now = clock.monotonic()
        try:
            session.execute("BEGIN")
            session.execute(f"SET LOCAL lock_timeout = '{_LOCK}'")
            row = session.execute(
                "UPDATE leases SET fence = fence + 1,"
                " takeovers = takeovers + CASE WHEN owner IN ('', %s) THEN 0 ELSE 1 END,"
                " taken = CASE WHEN owner = %s THEN taken ELSE clock_timestamp() END,"
                " owner = %s, holder = %s, pid = pg_backend_pid(),"
                " started = (SELECT backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()),"
                " until = clock_timestamp() + %s * INTERVAL '1 second', seconds = %s"
                f" WHERE name = %s AND ({condition}) RETURNING fence, commits",
                (
                    *(self.owner,) * 3,
                    self.holder,
                    *(float(self.seconds),) * 2,
                    self.name,
                    *values,
                ),
            ).fetchone()
            session.doubtful = False
            session.execute("COMMIT")
        except errors.LockNotAvailable:
            session.execute("ROLLBACK")
            self._end_holder(session, condition, values)
            return False
        if session.doubtful:
            session.close()
            raise DatabaseUnavailable("the database has not replicated the lease", retry_after=1)
        if row is None:
            return False
        self.fence, self.commits = int(row[0]), int(row[1])
        self.until = now + self.seconds
        return True

    def _end_holder(self, session: Session, condition: str, values: tuple[Any, ...]) -> None:
        """Ends the backend of the owner, which holds the lock of the row, if the row may be taken."""
        # The start of the backend as well: another machine or a later backend may have the same number.
        session.execute(
            "SELECT pg_terminate_backend(a.pid) FROM leases l JOIN pg_stat_activity a"
            " ON a.pid = l.pid AND a.backend_start = l.started"
            f" WHERE l.name = %s AND ({condition}) AND a.pid != pg_backend_pid()",
            (self.name, *values),
        ).fetchall()

    def prove(self, session: Session) -> None:
        """Proves by an acknowledged commit that a session's server is the primary."""
        # Not the row of the lease: its lock would make readers wait for a transaction.
        prove(session, self.name)

    def claim(self, cursor: psycopg.RawCursor[Any], known: int = -1) -> None:
        """Begins a transaction of the owner: compares the token under the lock of the row.

        `known`: number of the last change that the owner knows, which is compared, too. The result of the
        statement is the number of the newest one.
        """
        cursor.execute(
            b"SELECT claim($1, $2, $3, $4)", (self.name, self.fence, float(self.seconds), known), binary=True
        )

    def committed(self, began: float) -> None:
        """Counts a transaction that was acknowledged; `began`: elapsed time of its beginning."""
        self.commits += 1
        self.until = began + self.seconds

    def renew(self, session: Session) -> bool:
        """Renews the lease outside the owner's transactions; returns whether it is still the owner."""
        row = session.execute(
            "UPDATE leases SET until = clock_timestamp() + %s * INTERVAL '1 second'"
            " WHERE name = %s AND fence = %s AND owner = %s RETURNING 1",
            (self.seconds, self.name, self.fence, self.owner),
        ).fetchone()
        return row is not None

    def release(self, session: Session) -> None:
        """Gives the row up, so that the next owner need not wait."""
        with contextlib.suppress(psycopg.Error):
            session.execute(
                "UPDATE leases SET owner = '', until = clock_timestamp() WHERE name = %s AND owner = %s",
                (self.name, self.owner),
            )


def prove(session: Session, name: str) -> None:
    """Commits something of no importance; raises `DatabaseUnavailable` if it is not replicated."""
    session.doubtful = False
    session.execute(
        "INSERT INTO proofs VALUES (%s, 1) ON CONFLICT (name) DO UPDATE SET number = proofs.number + 1",
        (name,),
    )
    if session.doubtful:
        raise DatabaseUnavailable("the database has not replicated a commit", retry_after=1)


def _connect_again(connect: Callable[[], Session], sleep: Callable[[float], None]) -> Session:
    """Opens a session as soon as the database answers."""
    while True:
        try:
            return connect()
        except psycopg.Error:
            sleep(0.5)
