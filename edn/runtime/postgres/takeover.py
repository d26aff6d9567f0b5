"""Finds rows of `leases` whose owner is dead, for processes that wait to replace it.

A row is dead when it has not changed for as long as its candidate allows, by the elapsed time of this
process. Time during which nobody could renew does not count: while the database could not be read, and while
it answered reads but no commit, as during a failure of replication. So every look commits something, and of
the time since the last look only as much counts as a quick one takes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import psycopg
import structlog

from edn.runtime import clock
from edn.runtime.postgres.database import Database, Session
from edn.runtime.postgres.lease import Seen, Silence, prove
from edn.runtime.sql import DatabaseUnavailable

logger = structlog.get_logger()

#: beginning of the name of the sessions of waiting processes, before the schema
WATCHING = "edn: spare of "
#: seconds that the database has for an answer
_LOOK_SECONDS = 5.0
#: seconds between two looks that count at most
_COUNTED_SECONDS = 1.5


@dataclass(frozen=True, slots=True)
class Candidate:
    """A row that may be taken when it has been silent."""

    name: str
    seen: Seen
    #: seconds of silence after which its owner is dead
    seconds: float


class Watch:
    """Looks at rows again and again, in one session."""

    def __init__(self, database: Database, read: Callable[[Session], Iterable[Candidate]]) -> None:
        self._database = database
        self._read = read
        self._silence = Silence()
        self._session: Session | None = None
        #: when the last look ended, and the time that counts until then
        self._looked = self._counted = 0.0

    def dead(self) -> list[Candidate]:
        """Returns the candidates whose owners are dead; none while the database does not answer."""
        try:
            if self._session is None:
                self._session = self._database.connect(
                    f"{WATCHING}{self._database.schema}", seconds=_LOOK_SECONDS
                )
            self._prove(self._session)
            found = list(self._read(self._session))
        except (psycopg.Error, DatabaseUnavailable) as error:
            logger.warning("watch_failed", error=str(error).strip())
            self.close()
            self._silence = Silence()
            return []
        now = clock.monotonic()
        self._counted += min(now - self._looked, _COUNTED_SECONDS)
        self._looked = now
        return [one for one in found if self._silence.of(one.name, one.seen, self._counted) > one.seconds]

    def _prove(self, session: Session) -> None:
        """Commit something; a network that is new has no table for it yet."""
        row = session.execute("SELECT to_regclass('proofs') IS NOT NULL").fetchone()
        if row is not None and row[0]:
            prove(session, "spare")

    def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            with contextlib.suppress(psycopg.Error):
                session.close()
