"""Reports subscriptions that no advertisement can match, and keeps the report incrementally.

A subscription is *dead* if the topic has advertisements and none of them overlaps its filter. "Dead" is
always right; a filter whose overlap depends on substrings may be reported as alive.

Theory of operation
-------------------
For each topic with advertisements, the report keeps the boxes of all filters in flat arrays
(`edn.summary.overlap`), and for each subscription a *witness*: an advertisement that overlaps it. When
advertisements change, only subscriptions whose witness has ended are compared with all advertisements, and
dead ones with the new advertisements. When subscriptions change, the store's pairs (serial, version) tell
which filters to read. Nothing hooks into the many ways in which a subscription ends, so other dispatchers'
changes are found as well.

Updates run in a thread, one at a time per topic.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import structlog

from dispatcher.advertisements.compiled import TopicFields
from dispatcher.advertisements.guard import BoundCache
from dispatcher.store import advertisement_rows, directory, topic_rows
from dispatcher.store.directory import Subscription
from dispatcher.store.event_log import Log
from dispatcher.store.interface import Connection
from edn.arrays import Bools, Ints
from edn.errors import EdnError
from edn.model.filter import Filter, boxes_of
from edn.model.schema import Schema
from edn.model.sequence import is_sequence
from edn.runtime.ownership import owned
from edn.summary.overlap import Footprints, Sides

logger = structlog.get_logger()

#: subscriptions that are read and compiled at once
CHUNK = 5_000
#: blocks per topic from which on they are merged
BLOCKS = 16
#: witness of a dead subscription
DEAD = -1


@dataclass(slots=True)
class _Block:
    """Some subscriptions."""

    serials: Ints
    versions: Ints
    filters: Footprints
    alive: Bools
    #: number of an advertisement, or `DEAD`
    witness: Ints

    def where(self, serials: Ints) -> Bools:
        """Mark the live subscriptions that are among sorted serials."""
        places = np.searchsorted(serials, self.serials)
        places[places == len(serials)] = 0
        among: Bools = self.alive & (serials[places] == self.serials if len(serials) else False)
        return among


@dataclass(slots=True)
class TopicReach:
    """The report of one topic. One thread at a time."""

    uid: int
    cache: BoundCache
    #: None before the first update
    fields: TopicFields | None = None
    #: number of each advertisement, by key and version; numbers are never reused
    numbers: dict[tuple[str, int], int] = field(default_factory=dict)
    blocks: list[_Block] = field(default_factory=list)
    #: (count, last serial, last version) of the subscriptions
    seen: tuple[int, int, int] = (0, 0, 0)
    #: how many filters were compared since the start
    compared: int = 0
    _next: int = 0

    def update(self, connection: Connection, now: int) -> bool:
        """Bring the report up to date; return whether the topic has advertisements."""
        fields = self._read_fields(connection, now)
        if fields is None or not len(fields):
            self.fields, self.numbers, self.blocks, self.seen = fields, {}, [], (0, 0, 0)
            return False
        self._change_fields(connection, fields)
        seen = directory.signature(connection, self.uid)
        if seen != self.seen:
            self.seen = seen
            self._change_subscriptions(connection, fields)
        return True

    def dead(self) -> Ints:
        """Return the serials of dead subscriptions, in order."""
        found = [block.serials[block.alive & (block.witness == DEAD)] for block in self.blocks]
        return np.sort(np.concatenate(found)) if found else np.empty(0, dtype=np.int64)

    def count(self) -> int:
        """Return the number of subscriptions."""
        return sum(int(np.count_nonzero(block.alive)) for block in self.blocks)

    def overlapping(self, key: str) -> int:
        """Count the subscriptions that may match an event of an advertisement; 0 if it has ended."""
        assert self.fields is not None
        for row, one in enumerate(self.fields.rows):
            if one.id == key:
                fields = self.fields
                return sum(fields.overlapping(row, block.filters, block.alive) for block in self.blocks)
        return 0

    # -- advertisements ---------------------------------------------------------------------------------

    def _read_fields(self, connection: Connection, now: int) -> TopicFields | None:
        known = self.fields
        state = topic_rows.state_of(connection, self.uid)
        current = known is not None and state is not None and known.revision == state.advertised
        if current and known is not None and now < known.until:
            return known
        return TopicFields.load(connection, self.uid, now, self.cache)

    def _change_fields(self, connection: Connection, fields: TopicFields) -> None:
        if fields is self.fields:
            return
        evolved = self.fields is not None and self.fields.schema != fields.schema
        former = {} if evolved else self.numbers
        numbers: dict[tuple[str, int], int] = {}
        added: list[int] = []
        for row, one in enumerate(fields.rows):
            number = former.get((one.id, one.version))
            if number is None:
                number, self._next = self._next, self._next + 1
                added.append(row)
            numbers[one.id, one.version] = number
        self.fields, self.numbers = fields, numbers
        kept = np.array(sorted(set(former.values()) & set(numbers.values())), dtype=np.int64)
        for block in self.blocks:
            dead = block.alive & (block.witness == DEAD)
            lost = block.alive & ~dead & ~np.isin(block.witness, kept)
            self._compare(connection, block, np.flatnonzero(lost), fields)
            if added:
                self._compare(connection, block, np.flatnonzero(dead), fields.only(added))

    def _compare(self, connection: Connection, block: _Block, places: Ints, fields: TopicFields) -> None:
        """Find witnesses for some subscriptions of a block."""
        if not len(places):
            return
        found = fields.witnesses(block.filters, places, _Filters(connection, block.serials[places].tolist()))
        numbers = np.array([self.numbers[row.id, row.version] for row in fields.rows], dtype=np.int64)
        block.witness[places] = np.where(found >= 0, numbers[np.maximum(found, 0)], DEAD)
        self.compared += len(places)

    # -- subscriptions ----------------------------------------------------------------------------------

    def _change_subscriptions(self, connection: Connection, fields: TopicFields) -> None:
        pairs = directory.versions_of_topic(connection, self.uid)
        serials = np.fromiter((pair[0] for pair in pairs), np.int64, len(pairs))
        versions = np.fromiter((pair[1] for pair in pairs), np.int64, len(pairs))
        fresh = np.ones(len(pairs), dtype=np.bool_)
        for block in self.blocks:
            there = block.where(serials)
            places = np.searchsorted(serials, block.serials[there])
            same = versions[places] == block.versions[there]
            fresh[places[same]] = False
            there[there] = same
            block.alive &= there
        self.blocks = [block for block in self.blocks if block.alive.any()]
        chosen = np.flatnonzero(fresh)
        for first in range(0, len(chosen), CHUNK):
            some = chosen[first : first + CHUNK]
            self._add(connection, serials[some], versions[some], fields)
        self._merge()

    def _add(self, connection: Connection, serials: Ints, versions: Ints, fields: TopicFields) -> None:
        """Add subscriptions, given in order of their serials, as a block."""
        present: list[int] = []

        def boxes() -> Iterator[Sequence[Sides]]:
            for serial, filter in directory.filters_of(connection, serials.tolist()):
                present.append(serial)
                yield _boxes(filter, fields.schema)

        filters = Footprints.of(boxes())
        places = np.searchsorted(serials, present)
        serials, versions = serials[places], versions[places]
        count = len(serials)
        block = _Block(
            serials, versions, filters, np.ones(count, dtype=np.bool_), np.full(count, DEAD, dtype=np.int64)
        )
        self._compare(connection, block, np.arange(count), fields)
        self.blocks.append(block)

    def _merge(self) -> None:
        """Merge blocks when there are many, or most of their subscriptions have ended."""
        total = sum(len(block.serials) for block in self.blocks)
        if len(self.blocks) <= BLOCKS and total <= 2 * self.count() + CHUNK:
            return
        order = [block for block in self.blocks if block.alive.any()]
        if not order:
            self.blocks = []
            return
        # Ended ones stay in the footprints of merged blocks, but not when half of all have ended.
        if total > 2 * self.count() + CHUNK:
            self.blocks, self.seen = [], (0, 0, 0)
            return  # read again by the next update: rare, and simpler than cutting arrays
        self.blocks = [
            _Block(
                np.concatenate([block.serials for block in order]),
                np.concatenate([block.versions for block in order]),
                Footprints.joined([block.filters for block in order]),
                np.concatenate([block.alive for block in order]),
                np.concatenate([block.witness for block in order]),
            )
        ]


class _Filters(Sequence[Filter]):
    """Filters by place, read from the store only if one is asked for."""

    def __init__(self, connection: Connection, serials: list[int]) -> None:
        self._connection = connection
        self._serials = serials

    def __len__(self) -> int:
        return len(self._serials)

    def __getitem__(self, place: int) -> Filter:  # type: ignore[override]  # no slices
        found = dict(directory.filters_of(self._connection, [self._serials[place]]))
        return _filter(found.get(self._serials[place]))


def _filter(stored: Any) -> Filter:
    """Return a stored filter; a sequence counts as everything, so that it is never dead."""
    return Filter(None) if is_sequence(stored) else Filter.parse(stored)


def _boxes(filter: Any, schema: Schema) -> Sequence[Sides]:
    try:
        return boxes_of(filter, schema)
    except EdnError:
        return [{}]  # it does not fit any more: never dead


@owned("loop")
class Reach:
    """The reports of all topics with advertisements."""

    def __init__(self, log: Log, cache: BoundCache) -> None:
        self._log = log
        self._cache = cache
        self._topics: dict[int, TopicReach] = {}
        self._locks: dict[int, asyncio.Lock] = defaultdict(asyncio.Lock)
        #: dead subscriptions per topic, as last reported
        self.dead: dict[int, int] = {}

    async def report(self, topic: int) -> TopicReach | None:
        """Return the current report of a topic; None if it has no advertisements."""
        async with self._locks[topic]:
            known = self._topics.setdefault(topic, TopicReach(topic, self._cache))
            has_any = await self._log.scanning(known.update, self._log.now())
            if has_any and known.seen == (0, 0, 0):
                has_any = await self._log.scanning(known.update, self._log.now())
            if not has_any:
                self._topics.pop(topic, None)
                self.dead.pop(topic, None)
                return None
            self.dead[topic] = len(known.dead())
            return known

    async def refresh(self) -> None:
        """Update the reports of all topics, for metrics and the dashboard."""
        found = await self._log.reading(advertisement_rows.advertised_topics, self._log.now())
        for topic in {*found, *self._topics}:
            await self.report(topic)

    async def overlapping(self, topic: int, key: str) -> int:
        """Count the subscriptions that may match events of an advertisement."""
        known = await self.report(topic)
        if known is None:
            return 0
        async with self._locks[topic]:
            return await asyncio.to_thread(known.overlapping, key)

    async def dead_serials(self, topics: Sequence[int]) -> Ints:
        """Return the serials of all dead subscriptions to some topics, in order."""
        found = [np.empty(0, dtype=np.int64)]
        for topic in topics:
            known = await self.report(topic)
            if known is not None:
                found.append(known.dead())
        return np.sort(np.concatenate(found))

    async def advertised_topics(self) -> list[int]:
        """Return the topics that have advertisements, of all tenants."""
        return await self._log.reading(advertisement_rows.advertised_topics, self._log.now())

    # -- single subscriptions ---------------------------------------------------------------------------

    async def advertised(self, rows: Sequence[Subscription]) -> list[bool | None]:
        """Return for each subscription whether an advertisement overlaps it; None: nothing is advertised.

        A subtree subscription is advertised if one of its members is, and unknown if one of them is.
        """
        topics = set(await self.advertised_topics())
        if not topics:
            return [None] * len(rows)
        return await self._log.scanning(self._decide, rows, topics, self._log.now())

    def _fields(self, connection: Connection, topic: int, now: int) -> TopicFields | None:
        """Return the compiled advertisements of a topic: those of its report, if they are current."""
        report = self._topics.get(topic)
        known = None if report is None else report.fields
        state = topic_rows.state_of(connection, topic)
        if (
            known is not None
            and state is not None
            and known.revision == state.advertised
            and now < known.until
        ):
            return known
        return TopicFields.load(connection, topic, now, self._cache)

    def _decide(
        self, connection: Connection, rows: Sequence[Subscription], topics: set[int], now: int
    ) -> list[bool | None]:
        known: dict[int, TopicFields | None] = {}

        def decide(row: Subscription) -> bool | None:
            if row.subtree is not None:
                members = [decide(member) for member in directory.members(connection, row.id)]
                return True if True in members else None if None in members or not members else False
            if row.topic not in topics:
                return None
            if row.topic not in known:
                known[row.topic] = self._fields(connection, row.topic, now)
            fields = known[row.topic]
            if fields is None or not len(fields):
                return None
            footprints = Footprints.of([_boxes(row.filter, fields.schema)])
            [witness] = fields.witnesses(footprints, np.zeros(1, dtype=np.int64), [_filter(row.filter)])
            return bool(witness >= 0)

        return [decide(row) for row in rows]
