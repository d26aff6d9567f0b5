"""Stores versions of subscriptions, durable and inactive.

Storing is idempotent per (id, version). A later incarnation of the dispatcher may store a version again that
no log has activated, and then owns it: *join* drops only leftovers of earlier incarnations. The same (id,
version) with other content is refused, unless it replaces such a leftover.

Filters are bound before the transaction, outside the writer's thread; if one does not bind, nothing is
stored.

A dispatcher whose store request times out ends the versions in its log, and this server may apply that record
before it carries out the request. So ends of unknown versions are remembered
(`SubscriptionRegistry.discarded`) and the late store is refused: nothing would ever end it. Memory is enough,
because a waiting request dies with the process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np

from edn import protocol
from edn.errors import Conflict, CorruptMessage, InvalidFilter, InvalidInput
from edn.formats import sink_settings
from edn.formats.webhooks import keep_newest
from edn.index import engine_name
from edn.model.filter import Filter
from edn.model.namespace import owner_of
from edn.model.rect import Rects
from edn.model.schema import Schema
from edn.model.sequence import decode as decode_sequence
from edn.model.sequence import is_sequence
from edn_server.storage import logs, replays, versions
from edn_server.storage.addresses import STREAM, address_of, settings_of, stream_of
from edn_server.storage.interface import Connection
from edn_server.storage.replays import Source
from edn_server.storage.sequences import rows as sequences
from edn_server.storage.sequences.rows import Monitor, StoredStep
from edn_server.storage.versions import NEVER, StoredSink, StoredVersion, TopicRow
from edn_server.storage.writer import Job
from edn_server.subscriptions.registry import SubscriptionRegistry


@dataclass(frozen=True, slots=True)
class BoundItem:
    """The rectangles of an item: those of a filter, or those of the steps of a sequence."""

    rects: Rects
    steps: tuple[StoredStep, ...] = ()


def bind_filters(request: protocol.Store) -> list[BoundItem]:
    """Checks a request and binds its filters; an error names the item. Any thread may call it."""
    schema = Schema.from_wire(request.topic.columns)
    schemas = {topic.uid: Schema.from_wire(topic.columns) for topic in request.topics}
    schemas[request.topic.uid] = schema
    for topic in (request.topic, *request.topics):
        _check_engine(topic.engine)
        if topic.tenant != request.topic.tenant:
            raise CorruptMessage(f"topics of a request must have one tenant, got {topic.tenant!r}, too")
    rects: list[BoundItem] = []
    for index, item in enumerate(request.items):
        if {item.tenant, owner_of(item.id)} != {request.topic.tenant}:
            raise CorruptMessage(
                f"subscription {item.id} must belong to the tenant of its topic, {request.topic.tenant!r}, "
                f"got {owner_of(item.id)!r} and {item.tenant!r}"
            )
        try:
            if is_sequence(item.filter):
                rects.append(_bind_sequence(item, request.topic.uid, schemas))
            else:
                rects.append(BoundItem(Filter.parse(item.filter).bind(schema).rects()))
        except InvalidFilter as error:
            place = f"/items/{index}/filter{error.pointer or ''}"
            raise InvalidFilter(error.detail, pointer=place, column=error.column) from None
        try:
            _address(item)
        except (ValueError, msgspec.MsgspecError) as error:
            raise CorruptMessage(str(error)) from None
    sinks_of(request)
    return rects


def _check_engine(engine: str) -> None:
    try:
        engine_name(engine)
    except (ValueError, KeyError, InvalidInput) as error:
        raise InvalidInput(f'matcher "{engine}" does not exist on this server: {error}') from None


def _bind_sequence(item: protocol.StoreItem, first: int, schemas: Mapping[int, Schema]) -> BoundItem:
    try:
        sequence = decode_sequence(item.filter)
    except msgspec.ValidationError as error:
        raise CorruptMessage(f"sequence of {item.id}: {error}") from None
    if sequence.topics[0] != first or not schemas.keys() >= set(sequence.topics):
        raise CorruptMessage(
            f"topics of the sequence {item.id} must be in the request, its first one as topic"
        )
    steps = tuple(StoredStep(*part[:2], part.bound.rects()) for part in sequence.bind(schemas).parts)
    width = steps[0].rects.width
    none = Rects(np.empty((0, width)), np.empty((0, width)), np.empty(0, dtype=np.bool_))
    return BoundItem(none, steps)


def sinks_of(request: protocol.Store) -> list[StoredSink]:
    """Returns the settings of the sinks of a request; raises `CorruptMessage` if credentials are missing."""
    found = []
    for text in sorted({item.settings for item in request.items} - {""}):
        settings = sink_settings.decode(text)
        credentials = request.credentials.get(settings.id) if settings.credentials else None
        if settings.credentials and credentials is None:
            raise CorruptMessage(f"the credentials of the settings {settings.id} must be in the request")
        found.append(StoredSink(settings, credentials))
    return found


@dataclass(slots=True)
class StoreVersions(Job[protocol.Stored]):
    """Stores the versions of one request, all or none."""

    registry: SubscriptionRegistry
    epoch: int
    request: protocol.Store = field(repr=False)  # it has signing keys
    #: bound filters of the items
    bound: Sequence[BoundItem]
    _sinks: list[StoredSink] = field(default_factory=list, init=False)
    _allocated: list[int] = field(default_factory=list, init=False)
    _new: list[StoredVersion] = field(default_factory=list, init=False)
    #: (number, expiry) adopted from an earlier incarnation, and numbers replaced
    _adopted: list[tuple[int, int]] = field(default_factory=list, init=False)
    _replaced: list[int] = field(default_factory=list, init=False)
    #: numbers of subscriptions that migrate from another server
    _arriving: list[int] = field(default_factory=list, init=False)

    def work(self, db: Connection) -> protocol.Stored:
        request = self.request
        self._sinks = sinks_of(request)
        self._check_incarnation(db)
        self._check_discarded()
        for topic in (request.topic, *request.topics):
            self._store_topic(db, topic)
        versions.store_rings(db, request.rings)
        versions.store_sinks(db, self._sinks)
        for item, bound in zip(request.items, self.bound, strict=True):
            text = msgspec.json.encode(item.filter).decode()
            if not self._known(db, item, text):
                self._store(db, item, text, bound)
        if self._new or self._adopted:
            versions.count_store(db)
        return protocol.Stored(epoch=self.epoch, seq=versions.stores(db))

    def done(self, result: protocol.Stored) -> None:
        registry, request = self.registry, self.request
        registry.seq = max(registry.seq, result.seq)
        keep_newest(registry.rings, request.rings)
        for sink in self._sinks:
            registry.sinks.setdefault(sink.settings.id, sink)
        log = registry.log(request.log)
        log.incarnation = max(log.incarnation, request.incarnation)
        for topic in (request.topic, *request.topics):
            registry.add_topic(topic.uid, topic.tenant, topic.name, topic.columns, topic.engine)
        registry.remove(self._replaced)
        for number, expires in self._adopted:
            registry.incarnation[number] = request.incarnation
            registry.stored_by[number] = registry.log_number(request.log)
            registry.expires[number] = expires
            for each in registry.logs.values():
                each.expires[number] = expires
        registry.insert(self._new)
        for number in self._arriving:
            if number in registry.sequences:
                registry.sequences[number].awaiting = True
                registry.delayed.add(number)
            registry.replaying.setdefault(number, set()).add(Source("server", request.log))
        registry.mark_held([registry.versions[number].id for number in self._arriving])

    def undo(self) -> None:
        for number in self._allocated:
            self.registry.free_number(number)
        self._allocated.clear()

    # -- inside the transaction -------------------------------------------------------------------------

    def _check_incarnation(self, db: Connection) -> None:
        request = self.request
        newest = logs.incarnation(db, request.log)
        if newest is not None and request.incarnation < newest:
            raise Conflict(
                f"incarnation of log {request.log} must be at least {newest}, got {request.incarnation}: "
                "its dispatcher has restarted"
            )
        logs.raise_incarnation(db, request.log, request.incarnation)

    def _check_discarded(self) -> None:
        for item in self.request.items:
            if (self.request.log, item.id, item.version) in self.registry.discarded:
                raise Conflict(
                    f"version {item.version} of subscription {item.id} ended before it was stored: the store "
                    "request took too long"
                )

    def _store_topic(self, db: Connection, topic: protocol.TopicInfo) -> None:
        known = versions.columns_of(db, topic.uid)
        shared = min(len(known or ()), len(topic.columns))
        if known is not None and known[:shared] != topic.columns[:shared]:
            raise Conflict(
                f"topic {topic.name} has different columns on this server; columns can only be appended"
            )
        if known is None or len(topic.columns) > len(known):
            columns = list(topic.columns)
            versions.store_topic(db, TopicRow(topic.uid, topic.tenant, topic.name, columns, topic.engine))

    def _known(self, db: Connection, item: protocol.StoreItem, text: str) -> bool:
        """Returns whether the version is stored already; ends a leftover that it replaces."""
        request = self.request
        known = versions.find(db, item.id, item.version)
        if known is None:
            return False
        wanted = (request.topic.uid, text, _address(item), item.recipient)
        same = (known.topic, known.filter, known.address, known.recipient) == wanted
        own = (known.log, known.incarnation) == (request.log, request.incarnation)
        leftover = not known.activated and not own
        if same and leftover:
            versions.adopt(db, known.number, request.log, request.incarnation, _expiry(item))
            self._adopted.append((known.number, _expiry(item)))
            self._await(db, item, known.number)
            return True
        if same:
            return True
        if leftover:
            versions.end(db, [known.number], 0)
            self._replaced.append(known.number)
            return False
        raise Conflict(
            f"version {item.version} of subscription {item.id} is stored with another filter or sink; "
            "a change needs a new version"
        )

    def _store(self, db: Connection, item: protocol.StoreItem, text: str, bound: BoundItem) -> None:
        request = self.request
        number = self.registry.allocate_number()
        self._allocated.append(number)
        stored = StoredVersion(
            number=number,
            id=item.id,
            version=item.version,
            topic=request.topic.uid,
            filter=text,
            address=_address(item),
            recipient=item.recipient,
            expires=_expiry(item),
            log=request.log,
            incarnation=request.incarnation,
            rects=bound.rects,
            steps=bound.steps,
        )
        settings = settings_of(stored.address)
        versions.insert(db, stored, owner=item.owner, ring=item.ring, settings=settings)
        if bound.steps:
            sequences.insert(db, number, bound.steps)
        self._await(db, item, number)
        self._new.append(stored)

    def _await(self, db: Connection, item: protocol.StoreItem, number: int) -> None:
        """Holds back the matches of a migrating subscription until its old server has delivered its rows."""
        if item.arriving:
            replays.begin(db, [number], Source("server", self.request.log))
            if is_sequence(item.filter):
                sequences.store_monitor(db, Monitor(number, awaiting=True))
            self._arriving.append(number)


def _address(item: protocol.StoreItem) -> str:
    """Composes the address of a version; that of a stream is made from its key, whatever the URL is."""
    if item.url.startswith(STREAM):
        return stream_of(item.id)
    return address_of(item.tenant, item.url, item.ring, sink_settings.decode(item.settings).id)


def _expiry(item: protocol.StoreItem) -> int:
    return NEVER if item.expires is None else item.expires
