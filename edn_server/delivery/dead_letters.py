"""Dead letters: delivery batches that are no longer retried, stored with their bodies for a later requeue.

A dead letter has the id of its first row, so it is requeued under the same webhook-id. In the body,
subscriptions have their ids; everywhere else they have their keys (see `edn.model.namespace`).

A requeued letter goes to the current addresses of its subscriptions. If all of them still have the address
of the letter, it is requeued unchanged. Otherwise each address gets a new row with its part, and the part of
paused subscriptions becomes a letter of its own: no webhook-id is used for two bodies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import msgspec
import structlog

from edn.model.namespace import key_of
from edn_server.outbox.batches import DeliveryBatch
from edn_server.storage import dead_letters as letters
from edn_server.storage import outbox, usage
from edn_server.storage.addresses import tenant_of
from edn_server.storage.dead_letters import Letter
from edn_server.storage.interface import Connection
from edn_server.storage.writer import Job

logger = structlog.get_logger()


class _Match(msgspec.Struct, omit_defaults=True):
    subscription: str
    recipient: str | None = None


class _Entry(msgspec.Struct, omit_defaults=True):
    topic: str
    matches: list[_Match]
    #: the bytes of the publisher
    event: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    #: of a sequence
    events: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class _Body(msgspec.Struct):
    notifications: list[_Entry]


_body = msgspec.json.Decoder(_Body)


def recipients(body: bytes, address: str) -> list[str]:
    """Return the key of the subscription of each match in a body that is for this address."""
    tenant = tenant_of(address)
    return [
        key_of(tenant, match.subscription)
        for entry in _body.decode(body).notifications
        for match in entry.matches
    ]


def split(body: bytes, address: str, wanted: Callable[[str], bool]) -> tuple[bytes | None, bytes | None]:
    """Split a body into the part of the wanted subscriptions, by their keys, and the rest; None is empty."""
    tenant = tenant_of(address)

    def part(keep: Callable[[str], bool]) -> bytes | None:
        entries = []
        for entry in _body.decode(body).notifications:
            matches = [match for match in entry.matches if keep(key_of(tenant, match.subscription))]
            if matches:
                entries.append(_Entry(entry.topic, matches, entry.event, entry.events))
        return msgspec.json.encode(_Body(entries)) if entries else None

    return part(wanted), part(lambda subscription: not wanted(subscription))


def _events(body: bytes) -> int:
    return len(_body.decode(body).notifications)


@dataclass(frozen=True, slots=True)
class Abandoned:
    """A batch without further attempts."""

    batch: DeliveryBatch
    attempts: int
    status: int | None
    reason: str


class StoreDeadLetters(Job[int]):
    """Turns abandoned batches into dead letters; returns the number of notifications."""

    def __init__(self, abandoned: Sequence[Abandoned], now: int, limit: int = 0) -> None:
        """`limit`: bytes of dead letters per tenant; 0 is no limit."""
        self._abandoned = abandoned
        self._now = now
        self._limit = limit
        #: dead letters dropped at the limit
        self.dropped = 0

    def work(self, db: Connection) -> int:
        events = 0
        for one in self._abandoned:
            batch = one.batch
            first = batch.rows[0]
            if not outbox.has_row(db, first.id):
                continue  # dropped meanwhile
            letter = Letter(
                first.id,
                first.address,
                self._now,
                first.created,
                one.attempts,
                one.status,
                one.reason[:500],
                batch.events,
            )
            letters.insert(db, letter, batch.body, recipients(batch.body, first.address))
            events += outbox.settle(db, batch.places, [batch.id])
        for tenant in {tenant_of(one.batch.rows[0].address) for one in self._abandoned}:
            dropped = letters.drop_excess(db, tenant, self._limit)
            if dropped:
                limit = usage.LIMITS[usage.DEAD]
                logger.warning("limit_reached", limit=limit, tenant=tenant, letters=dropped)
            self.dropped += dropped
        return events


@dataclass(frozen=True, slots=True)
class Requeued:
    letters: int
    #: notifications in the new rows
    events: int
    addresses: tuple[str, ...]


class Requeue(Job[Requeued]):
    """Turns dead letters into rows at the current addresses of their subscriptions."""

    fresh = True

    def __init__(
        self,
        find: Callable[[Connection], Iterable[int]],
        address: Callable[[str], str | None],
        now: int,
        *,
        waits: Callable[[str], bool],
        only: str | None = None,
    ) -> None:
        """`find` returns ids of letters; `address` that of a live subscription; `waits` whether its part
        stays a dead letter; `only`: requeue for this subscription, which may have another address.
        """
        self._find = find
        self._address = address
        self._waits = waits
        self._now = now
        self._only = only

    def work(self, db: Connection) -> Requeued:
        count = events = 0
        woken: dict[str, None] = {}
        for id in list(self._find(db)):
            found = letters.find(db, id)
            if found is None:
                continue
            letter, body = found
            rest: bytes | None = None
            named = set(recipients(body, letter.address))
            wanted = {subscription for subscription in named if not self._waits(subscription)}
            if self._only is not None and self._address(self._only) != letter.address:
                # The new sink must not receive the matches of other subscriptions.
                wanted &= {self._only}
            if wanted != named:
                taken, rest = split(body, letter.address, wanted.__contains__)
                if taken is None:
                    continue
                body = taken
            parts = self._parts(letter, body)
            if not parts:
                continue  # no recipient is left
            letters.remove(db, [id])
            if rest is not None:
                # Another body needs another id: the whole body may have been sent under the first.
                remaining = replace(letter, id=outbox.take_id(db), events=_events(rest))
                letters.insert(db, remaining, rest, recipients(rest, letter.address))
            for address, part in parts:
                same = part is body and rest is None and address == letter.address
                number = _events(part)
                outbox.write_body(db, address, part, number, created=self._now, id=id if same else None)
                events += number
                woken[address] = None
            count += 1
        return Requeued(count, events, tuple(woken))

    def _parts(self, letter: Letter, body: bytes) -> list[tuple[str, bytes]]:
        by_address: dict[str, set[str]] = {}
        named = set(recipients(body, letter.address))
        for subscription in sorted(named):
            address = self._address(subscription)
            if address is not None:
                by_address.setdefault(address, set()).add(subscription)
        if by_address.get(letter.address) == named:
            return [(letter.address, body)]
        parts = []
        for address, own in by_address.items():
            part, _ = split(body, letter.address, own.__contains__)
            assert part is not None
            parts.append((address, part))
        return parts


class Purge(Job[int]):
    """Deletes dead letters that are too old or have no live recipient; returns how many this step deleted."""

    fresh = True

    def __init__(self, oldest: int, ended: Callable[[str], bool]) -> None:
        """`ended` returns whether a subscription has ended."""
        self._oldest = oldest
        self._ended = ended

    def work(self, db: Connection) -> int:
        return letters.purge(db, self._oldest, self._ended)
