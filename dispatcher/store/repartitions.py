"""Repartitions with their assignments, and unfinished migrations of subscriptions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from dispatcher.store.interface import (
    Connection,
    Transaction,
    column_names,
    first_column,
    has_rows,
    read_int,
)
from edn.errors import NotFound

Kind = Literal["apply", "drain", "replace", "fill"]
State = Literal["open", "running", "done", "cancelled"]

#: seconds after which a repartition that was never started is deleted
OPEN_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class Repartition:
    id: int
    kind: Kind
    state: State
    #: server that is drained, replaced or filled
    server: str | None
    created: int
    began: int | None
    ended: int | None
    rate: float
    #: subscriptions; skipped ones have ended or are on their server already
    total: int
    moved: int
    skipped: int
    #: hit ratio of the network at the start, and the planned one
    hit_ratio: float | None
    expected_hit_ratio: float | None

    @property
    def left(self) -> int:
        """Number of subscriptions that are neither moved nor skipped."""
        return self.total - self.moved - self.skipped


_FIELDS = column_names(Repartition)


@dataclass(frozen=True, slots=True)
class Preview:
    """The preview of a repartition; counts of subscriptions."""

    moves: int
    #: assigned to their present server
    stay: int
    #: assignments without a subscription
    unknown: int
    #: subscriptions without an assignment, which stay
    unassigned: int
    before: Mapping[str, int]
    after: Mapping[str, int]


def find(connection: Connection, repartition: int) -> Repartition:
    row = connection.execute(f"SELECT {_FIELDS} FROM repartitions WHERE id = ?", (repartition,)).fetchone()
    if row is None:
        raise NotFound(f"repartition {repartition} does not exist")
    return Repartition(*row)


def newest(connection: Connection, limit: int) -> list[Repartition]:
    rows = connection.execute(f"SELECT {_FIELDS} FROM repartitions ORDER BY id DESC LIMIT ?", (limit,))
    return [Repartition(*row) for row in rows]


def running(connection: Connection) -> Repartition | None:
    row = connection.execute(f"SELECT {_FIELDS} FROM repartitions WHERE state = 'running'").fetchone()
    return None if row is None else Repartition(*row)


def assignments(connection: Connection, repartition: int, limit: int) -> list[tuple[str, str, str]]:
    """Return assignments that are left: subscription, its server ("" if it has ended), its destination."""
    return connection.execute(
        "SELECT a.subscription, coalesce(s.server, ''), a.server FROM assignments a"
        " LEFT JOIN subscriptions s ON s.id = a.subscription WHERE a.repartition = ? LIMIT ?",
        (repartition, limit),
    ).fetchall()


def preview(connection: Connection, repartition: int, servers: Iterable[str]) -> Preview:
    """Count the moves of a repartition and the subscriptions per server; `servers`: all of the network."""
    query = "SELECT server, count(*) FROM subscriptions WHERE server != '' GROUP BY server"
    before = Counter(dict(connection.execute(query)))
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
    assigned = read_int(connection, "SELECT count(*) FROM assignments WHERE repartition = ?", repartition)
    names = sorted({*servers, *before})
    return Preview(
        moves=moves,
        stay=stay,
        unknown=assigned - named,
        unassigned=before.total() - named,
        before={name: before[name] for name in names},
        after={name: after[name] for name in names},
    )


def create(
    transaction: Transaction, kind: Kind, server: str | None, rate: float, expected_hit_ratio: float | None
) -> int:
    """Create a repartition; delete those that were opened long ago and never started."""
    connection = transaction.connection
    stale = transaction.time - int(OPEN_SECONDS * 1e6)
    connection.execute(
        "DELETE FROM assignments WHERE repartition IN"
        " (SELECT id FROM repartitions WHERE state = 'open' AND created < ?)",
        (stale,),
    )
    connection.execute("DELETE FROM repartitions WHERE state = 'open' AND created < ?", (stale,))
    id = connection.next_ids("repartitions", 1)
    connection.execute(
        "INSERT INTO repartitions (id, kind, state, server, created, rate, expected_hit_ratio)"
        " VALUES (?, ?, 'open', ?, ?, ?, ?)",
        (id, kind, server, transaction.time, rate, expected_hit_ratio),
    )
    return id


def assign(transaction: Transaction, repartition: int, rows: Sequence[tuple[str, str]]) -> None:
    """Add assignments (subscription, server); an empty server is chosen at the time of the move."""
    transaction.connection.executemany(
        "INSERT INTO assignments VALUES (?, ?, ?)"
        " ON CONFLICT (repartition, subscription) DO UPDATE SET server = excluded.server",
        [(repartition, subscription, server) for subscription, server in rows],
    )
    _count(transaction, repartition)


def assign_all_of(transaction: Transaction, repartition: int, server: str) -> None:
    """Assign all subscriptions of a server; their destinations are chosen at the time of the move."""
    transaction.connection.execute(
        "INSERT INTO assignments SELECT ?, id, '' FROM subscriptions WHERE server = ? ON CONFLICT DO NOTHING",
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
        # Replays that are left on a replaced server belong to ended subscriptions.
        transaction.connection.execute(
            "DELETE FROM replays WHERE server IN"
            " (SELECT server FROM repartitions WHERE id = ? AND kind = 'replace')",
            (repartition,),
        )
    transaction.connection.execute(
        "UPDATE repartitions SET state = ?, ended = ? WHERE id = ?", (state, transaction.time, repartition)
    )


def destinations(connection: Connection, repartition: int) -> set[str]:
    """Return the destinations of assignments; empty for one that is chosen later."""
    query = "SELECT DISTINCT server FROM assignments WHERE repartition = ?"
    return set(first_column(connection, query, repartition))


def has_assignments(connection: Connection, repartition: int) -> bool:
    return has_rows(connection, "SELECT 1 FROM assignments WHERE repartition = ? LIMIT 1", repartition)


# -- unfinished migrations ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Migration:
    """A moved subscription whose old server may still have notifications to deliver or to hand over."""

    subscription: str
    version: int
    destination: str


def count_moves(connection: Connection, source: str | None = None) -> int:
    """Count the unfinished migrations, all or those from a server."""
    return read_int(
        connection, "SELECT count(*) FROM moves WHERE CAST(?1 AS TEXT) IS NULL OR source = ?1", source
    )


def sources(connection: Connection) -> list[str]:
    return first_column(connection, "SELECT DISTINCT source FROM moves")


def moves_from(connection: Connection, source: str) -> list[Migration]:
    query = "SELECT subscription, version, destination FROM moves WHERE source = ?"
    return [Migration(*row) for row in connection.execute(query, (source,))]


def is_moving(connection: Connection, subscription: str, version: int | None = None) -> bool:
    """Return whether a migration of a subscription, to any version or to this one, is unfinished."""
    query = (
        "SELECT 1 FROM moves WHERE subscription = ?1 AND (CAST(?2 AS BIGINT) IS NULL OR version = ?2) LIMIT 1"
    )
    return has_rows(connection, query, subscription, version)


def find_buffered(connection: Connection, names: Sequence[str]) -> tuple[str, str] | None:
    """Return one of these subscriptions whose old server buffers notifications, and that server."""
    row: tuple[str, str] | None = connection.execute(
        "SELECT subscription, source FROM moves WHERE keeping != 0"
        f" AND {connection.any_of('subscription')} LIMIT 1",
        (connection.array(list(names)),),
    ).fetchone()
    return row


def insert_move(
    transaction: Transaction, subscription: str, version: int, source: str, destination: str, buffered: bool
) -> None:
    transaction.connection.execute(
        "INSERT INTO moves VALUES (?, ?, ?, ?, ?)", (subscription, version, source, destination, buffered)
    )


def redirect_move(
    transaction: Transaction, subscription: str, before: int, version: int, destination: str
) -> None:
    """Redirect a migration to a lost server to another one, as another version."""
    transaction.connection.execute(
        "UPDATE moves SET version = ?, destination = ? WHERE subscription = ? AND version = ?",
        (version, destination, subscription, before),
    )


def mark_handed_over(transaction: Transaction, move: Migration) -> None:
    """Record that the old server buffers no notifications any more."""
    transaction.connection.execute(
        "UPDATE moves SET keeping = 0 WHERE subscription = ? AND version = ?",
        (move.subscription, move.version),
    )


def delete_moves(transaction: Transaction, moves: Sequence[Migration]) -> None:
    transaction.connection.executemany(
        "DELETE FROM moves WHERE subscription = ? AND version = ?",
        [(move.subscription, move.version) for move in moves],
    )
