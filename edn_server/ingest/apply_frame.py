"""A frame of the dispatcher's log becomes notifications: one kernel call a topic, one transaction a frame.

    repeats are dropped          offsets up to the cursor
    controls apply               in the columns (see `control_records`)
    points → entries             one call of the topic's matcher
    entries → matches            inside (since, until], before the expiry; the exact predicate where a
                                 rectangle is only a cover; once an (event, subscription)
    matches → rows               grouped by address (see `outbox.rows`)
    commit                       payloads, rows, cursor and intervals together; then memory; then the answer

A log that was never seen begins at the join record: its first frame has it at `after + 1`. Any other first
frame is read as one of a log whose cursor is 0.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from edn import protocol
from edn.errors import CorruptMessage
from edn.formats.ndjson import cut, ends_of
from edn.formats.webhooks import newest
from edn.model.coordinates import Key
from edn.protocol import made_id
from edn_server.ingest import dedup
from edn_server.ingest import subscription_end as ending
from edn_server.ingest.control_records import ControlRecords
from edn_server.ingest.undecided import Budget, affordable
from edn_server.outbox.rows import group
from edn_server.storage import logs, outbox, versions
from edn_server.storage.interface import Connection
from edn_server.storage.outbox import Event, Row
from edn_server.storage.usage import Drops
from edn_server.storage.writer import Job
from edn_server.subscriptions.registry import LogState, SubscriptionRegistry
from edn_server.subscriptions.topic_index import Flags, Int32s, Int64s, Matrix, Topic


@dataclass(frozen=True, slots=True)
class Matches:
    """Matches of a frame: events by place, and the matched versions."""

    #: by place
    offsets: Int64s
    #: of each match, in the order of places
    places: Int64s
    numbers: Int32s

    @property
    def nbytes(self) -> int:
        return int(self.offsets.nbytes + self.places.nbytes + self.numbers.nbytes)


@dataclass(frozen=True, slots=True)
class Applied:
    ack: protocol.FrameAck
    #: the frame begins beyond the cursor, and nothing was done
    gap: bool = False
    #: rows that may be delivered now
    rows: Sequence[Row] = ()
    #: addresses with further new rows, to be read from the outbox
    addresses: tuple[str, ...] = ()
    batch: int = 0
    #: entries added to the outbox, one an event and row
    entries: int = 0
    #: what went at a tenant's limit; already taken off `entries`
    drops: Drops = field(default_factory=Drops)
    #: what came, and of which log, for whoever follows an event
    matches: Matches | None = None
    log: str = ""
    #: some rows are in doubt (see `undecided`)
    doubtful: bool = False


@dataclass(frozen=True, slots=True)
class _Columns:
    """A segment's arrays, without its repeats; `first` is the place of its first row in the segment."""

    offsets: Int64s
    times: Int64s
    points: Matrix
    first: int
    #: where each line of the whole segment ends
    ends: Int64s


class ApplyFrame(Job[Applied]):
    fresh = True

    def __init__(
        self,
        registry: SubscriptionRegistry,
        epoch: int,
        batch: int,
        frame: protocol.Frame,
        on_applied: Callable[[Applied, dict[int, Event]], None],
    ) -> None:
        """`batch` is this frame's alone; `on_applied` hears, in the writer's thread, what is committed."""
        self._registry = registry
        self._epoch = epoch
        self._batch = batch
        self._frame = frame
        self._on_applied = on_applied
        self._written = False
        self._over: list[int] = []
        self._events: dict[int, Event] = {}
        #: log time of those whose id another log may bring, too
        self._chosen: dict[int, int] = {}
        #: offsets of the events that came, by topic, and the version of each match
        self._came: dict[int, list[Int64s]] = {}
        self._numbers: Int32s = np.empty(0, dtype=np.int32)
        self._budget = Budget()

    def work(self, db: Connection) -> Applied:
        frame, registry = self._frame, self._registry
        self._log = registry.logs.get(frame.log) or LogState(frame.log, 0, registry.expires)
        self._controls = ControlRecords(registry, self._log)
        if not 0 <= frame.after <= frame.upto:
            raise CorruptMessage(f"a frame of the offsets ({frame.after}, {frame.upto}]")
        cursor = self._cursor()
        if frame.after > cursor:
            return Applied(self._ack(cursor), gap=True)
        if frame.upto <= cursor:
            return Applied(self._ack(cursor))
        for control in sorted(frame.controls, key=lambda control: control.offset):
            if not frame.after < control.offset <= frame.upto:
                raise CorruptMessage(f"a control at {control.offset} outside ({frame.after}, {frame.upto}]")
            if control.offset > cursor:
                self._controls.apply(control)
        places, numbers, doubts, sizes, offsets = self._match(cursor)
        holds = self._controls.holds
        queues, wanted, kept = holds.sort(numbers, offsets[places])
        if self._chosen:
            wanted &= dedup.fresh(db, registry, self._events, self._chosen, places, numbers)
        # One match in doubt makes all rows of the frame at its address so: their order stays. What they match
        # is counted when they are decided.
        doubtful = np.unique(queues[doubts & wanted])
        self._numbers = numbers[~np.isin(queues, doubtful)] if len(doubtful) else numbers
        matched = len(self._numbers)
        if not wanted.all():
            places, numbers, queues = places[wanted], numbers[wanted], queues[wanted]
            told = set(places.tolist())
            self._events = {place: event for place, event in self._events.items() if place in told}
        late = frozenset(doubtful.tolist())
        known = len(registry.addresses)
        rows = [
            (
                kept[queue - known] if queue >= known else outbox.at(registry.addresses[queue]),
                row._replace(doubt=outbox.OWN) if queue in late else row,
            )
            for queue, row in group(places, numbers, queues, sizes)
        ]
        holds.write(db)
        written = outbox.write(db, self._batch, list(self._events.items()), rows, registry.limits)
        drops = written.drops
        farewells = ending.write(db, registry, self._controls.cancelled)
        self._controls.write(db)
        self._advance(db)
        self._end(db)
        self._written = True
        others = [
            place.address
            for place, row in rows
            if place.address is not None and (row.doubt or place.subscription is not None)
        ]
        return Applied(
            self._ack(frame.upto, matched=matched, useful=len(self._events)),
            rows=written.ready,
            addresses=tuple(dict.fromkeys([*holds.released, *others, *farewells])),
            batch=self._batch,
            entries=sum(row.events for _, row in rows) - holds.purged + len(farewells) - drops.total,
            drops=drops,
            matches=Matches(offsets, places, numbers),
            log=frame.log,
            doubtful=bool(late),
        )

    def done(self, result: Applied) -> None:
        if not self._written:
            return
        log, registry = self._log, self._registry
        log.cursor = result.ack.cursor
        log.joined = self._controls.joined
        log.incarnation = max(log.incarnation, self._frame.incarnation)
        registry.logs[log.name] = log
        newest(registry.rings, self._controls.rings)
        registry.moved.update(self._controls.moved)
        registry.discard(log.name, self._controls.unknown)
        registry.migrated.update(
            registry.versions[number].id for number in self._controls.moved if number in registry.versions
        )
        self._controls.holds.settle()
        self._count()
        registry.remove(self._over)
        self._on_applied(result, self._events)

    def undo(self) -> None:
        self._controls.undo()

    def _count(self) -> None:
        """For whoever asks what was evaluated and matched; memory only (see `subscriptions.counters`)."""
        counters, versions = self._registry.counters, self._registry.versions
        for topic, offsets in self._came.items():
            counters.count_events(topic, sum(map(len, offsets)))
        for number, offset in self._controls.begun:
            topic = versions[number].topic
            later = sum(int(np.count_nonzero(own > offset)) for own in self._came.get(topic, ()))
            counters.activate(number, topic, later)
        counters.matched(self._numbers)

    # -- steps ------------------------------------------------------------------------------------------

    def _cursor(self) -> int:
        if self._log.cursor is not None:
            return self._log.cursor
        start = self._frame.after
        joins = any(c.kind == "join" and c.offset == start + 1 for c in self._frame.controls)
        return start if joins else 0

    def _advance(self, db: Connection) -> None:
        frame = self._frame
        logs.advance(db, frame.log, frame.incarnation, frame.upto, self._controls.joined)

    def _ack(self, cursor: int, matched: int = 0, useful: int = 0) -> protocol.FrameAck:
        return protocol.FrameAck(
            epoch=self._epoch,
            cursor=cursor,
            shrinkable=self._registry.shrinkable + self._entries_over(),
            matched=matched,
            useful=useful,
        )

    def _entries_over(self) -> int:
        return sum(len(self._registry.versions[number].entries) for number in self._over)

    def _end(self, db: Connection) -> None:
        """Versions that no live log matches any more are over; rows up to the newest may still name them."""
        holds = self._controls.holds
        # What was to come from another server, and never will: its store was for nothing.
        awaited = self._controls.ended & self._registry.replaying.keys()
        holds.cancel(db, [number for number in awaited if not self._registry.is_activated(number, self._log)])
        # One whose past is still coming ends with the last page of it.
        coming = {*self._registry.replaying, *holds.begun} - {*holds.cancelled}
        ended = np.array(sorted(self._controls.ended - coming), dtype=np.int64)
        self._over = self._registry.find_ended(ended, self._log).tolist()
        if self._over:
            versions.end(db, self._over, outbox.last_row(db))

    def _match(self, cursor: int) -> tuple[Int64s, Int32s, Flags, Int64s, Int64s]:
        """(place, number) of every match in the order of places, and whether it is in doubt; sizes of bodies
        and offsets by place.
        """
        frame, registry = self._frame, self._registry
        segments = [(segment, self._columns(segment, cursor)) for segment in frame.segments]
        offsets = np.concatenate([np.empty(0, dtype=np.int64), *(columns.offsets for _, columns in segments)])
        # Segments are in the order of offsets each; an address hears of all topics in that order together.
        rank = np.empty(len(offsets), dtype=np.int64)
        order = np.argsort(offsets, kind="stable")
        rank[order] = np.arange(len(offsets))
        offsets = offsets[order]
        sizes = np.zeros(len(offsets), dtype=np.int64)
        all_places, all_numbers = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int32)]
        all_doubts = [np.empty(0, dtype=np.bool_)]
        at = 0
        for segment, columns in segments:
            own = rank[at : at + len(columns.offsets)]
            at += len(own)
            topic = registry.topics.get(segment.topic)
            if topic is None or not len(own):
                continue
            self._came.setdefault(segment.topic, []).append(columns.offsets)
            events, numbers, doubts = self._matches(topic, segment, columns)
            stamps = protocol.int64_array(segment.stamps)
            for row in np.flatnonzero(np.bincount(events, minlength=len(own))).tolist():
                index, place = columns.first + row, int(own[row])
                body = cut(segment.lines, columns.ends, index)
                name = segment.ids[index] if segment.ids else made_id(frame.log, int(columns.offsets[row]))
                trace = segment.traces[index] if segment.traces else ""
                self._events[place] = Event(segment.topic, name, int(stamps[index]), body, trace)
                sizes[place] = len(body)
                if registry.multi_dispatcher and name != made_id(frame.log, int(columns.offsets[row])):
                    self._chosen[place] = int(columns.times[row])
            all_places.append(own[events])
            all_numbers.append(numbers)
            all_doubts.append(doubts)
        places, numbers = np.concatenate(all_places), np.concatenate(all_numbers)
        doubts = np.concatenate(all_doubts)
        if len(segments) > 1:
            order = np.argsort(places, kind="stable")
            places, numbers, doubts = places[order], numbers[order], doubts[order]
        return places, numbers, doubts, sizes, offsets

    def _columns(self, segment: protocol.Segment, cursor: int) -> _Columns:
        offsets, times = protocol.int64_array(segment.offsets), protocol.int64_array(segment.times)
        count = len(offsets)
        # A row without columns has no bytes that could be counted.
        points = (
            protocol.points_array(segment.points, segment.width) if segment.width else np.empty((count, 0))
        )
        ends = ends_of(segment.lines)
        same = len(times) == len(ends) == count == len(segment.stamps) // 8
        same = same and len(segment.ids) in (0, count) and len(segment.traces) in (0, count)
        if not same or len(points) != count:
            raise CorruptMessage("the columns of a segment differ in length")
        if count and (np.any(np.diff(offsets) <= 0) or offsets[0] <= self._frame.after):
            raise CorruptMessage("the offsets of a segment do not rise inside their frame")
        if count and offsets[-1] > self._frame.upto:
            raise CorruptMessage("a segment's offsets go beyond their frame")
        first = int(np.searchsorted(offsets, cursor, "right"))
        return _Columns(offsets[first:], times[first:], points[first:], first, ends)

    def _matches(
        self, topic: Topic, segment: protocol.Segment, columns: _Columns
    ) -> tuple[Int64s, Int32s, Flags]:
        """(row of the segment, number) for each match, in the order of rows, and whether it is in doubt."""
        count = len(columns.offsets)
        starts, entries = topic.match(columns.points, count)
        events = np.repeat(np.arange(count), np.diff(starts))
        numbers = topic.number[entries]
        offsets = columns.offsets[events]
        kept = (self._log.since[numbers] < offsets) & (offsets <= self._log.until[numbers])
        kept &= columns.times[events] < self._log.expires[numbers]
        covers = np.flatnonzero(kept & ~topic.exact[entries])
        doubts = np.zeros(len(events), dtype=np.bool_)
        if len(covers):
            doubts[self._decide(topic, segment, columns, events, numbers, covers, kept)] = True
        several = np.flatnonzero(kept & topic.multi_rect[entries])
        if len(several):
            pairs = events[several] * np.int64(len(self._registry.address)) + numbers[several]
            _, once = np.unique(pairs, return_index=True)
            kept[several] = False
            kept[several[once]] = True
        return events[kept], numbers[kept], doubts[kept]

    def _decide(
        self,
        topic: Topic,
        segment: protocol.Segment,
        columns: _Columns,
        events: Int64s,
        numbers: Int32s,
        covers: Int64s,
        kept: Flags,
    ) -> Int64s:
        """Ask the exact predicate where a rectangle only covers; an event is decoded at most once.

        Returns those of `covers` for which the budget did not last: they stay kept, in doubt.
        """
        registry, budget = self._registry, self._budget
        decoded: dict[tuple[int, int], dict[str, Key]] = {}
        decided: dict[tuple[int, int], bool] = {}
        began = time.perf_counter()
        left = budget.left(topic.tenant)
        done = len(covers)
        for at, index in enumerate(covers.tolist()):
            event, number = int(events[index]), int(numbers[index])
            answer = decided.get((event, number))
            if answer is None:
                line = columns.first + event
                size = int(columns.ends[line] - (columns.ends[line - 1] if line else 0))
                spent = time.perf_counter() - began
                if not affordable(registry, number, size, left - spent):
                    done = at
                    break
                width = registry.versions[number].width
                values = decoded.get((event, width))
                if values is None:
                    body = cut(segment.lines, columns.ends, line)
                    values = topic.schema(width).values(body)
                    decoded[event, width] = values
                answer = decided[event, number] = registry.bound(number).matches(values)
            kept[index] = answer
        budget.spend(topic.tenant, time.perf_counter() - began)
        return covers[done:]
