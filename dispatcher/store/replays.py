"""Replays that are not finished, and the reads that they do of the log."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

from dispatcher.store.interface import Connection, Transaction
from dispatcher.store.records import EventsRecord, load_events

#: `since` of a subscription that is told nothing of its past
NOTHING = 1 << 62


@dataclass(frozen=True, slots=True)
class Replay:
    subscription: str
    version: int
    server: str
    topic: int
    #: the filter in its JSON form; None is everything
    filter: Any
    #: what came later is matched live: the offset of the activation, or of that of the one it has displaced
    upto: int
    #: of the activation
    time: int
    #: events of before that log time are left out
    since: int | None
    #: in place of a lost server: everything beyond this offset, available or not. With `since`, which is 0
    #: where nothing is left out, also the past that the lost one had not told to its end
    after: int | None = None

    @property
    def past(self) -> bool:
        """Whether what was available at its time belongs to it."""
        return self.after is None or self.since is not None


def has_available(transaction: Transaction, topic: int, since: int | None) -> bool:
    """Return whether a subscription that begins now has anything to catch up with."""
    found = transaction.connection.execute(
        "SELECT 1 FROM records WHERE topic = ? AND expires > ? AND time >= ? LIMIT 1",
        (topic, transaction.time, since or 0),
    )
    return found.fetchone() is not None


def reaches(connection: Connection, topic: int, now: int, since: int) -> bool:
    """Return whether an event of that time or before is still available."""
    found = connection.execute(
        "SELECT 1 FROM records WHERE topic = ? AND expires > ? AND time <= ? LIMIT 1", (topic, now, since)
    )
    return found.fetchone() is not None


def last_record(connection: Connection, topic: int, time: int) -> int | None:
    """Return the offset of a topic's last record of that time or before."""
    row = connection.execute(
        "SELECT last FROM records WHERE topic = ? AND time <= ? ORDER BY last DESC LIMIT 1", (topic, time)
    ).fetchone()
    return None if row is None else int(row[0])


def unfinished(connection: Connection) -> list[Replay]:
    """Return all replays, in the order of their activations."""
    return [_load(row) for row in connection.execute("SELECT * FROM replays ORDER BY upto").fetchall()]


def find(connection: Connection, subscription: str, version: int) -> Replay | None:
    row = connection.execute(
        "SELECT * FROM replays WHERE subscription = ? AND version = ?", (subscription, version)
    ).fetchone()
    return None if row is None else _load(row)


def insert(transaction: Transaction, replay: Replay) -> None:
    """Insert a replay, in the transaction that activates its subscription."""
    filter = None if replay.filter is None else json.dumps(replay.filter)
    transaction.connection.execute(
        "INSERT INTO replays VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            replay.subscription,
            replay.version,
            replay.server,
            replay.topic,
            filter,
            replay.upto,
            replay.time,
            replay.since,
            replay.after,
        ),
    )


def delete(transaction: Transaction, replay: Replay) -> None:
    transaction.connection.execute(
        "DELETE FROM replays WHERE subscription = ? AND version = ?", (replay.subscription, replay.version)
    )


def take_over(transaction: Transaction, replay: Replay) -> Replay:
    """The replay in place of a lost server, with what that one had yet to tell; this one's note goes."""
    connection = transaction.connection
    named = (replay.subscription,)
    rows = connection.execute(
        "SELECT upto, time, since, after FROM replays WHERE subscription = ?", named
    ).fetchall()
    connection.execute("DELETE FROM replays WHERE subscription = ?", named)
    for upto, time, since, after in rows:
        assert replay.after is not None
        if after is None:  # it was being told its past
            replay = replace(replay, time=time, since=since or 0, after=max(replay.after, upto))
        elif since is None:  # what one before had not read
            replay = replace(replay, after=min(replay.after, after))
        else:
            replay = replace(replay, time=time, since=since, after=min(replay.after, after))
    return replay


def displace(transaction: Transaction, subscription: str, version: int) -> Replay | None:
    """Empty the replay of a subscription whose id another one has now; return the replay as it was.

    Its server will hear that there was nothing to replay.
    """
    found = find(transaction.connection, subscription, version)
    if found is not None:
        transaction.connection.execute(
            "UPDATE replays SET since = ?, after = NULL WHERE subscription = ? AND version = ?",
            (NOTHING, subscription, version),
        )
    return found


def read_records(connection: Connection, replay: Replay, after: int, limit: int) -> list[EventsRecord]:
    """Return the next records beyond an offset that may hold events of a replay."""
    if replay.after is None:
        wanted = "expires > ?2"
    elif replay.past:
        wanted = f"(expires > ?2 OR last > {replay.after:d})"
    else:
        wanted, after = "?2 = ?2", max(after, replay.after)
    rows = connection.execute(
        f"SELECT last, count, time, payload FROM records WHERE topic = ?1 AND {wanted} AND last > ?3"
        " AND last - count < ?4 ORDER BY last LIMIT ?5",
        (replay.topic, replay.time, after, replay.upto, limit),
    ).fetchall()
    return [load_events(last - count + 1, time, replay.topic, payload) for last, count, time, payload in rows]


def _load(row: tuple[Any, ...]) -> Replay:
    subscription, version, server, topic, filter, upto, time, since, after = row
    parsed = None if filter is None else json.loads(filter)
    return Replay(subscription, version, server, topic, parsed, upto, time, since, after)
