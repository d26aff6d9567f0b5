"""Checks published events against the advertisements of their publisher.

Theory of operation
-------------------
A publisher's advertisements on a topic are compiled into one matcher, a `Coverage`. It is built on first use
and replaced as a whole. Each topic has a revision of its advertisements, which rises with every change. A
batch is checked on the event loop by one kernel call; the append's transaction compares the revision that
the check used with that of the topic's row, and checks again if they differ or an advertisement has expired.
So an event is accepted exactly if it was covered at the instant of its transaction, also if another
dispatcher changed the advertisements. `topic_rows.state_in` reads the revision and the topic's
`advertising` in the query that finds out whether the topic still exists: topics that enforce nothing pay for
nothing.

Rectangles that are only covers do not decide: inside them the exact predicate does, on the event's values.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from dispatcher.store import advertisement_rows, topic_rows
from dispatcher.store.advertisement_rows import Advertisement as Row
from dispatcher.store.event_log import Log
from dispatcher.store.interface import Connection, Transaction
from dispatcher.subscriptions.topics import Topic
from edn.arrays import Bools, Ints
from edn.errors import NotFound, Unadvertised
from edn.formats.strict_json import token
from edn.index import Matcher, new_matcher
from edn.model import namespace
from edn.model.event import EventBatch
from edn.model.filter.advertisement import Advertisement, BoundAdvertisement
from edn.model.rect import MISSING
from edn.model.schema import Schema
from edn.runtime.ownership import any_thread, owned
from edn.summary.overlap import Fields, contain

#: publishers whose compiled advertisements are kept
COVERAGES = 1_024
#: bound advertisements that are kept, of all publishers
BOUND = 20_000


class BoundCache:
    """Bound advertisements by key and version: binding takes longer than all the rest. Any thread."""

    def __init__(self, capacity: int = BOUND) -> None:
        self._capacity = capacity
        self._bound: dict[tuple[str, int], BoundAdvertisement] = {}

    def get(self, row: Row, schema: Schema) -> BoundAdvertisement:
        found = self._bound.get((row.id, row.version))
        if found is None or (found.schema is not schema and found.schema != schema):
            found = Advertisement.parse(row.advertisement).bind(schema)
            if len(self._bound) >= self._capacity:
                self._bound = {}
            self._bound[row.id, row.version] = found
        return found


@dataclass(frozen=True, slots=True)
class Lookup:
    """Finds advertisements by the value of one attribute that most of them compare with `==`.

    Long strings share coordinates, so an event may lie in the covers of all advertisements.
    """

    attribute: str
    column: int
    #: value → advertisements that cover it
    places: dict[Any, list[int]]
    #: advertisement → whether it is not in `places`
    others: Bools
    #: the advertisements, and whether their segments of all other columns are exact
    fields: Fields
    exact: Bools
    #: reads the attribute of stored events; None if only `Schema.values` does
    decoder: msgspec.json.Decoder[Any] | None

    @classmethod
    def of(cls, bound: Sequence[BoundAdvertisement], schema: Schema) -> Lookup | None:
        """Choose the attribute; None if no advertisement has one."""
        keyed = [one.literals for one in bound]
        counts = Counter(name for literals in keyed for name in literals)
        if not counts:
            return None
        name = counts.most_common(1)[0][0]
        column = schema.column_of(name)
        assert column is not None
        places: dict[Any, list[int]] = {}
        others = np.ones(len(bound), dtype=np.bool_)
        exact = np.zeros(len(bound), dtype=np.bool_)
        for place, literals in enumerate(keyed):
            if name in literals:
                others[place] = False
                for value in literals[name]:
                    places.setdefault(value, []).append(place)
            sides = [side for key, side in bound[place].sides.items() if key != column]
            exact[place] = all(segment.exact for side in sides for segment in side)
        fields = Fields.of([one.sides for one in bound], schema.width)
        return cls(name, column, places, others, fields, exact, _decoder(name, schema))

    def read(self, batch: EventBatch) -> list[str | None] | None:
        """Return the attribute of each event; None if each event must be read on its own."""
        if self.decoder is None:
            return None
        try:
            return [one.value for one in self.decoder.decode_lines(batch.lines)]
        except msgspec.MsgspecError:
            return None


def _decoder(name: str, schema: Schema) -> msgspec.json.Decoder[Any] | None:
    if schema.types[name] != "string" or "." in name:
        return None
    single = msgspec.defstruct("Single", [("value", str | None, None)], rename={"value": name})
    return msgspec.json.Decoder(single)


@dataclass(frozen=True, slots=True)
class Coverage:
    """A publisher's advertisements on a topic, at one revision."""

    schema: Schema
    revision: int
    #: network time at which the first of them expires
    until: float
    ids: list[str]
    bound: list[BoundAdvertisement]
    matcher: Matcher
    #: rectangle → advertisement, and whether it is exact
    owners: Ints
    exact: Bools
    lookup: Lookup | None

    @classmethod
    def load(cls, connection: Connection, uid: int, publisher: str, now: int, cache: BoundCache) -> Coverage:
        """Compile the advertisements that a connection sees; raises `NotFound` if the topic was deleted."""
        # First: what changes after it makes the revision too old, which is noticed, never too new.
        state = topic_rows.state_of(connection, uid)
        topic = topic_rows.find_by_uid(connection, uid)
        if topic is None or state is None:
            raise NotFound("the topic does not exist: it was just deleted")
        rows = advertisement_rows.of_publisher(connection, uid, publisher, now)
        return cls.compile(topic.schema, state.advertised, rows, cache)

    @classmethod
    def compile(cls, schema: Schema, revision: int, rows: list[Row], cache: BoundCache) -> Coverage:
        bound = [cache.get(row, schema) for row in rows]
        rects = [one.rects() for one in bound]
        matcher = new_matcher("bitmap", schema.width)
        owners = np.repeat(np.arange(len(rects)), [len(one) for one in rects])
        exact = np.empty(0, dtype=np.bool_)
        if len(owners):
            exact = np.concatenate([one.exact for one in rects])
            matcher.insert(
                np.arange(len(owners)),
                np.concatenate([one.lo for one in rects]),
                np.concatenate([one.hi for one in rects]),
            )
        until = min((row.expires for row in rows if row.expires is not None), default=math.inf)
        lookup = None if exact.all() else Lookup.of(bound, schema)
        return cls(schema, revision, until, [row.id for row in rows], bound, matcher, owners, exact, lookup)

    def check(self, batch: EventBatch) -> Bools:
        """Return which events of a batch are covered."""
        count = len(batch)
        covered = np.zeros(count, dtype=np.bool_)
        if not len(self.owners):
            return covered
        if self.lookup is not None and not self.lookup.others.any():
            return self._look_up(batch, self.lookup)
        starts, hits = self.matcher.match(batch.points)
        events = np.repeat(np.arange(count), np.diff(starts))
        sure = self.exact[hits]
        covered[events[sure]] = True
        if sure.all():
            return covered
        bodies = batch.bodies
        for event in np.unique(events[~sure & ~covered[events]]).tolist():
            values = self.schema.values(bodies[event], batch.points[event].tolist())
            covered[event] = self._decide(values, self.owners[hits[starts[event] : starts[event + 1]]])
        return covered

    def _look_up(self, batch: EventBatch, lookup: Lookup) -> Bools:
        """Check a batch where the value of one attribute leaves few advertisements."""
        covered = np.zeros(len(batch), dtype=np.bool_)
        bodies, points = batch.bodies, batch.points
        for event in self._look_up_together(batch, lookup, covered):
            values = self.schema.values(bodies[event], points[event].tolist())
            if lookup.attribute in values:
                places = lookup.places.get(values[lookup.attribute], ())
                covered[event] = any(self.bound[place].matches(values) for place in places)
            else:
                _, hits = self.matcher.match(points[event : event + 1])
                covered[event] = bool(self.exact[hits].any()) or self._decide(values, self.owners[hits])
        return covered

    def _look_up_together(self, batch: EventBatch, lookup: Lookup, covered: Bools) -> Sequence[int]:
        """Mark the events that coordinates decide; return those that a predicate must decide."""
        found = lookup.read(batch)
        if found is None:
            return range(len(batch))
        is_missing = batch.points[:, lookup.column] == MISSING
        events, rows = [], []
        for event, value in enumerate(found):
            for row in lookup.places.get(value, ()):
                events.append(event)
                rows.append(row)
        pairs, owners = np.array(events, dtype=np.int64), np.array(rows, dtype=np.int64)
        inside = contain(lookup.fields, owners, batch.points, pairs, lookup.column) & ~is_missing[pairs]
        sure = lookup.exact[owners]
        covered[pairs[inside & sure]] = True
        unsure = is_missing.copy()
        unsure[pairs[inside & ~sure]] = True
        left: list[int] = np.flatnonzero(unsure & ~covered).tolist()
        return left

    def _decide(self, values: Mapping[str, Any], owners: Ints) -> bool:
        """Evaluate the predicates of the advertisements whose covers contain an event."""
        candidates = owners
        if self.lookup is not None and self.lookup.attribute in values:
            for place in self.lookup.places.get(values[self.lookup.attribute], ()):
                if self.bound[place].matches(values):
                    return True
            candidates = owners[self.lookup.others[owners]]
        return any(self.bound[owner].matches(values) for owner in dict.fromkeys(candidates.tolist()))

    def explain(self, batch: EventBatch, place: int, publisher: str, *, alone: bool) -> Unadvertised:
        """Say which attribute of an event is not covered."""
        event = "" if alone else f"/{place}"
        which = "" if alone else f"event {place}: "
        who = f'"{publisher}"'
        body = batch.bodies[place]
        values = self.schema.values(body, batch.points[place].tolist())
        if not self.bound:
            return Unadvertised(
                f"{which}publisher {who} has advertised nothing on this topic; declare its events first "
                "(`edn advertise`)",
                index=place,
                pointer=event,
            )
        missing = [set(one.uncovered(values)) for one in self.bound]
        nowhere = [name for name in values if all(name in one for one in missing)]
        if nowhere:
            return Unadvertised(
                f'{which}no advertisement of {who} covers the value of "{nowhere[0]}"',
                index=place,
                pointer=event + _pointer(body, nowhere[0]),
            )
        # Each value is covered by some advertisement, but none covers all of them.
        closest = min(range(len(missing)), key=lambda one: len(missing[one]))
        name = next((name for name in values if name in missing[closest]), None)
        return Unadvertised(
            f"{which}no advertisement of {who} covers all of its attributes; "
            f'"{namespace.id_of(self.ids[closest])}" does not cover the value of "{name}"',
            index=place,
            pointer=event + (_pointer(body, name) if name is not None else ""),
        )


def _pointer(body: bytes, name: str) -> str:
    """Return the pointer to an attribute of an event: nested, or under its dotted name."""
    event = msgspec.json.decode(body)
    if isinstance(event, Mapping) and name in event:
        return f"/{token(name)}"
    return "".join(f"/{token(part)}" for part in name.split("."))


@dataclass(frozen=True, slots=True)
class Checked:
    """A batch that was checked before its transaction."""

    coverage: Coverage
    covered: Bools


@owned("loop")
class PublicationGuard:
    """The compiled advertisements of publishers, by topic."""

    def __init__(self, log: Log, cache: BoundCache) -> None:
        self._log = log
        self._bound = cache
        self._coverages: OrderedDict[tuple[int, str], Coverage] = OrderedDict()
        self._loading: dict[tuple[int, str], asyncio.Future[Coverage]] = {}
        #: events that were refused, and events that were dropped
        self.refused = 0
        self.dropped = 0

    async def check(self, topic: Topic, publisher: str, batch: EventBatch) -> Checked | None:
        """Check a batch before its transaction, which decides; None if that must check it anyway."""
        key = topic.uid, publisher
        coverage = self._coverages.get(key)
        if coverage is None:
            coverage = await self._load(key)
        else:
            self._coverages.move_to_end(key)
        if batch.points.shape[1] != coverage.schema.width:
            return None  # the schema has evolved
        return Checked(coverage, coverage.check(batch))

    async def _load(self, key: tuple[int, str]) -> Coverage:
        """Compile a publisher's advertisements in a thread, once for all requests that wait for it."""
        loading = self._loading.get(key)
        if loading is None:
            loading = asyncio.ensure_future(
                self._log.scanning(Coverage.load, *key, self._log.now(), self._bound)
            )
            self._loading[key] = loading
            loading.add_done_callback(lambda _: self._loading.pop(key, None))
        coverage = await asyncio.shield(loading)
        self.remember(*key, coverage)
        return coverage

    @any_thread
    def decide(
        self,
        transaction: Transaction,
        topic: Topic,
        publisher: str,
        batch: EventBatch,
        revision: int,
        checked: Checked | None,
    ) -> Checked:
        """Return which events are covered at the instant of a transaction; in the writer's thread."""
        if (
            checked is not None
            and checked.coverage.revision == revision
            and transaction.time < checked.coverage.until
        ):
            return checked
        coverage = Coverage.load(transaction.connection, topic.uid, publisher, transaction.time, self._bound)
        return Checked(coverage, coverage.check(batch))

    def remember(self, topic: int, publisher: str, coverage: Coverage) -> None:
        """Keep a compiled coverage, unless a later one is known."""
        known = self._coverages.get((topic, publisher))
        if known is None or known.revision <= coverage.revision:
            self._coverages[topic, publisher] = coverage
            self._coverages.move_to_end((topic, publisher))
            while len(self._coverages) > COVERAGES:
                self._coverages.popitem(last=False)

    def forget(self, topic: int) -> None:
        """Forget the coverages of a topic whose advertisements have changed here."""
        for key in [key for key in self._coverages if key[0] == topic]:
            del self._coverages[key]
