"""Unfinished replays, and their reads of the log."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

from dispatcher.store.interface import Connection, Stream, Transaction, has_rows, insert_row, row_of
from dispatcher.store.records import EventsRecord, load_events

_FIELDS = "subscription, version, server, topic, filter, upto, time, since, after"


@dataclass(frozen=True, slots=True)
class Replay:
    subscription: str
    version: int
    server: str
    topic: int
    filter: Any
    #: offset of the activation: later events are matched live
    upto: int
    #: network time of the activation
    time: int
    #: network time before which events are left out
    since: int | None
    #: cursor of a lost server that this one replaces: all later events are replayed, retained or not. If the
    #: lost server had not finished a replay either, `since` is set, 0 for all retained events
    after: int | None = None

    @property
    def has_retained(self) -> bool:
        """Whether the events that were retained at the activation belong to the replay."""
        return self.after is None or self.since is not None


def has_available(transaction: Transaction, stream: Stream, topic: int, since: int | None) -> bool:
    """Return whether a log has retained events of a topic since a time."""
    return has_rows(
        transaction.connection,
        f"SELECT 1 FROM {transaction.table(stream, 'records')}"
        " WHERE topic = ? AND expires > ? AND time >= ? LIMIT 1",
        topic,
        transaction.time,
        since or 0,
    )


def has_available_before(connection: Connection, topic: int, now: int, time: int) -> bool:
    """Return whether a topic has retained events of a time or before, in any log."""
    query = "SELECT 1 FROM records_of_all WHERE topic = ? AND expires > ? AND time <= ? LIMIT 1"
    return has_rows(connection, query, topic, now, time)


def unfinished(connection: Connection) -> list[Replay]:
    """Return all replays, in the order of their activations."""
    return [
        _load(row) for row in connection.execute(f"SELECT {_FIELDS} FROM replays ORDER BY upto").fetchall()
    ]


def find(connection: Connection, subscription: str, version: int) -> Replay | None:
    row = connection.execute(
        f"SELECT {_FIELDS} FROM replays WHERE subscription = ? AND version = ?", (subscription, version)
    ).fetchone()
    return None if row is None else _load(row)


def insert(transaction: Transaction, replay: Replay, stream: Stream | None = None) -> None:
    """Insert a replay of a log, by default of the own one; in the transaction that activates its version."""
    filter = None if replay.filter is None else json.dumps(replay.filter)
    row = row_of(replay, filter=filter)
    if stream is None or stream is transaction.own:
        insert_row(transaction.connection, "replays", row)
    else:
        insert_row(transaction.connection, "log_replays", {**row, "log": stream.log})


def delete(transaction: Transaction, replay: Replay) -> None:
    transaction.connection.execute(
        "DELETE FROM replays WHERE subscription = ? AND version = ?", (replay.subscription, replay.version)
    )


def take_over(transaction: Transaction, replay: Replay) -> Replay:
    """Merge the unfinished replays of a lost server into the replay of its replacement; delete their rows."""
    connection = transaction.connection
    named = (replay.subscription,)
    rows = connection.execute(
        "SELECT upto, time, since, after FROM replays WHERE subscription = ?", named
    ).fetchall()
    connection.execute("DELETE FROM replays WHERE subscription = ?", named)
    for upto, time, since, after in rows:
        assert replay.after is not None
        if after is None:  # retained events
            replay = replace(replay, time=time, since=since or 0, after=max(replay.after, upto))
        elif since is None:  # the replay of an earlier lost server
            replay = replace(replay, after=min(replay.after, after))
        else:
            replay = replace(replay, time=time, since=since, after=min(replay.after, after))
    return replay


def read_records(connection: Connection, replay: Replay, after: int, limit: int) -> list[EventsRecord]:
    """Return the next records after an offset that may contain events of a replay."""
    if replay.after is None:
        wanted = "expires > ?2"
    elif replay.has_retained:
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
