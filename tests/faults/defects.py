"""Breaks one guarantee of a service on purpose, so that a test can show that it would notice.

`EDN_TEST_DEFECT` names a defect, or several with commas; a name that is not known keeps the process from
starting. A process with a defect loses, repeats or invents notifications, and logs that when it starts.

Some defects would show only in an instant that no test can hit. They wait there for `WINDOW` seconds, so that
a killed process is often killed in that instant.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection
from typing import Any

import structlog

from tests.faults import patches
from tests.faults.patches import wrap

logger = structlog.get_logger()

VARIABLE = "EDN_TEST_DEFECT"
#: seconds that a defect waits where it can be hit
WINDOW = 0.25

#: defect → its effect
DEFECTS: dict[str, str] = {}
#: those that only a network on PostgreSQL can have (`tests.faults.cluster_defects`)
CLUSTER_DEFECTS: set[str] = set()
_PATCHES: dict[str, Callable[[], None]] = {}


def parse(text: str) -> frozenset[str]:
    """Return the defects that a value of the variable names; ValueError for an unknown one."""
    named = frozenset(part.strip() for part in text.split(",") if part.strip())
    unknown = sorted(named - DEFECTS.keys())
    if unknown:
        raise ValueError(f'{VARIABLE} names "{unknown[0]}"; there are {", ".join(sorted(DEFECTS))}')
    return named


def plant(names: Collection[str]) -> None:
    """Patch the product in this process."""
    for name in sorted(names):
        _PATCHES[name]()


def announce(names: Collection[str]) -> None:
    """Log every defect of this process."""
    if names:
        from edn.runtime.process import configure_logs

        configure_logs()  # standard output belongs to the service
    for name in sorted(names):
        logger.critical("A DEFECT IS PLANTED, for tests only", defect=name, effect=DEFECTS[name])


def defect(name: str, effect: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    def register(patch: Callable[[], None]) -> Callable[[], None]:
        DEFECTS[name], _PATCHES[name] = effect, patch
        return patch

    return register


@defect("acknowledge-before-commit", "publishers are answered before their events are in the log")
def _acknowledge_before_commit() -> None:
    from dispatcher.api.publish import PublishEndpoint
    from dispatcher.store.sqlite.log import _LogWriter
    from edn.api.events import Published

    tasks = set()

    @wrap(PublishEndpoint, "_commit")
    def _(original: Callable[..., Any]) -> Callable[..., Any]:
        async def commit(
            self: Any, topic: Any, batch: Any, ids: list[str | None], *arguments: Any, **named: Any
        ) -> Any:
            committing = asyncio.create_task(original(self, topic, batch, ids, *arguments, **named))
            if None in ids:
                return await committing
            tasks.add(committing)
            committing.add_done_callback(tasks.discard)
            return Published(len(ids), [str(id) for id in ids])

        return commit

    @wrap(_LogWriter, "_perform_all")
    def _(original: Callable[..., Any]) -> Callable[..., Any]:
        def perform(self: Any, context: Any, *arguments: Any) -> None:
            original(self, context, *arguments)
            if context.records:
                time.sleep(WINDOW)

        return perform


@defect("check-before-the-transaction", "advertisements are compared before the transaction, and not in it")
def _check_before_the_transaction() -> None:
    from dispatcher.advertisements.guard import PublicationGuard

    @wrap(PublicationGuard, "decide")
    def decide(original: Callable[..., Any]) -> Callable[..., Any]:
        def trusting(
            self: Any, transaction: Any, topic: Any, publisher: Any, batch: Any, revision: Any, checked: Any
        ) -> Any:
            if checked is not None:
                return checked
            return original(self, transaction, topic, publisher, batch, revision, checked)

        return trusting


@defect("route-before-commit", "events go to the servers before they are in the log")
def _route_before_commit() -> None:
    from dispatcher.store.event_log import Log
    from dispatcher.store.sqlite.log import _LogWriter

    @wrap(_LogWriter, "_perform_all")
    def _(original: Callable[..., Any]) -> Callable[..., Any]:
        def perform(self: Any, context: Any, *arguments: Any) -> None:
            original(self, context, *arguments)
            if context.records:
                log = self._log
                log._loop.call_soon_threadsafe(log.on_commit, list(context.records))
                time.sleep(WINDOW)

        return perform

    @wrap(Log, "_answer")
    def _(original: Callable[..., Any]) -> Callable[..., Any]:
        def answer(self: Any, operations: Any, records: Any, changed: bool) -> None:
            original(self, operations, [], changed)

        return answer


@defect("skip-the-widening", "a new subscription's rectangles are not routed to until the next snapshot")
def _skip_the_widening() -> None:
    _narrow(lambda items: not any(item.arriving for item in items))


@defect(
    "skip-foreign-widening", "what another dispatcher subscribed is not routed to until the next snapshot"
)
def _skip_foreign_widening() -> None:
    from dispatcher.network.foreign_changes import ForeignChanges

    @wrap(ForeignChanges, "_widen")
    def _(original: Callable[..., Any]) -> Callable[..., Any]:
        return lambda self, gap: None


@defect("move-before-widening", "a subscription moves to a server before events for it are routed there")
def _move_before_widening() -> None:
    _narrow(lambda items: any(item.arriving for item in items))


def _narrow(is_skipped: Callable[[Any], bool]) -> None:
    """Leave out the widening of some subscriptions."""
    from dispatcher.subscriptions.installer import SubscriptionInstaller

    @wrap(SubscriptionInstaller, "_widen")
    def _(original: Callable[..., Any]) -> Callable[..., Any]:
        def widen(self: Any, server: str, topic: Any, items: Any, stored: Any) -> None:
            if not is_skipped(items):
                original(self, server, topic, items, stored)

        return widen


@defect("accept-an-old-snapshot", "a snapshot replaces widenings that are newer than it")
def _accept_an_old_snapshot() -> None:
    import numpy as np

    from dispatcher.routing.table import RoutingTable
    from dispatcher.routing.topic_routes import Widenings
    from dispatcher.servers.client import ServerClient

    wrap(RoutingTable, "_is_old")(lambda _: lambda *_: False)
    wrap(Widenings, "later_than")(lambda _: lambda widenings, at: np.zeros(len(widenings), np.bool_))

    @wrap(ServerClient, "summary")
    def _(original: Callable[..., Any]) -> Callable[..., Any]:
        async def summary(self: Any, url: str) -> Any:
            snapshot = await original(self, url)
            await asyncio.sleep(10 * WINDOW)
            return snapshot

        return summary


@defect("cursor-before-outbox", "a server commits how far it has read before the notifications that follow")
def _cursor_before_outbox() -> None:
    from edn_server.ingest.apply_frame import ApplyFrame

    @wrap(ApplyFrame, "work")
    def _(original: Callable[..., Any]) -> Callable[..., Any]:
        def work(self: Any, db: Any) -> Any:
            self.db = db
            return original(self, db)

        return work

    @wrap(ApplyFrame, "_match")
    def _(original: Callable[..., Any]) -> Callable[..., Any]:
        def match(self: Any, cursor: int) -> Any:
            matches = original(self, cursor)
            self._advance(self.db)
            for statement in ("RELEASE operation", "COMMIT"):
                self.db.execute(statement)
            time.sleep(WINDOW)
            for statement in ("BEGIN IMMEDIATE", "SAVEPOINT operation"):
                self.db.execute(statement)
            return matches

        return match


@defect("forget-the-join", "a returning server's stream goes on at the log's end, the gap unseen")
def _forget_the_join() -> None:
    from dispatcher.servers import registration
    from dispatcher.servers.registry import hashed
    from dispatcher.store import servers
    from edn_server.ingest.apply_frame import ApplyFrame

    @wrap(registration, "_join")
    def _(original: Callable[..., Any]) -> Callable[..., Any]:
        def join(transaction: Any, request: Any, cursor: int | None) -> tuple[int, int, int]:
            if cursor is None:
                joined, now, start = original(transaction, request, cursor)
                return joined - 1, now, start
            servers.put(transaction, request.id, request.url, hashed(request.key), request.epoch)
            return transaction.head, transaction.time, transaction.head

        return join

    @wrap(ApplyFrame, "_cursor")
    def _(original: Callable[..., Any]) -> Callable[..., Any]:
        def cursor(self: Any) -> int:
            return max(original(self), self._frame.after)

        return cursor


@defect("trust-the-wall-clock", "ages and expiries are read from the wall clock, wherever it jumps")
def _trust_the_wall_clock() -> None:
    from edn.runtime import clock

    for name in ("now", "steady", "estimate"):
        patches.put(clock, name, clock.wall)


@defect("half-matches-forgotten", "a server that starts has no half matches of sequences")
def _half_matches_forgotten() -> None:
    from edn_server.storage.sequences import rows

    @wrap(rows, "half_matches")
    def _(original: Callable[..., Any]) -> Callable[..., Any]:
        return lambda db: iter(())


@defect("half-matches-left", "a migrated sequence begins without the half matches of its old server")
def _half_matches_left() -> None:
    from edn_server.storage.sequences import rows

    @wrap(rows, "handed_rows")
    def _(original: Callable[..., Any]) -> Callable[..., Any]:
        return lambda db, number: []


@defect("candidates-fed-twice", "every candidate is fed to the monitor of its sequence twice")
def _candidates_fed_twice() -> None:
    from edn_server.sequences.feed import Feed

    @wrap(Feed, "feed")
    def _(original: Callable[..., Any]) -> Callable[..., Any]:
        def feed(self: Any, number: int, waiting: Any, place: int) -> None:
            original(self, number, waiting, place)
            later = waiting.candidate._replace(stamp=waiting.candidate.stamp + 1)
            original(self, number, waiting._replace(candidate=later), place)

        return feed
