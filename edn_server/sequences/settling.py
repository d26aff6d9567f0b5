"""Feeds candidates that waited: for `settle`, or for the half matches of their former server.

`FeedSettled` feeds the candidates whose time is `settle` ago, in the order of their times. The completed
sequences become rows of the outbox in the same transaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import structlog

from edn.errors import Unavailable
from edn.runtime import clock
from edn.runtime.ownership import owned
from edn_server.outbox.rows import group
from edn_server.sequences.feed import Complete, Feed
from edn_server.storage import outbox
from edn_server.storage.interface import Connection, StoreError
from edn_server.storage.outbox import Place, Written
from edn_server.storage.payloads import Event
from edn_server.storage.store import Store
from edn_server.storage.writer import Job
from edn_server.subscriptions.registry import SubscriptionRegistry

logger = structlog.get_logger()

#: seconds between two looks at waiting candidates
INTERVAL = 0.1


@dataclass(slots=True)
class FedRows:
    """Rows of complete sequences that were written outside of a frame."""

    frame_id: int
    events: dict[int, Event] = field(default_factory=dict)
    numbers: list[int] = field(default_factory=list)
    written: Written = field(default_factory=Written)
    #: addresses of streams among the rows
    addresses: tuple[str, ...] = ()


def write_complete(
    db: Connection, registry: SubscriptionRegistry, frame_id: int, complete: Sequence[Complete]
) -> FedRows:
    """Writes complete sequences under an unused frame id, ready or held back as their subscriptions are."""
    fed = FedRows(frame_id, dict(enumerate(one.event for one in complete)), [one.number for one in complete])
    if not complete:
        return fed
    places = [_place(registry, number) for number in fed.numbers]
    queues = {place: queue for queue, place in enumerate(dict.fromkeys(places))}
    alone = {
        queue
        for queue, place in enumerate(queues)
        if any(
            int(registry.address[number]) in registry.unordered
            for number, own in zip(fed.numbers, places, strict=True)
            if own == place
        )
    }
    rows = group(
        np.arange(len(complete), dtype=np.int64),
        np.array(fed.numbers, dtype=np.int32),
        np.array([queues[place] for place in places], dtype=np.int32),
        np.array([len(one.event.body) for one in complete], dtype=np.int64),
        alone,
    )
    named = list(queues)
    made = [(named[queue], row) for queue, row in rows]
    fed.written = outbox.write(db, frame_id, list(fed.events.items()), made, registry.limits)
    fed.addresses = tuple(
        dict.fromkeys(
            place.address for place in queues if place.address is not None and place.subscription is not None
        )
    )
    return fed


def _place(registry: SubscriptionRegistry, number: int) -> Place:
    subscription = registry.versions[number].id
    if subscription in registry.paused:
        return outbox.kept(subscription, "buffered", "live")
    if any(one in registry.replaying for one in registry.numbers[subscription]):
        return outbox.kept(subscription, "waiting", "live")
    return outbox.at(registry.addresses[int(registry.address[number])])


@dataclass(slots=True)
class FeedSettled(Job[int]):
    """Feeds settled candidates; its result is the number of complete sequences."""

    fresh = True

    registry: SubscriptionRegistry
    #: an unused frame id
    frame_id: int
    on_fed: Callable[[FedRows], None]
    _feed: Feed | None = field(default=None, init=False)
    _fed: FedRows | None = field(default=None, init=False)

    def work(self, db: Connection) -> int:
        now = int(clock.estimate() * 1e6)
        self._feed = feed = Feed(self.registry, now)
        for number in self.registry.delayed:
            live = self.registry.sequences[number]
            if live.awaiting and not self.registry.is_arriving(number):
                # The dispatcher that would have handed its half matches over is gone.
                feed.arrive(number, live.position, awaiting=False)
            elif live.awaiting or not live.waiting:
                continue
            due = [one for one in live.waiting.values() if one.candidate.stamp + live.sequence.settle <= now]
            for one in sorted(due, key=lambda one: (one.candidate.stamp, one.serial)):
                feed.feed_stored(number, one)
        feed.write(db)
        self._fed = write_complete(db, self.registry, self.frame_id, feed.complete)
        return len(feed.complete)

    def done(self, result: int) -> None:
        assert self._feed is not None
        assert self._fed is not None
        self._feed.apply()
        if result:
            self.registry.counters.matched(np.array(self._fed.numbers, dtype=np.int64))
            self.on_fed(self._fed)


@owned("loop")
@dataclass(slots=True)
class Settling:
    """Looks for settled candidates regularly."""

    store: Store
    registry: SubscriptionRegistry
    take_frame_id: Callable[[], int]
    on_fed: Callable[[FedRows], None]

    async def run(self) -> None:
        while True:
            await asyncio.sleep(INTERVAL)
            if not self._is_due():
                continue
            try:
                job = FeedSettled(self.registry, self.take_frame_id(), self.on_fed)
                await self.store.committed(job)
            except (*StoreError, Unavailable) as error:
                logger.warning("settling_failed", reason=str(error))

    def _is_due(self) -> bool:
        """Returns whether a candidate may be due; reads the registry of another thread, which may be late."""
        now = int(clock.estimate() * 1e6)
        for number in list(self.registry.delayed):
            live = self.registry.sequences.get(number)
            if live is None:
                continue
            if live.awaiting:
                if number not in self.registry.replaying:
                    return True
                continue
            waiting = list(live.waiting.values())
            if any(one.candidate.stamp + live.sequence.settle <= now for one in waiting):
                return True
        return False
