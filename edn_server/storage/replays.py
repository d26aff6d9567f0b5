"""Unfinished histories by version and source, and pauses per log.

The source of a history is a **log**, for a replay that the subscriber asked for, or the old **server** of a
migrated subscription, whose buffered rows the dispatcher of a log hands over.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

from edn_server.storage.interface import Connection

#: what happens to rows that another server buffered (`replays.kept`): buffer them; deliver them, because the
#: subscription was resumed; discard them
AS_BEFORE, DUE, UNWANTED = range(3)


class Source(NamedTuple):
    """The source of a history."""

    kind: Literal["log", "server"]
    #: the log, or that of the dispatcher that migrates the subscription
    log: str


def begin(db: Connection, numbers: Iterable[int], source: Source) -> None:
    """Starts histories; one that has started stays as it is."""
    db.executemany(
        "INSERT INTO replays (number, source, log, position) VALUES (?, ?, ?, 0) ON CONFLICT DO NOTHING",
        [(number, *source) for number in numbers],
    )


def replays(db: Connection) -> list[tuple[int, Source]]:
    """Returns the versions with an unfinished history, and its source."""
    found = db.execute("SELECT number, source, log FROM replays")
    return [(number, Source(kind, log)) for number, kind, log in found]


def position(db: Connection, number: int, source: Source) -> int:
    """Returns the position of a history."""
    (found,) = db.execute(
        "SELECT position FROM replays WHERE number = ? AND source = ? AND log = ?", (number, *source)
    ).fetchone()
    return int(found)


def advance(db: Connection, number: int, source: Source, position: int) -> None:
    """Stores the position of a history."""
    db.execute(
        "UPDATE replays SET position = ? WHERE number = ? AND source = ? AND log = ?",
        (position, number, *source),
    )


def finish(db: Connection, number: int, source: Source) -> None:
    """Deletes a complete history."""
    db.execute("DELETE FROM replays WHERE number = ? AND source = ? AND log = ?", (number, *source))


def cancel(db: Connection, numbers: Iterable[int]) -> None:
    """Deletes the histories of versions, from all sources."""
    db.executemany("DELETE FROM replays WHERE number = ?", [(number,) for number in numbers])


def cancel_replays(db: Connection, numbers: Iterable[int]) -> None:
    """Deletes the histories of versions from logs; those from servers stay."""
    db.executemany(
        "DELETE FROM replays WHERE number = ? AND source = 'log'", [(number,) for number in numbers]
    )


# -- hand-over from another server -------------------------------------------------------------------------


def arrival(db: Connection, number: int) -> tuple[int, int]:
    """Returns the position of a hand-over, and what happens to its buffered rows."""
    position, kept = db.execute(
        "SELECT max(position), max(kept) FROM replays WHERE number = ? AND source = 'server'", (number,)
    ).fetchone()
    return int(position), int(kept)


def advance_arrival(db: Connection, number: int, position: int) -> None:
    """Stores the position of a hand-over."""
    db.execute("UPDATE replays SET position = ? WHERE number = ? AND source = 'server'", (position, number))


def finish_arrival(db: Connection, number: int) -> None:
    """Deletes a complete hand-over."""
    db.execute("DELETE FROM replays WHERE number = ? AND source = 'server'", (number,))


def decide_kept(db: Connection, numbers: Iterable[int], kept: int) -> None:
    """Decides, once, what happens to rows that another server buffered."""
    db.executemany(
        "UPDATE replays SET kept = ? WHERE number = ? AND source = 'server' AND kept = ?",
        [(kept, number, AS_BEFORE) for number in numbers],
    )


# -- pauses ----------------------------------------------------------------------------------------------


def pauses(db: Connection) -> list[tuple[str, str, int]]:
    """Returns (subscription, log, revision) of all pauses."""
    return db.execute("SELECT id, log, revision FROM pauses").fetchall()


def pause(db: Connection, subscription: str, log: str, revision: int) -> None:
    """Stores the pause of a subscription in a log."""
    db.execute(
        "INSERT INTO pauses VALUES (?, ?, ?)"
        " ON CONFLICT (id, log) DO UPDATE SET revision = excluded.revision",
        (subscription, log, revision),
    )


def unpause(db: Connection, subscription: str, log: str | None = None) -> None:
    """Deletes the pause of a subscription in a log; None: in all logs."""
    db.execute(
        "DELETE FROM pauses WHERE id = ?1 AND (CAST(?2 AS TEXT) IS NULL OR log = ?2)", (subscription, log)
    )
