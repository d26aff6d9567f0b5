"""Decides expensive predicates later, in slices, in turns between tenants.

Theory of operation ------------------- Where a rectangle is only a cover, the exact predicate of the filter
must be evaluated: for `contains`, `suffix`, XPath, and filters that are too complex for rectangles. The
writer's thread serves all tenants, so it evaluates predicates within the **budget** of the frame: one limit
per tenant, and one for all. Small events and filters never come near it. A match beyond the budget, by time
or by estimated cost (`edn.model.filter.cost`), is written to the outbox **undecided**, as if it matched.

An undecided row has its place in the order of its address and is not read before it is decided, so order,
pauses, migrations and restarts need no special care. An address belongs to one tenant, so only that tenant
waits. `Decider` decides such rows in its own thread, tenant by tenant in turns of `TURN` seconds, and rests
as long as it works in Python, so that the event loop and the writer get the interpreter. Text search and
XPath run without the interpreter lock. A decided row is written back without the matches that failed, or
deleted.

A decision depends on the event and the version only, so it is the same whenever it is made.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
import structlog

from edn.index.patterns import Patterns, Searched
from edn.model.filter import BoundFilter, Filter
from edn.model.schema import Schema
from edn.runtime.ownership import any_thread, owned
from edn_server.storage import outbox, payloads, versions
from edn_server.storage.interface import Connection, Reader
from edn_server.storage.outbox import Row
from edn_server.storage.writer import Job
from edn_server.subscriptions.registry import SubscriptionRegistry
from edn_server.subscriptions.sequences import is_stored_sequence

logger = structlog.get_logger()

#: seconds per frame, or page of a replay, for predicates of one tenant, and of all
EACH = 0.010
ALL = 0.030
#: seconds to parse and bind one byte of an unbound filter
READING = 5e-7
#: seconds of one tenant's turn, and of work in Python before a rest of the same length
TURN = 0.020
REST = 0.001
#: maximum seconds of a rest
LONGEST_REST = 0.1
#: undecided rows that are read per address at once
ROWS = 64
#: seconds until a retry after a failure
AGAIN = 1.0
#: cached bound filters, and bytes of cached pattern sets
FILTERS = 4096
PREPARED = 64 << 20
#: minimum of patterns and of characters for which a pattern set pays
LEAST_PATTERNS = 8
LEAST_TEXT = 512


@dataclass(slots=True)
class Budget:
    """The time left for the predicates of one frame."""

    each: float = field(default_factory=lambda: EACH)
    all: float = field(default_factory=lambda: ALL)
    _spent: dict[str, float] = field(default_factory=dict)
    _total: float = 0.0

    def left(self, tenant: str) -> float:
        return min(self.each - self._spent.get(tenant, 0.0), self.all - self._total)

    def spend(self, tenant: str, seconds: float) -> None:
        self._spent[tenant] = self._spent.get(tenant, 0.0) + seconds
        self._total += seconds


def affordable(registry: SubscriptionRegistry, number: int, size: int, left: float) -> bool:
    """Returns whether evaluating a version's predicate on an event of that size fits into the time left.

    An unbound filter is bound first, which takes milliseconds for a large one. If there is no time for that,
    `Decider` binds it and stores it in the registry for the next event.
    """
    if left <= 0:
        return False
    version = registry.versions[number]
    if version.bound is None:
        left -= READING * len(version.filter)
        if left <= 0:
            return False
    return registry.bound(number).cost.seconds(size) <= left


@dataclass(frozen=True, slots=True)
class BoundVersion:
    """The bound filter of a version, and the schema that decodes events for it."""

    number: int
    id: str
    version: int
    bound: BoundFilter
    schema: Schema


@dataclass(frozen=True, slots=True)
class Search:
    """A prepared pattern set."""

    patterns: Patterns
    among: frozenset[str]
    #: filters of the patterns; the references keep their ids unique
    filters: tuple[BoundFilter, ...]


@owned("reader")
class FilterCache:
    """Caches bound filters and pattern sets, for one thread."""

    def __init__(self) -> None:
        self._filters: OrderedDict[tuple[int, str, int], BoundVersion] = OrderedDict()
        self._schemas: OrderedDict[tuple[int, int], Schema] = OrderedDict()
        self._prepared: OrderedDict[tuple[int, ...], dict[str, Search]] = OrderedDict()
        self._prepared_bytes = 0
        #: the last event, decoded: rows of one frame share events
        self._latest: tuple[int, int] | None = None
        self._decoded: dict[int, tuple[Schema, dict[str, Any]]] = {}

    def filter(self, db: Connection, number: int) -> BoundVersion | None:
        """Returns the version with this number, or None; a sequence has no predicate."""
        found = versions.predicate(db, number)
        if found is None or is_stored_sequence(found.filter):
            return None
        version = self._filters.get((number, found.id, found.version))
        if version is None:
            schema = self._schemas.get((found.topic, found.width))
            if schema is None:
                schema = Schema.from_wire(found.schema_columns())
                _cache(self._schemas, (found.topic, found.width), schema)
            bound = Filter.parse(msgspec.json.decode(found.filter)).bind(schema)
            version = BoundVersion(number, found.id, found.version, bound, schema)
            _cache(self._filters, (number, found.id, found.version), version)
        return version

    def searches(self, filters: Sequence[BoundFilter]) -> dict[str, Search]:
        """Returns the pattern sets of these filters, per attribute, where they pay."""
        key = tuple(map(id, filters))
        found = self._prepared.get(key)
        if found is None:
            together: dict[str, set[str]] = {}
            for bound in filters:
                for name, patterns in bound.patterns.items():
                    together.setdefault(name, set()).update(patterns)
            found = {
                name: Search(Patterns(patterns), frozenset(patterns), tuple(filters))
                for name, patterns in together.items()
                if len(patterns) >= LEAST_PATTERNS
            }
            self._prepared[key] = found
            self._prepared_bytes += _size(found)
            while self._prepared_bytes > PREPARED and len(self._prepared) > 1:
                self._prepared_bytes -= _size(self._prepared.popitem(last=False)[1])
        else:
            self._prepared.move_to_end(key)
        return found

    def values(self, frame_id: int, place: int, body: bytes, schema: Schema) -> dict[str, Any]:
        """Decodes an event for predicates."""
        if self._latest != (frame_id, place):
            self._latest, self._decoded = (frame_id, place), {}
        known = self._decoded.get(id(schema))
        if known is None:
            known = self._decoded[id(schema)] = (schema, dict(schema.values(body)))
        return known[1]

    def search(self, values: dict[str, Any], filters: Sequence[BoundFilter]) -> dict[str, Any]:
        """Returns the values with long texts searched for the patterns of all filters at once."""
        long = {
            name: value
            for name, value in values.items()
            if isinstance(value, str) and len(value) >= LEAST_TEXT
        }
        if not long:
            return values
        searches = self.searches(filters)
        found = {
            name: Searched.of(text, searches[name].patterns, searches[name].among)
            for name, text in long.items()
            if name in searches
        }
        # Return the same object if nothing was searched: XPath filters cache the XML of the last values.
        return values | found if found else values


def _size(searches: dict[str, Search]) -> int:
    return 256 + sum(search.patterns.nbytes for search in searches.values())


def _cache(store: OrderedDict[Any, Any], key: Any, value: Any) -> None:
    store[key] = value
    if len(store) > FILTERS:
        store.popitem(last=False)


@dataclass(slots=True)
class Decision:
    """Decides one undecided row; call `run` in one thread until it is `done`."""

    row: Row
    cache: FilterCache
    done: bool = field(default=False, init=False)
    #: (place, number) of matches, and the evaluated versions
    matches: list[tuple[int, int]] = field(default_factory=list, init=False)
    evaluated: list[BoundVersion] = field(default_factory=list, init=False)
    _steps: Iterator[None] | None = field(default=None, init=False)

    def run(self, db: Connection, seconds: float) -> None:
        """Evaluates predicates for so many seconds, with rests."""
        self._steps = self._steps or self._evaluate(db)
        now = rested = time.perf_counter()
        end = now + seconds
        for _ in self._steps:
            now = time.perf_counter()
            if now - rested >= REST:
                # Others get the interpreter, and half of this core.
                time.sleep(min(now - rested, LONGEST_REST))
                rested = time.perf_counter()
            if now >= end:
                return
        self.done = True

    def composition(self) -> bytes | None:
        """Composes the row from its matches; None without any."""
        if not self.matches:
            return None
        places: dict[int, list[int]] = {}
        for place, number in self.matches:
            places.setdefault(place, []).append(number)
        counts = np.array([len(numbers) for numbers in places.values()])
        numbers = np.array([number for _, number in self.matches])
        return outbox.compose(np.array(list(places)), counts, numbers)

    def _evaluate(self, db: Connection) -> Iterator[None]:
        row, cache = self.row, self.cache
        assert row.frame_id is not None
        named: dict[int, BoundVersion | None] = {}
        recipients = dict(row.matches())
        for number in {number for numbers in recipients.values() for number in numbers}:
            named[number] = cache.filter(db, number if row.doubt == outbox.OWN else row.doubt - 1)
            yield
        self.evaluated = [one for one in named.values() if one is not None]
        for place in row.places:
            body = payloads.read(db, row.frame_id, [place])[place].body
            if body.startswith(b"["):  # a complete sequence is decided
                self.matches += [(place, number) for number in recipients[place]]
                continue
            versions = [(number, named[number]) for number in recipients[place]]
            filters = [one.bound for _, one in versions if one is not None]
            #: values by id of the schema
            searched: dict[int, dict[str, Any]] = {}
            yield
            for number, one in versions:
                if one is None:
                    logger.error("version_missing", number=number, row=row.id)
                else:
                    values = searched.get(id(one.schema))
                    if values is None:
                        values = cache.search(cache.values(row.frame_id, place, body, one.schema), filters)
                        searched[id(one.schema)] = values
                    if _matches(one, values):
                        self.matches.append((place, number))
                yield


def _matches(version: BoundVersion, values: dict[str, Any]) -> bool:
    try:
        return version.bound.matches(values)
    except Exception as error:
        # A filter that fails matches nothing: it must not block others.
        logger.error("filter_failed", exc_info=error)
        return False


@dataclass(slots=True)
class StoreDecision(Job[int]):
    """Stores a decision; its result is the number of events that the row lost."""

    fresh = True

    decision: Decision
    registry: SubscriptionRegistry
    _written: bool = field(default=False, init=False)

    def work(self, db: Connection) -> int:
        row, composition = self.decision.row, self.decision.composition()
        # A row that was renamed or rewritten meanwhile is decided again.
        if not outbox.is_undecided(db, row):
            return 0
        self._written = True
        if composition is None:
            return outbox.settle(db, [(row.id, row.frame_id)])
        events = len({place for place, _ in self.decision.matches})
        outbox.shorten(db, row.id, composition, events, decided=True)
        return row.events - events

    def done(self, result: int) -> None:
        registry = self.registry
        if self._written:
            matched = [number for _, number in self.decision.matches]
            registry.counters.matched(np.array(matched, dtype=np.int64))
        for one in self.decision.evaluated:
            version = registry.versions.get(one.number)
            if version is None or version.bound is not None:
                continue
            if (version.id, version.version) == (one.id, one.version):
                version.bound = one.bound  # saves the writer's thread from binding it


@owned("loop")
@dataclass(slots=True)
class Decider:
    """Decides undecided rows."""

    reader: Reader
    registry: SubscriptionRegistry
    #: queues a job for the writer
    submit: Callable[[Job[int]], asyncio.Future[int]]
    #: called with the address of a decided row, and the number of notifications that it lost
    on_decided: Callable[[str, int], None]
    _cache: FilterCache = field(default_factory=FilterCache, init=False)
    _woken: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    def wake(self) -> None:
        """Reports new undecided rows."""
        self._woken.set()

    @any_thread
    def close(self) -> None:
        self.reader.close()

    async def run(self) -> None:
        self.wake()
        while True:
            await self._woken.wait()
            self._woken.clear()
            try:
                while await self._round():
                    pass
            except Exception as error:
                logger.error("deciding_failed", exc_info=error)
                self._woken.set()
                await asyncio.sleep(AGAIN)

    async def _round(self) -> bool:
        """Decides the waiting rows, in turns between tenants; returns whether there were any."""
        waiting = await self.reader.reading(find)
        turns = deque(waiting)
        under_way: dict[str, Decision] = {}
        while turns:
            tenant = turns.popleft()
            decision = under_way.get(tenant)
            if decision is None:
                row = waiting[tenant].popleft()
                decision = under_way[tenant] = Decision(row, self._cache)
            await self.reader.reading(decision.run, TURN)
            if decision.done:
                del under_way[tenant]
                shorter = await self.submit(StoreDecision(decision, self.registry))
                self.on_decided(decision.row.address, shorter)
            if waiting[tenant] or tenant in under_way:
                turns.append(tenant)
        return bool(waiting)


def find(db: Connection) -> dict[str, deque[Row]]:
    """Returns the oldest undecided rows of each address, in order, by tenant."""
    found: dict[str, deque[Row]] = {}
    for row in outbox.undecided_rows(db, ROWS):
        found.setdefault(row.tenant, deque()).append(row)
    return found
