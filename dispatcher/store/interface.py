"""The interface of the store: transactions, errors, and helpers for queries.

An **operation** is a function of a `Transaction`. A read, `await store.reading(function)`, is immediate in
SQLite, but another engine may use a thread, and other tasks run meanwhile. So a check and the write that
relies on it belong into one operation, or under the lock that guards both.

SQL is portable (`edn.runtime.sql`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

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


@dataclass(slots=True)
class Transaction:
    """A transaction of the log; times are microseconds."""

    connection: Connection
    log: str
    incarnation: int
    #: last assigned offset
    head: int
    #: network time of the commit
    time: int
    #: steady time, for ages
    steady: int
    #: best estimate of the time of day, for event times and new expiries; never before `time`
    estimate: int
    records: list[Record] = field(default_factory=list)
    #: whether changes are kept for other dispatchers, and whether there were any (see `change_feed`)
    noting: bool = False
    noted: bool = False

    def append_control(self, server: str, kind: protocol.Kind, **fields: Any) -> int:
        """Append a control record for a server; return its offset."""
        self.head += 1
        control = protocol.Control(offset=self.head, time=self.time, kind=kind, **fields)
        self.connection.execute(
            "INSERT INTO records VALUES (?, 1, ?, NULL, ?, ?, NULL)",
            (self.head, self.time, server, protocol.encode(control)),
        )
        self.records.append(ControlRecord(self.head, server, control))
        return self.head

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
        first, count = self.head + 1, len(ids)
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
        self.head = record.last
        until = None if expiries is None else int(expiries.max())
        self.connection.execute(
            "INSERT INTO records VALUES (?, ?, ?, ?, NULL, ?, ?)",
            (self.head, count, self.time, topic, events_payload(record), until),
        )
        self.records.append(record)
        return named
