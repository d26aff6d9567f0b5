"""A store request becomes durable, inactive versions of subscriptions.

Storing is idempotent per (id, version): the same again is answered again. A version that no log has
activated may be stored anew by a later incarnation of its dispatcher, which then answers for it: *join* drops
only what an earlier one left behind. The same (id, version) with other content is refused, unless it replaces
such a leftover.

Filters are bound before the transaction, outside the writer's thread; one that does not bind stores nothing.

A dispatcher that had no answer in time ends the versions in its log, and may be read before the store is
carried out here. So an end of a version that is not stored is remembered (`Hosting.discarded`), and the store
that comes after it is refused: nobody would ever end it again. Memory is enough, because a store that waits
dies with the process.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from edn import wire
from edn.errors import Conflict, CorruptMessage, InvalidFilter, InvalidInput
from edn.filter import Filter
from edn.index import engine_name
from edn.namespace import owner_of
from edn.rect import Rects
from edn.schema import Schema
from edn.webhooks import KeyRing, newest
from edn_server.storage.addresses import STREAM, address_of, stream_of
from edn_server.storage.writer import Job
from edn_server.subscriptions.registry import NEVER, Hosting, NewVersion, arrival


@dataclass(frozen=True, slots=True)
class Prepared:
    """A store request whose filters bind."""

    request: wire.Store
    rects: list[Rects]


def prepare(request: wire.Store) -> Prepared:
    """Bind every filter; an error names the item. Any thread may call it."""
    schema = Schema.from_wire(request.topic.columns)
    try:
        engine_name(request.topic.engine)
    except (ValueError, KeyError, InvalidInput) as error:
        raise InvalidInput(f'the matcher "{request.topic.engine}" is not known here: {error}') from None
    rects: list[Rects] = []
    for index, item in enumerate(request.items):
        if {item.tenant, owner_of(item.id)} != {request.topic.tenant}:
            raise CorruptMessage(
                f"subscription {item.id} must belong to the tenant of its topic, {request.topic.tenant!r}, "
                f"got {owner_of(item.id)!r} and {item.tenant!r}"
            )
        try:
            rects.append(Filter.parse(item.filter).bind(schema).rects())
        except InvalidFilter as error:
            place = f"/items/{index}/filter{error.pointer or ''}"
            raise InvalidFilter(error.detail, pointer=place, column=error.column) from None
        try:
            _address(item)
        except ValueError as error:
            raise CorruptMessage(str(error)) from None
    return Prepared(request, rects)


def pack_rects(rects: Rects) -> bytes:
    """lo, hi and exact as they lie in memory; `unpack_rects` needs the width."""
    lo = np.ascontiguousarray(rects.lo, dtype="<f8").tobytes()
    hi = np.ascontiguousarray(rects.hi, dtype="<f8").tobytes()
    return lo + hi + np.ascontiguousarray(rects.exact, dtype=np.uint8).tobytes()


def unpack_rects(data: bytes, width: int) -> Rects:
    rows = len(data) // (16 * width + 1)
    side = rows * width
    bounds = np.frombuffer(data, dtype="<f8", count=2 * side)
    exact = np.frombuffer(data, dtype=np.uint8, offset=16 * side).astype(np.bool_)
    return Rects(bounds[:side].reshape(rows, width), bounds[side:].reshape(rows, width), exact)


class StoreVersions(Job[wire.Stored]):
    """Store the versions of one request, all or none."""

    def __init__(self, hosting: Hosting, epoch: int, prepared: Prepared) -> None:
        self._hosting = hosting
        self._epoch = epoch
        self._request = prepared.request
        self._rects = prepared.rects
        self._taken: list[int] = []
        self._new: list[NewVersion] = []
        #: numbers that this request takes over from an earlier incarnation, or replaces
        self._adopted: list[tuple[int, int]] = []
        self._replaced: list[int] = []
        #: numbers of what comes from another server
        self._arriving: list[int] = []

    def work(self, db: sqlite3.Connection) -> wire.Stored:
        request = self._request
        self._check_incarnation(db)
        self._check_discarded()
        self._store_topic(db)
        keep_rings(db, request.rings)
        for item, rects in zip(request.items, self._rects, strict=True):
            text = msgspec.json.encode(item.filter).decode()
            if not self._known(db, item, text):
                self._store(db, item, text, rects)
        if self._new or self._adopted:
            db.execute("UPDATE meta SET value = value + 1 WHERE name = 'seq'")
        (seq,) = db.execute("SELECT value FROM meta WHERE name = 'seq'").fetchone()
        return wire.Stored(epoch=self._epoch, seq=seq)

    def done(self, result: wire.Stored) -> None:
        hosting, request = self._hosting, self._request
        hosting.seq = max(hosting.seq, result.seq)
        newest(hosting.rings, request.rings)
        log = hosting.log(request.log)
        log.incarnation = max(log.incarnation, request.incarnation)
        topic = request.topic
        hosting.add_topic(topic.uid, topic.tenant, topic.name, topic.columns, topic.engine)
        hosting.remove(self._replaced)
        for number, expires in self._adopted:
            hosting.incarnation[number] = request.incarnation
            hosting.stored_by[number] = hosting.log_number(request.log)
            hosting.expires[number] = expires
            for each in hosting.logs.values():
                each.expires[number] = expires
        hosting.insert(self._new)
        for number in self._arriving:
            hosting.replaying.setdefault(number, set()).add(arrival(request.log))
        hosting.mark_held([hosting.versions[number].id for number in self._arriving])

    def undo(self) -> None:
        for number in self._taken:
            self._hosting.free_number(number)
        self._taken.clear()

    # -- inside the transaction -------------------------------------------------------------------------

    def _check_incarnation(self, db: sqlite3.Connection) -> None:
        request = self._request
        row = db.execute("SELECT incarnation FROM logs WHERE log = ?", (request.log,)).fetchone()
        if row is not None and request.incarnation < row[0]:
            raise Conflict(
                f"the dispatcher of log {request.log} has started {row[0]} times by now; this store is of "
                f"its start {request.incarnation}"
            )
        db.execute(
            "INSERT INTO logs (log, incarnation) VALUES (?1, ?2)"
            " ON CONFLICT (log) DO UPDATE SET incarnation = ?2 WHERE incarnation < ?2",
            (request.log, request.incarnation),
        )

    def _check_discarded(self) -> None:
        for item in self._request.items:
            if (self._request.log, item.id, item.version) in self._hosting.discarded:
                raise Conflict(
                    f"version {item.version} of subscription {item.id} was ended before it was stored: its "
                    "store took too long"
                )

    def _store_topic(self, db: sqlite3.Connection) -> None:
        topic = self._request.topic
        row = db.execute("SELECT columns FROM topics WHERE uid = ?", (topic.uid,)).fetchone()
        known = msgspec.json.decode(row[0], type=list[tuple[str, str]]) if row else []
        shared = min(len(known), len(topic.columns))
        if known[:shared] != topic.columns[:shared]:
            raise Conflict(
                f"topic {topic.name} has other columns here; columns are append-only and never change"
            )
        columns = msgspec.json.encode(topic.columns).decode()
        if row is None:
            db.execute(
                "INSERT INTO topics VALUES (?, ?, ?, ?, ?)",
                (topic.uid, topic.tenant, topic.name, columns, topic.engine),
            )
        elif len(topic.columns) > len(known):
            db.execute("UPDATE topics SET columns = ? WHERE uid = ?", (columns, topic.uid))

    def _known(self, db: sqlite3.Connection, item: wire.StoreItem, text: str) -> bool:
        """Whether the version is stored already; makes room when it replaces a leftover."""
        request = self._request
        row = db.execute(
            "SELECT number, topic, filter, address, recipient, log, incarnation,"
            " EXISTS (SELECT 1 FROM intervals i WHERE i.number = v.number AND i.since IS NOT NULL)"
            " FROM versions v WHERE id = ? AND version = ? AND over IS NULL",
            (item.id, item.version),
        ).fetchone()
        if row is None:
            return False
        number, *stored, log, incarnation, activated = row
        address = _address(item)
        same = stored == [request.topic.uid, text, address, item.recipient]
        leftover = not activated and (log, incarnation) != (request.log, request.incarnation)
        if same and leftover:
            db.execute(
                "UPDATE versions SET log = ?, incarnation = ?, expires = ? WHERE number = ?",
                (request.log, request.incarnation, item.expires, number),
            )
            self._adopted.append((number, _expiry(item)))
            self._await(db, item, number)
            return True
        if same:
            return True
        if leftover:
            db.execute("UPDATE versions SET over = 0 WHERE number = ?", (number,))
            self._replaced.append(number)
            return False
        raise Conflict(
            f"version {item.version} of subscription {item.id} is stored with another filter or sink; "
            "a changed subscription has a version of its own"
        )

    def _store(self, db: sqlite3.Connection, item: wire.StoreItem, text: str, rects: Rects) -> None:
        request = self._request
        number = self._hosting.take_number()
        self._taken.append(number)
        address = _address(item)
        values: tuple[Any, ...] = (
            number, item.id, item.version, item.owner, request.topic.uid, text, address, item.recipient,
            item.expires, request.log, request.incarnation, rects.width, pack_rects(rects), None, item.ring,
            False,
        )  # fmt: skip
        db.execute(f"INSERT INTO versions VALUES ({', '.join('?' * len(values))})", values)
        self._await(db, item, number)
        self._new.append(
            NewVersion(
                number=number,
                id=item.id,
                version=item.version,
                topic=request.topic.uid,
                filter=text,
                address=address,
                recipient=item.recipient,
                expires=_expiry(item),
                log=request.log,
                incarnation=request.incarnation,
                width=rects.width,
                lo=rects.lo,
                hi=rects.hi,
                exact=rects.exact,
            )
        )

    def _await(self, db: sqlite3.Connection, item: wire.StoreItem, number: int) -> None:
        """What is found for one that comes from another server is held from its first match on."""
        if item.arriving:
            db.execute(
                "INSERT OR IGNORE INTO replays (number, log, position) VALUES (?, ?, 0)",
                (number, arrival(self._request.log)),
            )
            self._arriving.append(number)


def keep_rings(db: sqlite3.Connection, rings: Sequence[KeyRing]) -> None:
    db.executemany(
        "INSERT INTO rings VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (id) DO UPDATE"
        " SET current = ?2, previous = ?3, until = ?4, version = ?5 WHERE version <= ?5",
        [(ring.id, ring.current, ring.previous, ring.until, ring.version) for ring in rings],
    )


def _address(item: wire.StoreItem) -> str:
    """Compose the address of a version; that of a stream is made of its key, whatever it is said to be."""
    if item.url.startswith(STREAM):
        return stream_of(item.id)
    return address_of(item.tenant, item.url, item.ring)


def _expiry(item: wire.StoreItem) -> int:
    return NEVER if item.expires is None else item.expires
