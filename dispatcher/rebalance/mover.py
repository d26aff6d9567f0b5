"""A subscription goes to another server while events are published: nothing is missed, nothing told twice.

Theory of operation
-------------------
The new server stores the filter under a version of its own, inactive, and the routing table is widened for
it, as for every new subscription. Then one transaction writes the directory and, beside each other in the
log, a *move* record for each of the two: up to there the old server matches, after it the new one does. With
several dispatchers each of the others does the same in its own log, when it learns of the change, after it
has widened its own table (see `replication.reconcile`).

Order is kept by waiting: what the new server finds stays there until the old one has delivered, or given up,
what it had found. `handover` sees to that afterwards; the records of what is not settled yet are the table
`moves`, written in the same transaction. One that is not settled is not moved again.

A server that is *lost* can be asked for nothing. Its subscriptions begin elsewhere, behind a replay of all
that the log holds beyond the place up to which it had read.

Event loop only.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dispatcher.servers.placement import Candidate, Placer
from dispatcher.store import change_feed, directory, repartitions, replays
from dispatcher.store.directory import Subscription
from dispatcher.store.event_log import Log
from dispatcher.store.interface import Connection, Transaction
from dispatcher.store.replays import Replay
from dispatcher.subscriptions.installer import SubscriptionInstaller
from dispatcher.subscriptions.keyed_lock import KeyedLock
from dispatcher.subscriptions.lifecycle import Prepared, Stored, check_topic, replay_of
from dispatcher.subscriptions.stream_address import is_stream
from dispatcher.subscriptions.topics import Topic, Topics
from edn.errors import EdnError
from edn.model.filter import Filter

#: called in the transaction of a move, with the ids that are dealt with by it
Also = Callable[[Transaction, "Outcome"], None]


@dataclass(slots=True)
class Outcome:
    """The outcome for each subscription of a batch."""

    moved: list[str] = field(default_factory=list)
    #: it has ended, or is there already
    skipped: list[str] = field(default_factory=list)
    #: its former server has not delivered everything yet, or it was changed at this moment: try later
    deferred: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Move:
    """A subscription as it was, and as it shall go on."""

    before: Subscription
    item: Prepared


class Mover:
    def __init__(
        self,
        log: Log,
        topics: Topics,
        placing: Placer,
        lock: KeyedLock,
        installer: SubscriptionInstaller,
        *,
        on_moved: Callable[[], None],
        on_replay: Callable[[Replay], None],
    ) -> None:
        """`lock`: of calls about subscriptions; `on_moved` hears that there is something to settle."""
        self._log = log
        self._placing = placing
        self._topics = topics
        self._lock = lock
        self._installer = installer
        self._on_moved = on_moved
        self._on_replay = on_replay

    async def move(
        self,
        wanted: Mapping[str, str],
        *,
        lost: Mapping[str, int] | None = None,
        also: Also | None = None,
    ) -> Outcome:
        """Move each to its server, all in one transaction; raises `EdnError` if a server did not store.

        `lost`: servers that are gone, and up to which offset they had read. `also` is done in the same
        transaction.
        """
        gone = lost or {}
        async with self._lock.hold(wanted):
            outcome = Outcome()
            chosen = await self._log.reading(
                lambda connection: self._chosen(connection, wanted, gone, outcome)
            )
            moves = await asyncio.to_thread(self._bind, chosen, gone)
            try:
                stored = await self._installer.store([move.item for move in moves])
                replays, passed = await self._record(moves, stored, gone, outcome, also)
            except EdnError:
                await self._installer.discard([move.item for move in moves])
                raise
            for move in passed:
                item = move.item
                self._placing.move(
                    move.before.server,
                    item.subscription.server,
                    Candidate(item.topic.uid, item.bound.rects(), item.subscription.location),
                )
            for replay in replays:
                self._on_replay(replay)
            if passed:
                self._on_moved()
            return outcome

    def _chosen(
        self, connection: Connection, wanted: Mapping[str, str], lost: Mapping[str, int], outcome: Outcome
    ) -> list[tuple[Subscription, Topic, str, bool]]:
        """Those that can be moved now, and whether they were on their way already."""
        chosen = []
        for id, server in wanted.items():
            found = directory.find(connection, id)
            topic = None if found is None else self._topics.by_uid(found.topic)
            if found is None or topic is None or found.server == server:
                outcome.skipped.append(id)
                continue
            unsettled = repartitions.is_moving(connection, id)
            if unsettled and found.server not in lost:
                outcome.deferred.append(id)
            else:
                chosen.append((found, topic, server, unsettled))
        return chosen

    def _bind(
        self, chosen: Sequence[tuple[Subscription, Topic, str, bool]], lost: Mapping[str, int]
    ) -> list[_Move]:
        """Understand their filters, which takes a while: in a thread."""
        now = self._log.next_version()
        return [
            _Move(
                found,
                Prepared(
                    replace(found, server=server, version=max(found.version + 1, now)),
                    topic,
                    Filter.parse(found.filter).bind(topic.schema),
                    # Of one that was lost on its way the server before it may have something to deliver.
                    arriving=found.server not in lost or unsettled,
                ),
            )
            for found, topic, server, unsettled in chosen
        ]

    async def _record(
        self,
        moves: Sequence[_Move],
        stored: Stored,
        lost: Mapping[str, int],
        outcome: Outcome,
        also: Also | None,
    ) -> tuple[list[Replay], list[_Move]]:
        """Commit the moves: the replays that begin, and the subscriptions that were moved."""
        return await self._log.submit(
            lambda transaction: self._append(transaction, moves, stored, lost, outcome, also)
        )

    def _append(
        self,
        transaction: Transaction,
        moves: Sequence[_Move],
        stored: Stored,
        lost: Mapping[str, int],
        outcome: Outcome,
        also: Also | None,
    ) -> tuple[list[Replay], list[_Move]]:
        """The records of what is still as it was; the replays that begin, and what was moved."""
        passed: list[_Move] = []
        for move in moves:
            before, after = move.before, move.item.subscription
            found = directory.find(transaction.connection, before.id)
            if found is None or (found.expires is not None and found.expires <= transaction.time):
                outcome.skipped.append(before.id)
            elif (found.version, found.server) != (before.version, before.server):
                outcome.deferred.append(before.id)
            else:
                check_topic(transaction, move.item)
                directory.move(transaction.connection, after.id, after.server, after.version)
                passed.append(move)
                outcome.moved.append(after.id)
        replays = _append_records(transaction, passed, lost)
        for move in passed:
            _note(transaction, move, stored, lost)
        _discard(transaction, [move for move in moves if move not in passed])
        if also is not None:
            also(transaction, outcome)
        return replays, passed


def _append_records(
    transaction: Transaction, moves: Sequence[_Move], lost: Mapping[str, int]
) -> list[Replay]:
    """Side by side: no event lies between the end of a subscription here and its beginning there."""
    leaving: dict[str, list[tuple[str, int]]] = defaultdict(list)
    coming: dict[str, list[tuple[str, int]]] = defaultdict(list)
    behind: dict[str, list[Prepared]] = defaultdict(list)
    cursors: dict[str, int] = {}
    for move in moves:
        after = move.item.subscription
        named = (after.id, after.version)
        leaving[move.before.server].append(named)
        coming[after.server].append(named)
        if move.before.server in lost:
            behind[after.server].append(move.item)
            cursors[after.id] = lost[move.before.server]
    for server, versions in leaving.items():
        transaction.append_control(server, "move", versions=versions)
    begun = []
    for server, versions in coming.items():
        late = behind[server]
        offset = transaction.append_control(
            server,
            "move",
            versions=versions,
            replays=[(item.subscription.id, item.subscription.version) for item in late],
        )
        begun += [
            replays.take_over(
                transaction,
                replay_of(item, offset, transaction.time, since=None, after=cursors[item.subscription.id]),
            )
            for item in late
        ]
    for replay in begun:
        replays.insert(transaction, replay)
    return begun


def _note(
    transaction: Transaction,
    move: _Move,
    stored: Stored,
    lost: Mapping[str, int],
) -> None:
    before, after = move.before, move.item.subscription
    answered = stored[after.server, move.item.topic.uid]
    revision = change_feed.note_version(transaction, after.id, answered, former=before.server)
    if after.paused:
        transaction.append_control(after.server, "pause", ids=[after.id], revision=revision)
    if before.server in lost:
        repartitions.redirect_move(transaction, after.id, before.version, after.version, after.server)
    else:
        # Rows of a stream are kept, too: they are read where the subscription is.
        keeping = after.paused or is_stream(after.url)
        repartitions.insert_move(transaction, after.id, after.version, before.server, after.server, keeping)


def _discard(transaction: Transaction, moves: Sequence[_Move]) -> None:
    """Have what was stored for nothing forgotten."""
    stored: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for move in moves:
        after = move.item.subscription
        stored[after.server].append((after.id, after.version))
    for server, versions in stored.items():
        transaction.append_control(server, "deactivate", versions=versions)
