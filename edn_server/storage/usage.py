"""Counts the bytes that tenants occupy on disk besides the backlog of sinks, and enforces their limits.

Clients decide how long these rows stay on disk, so each kind is limited in bytes per tenant:

    paused   rows buffered for paused subscriptions     `paused_bytes`
    stream   unread rows of streams                     `stream_bytes`
    dead     dead letters                               `dead_letter_bytes`

Triggers count in the transaction that writes or deletes a row, so the counters are always exact: `kept` per
subscription, `usage` per tenant. An outbox row has `bytes` only if it is counted; rows of sinks are not. A
payload counts once per row that names it.

The transaction that exceeds a limit drops the oldest entries, those of the tenant's largest subscription
first. A drop is never silent: `drops` counts the notifications per subscription, the delivery status shows
them with the limit's name, a log line and a metric inform the operator, and the reader of a stream gets a
gap. The reasons are in docs/adr/0015.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import structlog

from edn.model.namespace import OWNED, owner_of
from edn.runtime import clock
from edn_server.policies import UsageLimits
from edn_server.storage.interface import Connection

logger = structlog.get_logger()

PAUSED, UNREAD, DEAD, WAITING = "paused", "stream", "dead", "waiting"
#: name of each limit
LIMITS = {PAUSED: "paused_bytes", UNREAD: "stream_bytes", DEAD: "dead_letter_bytes"}
_STEP = 256

TABLES = (
    "CREATE TABLE kept (subscription TEXT NOT NULL, kind TEXT NOT NULL, tenant TEXT NOT NULL,"
    " events INTEGER NOT NULL, bytes INTEGER NOT NULL, PRIMARY KEY (subscription, kind)) WITHOUT ROWID",
    "CREATE INDEX kept_largest ON kept (kind, tenant, bytes)",
    "CREATE TABLE usage (kind TEXT NOT NULL, tenant TEXT NOT NULL, bytes INTEGER NOT NULL,"
    " PRIMARY KEY (kind, tenant)) WITHOUT ROWID",
    "CREATE TABLE drops (subscription TEXT NOT NULL, kind TEXT NOT NULL, events INTEGER NOT NULL,"
    " last INTEGER NOT NULL, PRIMARY KEY (subscription, kind)) WITHOUT ROWID",
    "CREATE INDEX dead_letters_tenant ON dead_letters (substr(address, 1, instr(address, '/')), died, id)",
)

#: SQL of a counted row's kind and tenant; `{0}` is the row
_KIND = "CASE {0}.state WHEN 'ready' THEN 'stream' WHEN 'waiting' THEN 'waiting' ELSE 'paused' END"
_TENANT = f"substr({{0}}.subscription, 1, max(0, instr({{0}}.subscription, '{OWNED}') - 1))"
_ADD = (
    "INSERT INTO kept VALUES ({0}.subscription, {kind}, {tenant}, {sign}{0}.events, {sign}{0}.bytes)"
    " ON CONFLICT (subscription, kind) DO UPDATE SET events = events + excluded.events,"
    " bytes = bytes + excluded.bytes;"
    " DELETE FROM kept WHERE subscription = {0}.subscription AND events <= 0 AND bytes <= 0;"
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
    "CREATE TRIGGER kept_changed AFTER UPDATE OF state, events ON outbox WHEN OLD.bytes > 0 BEGIN"
    f" {_counting('OLD', '-')} {_counting('NEW', '')} END",
    f"CREATE TRIGGER dead_more AFTER INSERT ON dead_letters BEGIN {_dead('NEW', '')} END",
    f"CREATE TRIGGER dead_less AFTER DELETE ON dead_letters BEGIN {_dead('OLD', '-')} END",
)


@dataclass(slots=True)
class Drops:
    """Notifications that one transaction dropped at limits."""

    #: kind → notifications
    events: dict[str, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        return sum(self.events.values())


@dataclass(frozen=True, slots=True)
class SubscriptionUsage:
    """Bytes that a subscription occupies, and notifications dropped at a limit."""

    buffered_bytes: int
    dropped: int
    #: limit and time (microseconds) of the last drop
    reason: str | None
    last: int | None


def used(db: Connection, kind: str, tenant: str) -> int:
    """Returns the bytes that a tenant occupies."""
    row = db.execute("SELECT bytes FROM usage WHERE kind = ? AND tenant = ?", (kind, tenant)).fetchone()
    return int(row[0]) if row else 0


def kind_of(state: str) -> str:
    """Returns the kind of rows of a subscription in this state."""
    return {"ready": UNREAD, "buffered": PAUSED}.get(state, WAITING)


def enforce(
    db: Connection,
    limits: UsageLimits,
    touched: Iterable[tuple[str, str | None]],
    drop: Callable[[str, str, list[tuple[int, int | None]]], int],
) -> Drops:
    """Drops the oldest rows of tenants beyond a limit.

    `touched`: (kind, subscription) pairs that grew; `drop` deletes rows, (id, frame_id), of such a pair and
    returns the number of their notifications.
    """
    drops = Drops()
    for kind, tenant in {(kind, owner_of(subscription or "")) for kind, subscription in touched}:
        limit, before = limits.of(kind), drops.total
        while limit and (excess := used(db, kind, tenant) - limit) > 0:
            largest = db.execute(
                "SELECT subscription FROM kept WHERE kind = ? AND tenant = ? ORDER BY bytes DESC LIMIT 1",
                (kind, tenant),
            ).fetchone()
            if largest is None:
                break
            going = _oldest(db, kind, largest[0], excess)
            if not going:
                break
            events = drop(kind, largest[0], going)
            drops.events[kind] = drops.events.get(kind, 0) + events
            count(db, largest[0], kind, events)
        if drops.total > before:
            lost = drops.total - before
            logger.warning("limit_reached", limit=LIMITS[kind], tenant=tenant, dropped=lost)
    return drops


def _oldest(db: Connection, kind: str, subscription: str, excess: int) -> list[tuple[int, int | None]]:
    """Returns (id, frame_id) of the oldest rows that make up the excess."""
    rows = db.execute(
        "SELECT id, frame_id, bytes FROM outbox WHERE subscription = ? AND state = ? ORDER BY id LIMIT ?",
        (subscription, "ready" if kind == UNREAD else "buffered", _STEP),
    ).fetchall()
    going: list[tuple[int, int | None]] = []
    for id, frame_id, size in rows:
        going.append((id, frame_id))
        excess -= size
        if excess <= 0:
            break
    return going


def count(db: Connection, subscription: str, kind: str, events: int) -> None:
    """Counts notifications of a subscription that were dropped at a limit."""
    db.execute(
        "INSERT INTO drops VALUES (?, ?, ?, ?) ON CONFLICT (subscription, kind)"
        " DO UPDATE SET events = drops.events + excluded.events, last = excluded.last",
        (subscription, kind, events, int(clock.now() * 1e6)),
    )


def streams(db: Connection) -> list[tuple[str, int]]:
    """Returns (subscription, events) of streams with unread rows."""
    return db.execute("SELECT subscription, events FROM kept WHERE kind = ?", (UNREAD,)).fetchall()


def subscription_usage(db: Connection, subscription: str, members: Iterable[str]) -> SubscriptionUsage:
    """Returns the usage of a subscription; `members` are those of a subtree subscription, or itself."""
    names = list(dict.fromkeys([subscription, *members]))
    marks = ", ".join("?" * len(names))
    (size,) = db.execute(
        f"SELECT coalesce(sum(bytes), 0) FROM kept WHERE subscription IN ({marks}) AND kind != ?",
        [*names, WAITING],
    ).fetchone()
    found = db.execute(
        f"SELECT kind, events, last FROM drops WHERE subscription IN ({marks}) ORDER BY last", names
    ).fetchall()
    last = found[-1] if found else (None, 0, None)
    dropped = sum(events for _, events, _ in found)
    return SubscriptionUsage(int(size), dropped, LIMITS.get(last[0] or ""), last[2])


def forget(db: Connection, ended: Callable[[str], bool]) -> None:
    """Deletes the drops of ended subscriptions, and zero counters."""
    names = [name for (name,) in db.execute("SELECT DISTINCT subscription FROM drops").fetchall()]
    db.executemany("DELETE FROM drops WHERE subscription = ?", [(name,) for name in names if ended(name)])
    db.execute("DELETE FROM usage WHERE bytes = 0")
