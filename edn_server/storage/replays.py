"""Histories that are still coming, by version and source, and what each log says is paused.

A history comes from a **log**, as a replay that the subscriber asked for, or from the **server** that the
subscription was on before, which hands over its buffered rows through the dispatcher of a log.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

from edn_server.storage.interface import Connection

#: of buffered rows of another server, as `replays.kept` has it: they are buffered here, too; they are due,
#: because the subscription was resumed; nobody wants them any more
AS_BEFORE, DUE, UNWANTED = range(3)


class Source(NamedTuple):
    """Where a history comes from."""

    kind: Literal["log", "server"]
    #: the log, or that of the dispatcher that moves the subscription
    log: str


def begin(db: Connection, numbers: Iterable[int], source: Source) -> None:
    """Store that histories are coming; one that is coming already stays as it is."""
    db.executemany(
        "INSERT OR IGNORE INTO replays (number, source, log, position) VALUES (?, ?, ?, 0)",
        [(number, *source) for number in numbers],
    )


def replays(db: Connection) -> list[tuple[int, Source]]:
    """Return the versions whose history is coming, with the source."""
    found = db.execute("SELECT number, source, log FROM replays")
    return [(number, Source(kind, log)) for number, kind, log in found]


def position(db: Connection, number: int, source: Source) -> int:
    """Return up to where a history has come."""
    (found,) = db.execute(
        "SELECT position FROM replays WHERE number = ? AND source = ? AND log = ?", (number, *source)
    ).fetchone()
    return int(found)


def advance(db: Connection, number: int, source: Source, position: int) -> None:
    """Store up to where a history has come."""
    db.execute(
        "UPDATE replays SET position = ? WHERE number = ? AND source = ? AND log = ?",
        (position, number, *source),
    )


def finish(db: Connection, number: int, source: Source) -> None:
    """Delete a history that has come."""
    db.execute("DELETE FROM replays WHERE number = ? AND source = ? AND log = ?", (number, *source))


def cancel(db: Connection, numbers: Iterable[int]) -> None:
    """Delete the histories of versions, whatever their source."""
    db.executemany("DELETE FROM replays WHERE number = ?", [(number,) for number in numbers])


def cancel_replays(db: Connection, numbers: Iterable[int]) -> None:
    """Delete the histories that logs would bring; another server's stay."""
    db.executemany(
        "DELETE FROM replays WHERE number = ? AND source = 'log'", [(number,) for number in numbers]
    )


# -- hand-over from another server -------------------------------------------------------------------------


def arrival(db: Connection, number: int) -> tuple[int, int]:
    """Return up to where a hand-over has come, and what becomes of buffered rows."""
    position, kept = db.execute(
        "SELECT max(position), max(kept) FROM replays WHERE number = ? AND source = 'server'", (number,)
    ).fetchone()
    return int(position), int(kept)


def advance_arrival(db: Connection, number: int, position: int) -> None:
    """Store up to where a hand-over has come."""
    db.execute("UPDATE replays SET position = ? WHERE number = ? AND source = 'server'", (position, number))


def finish_arrival(db: Connection, number: int) -> None:
    """Delete a hand-over that is complete."""
    db.execute("DELETE FROM replays WHERE number = ? AND source = 'server'", (number,))


def decide_kept(db: Connection, numbers: Iterable[int], kept: int) -> None:
    """Store what becomes of buffered rows of another server, when they come: it is decided once."""
    db.executemany(
        "UPDATE replays SET kept = ? WHERE number = ? AND source = 'server' AND kept = ?",
        [(kept, number, AS_BEFORE) for number in numbers],
    )


# -- pauses ----------------------------------------------------------------------------------------------


def pauses(db: Connection) -> list[tuple[str, str, int]]:
    """Return (subscription, log, revision) of all pauses."""
    return db.execute("SELECT id, log, revision FROM pauses").fetchall()


def pause(db: Connection, subscription: str, log: str, revision: int) -> None:
    """Store that a log says that a subscription is paused."""
    db.execute("INSERT OR REPLACE INTO pauses VALUES (?, ?, ?)", (subscription, log, revision))


def unpause(db: Connection, subscription: str, log: str | None = None) -> None:
    """Delete what a log says of a pause; None: what any log says."""
    db.execute(
        "DELETE FROM pauses WHERE id = ?1 AND (?2 IS NULL OR log = ?2)",
        (subscription, log),
    )
