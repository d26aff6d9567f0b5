"""Logs that this server follows: cursors, incarnations, join records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from edn_server.storage.interface import Connection

#: assignment of the newer incarnation, the stored one or ?2
_NEWEST = "incarnation = CASE WHEN logs.incarnation > ?2 THEN logs.incarnation ELSE ?2 END"


#: `retired` of a log whose dispatcher has another one, and of a log that has ended beside others
_RETIRED, _ENDED = 1, 2


class LogRow(NamedTuple):
    log: str
    incarnation: int
    #: None before the first frame
    cursor: int | None
    #: offset of the join record, once applied
    joined: int | None
    #: whether its dispatcher has another log
    retired: bool
    #: whether it has ended, and nothing of it is needed
    ended: bool


def logs(db: Connection) -> list[LogRow]:
    found = db.execute("SELECT log, incarnation, cursor, joined, retired FROM logs")
    return [
        LogRow(log, start, cursor, join, state == _RETIRED, state == _ENDED)
        for log, start, cursor, join, state in found
    ]


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


def follow(db: Connection, log: str, incarnation: int = 0) -> None:
    """Takes a log into use."""
    db.execute(
        "INSERT INTO logs (log, incarnation) VALUES (?1, ?2) ON CONFLICT (log)"
        f" DO UPDATE SET {_NEWEST}, retired = 0",
        (log, incarnation),
    )


def others_of(db: Connection, log: str) -> list[str]:
    """Returns the other logs in use."""
    found = db.execute("SELECT log FROM logs WHERE log != ? AND retired = 0", (log,))
    return [name for (name,) in found.fetchall()]


def retire(db: Connection, left: Sequence[str], heir: str | None = None) -> None:
    """Retires logs and drops their replays and pauses.

    `heir`: the only log from now on, which gets the pauses; migrations by other dispatchers are dropped, too.
    Without it the logs have ended, and `trim_ended` deletes the rest.
    """
    for name in left:
        state = _ENDED if heir is None else _RETIRED
        db.execute("UPDATE logs SET retired = ? WHERE log = ?", (state, name))
        if heir is not None:
            db.execute(
                "INSERT INTO pauses SELECT id, ?, revision FROM pauses WHERE log = ?"
                " ON CONFLICT (id, log) DO UPDATE SET revision = excluded.revision",
                (heir, name),
            )
        db.execute("DELETE FROM pauses WHERE log = ?", (name,))
        db.execute(
            "DELETE FROM replays WHERE log = ?" + (" AND source = 'log'" if heir is None else ""), (name,)
        )


def trim_ended(db: Connection, most: int) -> int:
    """Deletes up to `most` intervals of logs that have ended; returns how many."""
    return db.execute(
        "DELETE FROM intervals WHERE (number, log) IN (SELECT i.number, i.log FROM intervals i"
        " JOIN logs l ON l.log = i.log WHERE l.retired = ? LIMIT ?)",
        (_ENDED, most),
    ).rowcount
