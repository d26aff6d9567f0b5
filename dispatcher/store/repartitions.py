"""Repartitions with their assignments, and moves of subscriptions that are not settled yet."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from dispatcher.store.interface import Connection, Transaction
from edn.errors import NotFound

Kind = Literal["apply", "drain", "replace", "fill"]
State = Literal["open", "running", "done", "cancelled"]

#: seconds after which one that was opened and never started is forgotten
OPEN_SECONDS = 3600.0

_FIELDS = (
    "id, kind, state, server, created, began, ended, rate, total, moved, skipped, hit_ratio, "
    "expected_hit_ratio"
)


@dataclass(frozen=True, slots=True)
class Repartition:
    id: int
    kind: Kind
    state: State
    #: that is emptied, replaced or filled
    server: str | None
    #: microseconds: made, started, over
    created: int
    began: int | None
    ended: int | None
    #: subscriptions a second
    rate: float
    #: how many are to be moved, have been, and need not be: they have ended, or are there already
    total: int
    moved: int
    skipped: int
    #: of the network when it began, and what the plan promises
    hit_ratio: float | None
    expected_hit_ratio: float | None

    @property
    def left(self) -> int:
        """How many are still to be looked at."""
        return self.total - self.moved - self.skipped


@dataclass(frozen=True, slots=True)
class Preview:
    """The preview of a repartition."""

    moves: int
    #: they are there already
    stay: int
    #: assigned, but no subscriptions
    unknown: int
    #: subscriptions that no assignment names: they stay
    unassigned: int
    #: server → subscriptions now and then
    before: Mapping[str, int]
    after: Mapping[str, int]


def find(connection: Connection, repartition: int) -> Repartition:
    row = connection.execute(f"SELECT {_FIELDS} FROM repartitions WHERE id = ?", (repartition,)).fetchone()
    if row is None:
        raise NotFound(f"no repartition {repartition}")
    return Repartition(*row)


def newest(connection: Connection, limit: int) -> list[Repartition]:
    rows = connection.execute(f"SELECT {_FIELDS} FROM repartitions ORDER BY id DESC LIMIT ?", (limit,))
    return [Repartition(*row) for row in rows]


def running(connection: Connection) -> Repartition | None:
    row = connection.execute(f"SELECT {_FIELDS} FROM repartitions WHERE state = 'running'").fetchone()
    return None if row is None else Repartition(*row)


def left(reader: Connection, repartition: int, limit: int) -> list[tuple[str, str, str]]:
    """Some of the assignments that are left: subscription, the server that it is on ("" if it has ended), and
    the one that it shall go to."""
    return reader.execute(
        "SELECT a.subscription, coalesce(s.server, ''), a.server FROM assignments a"
        " LEFT JOIN subscriptions s ON s.id = a.subscription WHERE a.repartition = ? LIMIT ?",
        (repartition, limit),
    ).fetchall()


def preview(connection: Connection, repartition: int, servers: Iterable[str]) -> Preview:
    """Preview a repartition; `servers`: the known ones."""
    before = Counter(
        dict(
            connection.execute(
                "SELECT server, count(*) FROM subscriptions WHERE server != '' GROUP BY server"
            ).fetchall()
        )
    )
    after = Counter(before)
    moves = stay = named = 0
    for source, destination, count in connection.execute(
        "SELECT s.server, a.server, count(*) FROM assignments a JOIN subscriptions s"
        " ON s.id = a.subscription WHERE a.repartition = ? GROUP BY s.server, a.server",
        (repartition,),
    ):
        named += count
        if source == destination:
            stay += count
        else:
            moves += count
            after[source] -= count
            after[destination] += count
    (assigned,) = connection.execute(
        "SELECT count(*) FROM assignments WHERE repartition = ?", (repartition,)
    ).fetchone()
    names = sorted({*servers, *before})
    return Preview(
        moves=moves,
        stay=stay,
        unknown=assigned - named,
        unassigned=before.total() - named,
        before={name: before[name] for name in names},
        after={name: after[name] for name in names},
    )


def make(
    transaction: Transaction, kind: Kind, server: str | None, rate: float, expected_hit_ratio: float | None
) -> int:
    """A new one; those that were opened long ago and never started go."""
    connection = transaction.connection
    stale = transaction.time - int(OPEN_SECONDS * 1e6)
    connection.execute(
        "DELETE FROM assignments WHERE repartition IN"
        " (SELECT id FROM repartitions WHERE state = 'open' AND created < ?)",
        (stale,),
    )
    connection.execute("DELETE FROM repartitions WHERE state = 'open' AND created < ?", (stale,))
    made = connection.execute(
        "INSERT INTO repartitions (kind, state, server, created, rate, expected_hit_ratio)"
        " VALUES (?, 'open', ?, ?, ?, ?)",
        (kind, server, transaction.time, rate, expected_hit_ratio),
    )
    return int(made.lastrowid or 0)


def assign(transaction: Transaction, repartition: int, rows: Sequence[tuple[str, str]]) -> None:
    """(subscription, server) each; an empty server is chosen when it is moved."""
    transaction.connection.executemany(
        "INSERT OR REPLACE INTO assignments VALUES (?, ?, ?)",
        [(repartition, subscription, server) for subscription, server in rows],
    )
    _count(transaction, repartition)


def assign_all_of(transaction: Transaction, repartition: int, server: str) -> None:
    """Everything that a server hosts, to wherever it fits then."""
    transaction.connection.execute(
        "INSERT OR IGNORE INTO assignments SELECT ?, id, '' FROM subscriptions WHERE server = ?",
        (repartition, server),
    )
    _count(transaction, repartition)


def _count(transaction: Transaction, repartition: int) -> None:
    transaction.connection.execute(
        "UPDATE repartitions SET total = moved + skipped +"
        " (SELECT count(*) FROM assignments WHERE repartition = ?1) WHERE id = ?1",
        (repartition,),
    )


def begin(transaction: Transaction, repartition: int, hit_ratio: float | None) -> None:
    transaction.connection.execute(
        "UPDATE repartitions SET state = 'running', began = ?, hit_ratio = ? WHERE id = ?",
        (transaction.time, hit_ratio, repartition),
    )


def progress(
    transaction: Transaction, repartition: int, moved: Sequence[str], skipped: Sequence[str]
) -> None:
    """Delete the assignments of subscriptions that were moved or skipped, and count them."""
    transaction.connection.executemany(
        "DELETE FROM assignments WHERE repartition = ? AND subscription = ?",
        [(repartition, name) for name in (*moved, *skipped)],
    )
    transaction.connection.execute(
        "UPDATE repartitions SET moved = moved + ?, skipped = skipped + ? WHERE id = ?",
        (len(moved), len(skipped), repartition),
    )


def finish(transaction: Transaction, repartition: int, state: State) -> None:
    transaction.connection.execute("DELETE FROM assignments WHERE repartition = ?", (repartition,))
    if state == "done":
        # Of a server that is replaced, only what ended meanwhile is left to be told: to nobody.
        transaction.connection.execute(
            "DELETE FROM replays WHERE server IN"
            " (SELECT server FROM repartitions WHERE id = ? AND kind = 'replace')",
            (repartition,),
        )
    transaction.connection.execute(
        "UPDATE repartitions SET state = ?, ended = ? WHERE id = ?", (state, transaction.time, repartition)
    )


def destinations(connection: Connection, repartition: int) -> set[str]:
    """Return the servers that assignments name; empty for one that is chosen later."""
    rows = connection.execute("SELECT DISTINCT server FROM assignments WHERE repartition = ?", (repartition,))
    return {server for (server,) in rows}


def has_assignments(connection: Connection, repartition: int) -> bool:
    found = connection.execute("SELECT 1 FROM assignments WHERE repartition = ? LIMIT 1", (repartition,))
    return found.fetchone() is not None


# -- moves that are not settled -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Unsettled:
    """A move whose former server may still have something to deliver."""

    subscription: str
    version: int
    destination: str
    #: the old server keeps what it found while the subscription was paused
    keeping: bool


def count_moves(connection: Connection, source: str | None = None) -> int:
    """Count the moves that are not settled, all or those away from a server."""
    (count,) = connection.execute(
        "SELECT count(*) FROM moves WHERE ?1 IS NULL OR source = ?1", (source,)
    ).fetchone()
    return int(count)


def sources(connection: Connection) -> list[str]:
    """Return the servers that moves lead away from."""
    return [source for (source,) in connection.execute("SELECT DISTINCT source FROM moves")]


def moves_from(connection: Connection, source: str) -> list[Unsettled]:
    rows = connection.execute(
        "SELECT subscription, version, destination, keeping FROM moves WHERE source = ?", (source,)
    )
    return [Unsettled(name, version, where, bool(kept)) for name, version, where, kept in rows]


def is_moving(connection: Connection, subscription: str, version: int | None = None) -> bool:
    """Return whether a move of a subscription, to any version or to this one, is not settled."""
    found = connection.execute(
        "SELECT 1 FROM moves WHERE subscription = ?1 AND (?2 IS NULL OR version = ?2) LIMIT 1",
        (subscription, version),
    )
    return found.fetchone() is not None


def find_keeping(connection: Connection, names: Sequence[str]) -> tuple[str, str] | None:
    """Return one of these subscriptions, and its former server, if that still keeps something for it."""
    row: tuple[str, str] | None = connection.execute(
        "SELECT subscription, source FROM moves WHERE keeping"
        " AND subscription IN (SELECT value FROM json_each(?)) LIMIT 1",
        (json.dumps(names),),
    ).fetchone()
    return row


def insert_move(
    transaction: Transaction, subscription: str, version: int, source: str, destination: str, keeping: bool
) -> None:
    transaction.connection.execute(
        "INSERT INTO moves VALUES (?, ?, ?, ?, ?)", (subscription, version, source, destination, keeping)
    )


def redirect_move(
    transaction: Transaction, subscription: str, before: int, version: int, destination: str
) -> None:
    """Have a move to a lost server end at another one, as another version."""
    transaction.connection.execute(
        "UPDATE moves SET version = ?, destination = ? WHERE subscription = ? AND version = ?",
        (version, destination, subscription, before),
    )


def mark_handed_over(transaction: Transaction, move: Unsettled) -> None:
    """Note that the old server keeps nothing any more."""
    transaction.connection.execute(
        "UPDATE moves SET keeping = 0 WHERE subscription = ? AND version = ?",
        (move.subscription, move.version),
    )


def delete_moves(transaction: Transaction, moves: Sequence[Unsettled]) -> None:
    transaction.connection.executemany(
        "DELETE FROM moves WHERE subscription = ? AND version = ?",
        [(move.subscription, move.version) for move in moves],
    )
