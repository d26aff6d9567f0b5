"""Exact predicates that would hold up everybody are asked later, in slices, and by turns between tenants.

Theory of operation ------------------- A rectangle that only covers leaves a filter's exact predicate to be
asked: for `contains`, `suffix`, XPath, and for what was too much for rectangles. The writer's thread, which
serves all tenants, asks them as long as the frame's **budget** lasts: so much time for one tenant, and so
much for all. Small events and filters never come near it. Whatever is beyond, or would be by its estimated
cost (`edn.model.filter.cost`), is written to the outbox as if it matched, **in doubt**.

A row in doubt stands at its place in the order of its address, and is not read before it is decided; so
delivery in order, pauses, moves and restarts need no care. An address is one tenant's, so only that tenant
waits. `Decider` decides such rows in a thread of its own, tenant by tenant in turns of `TURN` seconds, and
rests as long as it works in Python, so that the event loop and the writer get the interpreter in between.
Searching and XPaths run without the interpreter lock. Decided rows are written back: without the matches that
were none, or not at all.

The verdict is the same wherever it is found: it depends on the event and the version only.
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
from edn_server.storage import outbox, versions
from edn_server.storage.interface import Connection, Reader
from edn_server.storage.outbox import Row
from edn_server.storage.writer import Job
from edn_server.subscriptions.registry import SubscriptionRegistry

logger = structlog.get_logger()

#: seconds that exact predicates may take of one frame, or page of a replay: of one tenant, and of all
EACH = 0.010
ALL = 0.030
#: seconds to read and bind one byte of a filter that was not asked before
READING = 5e-7
#: seconds of one tenant's turn, and after which a turn in Python rests for as long
TURN = 0.020
REST = 0.001
#: seconds that one rest lasts at most
LONGEST_REST = 0.1
#: rows of one address that are taken note of at once
ROWS = 64
#: seconds until a failure is tried again
AGAIN = 1.0
#: filters that are kept bound, and bytes of patterns that are kept prepared
FILTERS = 4096
PREPARED = 64 << 20
#: patterns and characters from which on preparing them pays
LEAST_PATTERNS = 8
LEAST_TEXT = 512


@dataclass(slots=True)
class Budget:
    """The time that exact predicates may still spend on one frame."""

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
    """Whether the predicate of a version, asked of an event of that size, is within the time that is left.

    A filter that was not asked before is bound first, which takes milliseconds for a large one. If there is
    no time for that, `Decider` binds it, and leaves it here for the next event.
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
class Asked:
    """The predicate of a version, and what decodes events for it."""

    number: int
    id: str
    version: int
    bound: BoundFilter
    schema: Schema


@dataclass(frozen=True, slots=True)
class Search:
    """Patterns, prepared."""

    patterns: Patterns
    among: frozenset[str]
    #: the filters that they are of; as long as these are here, nothing else has their identity
    filters: tuple[BoundFilter, ...]


@owned("reader")
class Library:
    """Filters as they were stored, bound; sets of patterns, prepared. One thread."""

    def __init__(self) -> None:
        self._filters: OrderedDict[tuple[int, str, int], Asked] = OrderedDict()
        self._schemas: OrderedDict[tuple[int, int], Schema] = OrderedDict()
        self._prepared: OrderedDict[tuple[int, ...], dict[str, Search]] = OrderedDict()
        self._prepared_bytes = 0
        #: the event that was asked about last, decoded: rows of one frame tell of the same ones
        self._latest: tuple[int, int] | None = None
        self._decoded: dict[int, tuple[Schema, dict[str, Any]]] = {}

    def filter(self, db: Connection, number: int) -> Asked | None:
        """Return the version with this number; None if there is none."""
        found = versions.predicate(db, number)
        if found is None:
            return None
        asked = self._filters.get((number, found.id, found.version))
        if asked is None:
            schema = self._schemas.get((found.topic, found.width))
            if schema is None:
                schema = Schema.from_wire(found.schema_columns())
                _kept(self._schemas, (found.topic, found.width), schema, FILTERS)
            bound = Filter.parse(msgspec.json.decode(found.filter)).bind(schema)
            asked = Asked(number, found.id, found.version, bound, schema)
            _kept(self._filters, (number, found.id, found.version), asked, FILTERS)
        return asked

    def searches(self, asked: Sequence[BoundFilter]) -> dict[str, Search]:
        """Prepare the patterns that these filters search for, per attribute, where that pays."""
        key = tuple(map(id, asked))
        found = self._prepared.get(key)
        if found is None:
            together: dict[str, set[str]] = {}
            for bound in asked:
                for name, patterns in bound.patterns.items():
                    together.setdefault(name, set()).update(patterns)
            found = {
                name: Search(Patterns(patterns), frozenset(patterns), tuple(asked))
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

    def values(self, batch: int, place: int, body: bytes, schema: Schema) -> dict[str, Any]:
        """An event as predicates compare it."""
        if self._latest != (batch, place):
            self._latest, self._decoded = (batch, place), {}
        known = self._decoded.get(id(schema))
        if known is None:
            known = self._decoded[id(schema)] = (schema, dict(schema.values(body)))
        return known[1]


def _size(searches: dict[str, Search]) -> int:
    return 256 + sum(search.patterns.nbytes for search in searches.values())


def _kept(store: OrderedDict[Any, Any], key: Any, value: Any, most: int) -> None:
    store[key] = value
    while len(store) > most:
        store.popitem(last=False)


class Decision:
    """One row in doubt: which of its matches are. `run` in one thread until it is `done`."""

    def __init__(self, row: Row, library: Library) -> None:
        self.row = row
        self.done = False
        #: (place, number) of what matches, and the filters that were asked
        self.matches: list[tuple[int, int]] = []
        self.asked: list[Asked] = []
        self._library = library
        self._steps: Iterator[None] | None = None

    def run(self, db: Connection, seconds: float) -> None:
        """Ask on for so many seconds, resting in between."""
        self._steps = self._steps or self._ask(db, self._library)
        now = rested = time.perf_counter()
        end = now + seconds
        for _ in self._steps:
            now = time.perf_counter()
            if now - rested >= REST:
                # As long as it worked: others get the interpreter, and half of this core.
                time.sleep(min(now - rested, LONGEST_REST))
                rested = time.perf_counter()
            if now >= end:
                return
        self.done = True

    def composition(self) -> bytes | None:
        """The row without what does not match; None if nothing does."""
        if not self.matches:
            return None
        places: dict[int, list[int]] = {}
        for place, number in self.matches:
            places.setdefault(place, []).append(number)
        counts = np.array([len(numbers) for numbers in places.values()])
        numbers = np.array([number for _, number in self.matches])
        return outbox.compose(np.array(list(places)), counts, numbers)

    def _ask(self, db: Connection, library: Library) -> Iterator[None]:
        row = self.row
        assert row.batch is not None
        named: dict[int, Asked | None] = {}
        recipients = dict(row.matches())
        for number in {number for numbers in recipients.values() for number in numbers}:
            named[number] = library.filter(db, number if row.doubt == outbox.OWN else row.doubt - 1)
            yield
        self.asked = [one for one in named.values() if one is not None]
        for place in row.places:
            body = outbox.read_events(db, row.batch, [place])[place].body
            asked = [(number, named[number]) for number in recipients[place]]
            texts = _Texts([one.bound for _, one in asked if one is not None], library)
            yield
            for number, one in asked:
                if one is None:
                    logger.error("version_missing", number=number, row=row.id)
                elif _holds(one, texts.searched(library.values(row.batch, place, body, one.schema))):
                    self.matches.append((place, number))
                yield


def _holds(asked: Asked, values: dict[str, Any]) -> bool:
    try:
        return asked.bound.matches(values)
    except Exception as error:
        # A filter that cannot be asked matches nothing: it must not hold up others.
        logger.error("filter_failed", exc_info=error)
        return False


class _Texts:
    """The long texts of one event, searched at once for all that some filters look for."""

    def __init__(self, asked: Sequence[BoundFilter], library: Library) -> None:
        self._asked = asked
        self._library = library
        #: by the identity of the values, which are kept so that it stays theirs
        self._searched: dict[int, tuple[dict[str, Any], dict[str, Any]]] = {}

    def searched(self, values: dict[str, Any]) -> dict[str, Any]:
        """These values, with long texts in which what is searched for is known."""
        known = self._searched.get(id(values))
        if known is None:
            known = self._searched[id(values)] = (values, self._search(values))
        return known[1]

    def _search(self, values: dict[str, Any]) -> dict[str, Any]:
        long = {
            name: value
            for name, value in values.items()
            if isinstance(value, str) and len(value) >= LEAST_TEXT
        }
        if not long:
            return values
        searches = self._library.searches(self._asked)
        found = {
            name: Searched.of(text, searches[name].patterns, searches[name].among)
            for name, text in long.items()
            if name in searches
        }
        # The same object where nothing is searched for: XPaths keep the XML form of the last values.
        return values | found if found else values


class Decided(Job[int]):
    """Write a decision down; returns by how many events the row became shorter."""

    fresh = True

    def __init__(self, decision: Decision, registry: SubscriptionRegistry) -> None:
        self._decision = decision
        self._registry = registry
        self._written = False

    def work(self, db: Connection) -> int:
        row, composition = self._decision.row, self._decision.composition()
        # A row that was renamed, or written anew, meanwhile is decided once more.
        if not outbox.is_undecided(db, row):
            return 0
        self._written = True
        if composition is None:
            return outbox.settle(db, [(row.id, row.batch)])
        events = len({place for place, _ in self._decision.matches})
        outbox.shorten(db, row.id, composition, events, decided=True)
        return row.events - events

    def done(self, result: int) -> None:
        registry = self._registry
        if self._written:
            matched = [number for _, number in self._decision.matches]
            registry.tally.matched(np.array(matched, dtype=np.int64))
        for one in self._decision.asked:
            version = registry.versions.get(one.number)
            if version is None or version.bound is not None:
                continue
            if (version.id, version.version) == (one.id, one.version):
                version.bound = one.bound  # the writer's thread need not bind it again


@owned("loop")
class Decider:
    """Decides the rows in doubt, as long as `run` runs."""

    def __init__(
        self,
        reader: Reader,
        registry: SubscriptionRegistry,
        submit: Callable[[Job[int]], asyncio.Future[int]],
        on_decided: Callable[[str, int], None],
    ) -> None:
        """`submit` gives a job to the writer; `on_decided` gets the address of a row that is decided, and by
        how many notifications the backlog is shorter.
        """
        self._reader = reader
        self._submit = submit
        self._registry = registry
        self._on_decided = on_decided
        self._library = Library()
        self._woken = asyncio.Event()
        self._woken.set()

    def wake(self) -> None:
        """There are rows in doubt."""
        self._woken.set()

    @any_thread
    def close(self) -> None:
        self._reader.close()

    async def run(self) -> None:
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
        """Decide what there is by now, tenant by tenant in turns; whether there was anything."""
        waiting = await self._reader.reading(find)
        turns = deque(waiting)
        under_way: dict[str, Decision] = {}
        while turns:
            tenant = turns.popleft()
            decision = under_way.get(tenant)
            if decision is None:
                row = waiting[tenant].popleft()
                decision = under_way[tenant] = Decision(row, self._library)
            await self._reader.reading(decision.run, TURN)
            if decision.done:
                del under_way[tenant]
                shorter = await self._submit(Decided(decision, self._registry))
                self._on_decided(decision.row.address, shorter)
            if waiting[tenant] or tenant in under_way:
                turns.append(tenant)
        return bool(waiting)


def find(db: Connection) -> dict[str, deque[Row]]:
    """Return the oldest rows in doubt of each address, by tenant, in their order."""
    found: dict[str, deque[Row]] = {}
    for row in outbox.undecided_rows(db, ROWS):
        found.setdefault(row.tenant, deque()).append(row)
    return found
