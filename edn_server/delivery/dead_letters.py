"""Dead letters: POSTs that were given up, kept with what they would have said, to be sent again by a call.

A letter keeps its row's id, so that it goes out again under the same webhook-id. It names subscriptions of
the tenant that its address belongs to: in the body by their ids, everywhere else by their keys (see
`edn.model.namespace`).

A letter goes to where its subscriptions are now. If that is where it died, whole and as it was; if some of
them have another sink by now, are paused or are no more, what goes to each address is a new row of its own,
and what stays is a letter of its own: no webhook-id is used for two bodies.
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


class _Entry(msgspec.Struct):
    topic: str
    #: as the bytes that it came in
    event: msgspec.Raw
    matches: list[_Match]


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
    """Cut a body into what is for the wanted subscriptions, by their keys, and the rest; None is nothing."""
    tenant = tenant_of(address)

    def part(keep: Callable[[str], bool]) -> bytes | None:
        entries = []
        for entry in _body.decode(body).notifications:
            matches = [match for match in entry.matches if keep(key_of(tenant, match.subscription))]
            if matches:
                entries.append(_Entry(entry.topic, entry.event, matches))
        return msgspec.json.encode(_Body(entries)) if entries else None

    return part(wanted), part(lambda subscription: not wanted(subscription))


def _events(body: bytes) -> int:
    return len(_body.decode(body).notifications)


@dataclass(frozen=True, slots=True)
class Death:
    batch: DeliveryBatch
    attempts: int
    status: int | None
    reason: str


class Bury(Job[int]):
    """Parcels that are given up become letters; how many notifications wait no more."""

    def __init__(self, deaths: Sequence[Death], now: int, limit: int = 0) -> None:
        """`limit`: bytes of letters that a tenant may have; 0 is any number."""
        self._deaths = deaths
        self._now = now
        self._limit = limit
        #: letters that went because of it
        self.dropped = 0

    def work(self, db: Connection) -> int:
        events = 0
        for death in self._deaths:
            batch = death.batch
            first = batch.rows[0]
            # Unless somebody dropped it meanwhile.
            if not outbox.has_row(db, first.id):
                continue
            letter = Letter(
                first.id,
                first.address,
                self._now,
                first.created,
                death.attempts,
                death.status,
                death.reason[:500],
                batch.events,
            )
            letters.insert(db, letter, batch.body, recipients(batch.body, first.address))
            events += outbox.settle(db, batch.places, [batch.id])
        for tenant in {tenant_of(death.batch.rows[0].address) for death in self._deaths}:
            dropped = letters.drop_excess(db, tenant, self._limit)
            if dropped:
                limit = usage.LIMITS[usage.DEAD]
                logger.warning("limit_reached", limit=limit, tenant=tenant, letters=dropped)
            self.dropped += dropped
        return events


@dataclass(frozen=True, slots=True)
class Revived:
    letters: int
    #: notifications that wait now
    events: int
    addresses: tuple[str, ...]


class Revive(Job[Revived]):
    """Letters become rows again, at the addresses that their subscriptions have now."""

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
        """`find` gives ids; `address` that of a living subscription; `waits` tells whose part stays dead, for
        now; `only` is the one on whose behalf this is, with an address of its own perhaps.
        """
        self._find = find
        self._address = address
        self._waits = waits
        self._now = now
        self._only = only

    def work(self, db: Connection) -> Revived:
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
                # Others' matches are none of the new sink's business.
                wanted &= {self._only}
            if wanted != named:
                taken, rest = split(body, letter.address, wanted.__contains__)
                if taken is None:
                    continue
                body = taken
            parts = self._parts(letter, body)
            if not parts:
                continue  # nobody is left to tell
            letters.remove(db, [id])
            if rest is not None:
                # Another body, so another id: the whole of it may have been tried under the first.
                remaining = replace(letter, id=outbox.take_id(db), events=_events(rest))
                letters.insert(db, remaining, rest, recipients(rest, letter.address))
            for address, part in parts:
                same = part is body and rest is None and address == letter.address
                number = _events(part)
                outbox.write_body(db, address, part, number, created=self._now, id=id if same else None)
                events += number
                woken[address] = None
            count += 1
        return Revived(count, events, tuple(woken))

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
    """Deletes letters that are too old, and those that name nobody who lives; returns how many of a step."""

    fresh = True

    def __init__(self, oldest: int, ended: Callable[[str], bool]) -> None:
        """`ended` tells whether a subscription is no more."""
        self._oldest = oldest
        self._ended = ended

    def work(self, db: Connection) -> int:
        return letters.purge(db, self._oldest, self._ended)
