"""Bytes that tenants occupy on this server's disk beyond what is being delivered, and their limits.

Three things stay on disk for as long as somebody else pleases, so each is bounded in bytes per tenant:

    paused   rows that are buffered for paused subscriptions     `paused_bytes`
    stream   rows of streams that nobody has read                `stream_bytes`
    dead     dead letters                                        `dead_letter_bytes`

Triggers count them, in the transaction that writes or deletes a row, so the counters are never wrong and
never computed: `kept` per address, `usage` per tenant. A row of the outbox has `bytes` only at an address
that is counted; rows of sinks cost nothing here. A payload counts once for each row that names it.

At a limit the oldest entries are dropped, those of the tenant's largest address first, in the transaction
that exceeded it. A drop is never silent: `drops` counts the notifications per subscription, the delivery
status shows it with the limit's name, the log and a metric tell the operator, and the reader of a stream gets
a gap. docs/adr/0015 tells why.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import structlog

from edn import clock
from edn.namespace import OWNED
from edn_server.storage.addresses import HELD, PAST, STREAM, held, stream_of, tenant_of
from edn_server.storage.writer import Job

logger = structlog.get_logger()

PAUSED, UNREAD, DEAD, WAITING = "paused", "stream", "dead", "waiting"
#: what each limit is called
LIMITS = {PAUSED: "paused_bytes", UNREAD: "stream_bytes", DEAD: "dead_letter_bytes"}
#: begins the addresses that are counted
COUNTED = (HELD, STREAM)
_STEP = 256

TABLES = (
    "CREATE TABLE kept (address TEXT PRIMARY KEY, kind TEXT NOT NULL, tenant TEXT NOT NULL,"
    " events INTEGER NOT NULL, bytes INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE INDEX kept_largest ON kept (kind, tenant, bytes)",
    "CREATE TABLE usage (kind TEXT NOT NULL, tenant TEXT NOT NULL, bytes INTEGER NOT NULL,"
    " PRIMARY KEY (kind, tenant)) WITHOUT ROWID",
    "CREATE TABLE drops (subscription TEXT NOT NULL, kind TEXT NOT NULL, events INTEGER NOT NULL,"
    " last INTEGER NOT NULL, PRIMARY KEY (subscription, kind)) WITHOUT ROWID",
    "CREATE INDEX outbox_streams ON outbox (created) WHERE address >= 'stream:' AND address < 'stream;'",
    "CREATE INDEX dead_letters_tenant ON dead_letters (substr(address, 1, instr(address, '/')), died, id)",
)

#: `tenant_of` and the kind of a counted address, in SQL; `{0}` is the row
_KIND = (
    "CASE WHEN substr({0}.address, 1, 7) = 'stream:' THEN 'stream'"
    " WHEN {0}.address LIKE '% first' OR {0}.address LIKE '% waiting' THEN 'waiting' ELSE 'paused' END"
)
_BEHIND = "substr({0}.address, instr({0}.address, ':') + 1)"
_TENANT = f"substr({_BEHIND}, 1, max(0, instr({_BEHIND}, '{OWNED}') - 1))"
_ADD = (
    "INSERT INTO kept VALUES ({0}.address, {kind}, {tenant}, {sign}{0}.events, {sign}{0}.bytes)"
    " ON CONFLICT (address) DO UPDATE SET events = events + excluded.events, bytes = bytes + excluded.bytes;"
    " DELETE FROM kept WHERE address = {0}.address AND events <= 0 AND bytes <= 0;"
    " INSERT INTO usage VALUES ({kind}, {tenant}, {sign}{0}.bytes)"
    " ON CONFLICT (kind, tenant) DO UPDATE SET bytes = bytes + excluded.bytes;"
)


def _counting(row: str, sign: str) -> str:
    return _ADD.format(row, kind=_KIND.format(row), tenant=_TENANT.format(row), sign=sign)


def _dead(row: str, sign: str) -> str:
    tenant = f"substr({row}.address, 1, instr({row}.address, '/') - 1)"
    return (
        f"INSERT INTO usage VALUES ('dead', {tenant}, {sign}length({row}.body))"
        " ON CONFLICT (kind, tenant) DO UPDATE SET bytes = bytes + excluded.bytes;"
    )


TRIGGERS = (
    f"CREATE TRIGGER kept_more AFTER INSERT ON outbox WHEN NEW.bytes > 0 BEGIN {_counting('NEW', '')} END",
    f"CREATE TRIGGER kept_less AFTER DELETE ON outbox WHEN OLD.bytes > 0 BEGIN {_counting('OLD', '-')} END",
    "CREATE TRIGGER kept_changed AFTER UPDATE OF address, events ON outbox WHEN OLD.bytes > 0 BEGIN"
    f" {_counting('OLD', '-')} {_counting('NEW', '')} END",
    f"CREATE TRIGGER dead_more AFTER INSERT ON dead_letters BEGIN {_dead('NEW', '')} END",
    f"CREATE TRIGGER dead_less AFTER DELETE ON dead_letters BEGIN {_dead('OLD', '-')} END",
)


@dataclass(frozen=True, slots=True)
class Limits:
    """Bytes that each tenant may occupy on this server; 0 is no limit."""

    paused: int = 256 << 20
    stream: int = 256 << 20
    dead: int = 256 << 20

    def of(self, kind: str) -> int:
        return {PAUSED: self.paused, UNREAD: self.stream, DEAD: self.dead}.get(kind, 0)


@dataclass(slots=True)
class Drops:
    """What one transaction dropped at limits."""

    #: notifications, by kind
    events: dict[str, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        return sum(self.events.values())


@dataclass(frozen=True, slots=True)
class Standing:
    """What a subscription occupies, and what it lost at a limit."""

    buffered_bytes: int
    dropped: int
    #: the limit, and microseconds, of the last drop
    reason: str | None
    last: int | None


def used(db: sqlite3.Connection, kind: str, tenant: str) -> int:
    row = db.execute("SELECT bytes FROM usage WHERE kind = ? AND tenant = ?", (kind, tenant)).fetchone()
    return int(row[0]) if row else 0


def kind_of(address: str) -> str:
    if address.startswith(STREAM):
        return UNREAD
    return PAUSED if address.endswith(PAST) or " " not in address else WAITING


def subscription_of(address: str) -> str:
    """Return the subscription that a counted address belongs to."""
    return address.partition(":")[2].partition(" ")[0]


def enforce(
    db: sqlite3.Connection,
    limits: Limits,
    touched: Iterable[str],
    drop: Callable[[str, list[tuple[int, int]]], int],
) -> Drops:
    """Drop the oldest rows of tenants that are beyond a limit.

    `touched` are counted addresses that grew; `drop` deletes rows, (id, batch), of an address and returns how
    many notifications they held.
    """
    drops = Drops()
    for kind, tenant in {(kind_of(address), tenant_of(address)) for address in touched}:
        limit, before = limits.of(kind), drops.total
        while limit and (excess := used(db, kind, tenant) - limit) > 0:
            largest = db.execute(
                "SELECT address FROM kept WHERE kind = ? AND tenant = ? ORDER BY bytes DESC LIMIT 1",
                (kind, tenant),
            ).fetchone()
            if largest is None:
                break
            _drop_oldest(db, drops, kind, largest[0], excess, drop)
        if drops.total > before:
            lost = drops.total - before
            logger.warning("limit_reached", limit=LIMITS[kind], tenant=tenant, dropped=lost)
    return drops


def _drop_oldest(
    db: sqlite3.Connection,
    drops: Drops,
    kind: str,
    address: str,
    excess: int,
    drop: Callable[[str, list[tuple[int, int]]], int],
) -> None:
    rows = db.execute(
        "SELECT id, batch, bytes FROM outbox WHERE address = ? ORDER BY id LIMIT ?", (address, _STEP)
    ).fetchall()
    going = []
    for id, batch, size in rows:
        going.append((id, batch))
        excess -= size
        if excess <= 0:
            break
    events = drop(address, going)
    drops.events[kind] = drops.events.get(kind, 0) + events
    count(db, subscription_of(address), kind, events)


def count(db: sqlite3.Connection, subscription: str, kind: str, events: int) -> None:
    """Write down that notifications of a subscription were dropped at a limit."""
    db.execute(
        "INSERT INTO drops VALUES (?, ?, ?, ?) ON CONFLICT (subscription, kind)"
        " DO UPDATE SET events = events + excluded.events, last = excluded.last",
        (subscription, kind, events, int(clock.now() * 1e6)),
    )


def standing(db: sqlite3.Connection, subscription: str, parts: Iterable[str]) -> Standing:
    """Read what a subscription occupies and lost; `parts` are its members, or itself."""
    names = dict.fromkeys([subscription, *parts])
    places = [place for name in names for place in (held(name), held(name) + PAST, stream_of(name))]
    marks = ", ".join("?" * len(places))
    (size,) = db.execute(
        f"SELECT coalesce(sum(bytes), 0) FROM kept WHERE address IN ({marks})", places
    ).fetchone()
    marks = ", ".join("?" * len(names))
    found = db.execute(
        f"SELECT kind, events, last FROM drops WHERE subscription IN ({marks}) ORDER BY last", list(names)
    ).fetchall()
    last = found[-1] if found else (None, 0, None)
    return Standing(int(size), sum(events for _, events, _ in found), LIMITS.get(last[0] or ""), last[2])


class Forget(Job[None]):
    """Drops of subscriptions that are no more."""

    fresh = True

    def __init__(self, ended: Callable[[str], bool]) -> None:
        self._ended = ended

    def work(self, db: sqlite3.Connection) -> None:
        names = [name for (name,) in db.execute("SELECT DISTINCT subscription FROM drops")]
        gone = [(name,) for name in names if self._ended(name)]
        db.executemany("DELETE FROM drops WHERE subscription = ?", gone)
        db.execute("DELETE FROM usage WHERE bytes = 0")
