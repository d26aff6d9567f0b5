"""Moves subscriptions to other servers while events are published, without a gap or a duplicate.

Theory of operation
-------------------
The new server stores the filter as a new version, inactive, and the routing table is widened for it, as for
every new subscription. Then one transaction writes the directory and appends two adjacent *move* records, one
per server, to each log: the old server matches events up to there, the new one after it.

To keep the order, the new server buffers its notifications until the old one has delivered its own or has
dead-lettered them. `handover` completes that; the table `moves`, written in the same transaction, lists the
unfinished migrations. A subscription is not moved again before its migration is finished.

A *lost* server does not answer. Its subscriptions begin on another server, with a replay of all events in the
log after the cursor of the lost server.

Event loop only.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dispatcher.servers.bindings import Bindings
from dispatcher.servers.placement import Placer
from dispatcher.store import directory, repartitions, replays
from dispatcher.store.directory import Subscription
from dispatcher.store.event_log import Log
from dispatcher.store.interface import Connection, Kind, Transaction
from dispatcher.store.replays import Replay
from dispatcher.subscriptions.installer import SubscriptionInstaller
from dispatcher.subscriptions.keyed_lock import KeyedLock
from dispatcher.subscriptions.lifecycle import (
    PendingVersion,
    Stored,
    append_versions,
    check_topic,
    replay_of,
)
from dispatcher.subscriptions.sequences.binding import bind_stored, further_topics
from dispatcher.subscriptions.sinks import is_stream
from dispatcher.subscriptions.topics import Topic, Topics
from edn.errors import EdnError, NotFound
from edn.model.sequence import is_sequence

#: called in the transaction of a batch, with its outcome
Also = Callable[[Transaction, "Outcome"], None]


@dataclass(slots=True)
class Outcome:
    """The outcome of a batch: ids of subscriptions."""

    moved: list[str] = field(default_factory=list)
    #: ended, on their server already, or bound to other servers
    skipped: list[str] = field(default_factory=list)
    #: to retry later: their last migration is unfinished, or they changed at this moment
    deferred: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Move:
    before: Subscription
    item: PendingVersion


@dataclass(frozen=True, slots=True)
class _Batch:
    """Moves whose new versions are stored, to be committed in one transaction."""

    moves: Sequence[_Move]
    stored: Stored
    #: lost server → its cursor
    lost: Mapping[str, int]
    outcome: Outcome
    also: Also | None


class Mover:
    def __init__(
        self,
        log: Log,
        topics: Topics,
        placing: Placer,
        bindings: Bindings,
        lock: KeyedLock,
        installer: SubscriptionInstaller,
        *,
        on_moved: Callable[[], None],
        on_replay: Callable[[Replay], None],
    ) -> None:
        self._log = log
        self._topics = topics
        self._placing = placing
        self._bindings = bindings
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
        """Move subscriptions (id → server) in one transaction; raises `EdnError` if a server does not store.

        Placement chooses an empty server. `lost`: lost server → its cursor. `also` runs in the same
        transaction.
        """
        lost = lost or {}
        async with self._lock.hold(wanted):
            outcome = Outcome()
            chosen = await self._log.reading(self._choose, wanted, lost, outcome)
            moves = self._place(await asyncio.to_thread(self._bind, chosen, lost), outcome)
            items = [move.item for move in moves]
            try:
                stored = await self._installer.store(items)
                replays, moved = await self._record(_Batch(moves, stored, lost, outcome, also))
            except EdnError:
                await self._installer.discard(items)
                raise
            for move in moved:
                item = move.item
                self._placing.move(move.before.server, item.subscription.server, item.candidate())
            for replay in replays:
                self._on_replay(replay)
            if moved:
                self._on_moved()
            return outcome

    def _choose(
        self, connection: Connection, wanted: Mapping[str, str], lost: Mapping[str, int], outcome: Outcome
    ) -> list[tuple[Subscription, Topic, str, bool]]:
        """Return the subscriptions that can move now, and whether their last migration is unfinished."""
        chosen = []
        for id, server in wanted.items():
            found = directory.find(connection, id)
            topic = None if found is None else self._topics.by_uid(found.topic)
            further = None if found is None else self._further(found)
            paths = [] if topic is None else [one.path for one in (topic, *(further or ()))]
            binding = self._bindings.hosts_of_all(paths)
            is_bound_elsewhere = bool(server) and binding is not None and not binding.allows(server)
            if (
                found is None
                or topic is None
                or further is None
                or found.server == server
                or is_bound_elsewhere
            ):
                outcome.skipped.append(id)
                continue
            moving = repartitions.is_moving(connection, id)
            if moving and found.server not in lost:
                outcome.deferred.append(id)
            else:
                chosen.append((found, topic, server, moving))
        return chosen

    def _further(self, found: Subscription) -> tuple[Topic, ...] | None:
        """Return the other topics of a sequence; None if one was deleted."""
        try:
            return further_topics(found.filter, self._topics.by_uid)
        except NotFound:
            return None

    def _bind(
        self, chosen: Sequence[tuple[Subscription, Topic, str, bool]], lost: Mapping[str, int]
    ) -> list[_Move]:
        """Bind the filters of subscriptions to new versions; in a thread, because it is slow."""
        now = self._log.next_version()
        moves = []
        for found, topic, server, moving in chosen:
            further = further_topics(found.filter, self._topics.by_uid)
            item = PendingVersion(
                replace(found, server=server, version=max(found.version + 1, now)),
                topic,
                bind_stored(found.filter, topic, further),
                # If the lost server was the destination of a migration, the server before it delivers.
                arriving=found.server not in lost or moving,
                further=further,
            )
            moves.append(_Move(found, item))
        return moves

    def _place(self, moves: Sequence[_Move], outcome: Outcome) -> list[_Move]:
        """Choose the missing servers; skip subscriptions that are on the chosen one already."""
        placed = []
        for move in moves:
            item, one = move.item, move.item.subscription
            if not one.server:
                candidate = replace(item.candidate(), binding=self._bindings.hosts_of_all(item.paths))
                one = replace(one, server=self._placing.choose(candidate))
            if one.server == move.before.server:
                outcome.skipped.append(one.id)
            else:
                placed.append(_Move(move.before, replace(item, subscription=one)))
        return placed

    async def _record(self, batch: _Batch) -> tuple[list[Replay], list[_Move]]:
        """Commit a batch; return the replays that begin, and the moves that were made."""
        return await self._log.submit(lambda transaction: _append(transaction, batch))


def _append(transaction: Transaction, batch: _Batch) -> tuple[list[Replay], list[_Move]]:
    """Append the records of the subscriptions that have not changed since, and discard the other versions."""
    outcome = batch.outcome
    moved: list[_Move] = []
    discarded: list[Subscription] = []
    for move in batch.moves:
        before, after = move.before, move.item.subscription
        found = directory.find_live(transaction.connection, before.id, transaction.time)
        if found is not None and (found.version, found.server) == (before.version, before.server):
            check_topic(transaction, move.item)
            directory.move(transaction.connection, after.id, after.server, after.version)
            moved.append(move)
            outcome.moved.append(after.id)
        else:
            (outcome.skipped if found is None else outcome.deferred).append(before.id)
            discarded.append(after)
    replays = _append_records(transaction, moved, batch.lost)
    for move in moved:
        _record_migration(transaction, move, batch)
    append_versions(transaction, "deactivate", discarded)
    if batch.also is not None:
        batch.also(transaction, outcome)
    return replays, moved


def _append_records(
    transaction: Transaction, moves: Sequence[_Move], lost: Mapping[str, int]
) -> list[Replay]:
    """Append adjacent *move* records, with no event between them; return the replays of lost servers."""
    departing: dict[str, list[tuple[str, int]]] = defaultdict(list)
    arriving: dict[str, list[tuple[str, int]]] = defaultdict(list)
    replayed: dict[str, list[PendingVersion]] = defaultdict(list)
    cursors: dict[str, int] = {}
    for move in moves:
        after = move.item.subscription
        named = (after.id, after.version)
        departing[move.before.server].append(named)
        arriving[after.server].append(named)
        # A sequence begins anew: its half matches are lost, and replays of topics are not in one order.
        if move.before.server in lost and not is_sequence(after.filter):
            replayed[after.server].append(move.item)
            cursors[after.id] = lost[move.before.server]
    for server, versions in departing.items():
        transaction.append_control(server, "move", versions=versions)
    begun = []
    for server, versions in arriving.items():
        late = replayed[server]
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


def _record_migration(transaction: Transaction, move: _Move, batch: _Batch) -> None:
    """Insert the migration of a moved subscription, and pause it on the new server if it is paused."""
    before, after = move.before, move.item.subscription
    answered = batch.stored[after.server, move.item.topic.uid]
    transaction.note(Kind.SUBSCRIPTION, after.id, server=before.server, more=-1)
    transaction.note(Kind.SUBSCRIPTION, after.id, server=after.server, more=1, stored=answered)
    if after.paused:
        transaction.append_control(after.server, "pause", ids=[after.id], revision=transaction.revision)
    if before.server in batch.lost:
        repartitions.redirect_move(transaction, after.id, before.version, after.version, after.server)
    else:
        # The rows of a stream are buffered, too: it is read from the server of its subscription.
        buffered = after.paused or is_stream(after.url) or is_sequence(after.filter)
        repartitions.insert_move(transaction, after.id, after.version, before.server, after.server, buffered)
