"""The interface of the store: transactions, errors, and helpers for queries.

An **operation** is a function of a `Transaction`. A read, `await store.reading(function)`, is immediate in
SQLite, but another engine may use a thread, and other tasks run meanwhile. So a check and the write that
relies on it belong into one operation, or under the lock that guards both.

SQL is portable (`edn.runtime.sql`).

Several dispatchers may share the directory, each with its own log (`dispatcher.store.postgres`). An operation
that changes the directory then holds the locks of all open logs, appends its control records to each of them,
and `note`s what the others must read again. An operation on the own log alone, such as publishing, must say
so when it is submitted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import IntEnum
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np

from dispatcher.store.records import ControlRecord, EventsRecord, Record, events_payload, expiries_of
from edn import protocol
from edn.arrays import Floats
from edn.runtime.sql import Connection as Connection

# -- queries --------------------------------------------------------------------------------------------


def has_rows(connection: Connection, sql: str, *values: Any) -> bool:
    """Return whether a query finds anything."""
    return connection.execute(sql, values).fetchone() is not None


def first_column(connection: Connection, sql: str, *values: Any) -> list[Any]:
    """Return the first column of all rows."""
    return [row[0] for row in connection.execute(sql, values)]


def read_int(connection: Connection, sql: str, *values: Any) -> int:
    """Return the only value of the only row, an integer."""
    return int(connection.execute(sql, values).fetchone()[0])


def column_names(type: Any) -> str:
    """Return the fields of a dataclass as a list of columns."""
    return ", ".join(field.name for field in fields(type))


def row_of(value: Any, **changed: Any) -> dict[str, Any]:
    """Return the fields of a dataclass by name, some of them in the form that is stored."""
    return {field.name: getattr(value, field.name) for field in fields(value)} | changed


def insert_row(connection: Connection, table: str, row: Mapping[str, Any], *, key: str = "") -> None:
    """Insert a row; with `key`, replace the row that has the same value in that column."""
    conflict = ", ".join(f"{name} = excluded.{name}" for name in row if name != key)
    connection.execute(
        f"INSERT INTO {table} ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})"
        + (f" ON CONFLICT ({key}) DO UPDATE SET {conflict}" if key else ""),
        tuple(row.values()),
    )


# -- the log --------------------------------------------------------------------------------------------


def _without_secrets(control: protocol.Control) -> protocol.Control:
    if not control.rings:
        return control
    return msgspec.structs.replace(control, rings=[ring.without_secrets() for ring in control.rings])


class Kind(IntEnum):
    """The things of the directory that a dispatcher keeps in memory."""

    SERVER = 0
    TOPIC = 1
    SUBSCRIPTION = 2
    KEY = 3
    BINDING = 4
    REPARTITION = 5
    #: the advertisements of a topic
    ADVERTISEMENT = 6


class Change(NamedTuple):
    """A change of the directory, as the other dispatchers learn of it."""

    kind: Kind
    #: id; for a topic and for its advertisements the topic's uid
    name: str
    #: of a subscription: the server that it concerns, and how many more subscriptions that server has
    server: str = ""
    more: int = 0
    #: of a new version of a subscription: the server's answer to the store request
    epoch: int | None = None
    seq: int | None = None


#: what happens to an event that its publisher has not advertised: nothing, it is dropped, it is refused
Advertising = Literal["off", "deliver", "guard"]
OFF: Advertising = "off"
MODES: tuple[Advertising, ...] = ("off", "deliver", "guard")


class TopicState(NamedTuple):
    """What an append of events compares with the topic that it knows."""

    #: of the schema
    revision: int
    advertising: Advertising
    #: revision of the advertisements: rises with every change of one, of `advertising` and of the schema
    advertised: int


@dataclass(slots=True)
class Stream:
    """A log to which a transaction appends control records."""

    log: str
    incarnation: int
    #: last assigned offset
    head: int

    def table(self, name: str) -> str:
        """Return a table of another dispatcher's log for FROM."""
        return f"(SELECT * FROM log_{name} WHERE log = '{self.log}') AS {name}"


@dataclass(slots=True)
class Transaction:
    """A transaction of the log; times are microseconds."""

    connection: Connection
    own: Stream
    #: network time of the commit
    time: int
    #: steady time, for ages
    steady: int
    #: best estimate of the time of day, for event times and new expiries; never before `time`
    estimate: int
    #: whether several logs share the directory
    shared: bool = False
    #: the open logs of other dispatchers; None while they are not locked, and the directory must not change
    others: list[Stream] | None = field(default_factory=list)
    #: number of this change; 0 if the directory is not shared
    revision: int = 0
    records: list[Record] = field(default_factory=list)
    #: rows of events that `flush` inserts
    deferred: list[tuple[Any, ...]] = field(default_factory=list)
    #: states of topics that were read
    topics: dict[int, TopicState] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)

    @property
    def log(self) -> str:
        return self.own.log

    @property
    def incarnation(self) -> int:
        return self.own.incarnation

    @property
    def head(self) -> int:
        return self.own.head

    @property
    def streams(self) -> list[Stream]:
        """All open logs, the own one first."""
        if self.others is None:
            raise AssertionError("an operation that changes the directory must be submitted as a change")
        return [self.own, *self.others]

    def table(self, stream: Stream, name: str) -> str:
        """Return a table of a log for FROM."""
        return name if stream is self.own else stream.table(name)

    def mark(self) -> tuple[int, ...]:
        """Return the state that `reset` restores after an operation that failed."""
        heads = [stream.head for stream in [self.own, *(self.others or ())]]
        return (len(self.records), len(self.deferred), len(self.changes), *heads)

    def reset(self, mark: tuple[int, ...]) -> None:
        del self.records[mark[0] :], self.deferred[mark[1] :], self.changes[mark[2] :]
        for stream, head in zip([self.own, *(self.others or ())], mark[3:], strict=True):
            stream.head = head

    def note(
        self,
        kind: Kind,
        name: str,
        *,
        server: str = "",
        more: int = 0,
        stored: protocol.Stored | None = None,
    ) -> None:
        """Tell the other dispatchers of a change."""
        if self.shared:
            epoch, seq = (None, None) if stored is None else (stored.epoch, stored.seq)
            self.changes.append(Change(kind, name, server, more, epoch, seq))

    def append_control(self, server: str, kind: protocol.Kind, **fields: Any) -> int:
        """Append a control record for a server to every open log; return its offset in the own one."""
        own, *_ = [self.append_to(stream, server, kind, **fields) for stream in self.streams]
        return own

    def append_to(self, stream: Stream, server: str, kind: protocol.Kind, **fields: Any) -> int:
        """Append a control record for a server to one log; return its offset."""
        stream.head += 1
        if kind == "join":
            fields = {**fields, "incarnation": stream.incarnation, "shared": self.shared}
        control = protocol.Control(offset=stream.head, time=self.time, kind=kind, **fields)
        # A rotation stores no secrets: whoever reads the record gets those of the table (`signing_keys`).
        values = (stream.head, self.time, server, protocol.encode(_without_secrets(control)))
        if stream is self.own:
            self.connection.execute("INSERT INTO records VALUES (?, 1, ?, NULL, ?, ?, NULL)", values)
            self.records.append(ControlRecord(stream.head, server, control))
        else:
            self.connection.execute(
                "INSERT INTO log_records VALUES (?, 1, ?, NULL, ?, ?, NULL, ?)", (*values, stream.log)
            )
        return stream.head

    def append_events(
        self,
        topic: int,
        ids: list[str | None],
        stamps: list[int | None],
        lines: bytes,
        points: Floats,
        availability: Floats | None = None,
        trace: str = "",
    ) -> list[str]:
        """Append events of one topic; return their ids, generated where the publisher set none.

        `availability`: seconds per event; None is 0 for all. `trace`: trace context of the request.
        """
        first, count = self.own.head + 1, len(ids)
        made = protocol.generated_ids(self.log, first, count)
        chosen = ids.count(None) < count
        named = [own or name for own, name in zip(ids, made, strict=True)] if chosen else made
        stamped = np.full(count, self.estimate, dtype=np.int64)
        if stamps.count(None) < count:
            stamped[:] = [self.estimate if stamp is None else stamp for stamp in stamps]
        expiries = None if availability is None else expiries_of(self.estimate, availability)
        record = EventsRecord(
            first, self.time, topic, named if chosen else [], stamped, lines, points, expiries
        )
        if trace:
            record.traces = [trace] * count
        self.own.head = record.last
        until = None if expiries is None else int(expiries.max())
        self.deferred.append((record.last, count, self.time, topic, None, events_payload(record), until))
        if until is not None:
            self.flush()  # the caller checks the limit of retained events
        self.records.append(record)
        return named

    def flush(self) -> None:
        """Insert the events that were appended."""
        if self.deferred:
            rows, self.deferred = self.deferred, []
            self.connection.executemany("INSERT INTO records VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
