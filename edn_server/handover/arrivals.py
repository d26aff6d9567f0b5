"""Receives migrated subscriptions, on their new server.

A migrated subscription is stored like any other, but its matches are held back, as behind a replay
(`outbox.buffered`), until the dispatcher reports that the old server has nothing left to deliver. Rows that
the old server buffered during a pause arrive as such a replay. Every request is idempotent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from edn import protocol
from edn.errors import CorruptMessage
from edn.runtime import clock
from edn_server.ingest.apply_frame import Applied
from edn_server.ingest.replay import OnApplied
from edn_server.outbox import buffered
from edn_server.outbox.rows import group
from edn_server.sequences.feed import Feed
from edn_server.sequences.settling import FedRows, write_complete
from edn_server.storage import addresses, outbox, replays, versions
from edn_server.storage.interface import Connection
from edn_server.storage.payloads import Event
from edn_server.storage.usage import Drops
from edn_server.storage.writer import Job
from edn_server.subscriptions.registry import SubscriptionRegistry


def _find(registry: SubscriptionRegistry, id: str, version: int) -> int | None:
    """Returns the number of an arriving version."""
    number = registry.find(id, version)
    return number if number is not None and registry.is_arriving(number) else None


def _applied(addresses: Iterable[str] = (), frame_id: int = 0, entries: int = 0) -> Applied:
    return Applied(
        protocol.FrameAck(0, 0), addresses=tuple(dict.fromkeys(addresses)), frame_id=frame_id, entries=entries
    )


@dataclass(slots=True)
class StoreBuffered(Job[protocol.Accepted]):
    """Stores a page of notifications that the old server buffered; they are delivered before all others.

    Whether they stay buffered here depends on pauses and changes since the migration (`outbox.buffered`).
    """

    fresh = True

    registry: SubscriptionRegistry
    #: an unused frame id
    frame_id: int
    page: protocol.BufferedPage
    on_applied: OnApplied
    _entries: int = field(default=0, init=False)
    _drops: Drops = field(default_factory=Drops, init=False)

    def work(self, db: Connection) -> protocol.Accepted:
        page, registry = self.page, self.registry
        if not 0 <= page.after <= page.upto:
            raise CorruptMessage(f"rows of a page must rise, got ({page.after}, {page.upto}]")
        arriving = _find(registry, page.subscription, page.version)
        if arriving is None:
            return protocol.Accepted(unknown=True)
        position, fate = replays.arrival(db, arriving)
        if page.after != position:
            return protocol.Accepted(position)
        events = [Event(one.topic, one.id, one.stamp, one.body, one.trace) for one in page.events]
        if events and fate != replays.UNWANTED:
            # The newest version sends the rows, because the subscription may have changed since the
            # migration; the position of the hand-over stays with the arriving version.
            speaker = buffered.speaker(registry, page.subscription)
            places = np.arange(len(events), dtype=np.int64)
            senders = np.full(len(events), speaker, dtype=np.int32)
            sizes = np.array([len(event.body) for event in events], dtype=np.int64)
            rows = group(places, senders, np.zeros(len(events), dtype=np.int32), sizes)
            # The pause record may not be applied here yet; rows of a stream are buffered without a pause.
            stream = addresses.streaming(registry.addresses[registry.address[speaker]]) is not None
            kept = fate == replays.AS_BEFORE and (not stream or page.subscription in registry.paused)
            queue = outbox.kept(page.subscription, "buffered" if kept else "waiting", "history")
            named = [(queue, row) for _, row in rows]
            self._drops = outbox.write(
                db, self.frame_id, list(enumerate(events)), named, registry.limits
            ).drops
            self._entries = len(events) - self._drops.total
        replays.advance_arrival(db, arriving, page.upto)
        return protocol.Accepted(page.upto)

    def done(self, result: protocol.Accepted) -> None:
        self.on_applied(
            replace(_applied(frame_id=self.frame_id, entries=self._entries), drops=self._drops), {}
        )


@dataclass(slots=True)
class FinishArrivals(Job[protocol.Accepted]):
    """Releases the rows of subscriptions whose old server has nothing left to deliver."""

    fresh = True

    registry: SubscriptionRegistry
    request: protocol.Arrivals
    on_applied: OnApplied
    take_frame_id: Callable[[], int]
    on_fed: Callable[[FedRows], None]
    _feeds: list[tuple[Feed, FedRows]] = field(default_factory=list, init=False)
    _arrived: list[int] = field(default_factory=list, init=False)
    _over: list[int] = field(default_factory=list, init=False)
    _addresses: list[str] = field(default_factory=list, init=False)

    def work(self, db: Connection) -> protocol.Accepted:
        registry = self.registry
        for id, version in dict.fromkeys(self.request.versions):
            number = _find(registry, id, version)
            if number is None:
                continue
            self._arrived.append(number)
            replays.finish_arrival(db, number)
            self._start_monitor(db, number)
            if any(source.kind == "log" for source in registry.replaying[number]):
                continue  # a replay is not finished yet
            self._addresses += buffered.release(db, registry, id, finished=[number])
            if len(registry.find_ended(np.array([number], dtype=np.int64))):
                self._over.append(number)
                versions.end(db, [number], outbox.last_row(db))
        return protocol.Accepted()

    def _start_monitor(self, db: Connection, number: int) -> None:
        """Starts a sequence whose half matches were lost with its old server, before the release."""
        live = self.registry.sequences.get(number)
        if live is None or not live.awaiting:
            return
        feed = Feed(self.registry, int(clock.estimate() * 1e6))
        feed.arrive(number, live.position, awaiting=False)
        feed.feed_all(number)
        feed.write(db)
        fed = write_complete(db, self.registry, self.take_frame_id(), feed.complete)
        self._feeds.append((feed, fed))

    def done(self, result: protocol.Accepted) -> None:
        registry = self.registry
        for feed, fed in self._feeds:
            feed.apply()
            registry.counters.matched(np.array(fed.numbers, dtype=np.int64))
            self.on_fed(fed)
        for number in self._arrived:
            for source in [one for one in registry.replaying[number] if one.kind == "server"]:
                registry.finish_history(number, source)
        registry.mark_held([registry.versions[number].id for number in self._arrived])
        registry.remove(self._over)
        self.on_applied(_applied(self._addresses), {})
