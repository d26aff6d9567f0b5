"""Defects of a network on PostgreSQL, which only `tests.chaos.cluster` can notice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from tests.faults.defects import CLUSTER_DEFECTS, WINDOW, defect
from tests.faults.patches import wrap


def _cluster_defect(name: str, effect: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    CLUSTER_DEFECTS.add(name)
    return defect(name, effect)


@_cluster_defect("ignore-the-fence", "a former owner goes on to commit after its replacement")
def _ignore_the_fence() -> None:
    from edn.runtime.postgres.lease import Lease

    @wrap(Lease, "claim")
    def _(original: Callable[..., Any]) -> Callable[..., Any]:
        def claim(self: Any, cursor: Any, known: int = -1) -> None:
            query = b"SELECT claim($1, (SELECT fence FROM leases WHERE name = $1), $2, $3)"
            cursor.execute(query, (self.name, float(self.seconds), known), binary=True)

        return claim

    @wrap(Lease, "regain")
    def _(original: Callable[..., Any]) -> Callable[..., Any]:
        def regain(self: Any, session: Any) -> None:
            self._take(session, "true OR owner = %s", (self.owner,))

        return regain


@_cluster_defect("doubt-by-reading", "the outcome of a commit without an answer is read, not written")
def _doubt_by_reading() -> None:
    from edn.runtime.postgres.lease import Lease

    @wrap(Lease, "regain")
    def _(original: Callable[..., Any]) -> Callable[..., Any]:
        def regain(self: Any, session: Any) -> None:
            query = "SELECT fence, commits FROM leases WHERE name = %s"
            self.fence, self.commits = session.execute(query, (self.name,)).fetchone()

        return regain


@_cluster_defect("commit-locally", "commits do not wait for a replica of the database")
def _commit_locally() -> None:
    from edn.runtime.postgres.writer import Link

    # Not of every session: the check at the start would refuse it.
    @wrap(Link, "_connect")
    def _(original: Callable[..., Any]) -> Callable[..., Any]:
        def connect(self: Any, purpose: str) -> Any:
            session = original(self, purpose)
            session.execute("SET synchronous_commit = local")
            return session

        return connect


@_cluster_defect("lease-by-own-clock", "a process compares the end of a lease with its own wall clock")
def _lease_by_own_clock() -> None:
    from edn.runtime import clock
    from edn.runtime.postgres.lease import Lease
    from edn.runtime.postgres.takeover import Watch

    @wrap(Lease, "take_from")
    def _(original: Callable[..., Any]) -> Callable[..., Any]:
        # Whoever trusts its clock does not look whether the owner has renewed meanwhile.
        return lambda self, session, seen: self._take(session, "true", ())

    @wrap(Watch, "dead")
    def _(original: Callable[..., Any]) -> Callable[..., Any]:
        def dead(self: Any) -> list[Any]:
            original(self)
            if self._session is None:
                return []
            found = list(self._read(self._session))
            rows = self._session.execute("SELECT name, extract(epoch FROM until)::float8 FROM leases")
            until = {str(name).partition(":")[2]: end for name, end in rows.fetchall()}
            return [one for one in found if until[one.name] < clock.wall()]

        return dead


@_cluster_defect("widen-after-commit", "events are routed to a new subscription some time after its commit")
def _widen_after_commit() -> None:
    from dispatcher.subscriptions.installer import SubscriptionInstaller

    @wrap(SubscriptionInstaller, "_widen")
    def _(original: Callable[..., Any]) -> Callable[..., Any]:
        def widen(*arguments: Any) -> None:
            # Long after: on a busy machine a commit takes its time.
            asyncio.get_running_loop().call_later(20 * WINDOW, original, *arguments)

        return widen
