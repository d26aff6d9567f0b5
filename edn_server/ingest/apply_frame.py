"""Applies a frame of a log: matches its events and writes outbox rows, in one transaction.

    drop repeats                 offsets up to the cursor
    apply control records        they change the intervals of versions (see `control_records`)
    points → rectangles          one call of the topic's matcher
    rectangles → matches         inside (since, until], before the expiry; the predicate where a rectangle is
                                 only a cover; one match per event and version
    matches of sequences         fed to their monitors (see `sequences.feed`); complete ones are matches again
    matches → rows               grouped by address (see `outbox.rows`)
    commit                       payloads, rows, cursor and intervals together; then memory; then the answer

An unknown log begins at the join record: its first frame has it at `after + 1`. Any other first frame belongs
to a log whose cursor is 0.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from edn import protocol
from edn.errors import CorruptMessage
from edn.formats.ndjson import cut, ends_of
from edn.formats.webhooks import keep_newest
from edn.model.coordinates import Value
from edn.model.sequence import Candidate
from edn.protocol import generated_id
from edn.runtime import clock, tracing
from edn_server.ingest import subscription_end as ending
from edn_server.ingest.control_records import ControlRecords
from edn_server.ingest.undecided import Budget, affordable
from edn_server.outbox.rows import group
from edn_server.sequences.feed import Feed
from edn_server.storage import logs, outbox, versions
from edn_server.storage.interface import Connection
from edn_server.storage.outbox import Place, Row
from edn_server.storage.payloads import Event
from edn_server.storage.sequences.rows import Arrived, Waiting
from edn_server.storage.usage import Drops
from edn_server.storage.writer import Job
from edn_server.subscriptions.registry import LogState, SubscriptionRegistry
from edn_server.subscriptions.sequences import NO_KEY
from edn_server.subscriptions.topic_index import Flags, Int32s, Int64s, Matrix, Topic


@dataclass(frozen=True, slots=True)
class Matches:
    """Matches of a frame."""

    #: offset of each event, by place
    offsets: Int64s
    #: place and version number of each match, in the order of places
    places: Int64s
    numbers: Int32s

    @property
    def nbytes(self) -> int:
        return int(self.offsets.nbytes + self.places.nbytes + self.numbers.nbytes)


@dataclass(frozen=True, slots=True)
class Applied:
    ack: protocol.FrameAck
    #: whether the frame begins beyond the cursor; then nothing was written
    gap: bool = False
    #: rows that may be delivered now
    rows: Sequence[Row] = ()
    #: addresses with further new rows, to be read from the outbox
    addresses: tuple[str, ...] = ()
    frame_id: int = 0
    #: notifications added to the outbox
    entries: int = 0
    #: notifications dropped at a tenant's limit; `entries` does not include them
    drops: Drops = field(default_factory=Drops)
    #: matches and log, for event traces
    matches: Matches | None = None
    log: str = ""
    #: whether rows are undecided (see `undecided`)
    doubtful: bool = False
    #: when the work began, nanoseconds since 1970; 0 while spans are off
    began: int = 0


@dataclass(frozen=True, slots=True)
class _Columns:
    """The arrays of a segment from its first new row, `first`."""

    offsets: Int64s
    times: Int64s
    points: Matrix
    first: int
    #: end of each line of the whole segment
    ends: Int64s


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Matches of steps: row in the segment, version number and role of each."""

    events: Int64s
    numbers: Int32s
    roles: Int32s

    def select(self, chosen: Int64s) -> _Pairs:
        return _Pairs(self.events[chosen], self.numbers[chosen], self.roles[chosen])

    def at(self, place: int) -> tuple[int, int, int]:
        return int(self.events[place]), int(self.numbers[place]), int(self.roles[place])


@dataclass(slots=True)
class _Candidates:
    """The candidates of sequences in one segment."""

    topic: Topic
    segment: protocol.Segment
    columns: _Columns
    pairs: _Pairs
    #: place in the frame of each pair's event
    places: Int64s = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    #: time of the log of each event of the segment
    times: list[int] = field(init=False)
    _values: dict[tuple[int, int], dict[str, Value]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.times = self.columns.times.tolist()

    def values(self, event: int, width: int) -> dict[str, Value]:
        """Decode an event, once per width."""
        found = self._values.get((event, width))
        if found is None:
            body = cut(self.segment.lines, self.columns.ends, self.columns.first + event)
            found = self.topic.schema(width).values(body, self.columns.points[event].tolist())
            self._values[event, width] = found
        return found


def _in_order(parts: Sequence[_Candidates]) -> Iterator[tuple[int, int, int, _Candidates, int]]:
    """Yield (place, number, roles, part, row) of each candidate and sequence, in the order of places."""
    places = np.concatenate([part.places for part in parts])
    numbers = np.concatenate([part.pairs.numbers for part in parts])
    rows = np.concatenate([part.pairs.events for part in parts])
    which = np.repeat(np.arange(len(parts)), [len(part.places) for part in parts])
    bits = np.int64(1) << np.concatenate([part.pairs.roles for part in parts]).astype(np.int64)
    order = np.lexsort((numbers, places))
    if not len(order):
        return
    places, numbers, rows, which, bits = (column[order] for column in (places, numbers, rows, which, bits))
    begins = np.flatnonzero(np.concatenate([[True], (np.diff(places) != 0) | (np.diff(numbers) != 0)]))
    roles = np.bitwise_or.reduceat(bits, begins)
    for place, number, mask, part, row in zip(
        places[begins].tolist(),
        numbers[begins].tolist(),
        roles.tolist(),
        which[begins].tolist(),
        rows[begins].tolist(),
        strict=True,
    ):
        yield place, number, mask, parts[part], row


class ApplyFrame(Job[Applied]):
    fresh = True

    def __init__(
        self,
        registry: SubscriptionRegistry,
        epoch: int,
        frame_id: int,
        frame: protocol.Frame,
        on_applied: Callable[[Applied, dict[int, Event]], None],
    ) -> None:
        """`frame_id` is unique; `on_applied` is called in the writer's thread after the commit."""
        self._registry = registry
        self._epoch = epoch
        self._frame_id = frame_id
        self._frame = frame
        self._on_applied = on_applied
        self._written = False
        self._over: list[int] = []
        self._events: dict[int, Event] = {}
        #: offsets of the events by topic, and the version of each match
        self._came: dict[int, list[Int64s]] = {}
        self._numbers: Int32s = np.empty(0, dtype=np.int32)
        self._budget = Budget()
        #: matches of sequences by segment; None without any
        self._candidates: list[_Candidates] = []
        self._feed: Feed | None = None

    def work(self, db: Connection) -> Applied:
        began = 0 if tracing.active is None else time.time_ns()
        frame, registry = self._frame, self._registry
        self._log = registry.logs.get(frame.log) or LogState(frame.log, 0, registry.expires)
        self._controls = ControlRecords(registry, self._log)
        if not 0 <= frame.after <= frame.upto:
            raise CorruptMessage(f"offsets of a frame must rise from 0, got ({frame.after}, {frame.upto}]")
        if frame.log in registry.ended_logs:
            return Applied(self._ack(frame.upto))  # a former owner sends what this server has read
        cursor = self._cursor()
        if frame.after > cursor:
            return Applied(self._ack(cursor), gap=True)
        if frame.upto <= cursor:
            return Applied(self._ack(cursor))
        for control in sorted(frame.controls, key=lambda control: control.offset):
            if not frame.after < control.offset <= frame.upto:
                raise CorruptMessage(
                    f"a control record must be in ({frame.after}, {frame.upto}], got offset {control.offset}"
                )
            if control.offset > cursor:
                self._controls.apply(control)
        places, numbers, doubts, sizes, offsets = self._match(cursor)
        useful = None
        if self._candidates:
            places, numbers, doubts, sizes, offsets, useful = self._follow(
                places, numbers, doubts, sizes, offsets
            )
        holds = self._controls.holds
        queues, wanted, kept = holds.sort(numbers, offsets[places])
        # One undecided match makes all rows of the frame at its address undecided, to keep their order. Their
        # matches are counted when they are decided.
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
            for queue, row in group(places, numbers, queues, sizes, self._alone(kept))
        ]
        holds.write(db)
        self._controls.retire_logs(db)
        written = outbox.write(db, self._frame_id, list(self._events.items()), rows, registry.limits)
        drops = written.drops
        farewells = ending.write(db, registry, self._controls.cancelled)
        self._controls.write(db)
        if self._feed is not None:
            self._feed.write(db)
        self._advance(db)
        self._end(db)
        self._written = True
        others = [
            place.address
            for place, row in rows
            if place.address is not None and (row.doubt or place.subscription is not None)
        ]
        return Applied(
            self._ack(frame.upto, matched=matched, useful=len(self._events) if useful is None else useful),
            rows=written.ready,
            addresses=tuple(dict.fromkeys([*holds.released, *others, *farewells])),
            frame_id=self._frame_id,
            entries=sum(row.events for _, row in rows) - holds.purged + len(farewells) - drops.total,
            drops=drops,
            matches=Matches(offsets, places, numbers),
            log=frame.log,
            doubtful=bool(late),
            began=began,
        )

    def _alone(self, kept: Sequence[Place]) -> set[int]:
        """Return the queues whose notifications are rows of their own."""
        registry = self._registry
        if not registry.unordered:
            return registry.unordered
        known = len(registry.addresses)
        held = {
            known + place for place, queue in enumerate(kept) if registry.is_unordered(queue.subscription)
        }
        return registry.unordered | held

    def done(self, result: Applied) -> None:
        if not self._written:
            return
        log, registry = self._log, self._registry
        log.cursor = result.ack.cursor
        log.joined = self._controls.joined
        log.incarnation = max(log.incarnation, self._frame.incarnation)
        registry.logs[log.name] = log
        keep_newest(registry.rings, self._controls.rings)
        registry.moved.update(self._controls.moved)
        registry.discard(log.name, self._controls.unknown)
        registry.migrated.update(
            registry.versions[number].id for number in self._controls.moved if number in registry.versions
        )
        self._controls.holds.apply()
        if self._feed is not None:
            self._feed.apply()
        self._count()
        registry.remove(self._over)
        self._controls.leave_logs()
        self._on_applied(result, self._events)

    def undo(self) -> None:
        self._controls.undo()

    def _count(self) -> None:
        """Count evaluated and matched events, in memory (see `subscriptions.counters`)."""
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
        """End versions that no live log matches any more; existing rows may still name them."""
        holds = self._controls.holds
        # A migrated version that ended before it began here: its hand-over will not come.
        awaited = self._controls.ended & self._registry.replaying.keys()
        holds.cancel(db, [number for number in awaited if not self._registry.is_activated(number, self._log)])
        # A version with a running replay ends with its last page.
        coming = {*self._registry.replaying, *holds.begun} - {*holds.cancelled}
        candidates = self._controls.ended
        if self._controls.retired:
            candidates = {*np.flatnonzero(self._registry.living).tolist()}
        ended = np.array(sorted(candidates - coming), dtype=np.int64)
        over = self._registry.find_ended(ended, self._log, left=self._controls.retired).tolist()
        self._over = sorted({*over, *self._controls.find_leftovers()})
        if self._over:
            versions.end(db, self._over, outbox.last_row(db))

    def _match(self, cursor: int) -> tuple[Int64s, Int32s, Flags, Int64s, Int64s]:
        """Return place, version number and undecidedness of each match; size and offset by place."""
        frame, registry = self._frame, self._registry
        segments = [(segment, self._columns(segment, cursor)) for segment in frame.segments]
        offsets = np.concatenate([np.empty(0, dtype=np.int64), *(columns.offsets for _, columns in segments)])
        # Each segment is in the order of offsets; an address receives the events of all topics in that order.
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
            needed = np.bincount(events, minlength=len(own))
            if topic.role is not None:
                needed[self._locate_candidates(own)] = 1
            for row in np.flatnonzero(needed).tolist():
                index, place = columns.first + row, int(own[row])
                body = cut(segment.lines, columns.ends, index)
                name = (
                    segment.ids[index] if segment.ids else generated_id(frame.log, int(columns.offsets[row]))
                )
                trace = segment.traces[index] if segment.traces else ""
                self._events[place] = Event(segment.topic, name, int(stamps[index]), body, trace)
                sizes[place] = len(body)
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
        # Without columns the number of rows does not follow from the bytes.
        points = (
            protocol.points_array(segment.points, segment.width) if segment.width else np.empty((count, 0))
        )
        ends = ends_of(segment.lines)
        same = len(times) == len(ends) == count == len(segment.stamps) // 8
        same = same and len(segment.ids) in (0, count) and len(segment.traces) in (0, count)
        if not same or len(points) != count:
            raise CorruptMessage("columns of a segment must have one length")
        if count and (np.any(np.diff(offsets) <= 0) or offsets[0] <= self._frame.after):
            raise CorruptMessage("offsets of a segment must rise inside their frame")
        if count and offsets[-1] > self._frame.upto:
            raise CorruptMessage("offsets of a segment must not exceed their frame")
        first = int(np.searchsorted(offsets, cursor, "right"))
        return _Columns(offsets[first:], times[first:], points[first:], first, ends)

    def _matches(
        self, topic: Topic, segment: protocol.Segment, columns: _Columns
    ) -> tuple[Int64s, Int32s, Flags]:
        """Return row in the segment and version number of each match, and whether it is undecided."""
        count = len(columns.offsets)
        starts, entries = topic.match(columns.points, count)
        events = np.repeat(np.arange(count), np.diff(starts))
        numbers = topic.number[entries]
        offsets = columns.offsets[events]
        kept = (self._log.since[numbers] < offsets) & (offsets <= self._log.until[numbers])
        kept &= columns.times[events] < self._log.expires[numbers]
        if topic.role is not None:
            self._set_apart(
                topic, segment, columns, _Pairs(events, numbers, topic.role[entries]), entries, kept
            )
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

    # -- sequences --------------------------------------------------------------------------------------

    def _set_apart(
        self,
        topic: Topic,
        segment: protocol.Segment,
        columns: _Columns,
        pairs: _Pairs,
        entries: Int64s,
        kept: Flags,
    ) -> None:
        """Take the matches of sequences out of `kept`, and remember those whose predicate holds."""
        found = np.flatnonzero(kept & (pairs.roles >= 0))
        kept[found] = False
        part = _Candidates(topic, segment, columns, pairs.select(found))
        exact = topic.exact[entries[found]]
        if not exact.all():
            holds = exact.copy()
            for at in np.flatnonzero(~exact).tolist():
                event, number, role = part.pairs.at(at)
                values = part.values(event, self._registry.sequences[number].widths[topic.uid])
                holds[at] = self._registry.bound_role(number, role).matches(values)
            part.pairs = part.pairs.select(np.flatnonzero(holds))
        self._candidates.append(part)

    def _locate_candidates(self, own: Int64s) -> Int64s:
        """Store the places of the segment's candidates; return their rows."""
        part = self._candidates[-1]
        part.places = own[part.pairs.events]
        return part.pairs.events

    def _follow(
        self, places: Int64s, numbers: Int32s, doubts: Flags, sizes: Int64s, offsets: Int64s
    ) -> tuple[Int64s, Int32s, Flags, Int64s, Int64s, int]:
        """Feed the candidates to their monitors; return the matches with the complete sequences among them.

        A complete sequence has a place of its own, right behind that of the completing event. The last
        result is the number of useful events.
        """
        useful = len(self._events)
        self._feed = Feed(self._registry, int(clock.estimate() * 1e6))
        for place, number, roles, part, event in _in_order(self._candidates):
            self._take(place, number, roles, part, event)
        complete = self._feed.complete
        told = set(places.tolist())
        self._events = {place: event for place, event in self._events.items() if place in told}
        if not complete:
            return places, numbers, doubts, sizes, offsets, useful
        ends = np.array([one.place for one in complete], dtype=np.int64)
        added = ends + np.arange(1, len(ends) + 1)
        moved = np.arange(len(offsets)) + np.searchsorted(ends, np.arange(len(offsets)), "left")
        self._events = {int(moved[place]): event for place, event in self._events.items()}
        self._events |= zip(added.tolist(), (one.event for one in complete), strict=True)
        total = len(offsets) + len(ends)
        all_sizes, all_offsets = np.zeros(total, dtype=np.int64), np.zeros(total, dtype=np.int64)
        all_sizes[moved], all_offsets[moved] = sizes, offsets
        all_sizes[added] = [len(one.event.body) for one in complete]
        all_offsets[added] = offsets[ends]
        places = np.concatenate([moved[places], added])
        order = np.argsort(places, kind="stable")
        numbers = np.concatenate([numbers, np.array([one.number for one in complete], dtype=np.int32)])
        doubts = np.concatenate([doubts, np.zeros(len(ends), dtype=np.bool_)])
        return places[order], numbers[order], doubts[order], all_sizes, all_offsets, useful

    def _take(self, place: int, number: int, roles: int, part: _Candidates, event: int) -> None:
        assert self._feed is not None
        live = self._registry.sequences[number]
        key = NO_KEY
        if live.sequence.by:
            found = live.key_of(part.values(event, live.widths[part.topic.uid]))
            if found is None:
                return
            key = found
        if self._feed.ignores(number, key, roles):
            return
        arrived = Arrived(self._feed.next_serial(), self._events[place])
        stamp = arrived.event.stamp
        origin = self._frame.log if stamp == part.times[event] else ""
        waiting = Waiting(arrived.serial, key, roles, Candidate(stamp, origin, arrived))
        self._feed.take(number, waiting, place)

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
        """Evaluate predicates where a rectangle is only a cover; an event is decoded at most once.

        Returns the rest of `covers` once the budget is spent: these matches are undecided.
        """
        registry, budget = self._registry, self._budget
        decoded: dict[tuple[int, int], dict[str, Value]] = {}
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
                    values = topic.schema(width).values(body, columns.points[event].tolist())
                    decoded[event, width] = values
                answer = decided[event, number] = registry.bound(number).matches(values)
            kept[index] = answer
        budget.spend(topic.tenant, time.perf_counter() - began)
        return covers[done:]
