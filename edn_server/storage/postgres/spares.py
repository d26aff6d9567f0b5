"""Finds the shard of a dead server for a process that waits as a spare.

A server is dead if the row of its lease has not changed for the length of the lease
(`edn.runtime.postgres.takeover`). A server that was stopped in good order may only be restarting: a spare
takes its shard after a longer time, and not at all if the server is being drained. Servers that were removed
from the network, or replaced as lost, have no shard to take.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Collection, Iterator

from edn.runtime.postgres.database import Database, Session
from edn.runtime.postgres.lease import Seen
from edn.runtime.postgres.takeover import Candidate, Watch
from edn.runtime.process import CannotStart

#: seconds between two looks at the leases
LOOK_SECONDS = 0.5


class Spares:
    """Watches the leases of the network's servers."""

    def __init__(self, database: Database, *, only: Collection[str] = (), stopped_seconds: float) -> None:
        """`only`: ids of the servers that this process may replace, all if empty.

        `stopped_seconds`: how long the shard of a server that was stopped in good order stays free.
        """
        self._database = database
        self._only = frozenset(only)
        self._stopped_seconds = stopped_seconds
        self._watch = Watch(database, self._candidates)

    def check(self) -> None:
        """Refuses servers that the database does not know; raises `CannotStart`."""
        with self._database.refusing(), contextlib.closing(self._database.connect("edn: spare")) as session:
            known = {name for name, *_ in _servers(session)}
        unknown = sorted(self._only - known)
        if unknown:
            raise CannotStart(
                f"--spare-for must name servers of the network ({', '.join(sorted(known)) or 'it has none'}),"
                f' got "{unknown[0]}"'
            )

    def wait(self, sleep: Callable[[float], None] = time.sleep) -> Candidate:
        """Waits for a dead server."""
        while not (dead := self._watch.dead()):
            sleep(LOOK_SECONDS)
        # Several spares should not all try the same one.
        return random.choice(dead)

    def close(self) -> None:
        self._watch.close()

    def _candidates(self, session: Session) -> Iterator[Candidate]:
        for name, seen, seconds, is_stopped, is_leaving in _servers(session):
            if (not self._only or name in self._only) and not (is_stopped and is_leaving):
                yield Candidate(name, seen, self._stopped_seconds if is_stopped else seconds)


def _servers(session: Session) -> list[tuple[str, Seen, float, bool, bool]]:
    """Reads the servers with a lease: id, state, length of the lease, whether it is stopped, or leaves."""
    # The tables of the dispatcher; without them the network has no servers yet.
    exists = session.execute(
        "SELECT to_regclass('servers') IS NOT NULL AND to_regclass('leases') IS NOT NULL"
    )
    if not exists.fetchall()[0][0]:
        return []
    rows = session.execute(
        "SELECT s.id, l.fence, l.commits, l.seconds, l.owner = '', v.server IS NOT NULL FROM servers s"
        " JOIN leases l ON l.name = 'shard:' || s.id LEFT JOIN leaving v ON v.server = s.id"
        " WHERE v.state IS DISTINCT FROM 'lost'"
    ).fetchall()
    return [
        (str(id), Seen(int(fence), int(commits)), float(seconds), bool(stopped), bool(leaving))
        for id, fence, commits, seconds, stopped, leaving in rows
    ]
