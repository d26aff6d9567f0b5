"""Applies a page of a replay: retained events for one new subscription, apart from the cursor of the log.

Each page starts at the position that was committed with the rows of the page before it. A page that starts
elsewhere is a repetition or too early, and changes nothing. The last page releases the live notifications
that waited (see `outbox.buffered`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from edn import protocol
from edn.errors import CorruptMessage
from edn.formats.ndjson import cut, ends_of
from edn_server.ingest.apply_frame import Applied
from edn_server.ingest.undecided import Budget
from edn_server.outbox import buffered
from edn_server.outbox.rows import group
from edn_server.storage import outbox, replays, versions
from edn_server.storage.interface import Connection
from edn_server.storage.payloads import Event
from edn_server.storage.replays import Source
from edn_server.storage.usage import Drops
from edn_server.storage.writer import Job
from edn_server.subscriptions.registry import LogState, SubscriptionRegistry
from edn_server.subscriptions.topic_index import Int64s

#: called in the writer's thread after a commit, with the result and the payloads by place
OnApplied = Callable[[Applied, dict[int, Event]], None]


@dataclass(slots=True)
class ApplyReplay(Job[protocol.ReplayAck]):
    fresh = True

    registry: SubscriptionRegistry
    #: an unused frame id
    frame_id: int
    page: protocol.ReplayPage
    on_applied: OnApplied
    _number: int | None = field(default=None, init=False)
    _over: bool = field(default=False, init=False)
    _events: dict[int, Event] = field(default_factory=dict, init=False)
    _addresses: list[str] = field(default_factory=list, init=False)
    _entries: int = field(default=0, init=False)
    #: undecided events of the page
    _doubts: int = field(default=0, init=False)
    _drops: Drops = field(default_factory=Drops, init=False)

    @property
    def _source(self) -> Source:
        return Source("log", self.page.log)

    def work(self, db: Connection) -> protocol.ReplayAck:
        page, registry = self.page, self.registry
        if not 0 <= page.after <= page.upto:
            raise CorruptMessage(f"offsets of a page must rise, got ({page.after}, {page.upto}]")
        number = registry.find(page.subscription, page.version)
        if number is None or self._source not in registry.replaying.get(number, ()):
            return protocol.ReplayAck(page.upto, done=True)
        source = self._source
        position = replays.position(db, number, source)
        if page.after != position:
            return protocol.ReplayAck(position, done=False)
        self._number = number
        self._write_rows(db, number)
        if page.final:
            replays.finish(db, number, source)
            self._finish(db, number, registry.logs[page.log])
        else:
            replays.advance(db, number, source, page.upto)
        return protocol.ReplayAck(page.upto, done=page.final)

    def done(self, result: protocol.ReplayAck) -> None:
        registry, number = self.registry, self._number
        if number is None:
            return
        if result.done:
            subscription = registry.versions[number].id
            registry.finish_history(number, self._source)
            registry.mark_held([subscription])
            if self._over:
                registry.remove([number])
        matched = np.full(max(0, len(self._events) - self._doubts), number, dtype=np.int32)
        registry.counters.matched(matched)
        applied = Applied(
            protocol.FrameAck(0, 0),
            addresses=tuple(dict.fromkeys(self._addresses)),
            frame_id=self.frame_id,
            entries=self._entries,
            doubtful=self._doubts > 0,
            drops=self._drops,
        )
        self.on_applied(applied, self._events)

    # -- steps ------------------------------------------------------------------------------------------

    def _write_rows(self, db: Connection, number: int) -> None:
        registry, segment = self.registry, self.page.segment
        if segment is None:
            return
        places, sizes = self._match(segment, number)
        subscription = registry.versions[number].id
        speaker = buffered.speaker(registry, subscription)
        if self.page.log in registry.paused.get(subscription, ()):
            queue = outbox.kept(subscription, "buffered", "history")
        else:
            address = registry.addresses[registry.address[speaker]]
            queue = outbox.at(address)
            self._addresses.append(address)
        numbers = np.full(len(places), speaker, dtype=np.int32)
        queues = np.zeros(len(places), dtype=np.int32)
        alone = {0} if registry.is_unordered(subscription) else ()
        rows = [row for _, row in group(places, numbers, queues, sizes, alone)]
        if self._doubts:
            rows = [row._replace(doubt=number + 1) for row in rows]
        events = list(self._events.items())
        self._drops = outbox.write(
            db, self.frame_id, events, [(queue, row) for row in rows], registry.limits
        ).drops
        self._entries += sum(row.events for row in rows) - self._drops.total

    def _match(self, segment: protocol.Segment, number: int) -> tuple[Int64s, Int64s]:
        """Returns the places of matching or undecided events, and the sizes of all events."""
        version = self.registry.versions[number]
        if segment.topic != version.topic:
            raise CorruptMessage(f"topic of a page must be {version.topic}, got {segment.topic}")
        topic = self.registry.topics[segment.topic]
        ends, stamps = ends_of(segment.lines), protocol.int64_array(segment.stamps)
        offsets = protocol.int64_array(segment.offsets)
        same = len(ends) == len(stamps) == len(offsets) == len(segment.times) // 8
        if not same or not {len(segment.ids), len(segment.traces)} <= {0, len(ends)}:
            raise CorruptMessage("columns of a page must have equal lengths")
        schema, bound = topic.schema(version.width), self.registry.bound(number)
        sizes = np.diff(ends, prepend=0)
        points = protocol.points_array(segment.points, segment.width)
        if len(points) != len(ends):
            raise CorruptMessage("columns of a page must have equal lengths")
        matched = []
        budget, began = Budget(), time.perf_counter()
        left = budget.left(topic.tenant)
        for place in range(len(ends)):
            body = cut(segment.lines, ends, place)
            spent = time.perf_counter() - began
            # Beyond the budget, matches stay undecided until later (see `undecided`).
            self._doubts += self._doubts > 0 or spent + bound.cost.seconds(len(body)) > left
            if self._doubts or bound.matches(schema.values(body, points[place].tolist())):
                name = (
                    segment.ids[place]
                    if segment.ids
                    else protocol.generated_id(self.page.log, int(offsets[place]))
                )
                trace = segment.traces[place] if segment.traces else ""
                self._events[place] = Event(segment.topic, name, int(stamps[place]), body, trace)
                matched.append(place)
        return np.array(matched, dtype=np.int64), sizes

    def _finish(self, db: Connection, number: int, log: LogState) -> None:
        """Releases live notifications, and ends a version that the log ended meanwhile."""
        registry = self.registry
        subscription = registry.versions[number].id
        others = registry.replaying.get(number, set()) - {self._source}
        if not others:
            self._addresses += buffered.release(db, registry, subscription, finished=[number])
        if not others and len(registry.find_ended(np.array([number], dtype=np.int64), log)):
            self._over = True
            versions.end(db, [number], outbox.last_row(db))
