"""What has changed of topics, key rings, subscriptions, servers, API keys and bindings, in the order in which
others learn of it.

Every change takes the next place in this order, and the thing that it concerns leaves its former one: so the
table holds each thing once, and "all that has changed since a place" is one range. Things travel as what they
are now, not as what happened to them (`edn.protocol.PeerPage`). A thing's **revision** grows with each
change, wherever it was made, and tells which of two states is the newer. What has ended stays as a tombstone,
so that an older state cannot bring it back.

Without other dispatchers nothing of this is kept.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, TypeVar

from dispatcher.store import directory, meta
from dispatcher.store.event_log import Log
from dispatcher.store.interface import Connection, Transaction
from edn import protocol

State = TypeVar("State")

#: seconds for which it is remembered that something has ended
TOMBSTONE_SECONDS = 7 * 86_400.0
#: things in one page
PAGE = 500


class Kind(IntEnum):
    SERVER = 0
    TOPIC = 1
    RING = 2
    SUBSCRIPTION = 3
    KEY = 4
    BINDING = 5


@dataclass(frozen=True, slots=True)
class Change:
    touched: int
    kind: Kind
    name: str
    revision: int
    #: microseconds, when it has ended
    gone: int | None = None
    #: of a subscription that has ended: what was its last version, and where
    version: int | None = None
    server: str | None = None
    #: of a subscription: what its server answered when it stored the present version
    epoch: int | None = None
    seq: int | None = None
    #: of a subscription: from when on it wants to hear what is available; None is from now
    since: int | None = None
    #: of a subscription: whether its expiry is another than that which was stored
    renewed: bool = False
    #: of a subscription: the server that it was on before, if it has moved
    former: str | None = None
    #: of a subscription that has ended and wanted to hear what is available: topic and filter, as JSON
    wanted: str | None = None


_FIELDS = "touched, kind, name, revision, gone, version, server, epoch, seq, since, renewed, former, wanted"


def _load(row: tuple[Any, ...]) -> Change:
    values = list(row)
    values[1], values[10] = Kind(row[1]), bool(row[10])
    return Change(*values)


def find(connection: Connection, kind: Kind, name: str) -> Change | None:
    row = connection.execute(
        f"SELECT {_FIELDS} FROM changes WHERE kind = ? AND name = ?", (kind, name)
    ).fetchone()
    return None if row is None else _load(row)


def note(
    transaction: Transaction,
    kind: Kind,
    name: str,
    *,
    revision: int | None = None,
    gone: int | None = None,
    version: int | None = None,
    server: str | None = None,
    stored: protocol.Stored | None = None,
    since: int | None = None,
    renewed: bool = False,
    former: str | None = None,
    wanted: str | None = None,
    whole: bool = False,
) -> int:
    """Something changes in this transaction; its revision, 0 where there are no other dispatchers.

    `revision` is given where another dispatcher has made the change. `stored` goes with a new version of a
    subscription; without it what is known of the present one stays, unless this is the `whole` of it.
    `former` goes with a move to another server, and stays.
    """
    if not transaction.noting:
        return 0
    transaction.noted = True
    connection = transaction.connection
    known = find(connection, kind, name)
    if revision is None:
        revision = max(transaction.time, known.revision + 1 if known else 0)
    epoch, seq = (stored.epoch, stored.seq) if stored else (None, None)
    if known is not None:
        connection.execute("DELETE FROM changes WHERE touched = ?", (known.touched,))
        if gone is None and known.gone is None and not whole:
            former = former or known.former
            if stored is None:
                epoch, seq, since = known.epoch, known.seq, known.since
                renewed = renewed or known.renewed
    connection.execute(
        f"INSERT INTO changes ({_FIELDS[len('touched, ') :]}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (kind, name, revision, gone, version, server, epoch, seq, since, renewed, former, wanted),
    )
    return revision


def note_version(
    transaction: Transaction, subscription: str, stored: protocol.Stored, *, former: str | None = None
) -> int:
    """A subscription goes on as another version, which its server has stored; since when it wants to hear
    stays. `former`: the server that it was on, if it has moved.
    """
    known = find(transaction.connection, Kind.SUBSCRIPTION, subscription)
    since = known.since if known else None
    return note(transaction, Kind.SUBSCRIPTION, subscription, stored=stored, since=since, former=former)


def note_end(transaction: Transaction, ended: directory.Subscription) -> int:
    """A subscription ends in this transaction."""
    known = find(transaction.connection, Kind.SUBSCRIPTION, ended.id) if transaction.noting else None
    # Of one that is paused the rest of its past is not wanted any more.
    since = None if known is None or ended.paused or ended.subtree is not None else known.since
    return note(
        transaction,
        Kind.SUBSCRIPTION,
        ended.id,
        gone=transaction.time,
        version=ended.version,
        server=ended.server,
        since=since,
        wanted=None if since is None else json.dumps([ended.topic, ended.filter]),
    )


def prepare(log: Log, *, shared: bool) -> None:
    """Before the log starts: whether there are other dispatchers, who must learn what is here already."""
    log.noting = shared

    def operation(transaction: Transaction) -> None:
        connection = transaction.connection
        if not shared:
            connection.execute("DELETE FROM changes")
            return
        for kind, query in (
            (Kind.SERVER, "SELECT id FROM servers"),
            (Kind.TOPIC, "SELECT CAST(uid AS TEXT) FROM topics"),
            (Kind.RING, "SELECT id FROM rings"),
            (Kind.SUBSCRIPTION, "SELECT id FROM subscriptions ORDER BY serial"),
            (Kind.KEY, "SELECT id FROM keys"),
            (Kind.BINDING, "SELECT name FROM bindings"),
        ):
            # A program without peers kept no changes: what it left is newer than what others may remember.
            connection.execute(
                "INSERT OR IGNORE INTO changes (kind, name, revision)"
                f" SELECT ?, here.*, ? FROM ({query}) AS here",
                (kind, transaction.time),
            )

    log.perform_at_start(operation)


def forget(transaction: Transaction) -> None:
    """Take off tombstones that are older than anybody should be away."""
    before = transaction.time - int(TOMBSTONE_SECONDS * 1e6)
    (newest,) = transaction.connection.execute(
        "SELECT max(touched) FROM changes WHERE gone < ?", (before,)
    ).fetchone()
    if newest is not None:
        transaction.connection.execute("DELETE FROM changes WHERE gone < ?", (before,))
        meta.raise_to(transaction.connection, "forgotten", newest)


def position(connection: Connection, log: str) -> int:
    """Return up to which place another dispatcher's changes are in this log."""
    row = connection.execute("SELECT position FROM peers WHERE log = ?", (log,)).fetchone()
    return int(row[0]) if row else 0


def put_position(transaction: Transaction, log: str, position: int) -> None:
    transaction.connection.execute(
        "INSERT INTO peers VALUES (?1, ?2) ON CONFLICT (log) DO UPDATE SET position = ?2", (log, position)
    )


@dataclass(frozen=True, slots=True)
class Page:
    """What has changed in the places (after, upto]; things that others need to understand come along."""

    upto: int
    servers: list[protocol.ServerState]
    topics: list[protocol.TopicState]
    rings: list[protocol.RingState]
    subscriptions: list[protocol.SubscriptionState]
    keys: list[protocol.KeyState]
    gone: list[protocol.Tombstone]
    bindings: list[protocol.BindingState]


def read(connection: Connection, after: int) -> Page:
    """The next page after a place."""
    connection.execute("BEGIN")
    try:
        rows = connection.execute(
            f"SELECT {_FIELDS} FROM changes WHERE touched > ? ORDER BY touched LIMIT ?", (after, PAGE)
        ).fetchall()
        found = [_load(row) for row in rows]
        living = [change for change in found if change.gone is None]
        gone = [change for change in found if change.gone is not None]
        states = _present(
            _subscription(connection, change) for change in living if change.kind is Kind.SUBSCRIPTION
        )
        servers = {state.server for state in states} | {end.server for end in gone if end.server}
        topics, rings = {str(state.topic) for state in states}, {state.ring for state in states} - {""}
        servers |= {change.name for change in living if change.kind is Kind.SERVER}
        topics |= {change.name for change in living if change.kind is Kind.TOPIC}
        rings |= {change.name for change in living if change.kind is Kind.RING}
        keys = [change for change in living if change.kind is Kind.KEY]
        bindings = [change for change in living if change.kind is Kind.BINDING]
        return Page(
            upto=found[-1].touched if found else after,
            servers=_present(_server(connection, name) for name in sorted(servers)),
            topics=_present(_topic(connection, uid) for uid in sorted(topics)),
            rings=_present(_ring(connection, id) for id in sorted(rings)),
            subscriptions=states,
            keys=_present(_key(connection, change) for change in keys),
            gone=[_end(end) for end in gone],
            bindings=_present(_binding(connection, change) for change in bindings),
        )
    finally:
        connection.execute("COMMIT")


def _present(states: Iterable[State | None]) -> list[State]:
    """Without what has ended meanwhile, which is a later change."""
    return [state for state in states if state is not None]


def _end(change: Change) -> protocol.Tombstone:
    topic, filter = (None, None) if change.wanted is None else json.loads(change.wanted)
    return protocol.Tombstone(
        int(change.kind),
        change.name,
        change.revision,
        change.gone or 0,
        change.version,
        change.server,
        change.since,
        topic,
        filter,
    )


def _server(connection: Connection, name: str) -> protocol.ServerState | None:
    row = connection.execute("SELECT id, url, key, epoch FROM servers WHERE id = ?", (name,)).fetchone()
    return None if row is None else protocol.ServerState(*row)


def _topic(connection: Connection, uid: str) -> protocol.TopicState | None:
    row = connection.execute(
        "SELECT uid, CASE tenant WHEN '' THEN t.name ELSE tenant || '/' || t.name END, t.revision, columns,"
        " attributes, engine, created, availability, c.revision,"
        " chosen, closed FROM topics t JOIN changes c ON c.kind = ? AND c.name = ? WHERE uid = ?",
        (Kind.TOPIC, uid, int(uid)),
    ).fetchone()
    if row is None:
        return None
    *fields, chosen, closed = row
    return protocol.TopicState(*[*fields, bool(chosen), bool(closed)])


def _ring(connection: Connection, id: str) -> protocol.RingState | None:
    row = connection.execute(
        "SELECT id, tenant, owner, url, given, current, previous, until, version FROM rings WHERE id = ?",
        (id,),
    ).fetchone()
    return None if row is None else protocol.RingState(*row)


def _key(connection: Connection, change: Change) -> protocol.KeyState | None:
    row = connection.execute(
        "SELECT id, digest, name, tenant, scopes, quota, created, expires FROM keys WHERE id = ?",
        (change.name,),
    ).fetchone()
    if row is None:
        return None
    id, digest, name, tenant, scopes, quota, created, expires = row
    return protocol.KeyState(id, digest, name, tenant, scopes, quota, created, expires, change.revision)


def _binding(connection: Connection, change: Change) -> protocol.BindingState | None:
    row = connection.execute(
        "SELECT name, servers, engine, created FROM bindings WHERE name = ?", (change.name,)
    ).fetchone()
    if row is None:
        return None
    name, servers, engine, created = row
    named = None if servers is None else json.loads(servers)
    return protocol.BindingState(name, named, engine, created, change.revision)


def _subscription(connection: Connection, change: Change) -> protocol.SubscriptionState | None:
    found = directory.find(connection, change.name)
    if found is None:
        return None
    return protocol.SubscriptionState(
        id=found.id,
        revision=change.revision,
        version=found.version,
        owner=found.owner,
        topic=found.topic,
        filter=found.filter,
        attributes=directory.attributes_of(connection, change.name),
        url=found.url,
        recipient=found.recipient,
        expires=found.expires,
        server=found.server,
        created=found.created,
        serial=found.serial,
        location=None if found.location is None else list(found.location),
        ring=found.ring,
        paused=found.paused,
        epoch=change.epoch,
        seq=change.seq,
        since=change.since,
        renewed=change.renewed,
        former=change.former,
        subtree=found.subtree,
    )
