"""A thread that hears notifications of a database, and ends transactions of processes that have stopped."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

import psycopg
import structlog
from psycopg import sql

from edn.runtime.postgres.database import Database, Session

logger = structlog.get_logger()

#: seconds between two looks at leases, and between attempts to connect
_PAUSE_SECONDS = 1.0


class Listener:
    """Calls `on_notice` in its thread with the payload of each notification."""

    def __init__(self, database: Database, channel: str, on_notice: Callable[[str], None]) -> None:
        self._database = database
        self._channel = channel
        self._on_notice = on_notice
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="listener", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                with contextlib.closing(self._database.connect("edn: listener")) as session:
                    session.execute(sql.SQL("LISTEN {}").format(sql.Identifier(self._channel)))
                    while not self._ended.is_set():
                        for notice in session.notifies(timeout=_PAUSE_SECONDS):
                            self._on_notice(notice.payload)
                        end_stalled(session)
            except psycopg.Error as error:
                if not self._ended.is_set():
                    logger.warning("listener_failed", reason=str(error))
                    self._ended.wait(_PAUSE_SECONDS)

    def close(self) -> None:
        self._ended.set()


def end_stalled(session: Session) -> None:
    """Ends the transactions of owners of logs whose lease is over, because others may wait for their locks.

    The owner is stopped, or waits itself; in the second case it connects again.
    """
    ended = session.execute(
        # Materialized: as a condition of the join, the function would be called for sessions of others, too.
        "WITH stalled AS MATERIALIZED (SELECT l.name, a.pid FROM leases l"
        " JOIN pg_stat_activity a ON a.pid = l.pid AND a.backend_start = l.started"
        " WHERE l.name LIKE 'log:%' AND l.owner != '' AND l.until < clock_timestamp()"
        " AND a.xact_start < clock_timestamp() - INTERVAL '1 second' AND a.pid != pg_backend_pid())"
        " SELECT name FROM stalled WHERE pg_terminate_backend(pid)"
    ).fetchall()
    if ended:
        logger.warning("stalled_transactions_ended", leases=[name for (name,) in ended])
