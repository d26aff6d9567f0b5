"""Dead letters: POSTs that were given up, kept with what they would have said, to be sent again by a call.

A letter keeps its row's id, so that it goes out again under the same webhook-id. It names subscriptions of
the tenant that its address belongs to: in the body by their ids, everywhere else by their keys (see
`edn.namespace`). `names` gives each key a small number, `dead_names` orders letters by (subscription, time of
death). So a page is one range of an index, however many letters there are.

A letter goes to where its subscriptions are now. If that is where it died, whole and as it was; if some of
them have another sink by now, are paused or are no more, what goes to each address is a new row of its own,
and what stays is a letter of its own: no webhook-id is used for two bodies.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import structlog

from edn.namespace import key_of
from edn_server.outbox import rows as outbox
from edn_server.outbox.batches import Parcel
from edn_server.storage import usage
from edn_server.storage.addresses import tenant_of
from edn_server.storage.writer import Job

logger = structlog.get_logger()

#: letters that one transaction removes or revives
STEP = 500


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


@dataclass(frozen=True, slots=True)
class Letter:
    id: int
    address: str
    #: microseconds: when it was given up, and when its row was written
    died: int
    created: int
    attempts: int
    status: int | None
    reason: str
    events: int


_LETTER = "id, address, died, created, attempts, status, reason, events"


@dataclass(frozen=True, slots=True)
class Death:
    parcel: Parcel
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

    def work(self, db: sqlite3.Connection) -> int:
        events = 0
        for death in self._deaths:
            parcel = death.parcel
            first = parcel.rows[0]
            # Unless somebody dropped it meanwhile.
            if not db.execute("SELECT 1 FROM outbox WHERE id = ?", (first.id,)).fetchone():
                continue
            values = (first.id, first.address, self._now, first.created, death.attempts, death.status)
            _insert(db, (*values, death.reason[:500], parcel.events), parcel.body)
            events += outbox.Settle(parcel.places, parcel=parcel.id).work(db)
        for tenant in {tenant_of(death.parcel.rows[0].address) for death in self._deaths}:
            self.dropped += _keep_within(db, tenant, self._limit)
        return events


def _keep_within(db: sqlite3.Connection, tenant: str, limit: int) -> int:
    """Drop the oldest letters of a tenant beyond its limit; how many. Each is counted for whom it names."""
    dropped = 0
    while limit and (excess := usage.used(db, usage.DEAD, tenant) - limit) > 0:
        found = db.execute(
            "SELECT id, length(body), named, events FROM dead_letters"
            " WHERE substr(address, 1, instr(address, '/')) = ? ORDER BY died, id LIMIT ?",
            (tenant + "/", STEP),
        ).fetchall()
        if not found:
            break
        for id, size, named, events in found:
            for name in np.frombuffer(named, "<i8").tolist():
                row = db.execute("SELECT subscription FROM names WHERE name = ?", (name,)).fetchone()
                if row is not None:
                    usage.count(db, row[0], usage.DEAD, events)
            _remove(db, [id])
            dropped += 1
            excess -= size
            if excess <= 0:
                break
    if dropped:
        logger.warning("limit_reached", limit=usage.LIMITS[usage.DEAD], tenant=tenant, letters=dropped)
    return dropped


def _insert(db: sqlite3.Connection, values: tuple[object, ...], body: bytes) -> None:
    id, address, died, *_ = values
    keys = dict.fromkeys(recipients(body, str(address)))
    named = [_name(db, subscription) for subscription in keys]
    blob = np.array(named, dtype="<i8").tobytes()
    db.execute("INSERT INTO dead_letters VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", (*values, blob, body))
    db.executemany("INSERT INTO dead_names VALUES (?, ?, ?)", [(name, died, id) for name in named])


def _fresh_id(db: sqlite3.Connection) -> int:
    """An id that no row has or will have; letters were rows, so the counter is there."""
    row = db.execute(
        "UPDATE sqlite_sequence SET seq = seq + 1 WHERE name = 'outbox' RETURNING seq"
    ).fetchone()
    return int(row[0])


def _name(db: sqlite3.Connection, subscription: str) -> int:
    known = name_of(db, subscription)
    if known is not None:
        return known
    return int(db.execute("INSERT INTO names (subscription) VALUES (?)", (subscription,)).lastrowid or 0)


def name_of(db: sqlite3.Connection, subscription: str) -> int | None:
    row = db.execute("SELECT name FROM names WHERE subscription = ?", (subscription,)).fetchone()
    return None if row is None else int(row[0])


# -- reading ------------------------------------------------------------------------------------------------


def page(
    db: sqlite3.Connection, subscription: str | None, after: tuple[int, int], limit: int
) -> list[Letter]:
    """Letters in the order of (died, id), beyond `after`; of one subscription, or of all."""
    if subscription is None:
        found = db.execute(
            f"SELECT {_LETTER} FROM dead_letters WHERE (died, id) > (?, ?) ORDER BY died, id LIMIT ?",
            (*after, limit),
        )
    else:
        found = db.execute(
            f"SELECT {', '.join('l.' + field for field in _LETTER.split(', '))} FROM dead_names n"
            " CROSS JOIN dead_letters l ON l.id = n.letter"
            " WHERE n.name = ? AND (n.died, n.letter) > (?, ?) ORDER BY n.died, n.letter LIMIT ?",
            (name_of(db, subscription), *after, limit),
        )
    return [Letter(*values) for values in found]


def find(db: sqlite3.Connection, id: int) -> tuple[Letter, bytes] | None:
    row = db.execute(f"SELECT {_LETTER}, body FROM dead_letters WHERE id = ?", (id,)).fetchone()
    return None if row is None else (Letter(*row[:-1]), row[-1])


def count(db: sqlite3.Connection, subscription: str, most: int = 1000) -> int:
    """How many letters name a subscription; counted up to `most`."""
    row = db.execute(
        "SELECT count(*) FROM (SELECT 1 FROM dead_names WHERE name = ? LIMIT ?)",
        (name_of(db, subscription), most),
    ).fetchone()
    return int(row[0])


# -- changing -----------------------------------------------------------------------------------------------


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
        find: Callable[[sqlite3.Connection], Iterable[int]],
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

    def work(self, db: sqlite3.Connection) -> Revived:
        letters = events = 0
        woken: dict[str, None] = {}
        for id in list(self._find(db)):
            found = find(db, id)
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
            _remove(db, [id])
            if rest is not None:
                # Another body, so another id: the whole of it may have been tried under the first.
                values = (_fresh_id(db), letter.address, letter.died, letter.created, letter.attempts)
                held = len(_body.decode(rest).notifications)
                _insert(db, (*values, letter.status, letter.reason, held), rest)
            for address, part in parts:
                same = part is body and rest is None and address == letter.address
                number = len(_body.decode(part).notifications)
                counted = len(part) if address.startswith(usage.COUNTED) else 0
                db.execute(
                    "INSERT INTO outbox (id, address, batch, events, composition, created, bytes)"
                    " VALUES (?, ?, ?, ?, ?, ?, ?)",
                    (id if same else None, address, outbox.READY, number, part, self._now, counted),
                )
                events += number
                woken[address] = None
            letters += 1
        return Revived(letters, events, tuple(woken))

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


def since(subscription: str, time: int, limit: int) -> Callable[[sqlite3.Connection], list[int]]:
    """The oldest letters of a subscription that died at or after a time."""

    def ids(db: sqlite3.Connection) -> list[int]:
        found = db.execute(
            "SELECT letter FROM dead_names WHERE name = ? AND died >= ? ORDER BY died, letter LIMIT ?",
            (name_of(db, subscription), time, limit),
        )
        return [letter for (letter,) in found]

    return ids


def _remove(db: sqlite3.Connection, ids: Sequence[int]) -> None:
    for id in ids:
        row = db.execute("DELETE FROM dead_letters WHERE id = ? RETURNING died, named", (id,)).fetchone()
        if row is not None:
            died, named = row
            keys = [(name, died, id) for name in np.frombuffer(named, "<i8").tolist()]
            db.executemany("DELETE FROM dead_names WHERE name = ? AND died = ? AND letter = ?", keys)


class Purge(Job[int]):
    """Letters that are too old go, and those that name nobody who lives; how many of a step's worth went."""

    fresh = True

    def __init__(self, oldest: int, ended: Callable[[str], bool]) -> None:
        """`cleanup` tells whether a subscription is no more."""
        self._oldest = oldest
        self._ended = ended

    def work(self, db: sqlite3.Connection) -> int:
        old = db.execute(
            "SELECT id FROM dead_letters WHERE died < ? LIMIT ?", (self._oldest, STEP)
        ).fetchall()
        _remove(db, [id for (id,) in old])
        gone = len(old)
        for name, subscription in db.execute("SELECT name, subscription FROM names").fetchall():
            if gone >= STEP:
                break
            if not self._ended(subscription):
                continue
            keys = db.execute(
                "SELECT died, letter FROM dead_names WHERE name = ? LIMIT ?", (name, STEP - gone)
            ).fetchall()
            gone += len(keys)
            db.executemany(
                "DELETE FROM dead_names WHERE name = ? AND died = ? AND letter = ?",
                [(name, died, letter) for died, letter in keys],
            )
            for _, letter in keys:
                self._unless_named(db, letter)
            if not db.execute("SELECT 1 FROM dead_names WHERE name = ? LIMIT 1", (name,)).fetchone():
                db.execute("DELETE FROM names WHERE name = ?", (name,))
        return gone

    def _unless_named(self, db: sqlite3.Connection, letter: int) -> None:
        row = db.execute("SELECT died, named FROM dead_letters WHERE id = ?", (letter,)).fetchone()
        if row is None:
            return
        died, named = row
        for name in np.frombuffer(named, "<i8").tolist():
            key = (name, died, letter)
            if db.execute(
                "SELECT 1 FROM dead_names WHERE name = ? AND died = ? AND letter = ?", key
            ).fetchone():
                return
        db.execute("DELETE FROM dead_letters WHERE id = ?", (letter,))
