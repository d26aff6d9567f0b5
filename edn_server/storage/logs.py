"""Logs that this server follows: cursors, incarnations, join records, dispatchers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from edn_server.storage.interface import Connection

#: assignment of the newer incarnation, the stored one or ?2
_NEWEST = "incarnation = CASE WHEN logs.incarnation > ?2 THEN logs.incarnation ELSE ?2 END"


class LogRow(NamedTuple):
    log: str
    incarnation: int
    #: None before the first frame
    cursor: int | None
    #: offset of the join record, once applied
    joined: int | None
    #: whether its dispatcher has switched to another log
    retired: bool


def logs(db: Connection) -> list[LogRow]:
    found = db.execute("SELECT log, incarnation, cursor, joined, retired FROM logs")
    return [LogRow(log, start, cursor, join, bool(gone)) for log, start, cursor, join, gone in found]


def incarnation(db: Connection, log: str) -> int | None:
    """Returns the newest incarnation of a log's dispatcher; None if the log is unknown."""
    row = db.execute("SELECT incarnation FROM logs WHERE log = ?", (log,)).fetchone()
    return None if row is None else int(row[0])


def raise_incarnation(db: Connection, log: str, incarnation: int) -> None:
    """Stores an incarnation, unless the stored one is newer."""
    db.execute(
        "INSERT INTO logs (log, incarnation) VALUES (?1, ?2)"
        " ON CONFLICT (log) DO UPDATE SET incarnation = ?2 WHERE logs.incarnation < ?2",
        (log, incarnation),
    )


def advance(db: Connection, log: str, incarnation: int, cursor: int, joined: int | None) -> None:
    """Stores the cursor of a log."""
    db.execute(
        "INSERT INTO logs (log, incarnation, cursor, joined) VALUES (?1, ?2, ?3, ?4) ON CONFLICT (log)"
        f" DO UPDATE SET {_NEWEST}, cursor = ?3, joined = ?4",
        (log, incarnation, cursor, joined),
    )


def follow(db: Connection, log: str, incarnation: int, url: str) -> None:
    """Stores the dispatcher URL of a log, and takes the log into use."""
    db.execute(
        "INSERT INTO logs (log, incarnation, url) VALUES (?1, ?2, ?3) ON CONFLICT (log)"
        f" DO UPDATE SET {_NEWEST}, url = ?3, retired = 0",
        (log, incarnation, url),
    )


def others_of(db: Connection, log: str, url: str | None) -> list[str]:
    """Returns the other logs in use of the dispatcher at this URL; None: of any dispatcher."""
    found = db.execute(
        "SELECT log FROM logs WHERE log != ?1 AND retired = 0 AND (CAST(?2 AS TEXT) IS NULL OR url = ?2)",
        (log, url),
    )
    return [name for (name,) in found.fetchall()]


def followed(db: Connection) -> list[tuple[str, str]]:
    """Returns (log, URL) of the logs in use whose dispatcher is known."""
    return db.execute("SELECT log, url FROM logs WHERE retired = 0 AND url IS NOT NULL").fetchall()


def retire(db: Connection, left: Sequence[str], heir: str) -> None:
    """Retires logs: passes their pauses to the heir and drops their replays."""
    for name in left:
        db.execute("UPDATE logs SET retired = 1 WHERE log = ?", (name,))
        db.execute(
            "INSERT INTO pauses SELECT id, ?, revision FROM pauses WHERE log = ?"
            " ON CONFLICT (id, log) DO UPDATE SET revision = excluded.revision",
            (heir, name),
        )
        db.execute("DELETE FROM pauses WHERE log = ?", (name,))
        db.execute("DELETE FROM replays WHERE log = ?", (name,))
