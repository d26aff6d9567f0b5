"""Subscriptions that come from another server: they wait here until that one has delivered its own rows.

Such a subscription is stored like any other, but awaited: until the dispatcher says that nothing is left on
the old server, all matches are buffered, as behind a replay (`outbox.buffered`). Rows that the old server
buffered while the subscription was paused come as such a replay. Events of another log that the old server
delivered already are removed from the buffer. Every call may be repeated, and then changes nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from edn import protocol
from edn.errors import CorruptMessage
from edn_server.ingest import dedup
from edn_server.ingest.apply_frame import Applied
from edn_server.outbox import buffered
from edn_server.outbox.rows import group
from edn_server.storage import addresses, outbox, replays, versions
from edn_server.storage.interface import Connection
from edn_server.storage.outbox import Event
from edn_server.storage.usage import Drops
from edn_server.storage.writer import Job
from edn_server.subscriptions.registry import SubscriptionRegistry

OnApplied = Callable[[Applied, dict[int, Event]], None]


def _find(registry: SubscriptionRegistry, id: str, version: int) -> int | None:
    """The number of an awaited version."""
    for number in registry.numbers.get(id, ()):
        if registry.versions[number].version == version:
            return number if registry.arriving(number) else None
    return None


def _applied(addresses: list[str], batch: int = 0, entries: int = 0) -> Applied:
    return Applied(
        protocol.FrameAck(0, 0), addresses=tuple(dict.fromkeys(addresses)), batch=batch, entries=entries
    )


class TakeKept(Job[protocol.Accepted]):
    """What was kept for it on the server that it comes from: it goes out first, when anything does.

    Whether it is still kept here depends on what happened to the subscription since it came
    (`outbox.buffered`).
    """

    fresh = True

    def __init__(
        self, registry: SubscriptionRegistry, batch: int, page: protocol.BufferedPage, on_applied: OnApplied
    ) -> None:
        """`batch` is this page's alone."""
        self._registry = registry
        self._batch = batch
        self._page = page
        self._on_applied = on_applied
        self._entries = 0
        self._drops = Drops()

    def work(self, db: Connection) -> protocol.Accepted:
        page, registry = self._page, self._registry
        if not 0 <= page.after <= page.upto:
            raise CorruptMessage(f"rows of a page must rise, got ({page.after}, {page.upto}]")
        awaited = _find(registry, page.subscription, page.version)
        if awaited is None:
            return protocol.Accepted(unknown=True)
        position, fate = replays.arrival(db, awaited)
        if page.after != position:
            return protocol.Accepted(position)
        events = [Event(one.topic, one.id, one.stamp, one.body, one.trace) for one in page.events]
        if events and fate != replays.UNWANTED:
            # The subscription may have been changed since it moved: its newest version sends the rows, while
            # the position of the hand-over stays with the version that is awaited.
            speaker = buffered.speaker(registry, page.subscription)
            places = np.arange(len(events), dtype=np.int64)
            senders = np.full(len(events), speaker, dtype=np.int32)
            sizes = np.array([len(event.body) for event in events], dtype=np.int64)
            rows = group(places, senders, np.zeros(len(events), dtype=np.int32), sizes)
            # That it is paused may not have been read here yet; but rows of a stream need no pause.
            stream = addresses.streaming(registry.addresses[registry.address[speaker]]) is not None
            kept = fate == replays.AS_BEFORE and (not stream or page.subscription in registry.paused)
            queue = outbox.kept(page.subscription, "buffered" if kept else "waiting", "history")
            named = [(queue, row) for _, row in rows]
            self._drops = outbox.write(db, self._batch, list(enumerate(events)), named, registry.limits).drops
            self._entries = len(events) - self._drops.total
        replays.advance_arrival(db, awaited, page.upto)
        return protocol.Accepted(page.upto)

    def done(self, result: protocol.Accepted) -> None:
        self._on_applied(replace(_applied([], self._batch, self._entries), drops=self._drops), {})


class TakeTold(Job[int]):
    """Whom the other server told of events that another log may bring here; how many had come already."""

    fresh = True

    def __init__(
        self, registry: SubscriptionRegistry, page: protocol.DeliveredIds, on_applied: OnApplied
    ) -> None:
        self._registry = registry
        self._page = page
        self._on_applied = on_applied
        self._dropped = 0

    def work(self, db: Connection) -> int:
        repeated: dict[str, set[tuple[int, str]]] = defaultdict(set)
        known = self._page.subscriptions
        for topic, event, time, places in self._page.events:
            if not all(0 <= place < len(known) for place in places):
                raise CorruptMessage(f"places of subscriptions must be below {len(known)}, got {places}")
            names = [known[place] for place in places]
            for name in dedup.note(db, topic, event, time, names):
                repeated[name].add((topic, event))
        for name, events in repeated.items():
            if any(self._registry.arriving(number) for number in self._registry.numbers.get(name, ())):
                self._dropped += _take_out(db, name, events)
        return self._dropped

    def done(self, result: int) -> None:
        if result:
            self._on_applied(_applied([], entries=-result), {})


def _take_out(db: Connection, subscription: str, repeated: set[tuple[int, str]]) -> int:
    """Write what is held without these events; how many there were of them."""
    dropped = 0
    for row in outbox.live_rows(db, subscription):
        assert row.batch is not None
        events = outbox.read_events(db, row.batch, row.places)
        kept = [p for p in row.places if (events[p].topic, events[p].id) not in repeated]
        if len(kept) == len(row.places):
            continue
        dropped += len(row.places) - len(kept)
        if kept:
            numbers = row.numbers[: len(kept)]
            composition = outbox.compose(np.array(kept), np.ones(len(kept)), numbers)
            outbox.shorten(db, row.id, composition, len(kept))
        else:
            outbox.settle(db, [(row.id, row.batch)])
    return dropped


class Arrive(Job[protocol.Accepted]):
    """Nothing is left on the servers that these come from: what was found here goes out."""

    fresh = True

    def __init__(
        self, registry: SubscriptionRegistry, request: protocol.Arrivals, on_applied: OnApplied
    ) -> None:
        self._registry = registry
        self._request = request
        self._on_applied = on_applied
        self._arrived: list[int] = []
        self._over: list[int] = []
        self._addresses: list[str] = []

    def work(self, db: Connection) -> protocol.Accepted:
        registry = self._registry
        for id, version in dict.fromkeys(self._request.versions):
            number = _find(registry, id, version)
            if number is None:
                continue
            self._arrived.append(number)
            replays.finish_arrival(db, number)
            if self._others(number):
                continue
            self._addresses += buffered.release(db, registry, id, finished=[number])
            if len(registry.over(np.array([number], dtype=np.int64))):
                self._over.append(number)
                versions.end(db, [number], outbox.last_row(db))
        return protocol.Accepted()

    def _others(self, number: int) -> bool:
        """Whether a log is still to tell it a past of its own."""
        return any(source.kind == "log" for source in self._registry.replaying[number])

    def done(self, result: protocol.Accepted) -> None:
        registry = self._registry
        for number in self._arrived:
            waiting = {source for source in registry.replaying[number] if source.kind == "log"}
            if waiting:
                registry.replaying[number] = waiting
            else:
                del registry.replaying[number]
        registry.mark_held([registry.versions[number].id for number in self._arrived])
        registry.remove(self._over)
        self._on_applied(_applied(self._addresses), {})
