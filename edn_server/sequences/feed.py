"""Feeds candidates to monitors inside one transaction.

`Feed` reads the half matches of the registry and collects the changes; `write` stores them with the rows of
the outbox and the cursor, `apply` changes the memory after the commit. So a failed transaction changes
nothing, and a restart repeats nothing.

A candidate of a sequence with `settle`, or of one that waits for half matches of its former server, is stored
and fed later (`settling`, `handover.progress`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from edn.model.coordinates import rfc3339
from edn.model.sequence import UNLESS, HalfMatch, advance
from edn_server.storage.interface import Connection
from edn_server.storage.payloads import Event
from edn_server.storage.sequences import rows
from edn_server.storage.sequences.rows import Arrived, Monitor, Taken, Waiting
from edn_server.subscriptions.registry import SubscriptionRegistry
from edn_server.subscriptions.sequences import MAX_HALVES


class Complete(NamedTuple):
    """A complete sequence."""

    number: int
    #: place of the completing event in its frame; -1 outside of a frame
    place: int
    #: all events in one payload
    event: Event


class Feed:
    """The candidates of one transaction."""

    def __init__(self, registry: SubscriptionRegistry, now: int) -> None:
        """`now`: network time in microseconds."""
        self._registry = registry
        self._now = now
        #: changed half matches by (number, key)
        self._halves: dict[tuple[int, bytes], HalfMatch[Arrived]] = {}
        #: number → keys that began in this transaction, and how many half matches there are
        self._begun: dict[int, dict[bytes, None]] = {}
        self._sizes: dict[int, int] = {}
        self._ages: dict[int, Iterator[bytes]] = {}
        self._stored: list[tuple[int, Waiting]] = []
        self._fed: list[tuple[int, int]] = []
        self._late: Counter[int] = Counter()
        self._dropped: Counter[int] = Counter()
        #: number → (whether half matches are still to come, rows of them that have arrived)
        self._arrivals: dict[int, tuple[bool, int]] = {}
        self._serial = registry.arrivals
        self.complete: list[Complete] = []

    def next_serial(self) -> int:
        """Returns the serial of the next arrival."""
        self._serial += 1
        return self._serial

    def ignores(self, number: int, key: bytes, roles: int) -> bool:
        """Returns whether a candidate has no effect, whatever its time is; most have none."""
        live = self._registry.sequences[number]
        if live.awaiting or not live.is_plain:
            return False
        half = self._half(number, key)
        if not half:
            return not roles & 1
        step = live.plan.slots[len(half)]
        return not (roles >> step | roles >> (UNLESS + step)) & 1

    def take(self, number: int, waiting: Waiting, place: int) -> None:
        """Feeds a candidate of a frame, or stores it to feed it later."""
        live = self._registry.sequences[number]
        settle = live.sequence.settle
        if settle and waiting.candidate.stamp + settle < self._now:
            self._late[number] += 1
        if settle or live.awaiting:
            self._stored.append((number, waiting))
        else:
            self.feed(number, waiting, place)

    def feed_stored(self, number: int, waiting: Waiting) -> None:
        """Feeds a stored candidate."""
        self._fed.append((number, waiting.serial))
        self.feed(number, waiting, -1)

    def feed(self, number: int, waiting: Waiting, place: int) -> None:
        live = self._registry.sequences[number]
        key = waiting.key
        before = self._half(number, key)
        after, complete = advance(live.plan, before, waiting.roles, waiting.candidate)
        if after is not before:
            self._set(number, key, before, after)
        if complete:
            self.complete.append(Complete(number, place, self._payload(complete)))

    def load(self, number: int, key: bytes, taken: Taken) -> None:
        """Appends an event to a half match that arrives from the former server."""
        before = self._half(number, key)
        self._set(number, key, before, (*before, taken))

    def store(self, number: int, waiting: Waiting) -> None:
        """Stores a candidate that arrives from the former server."""
        self._stored.append((number, waiting))

    def arrive(self, number: int, position: int, *, awaiting: bool) -> None:
        """Notes how many rows of the former server have arrived, and whether more are to come."""
        self._arrivals[number] = awaiting, position

    def feed_all(self, number: int) -> None:
        """Feeds all stored candidates of a sequence in the order of arrival, unless they settle."""
        live = self._registry.sequences[number]
        if not live.sequence.settle:
            for waiting in sorted(live.waiting.values()):
                self.feed_stored(number, waiting)

    def count(self, number: int, late: int, dropped: int) -> None:
        self._late[number] += late
        self._dropped[number] += dropped

    # -- half matches -----------------------------------------------------------------------------------

    def _half(self, number: int, key: bytes) -> HalfMatch[Arrived]:
        found = self._halves.get((number, key))
        return self._registry.sequences[number].halves.get(key, ()) if found is None else found

    def _set(self, number: int, key: bytes, before: HalfMatch[Arrived], after: HalfMatch[Arrived]) -> None:
        self._halves[number, key] = after
        begun = self._begun.setdefault(number, {})
        if not after:
            begun.pop(key, None)
            self._sizes[number] = self._size(number) - 1 if before else self._size(number)
            return
        if not before:
            self._sizes[number] = self._size(number) + 1
        if not before or before[0] is not after[0]:
            begun.pop(key, None)
            begun[key] = None
        if self._size(number) > MAX_HALVES:
            oldest = self._oldest(number)
            self._dropped[number] += 1
            self._set(number, oldest, self._half(number, oldest), ())

    def _size(self, number: int) -> int:
        found = self._sizes.get(number)
        return len(self._registry.sequences[number].halves) if found is None else found

    def _oldest(self, number: int) -> bytes:
        begun = self._begun[number]
        ages = self._ages.get(number)
        if ages is None:
            ages = self._ages[number] = iter(list(self._registry.sequences[number].halves))
        for key in ages:
            if key not in begun and self._half(number, key):
                return key
        return next(iter(begun))

    def _payload(self, taken: HalfMatch[Arrived]) -> Event:
        """Composes the payload of a complete sequence: an array of its events."""
        last = taken[-1].payload.event
        parts = [self._part(one) for one in taken]
        return Event(last.topic, last.id, last.stamp, b"[" + b",".join(parts) + b"]", last.trace)

    def _part(self, one: Taken) -> bytes:
        event = one.payload.event
        topic = self._registry.topics.get(event.topic)
        return b'{"topic":%b,"id":%b,"time":"%b","attributes":%b}' % (
            msgspec.json.encode("" if topic is None else topic.name),
            msgspec.json.encode(event.id),
            rfc3339(event.stamp).encode(),
            event.body,
        )

    # -- the transaction --------------------------------------------------------------------------------

    def write(self, db: Connection) -> None:
        """Stores the changes."""
        deleted: list[tuple[int, bytes]] = []
        inserted: list[tuple[int, bytes, int, Taken]] = []
        for (number, key), after in self._halves.items():
            before = self._registry.sequences[number].halves.get(key, ())
            kept = len(before) if after[: len(before)] == before else 0
            if before and not kept:
                deleted.append((number, key))
            inserted += [(number, key, slot, after[slot]) for slot in range(kept, len(after))]
        if deleted:
            rows.delete_halves(db, deleted)
        if inserted:
            rows.insert_taken(db, inserted)
        if self._stored:
            rows.insert_waiting(db, self._stored)
        if self._fed:
            rows.delete_waiting(db, self._fed)
        for number in {*self._late, *self._dropped, *self._arrivals}:
            live = self._registry.sequences[number]
            rows.store_monitor(
                db,
                Monitor(
                    number,
                    *self._arrivals.get(number, (live.awaiting, live.position)),
                    live.late + self._late[number],
                    live.dropped + self._dropped[number],
                ),
            )

    def apply(self) -> None:
        """Changes the memory, after the commit."""
        sequences = self._registry.sequences
        self._registry.arrivals = self._serial
        for (number, key), after in self._halves.items():
            halves = sequences[number].halves
            before = halves.get(key)
            if not after:
                halves.pop(key, None)
                continue
            if before and before[0] is not after[0]:
                del halves[key]  # a new one is the youngest
            halves[key] = after
        for number, waiting in self._stored:
            sequences[number].waiting[waiting.serial] = waiting
        for number, serial in self._fed:
            sequences[number].waiting.pop(serial, None)
        for number, count in self._late.items():
            sequences[number].late += count
        for number, count in self._dropped.items():
            sequences[number].dropped += count
        for number, (awaiting, position) in self._arrivals.items():
            sequences[number].awaiting = awaiting
            sequences[number].position = position
