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
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Callable
from typing import Any

import psycopg
from psycopg import errors

from edn.runtime.postgres.database import Session
from edn.runtime.sql import DatabaseUnavailable, Fenced

#: how long an owner that does not answer keeps its row
LEASE_SECONDS = 6.0
RENEW_SECONDS = 2.0
#: how long a new owner waits for the lock of the row before it ends the backend that holds it
_LOCK = "300ms"


class Lease:
    """The ownership of one row; one thread at a time."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.seconds = LEASE_SECONDS
        #: identifies this process in the row
        self.owner = secrets.token_hex(16)
        #: token of this owner; it grows with every acquisition
        self.fence = 0
        #: transactions of all owners that are committed, as last known
        self.commits = 0
        #: monotonic time until which no other process can own the row
        self.until = 0.0

    def acquire(
        self,
        connect: Callable[[], Session],
        *,
        on_wait: Callable[[float], None] = lambda _: None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> Session:
        """Waits until the row is free, takes it, and returns the session; raises `psycopg.Error`.

        `on_wait` is called once with the seconds of another owner's lease.
        """
        session = connect()
        try:
            # Without a row only: to insert into an existing one would wait for the transaction of its owner.
            session.execute(
                "INSERT INTO leases (name) SELECT %s WHERE NOT EXISTS (SELECT 1 FROM leases WHERE name = %s)"
                " ON CONFLICT DO NOTHING",
                (self.name, self.name),
            )
            told = False
            while not self._take(session, "owner IN ('', %s) OR until < clock_timestamp()"):
                row = session.execute(
                    "SELECT extract(epoch FROM until - clock_timestamp())::float8 FROM leases"
                    " WHERE name = %s",
                    (self.name,),
                ).fetchone()
                left = max(0.0, float(row[0])) if row else 0.0
                if not told:
                    told = True
                    on_wait(left)
                sleep(min(left, 0.5) + 0.02)
        except BaseException:
            session.close()
            raise
        return session

    def regain(self, session: Session) -> None:
        """Takes the own row again in a new session, and reads `commits`; raises `Fenced` if it has gone."""
        while not self._take(session, "owner = %s"):
            row = session.execute("SELECT owner FROM leases WHERE name = %s", (self.name,)).fetchone()
            if row is None or row[0] != self.owner:
                raise Fenced(f"another process owns {self.name}")

    def _take(self, session: Session, condition: str) -> bool:
        """Takes the row under a condition on its owner; returns whether it was taken and committed."""
        now = time.monotonic()
        try:
            session.execute("BEGIN")
            session.execute(f"SET LOCAL lock_timeout = '{_LOCK}'")
            row = session.execute(
                "UPDATE leases SET fence = fence + 1, owner = %s, pid = pg_backend_pid(),"
                " started = (SELECT backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()),"
                " until = clock_timestamp() + %s * INTERVAL '1 second'"
                f" WHERE name = %s AND ({condition}) RETURNING fence, commits",
                (self.owner, self.seconds, self.name, self.owner),
            ).fetchone()
            session.doubtful = False
            session.execute("COMMIT")
        except errors.LockNotAvailable:
            session.execute("ROLLBACK")
            self._end_holder(session, condition)
            return False
        if session.doubtful:
            session.close()
            raise DatabaseUnavailable("the database has not replicated the lease", retry_after=1)
        if row is None:
            return False
        self.fence, self.commits = int(row[0]), int(row[1])
        self.until = now + self.seconds
        return True

    def _end_holder(self, session: Session, condition: str) -> None:
        """Ends the backend of the owner, which holds the lock of the row, if the row may be taken."""
        # The start of the backend as well: another machine or a later backend may have the same number.
        session.execute(
            "SELECT pg_terminate_backend(a.pid) FROM leases l JOIN pg_stat_activity a"
            " ON a.pid = l.pid AND a.backend_start = l.started"
            f" WHERE l.name = %s AND ({condition}) AND a.pid != pg_backend_pid()",
            (self.name, self.owner),
        ).fetchall()

    def prove(self, session: Session) -> None:
        """Proves by an acknowledged commit that a session's server is the primary."""
        session.doubtful = False
        # Not the row of the lease: its lock would make readers wait for a transaction.
        session.execute(
            "INSERT INTO proofs VALUES (%s, 1) ON CONFLICT (name) DO UPDATE SET number = proofs.number + 1",
            (self.name,),
        )
        if session.doubtful:
            raise DatabaseUnavailable("the database has not replicated a commit", retry_after=1)

    def claim(self, cursor: psycopg.RawCursor[Any]) -> None:
        """Begins a transaction of the owner: compares the token under the lock of the row."""
        cursor.execute(b"SELECT claim($1, $2, $3)", (self.name, self.fence, float(self.seconds)))

    def committed(self, began: float) -> None:
        """Counts a transaction that was acknowledged; `began`: monotonic time of its beginning."""
        self.commits += 1
        self.until = began + self.seconds

    def release(self, session: Session) -> None:
        """Gives the row up, so that the next owner need not wait."""
        with contextlib.suppress(psycopg.Error):
            session.execute(
                "UPDATE leases SET owner = '', until = '-infinity' WHERE name = %s AND owner = %s",
                (self.name, self.owner),
            )
