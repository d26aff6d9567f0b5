"""The connections that queries see: one that writes in transactions, and one that reads.

Statements of a transaction are sent without waiting for their results (pipeline mode), until a query needs
one. The writes of an operation are collected first: if it fails before it reads, there is nothing to undo.
Otherwise a savepoint is set before its first write.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import psycopg
from psycopg import RawCursor

from edn.errors import InvalidInput
from edn.runtime.postgres.database import Session, unavailable
from edn.runtime.postgres.schema import Scope
from edn.runtime.secret_box import SecretBox

_PARAMETER = re.compile(r"'[^']*'|\?(\d*)")
_TABLE = re.compile(r"INSERT INTO (\w+)")
_PLAIN_INSERT = re.compile(r"INSERT INTO (\w+)(?: \(([\w, ]+)\))? VALUES \((\?(?:, \?)*)\)$")
#: rows from which on an insert is sent as arrays
_MANY = 4


class _Statement:
    """A statement in the dialect of PostgreSQL."""

    __slots__ = ("arrays", "is_write", "text")

    def __init__(self, text: str, scope: Scope) -> None:
        number = 0

        def replace(found: re.Match[str]) -> str:
            nonlocal number
            if found.group(1) is None:
                return found.group()
            number += 1
            return f"${found.group(1) or number}"

        table = _TABLE.match(text)
        if table and table.group(1) in scope.views:
            text = text.replace("ON CONFLICT (", f"ON CONFLICT ({scope.kind}, ")
        self.text = _PARAMETER.sub(replace, text).encode()
        self.is_write = text.startswith(("INSERT", "UPDATE", "DELETE")) and " RETURNING " not in text
        #: for many rows: the statement with one array per column, and the columns' types
        self.arrays: tuple[bytes, list[str]] | None = None
        plain = _PLAIN_INSERT.match(text)
        if plain:
            name, columns, marks = plain.groups()
            types = scope.types[name]
            named = columns.split(", ") if columns else list(types)[: marks.count("?")]
            arrays = ", ".join(f"${place}::{types[column]}[]" for place, column in enumerate(named, 1))
            query = f"INSERT INTO {name} ({', '.join(named)}) SELECT * FROM unnest({arrays})"
            self.arrays = query.encode(), [types[column] for column in named]


def _column(values: Sequence[Any], type: str) -> list[Any]:
    if type == "bigint":
        return [None if value is None else int(value) for value in values]
    return list(values)


class _Written:
    """The result of a write that may not have been sent yet."""

    def __init__(self, connection: WriterConnection) -> None:
        self._connection = connection
        self.cursor: psycopg.RawCursor[Any] | None = None

    @property
    def rowcount(self) -> int:
        self._connection.send_guarded()
        assert self.cursor is not None
        if self.cursor.pgresult is None:
            self._connection.sync()
        return self.cursor.rowcount

    def fetchone(self) -> Any:
        return None

    def fetchall(self) -> list[Any]:
        return []

    def close(self) -> None:
        pass

    def __iter__(self) -> Iterator[Any]:
        return iter(())


class _Dialect:
    """The dialect of PostgreSQL (`edn.runtime.sql`)."""

    def __init__(self, scope: Scope, box: SecretBox) -> None:
        self._scope = scope
        self.box = box
        self._statements: dict[str, _Statement] = {}

    def _translate(self, text: str) -> _Statement:
        found = self._statements.get(text)
        if found is None:
            if len(self._statements) > 2000:
                self._statements.clear()
            found = self._statements[text] = _Statement(text, self._scope)
        return found

    def execute(self, text: str, parameters: Sequence[Any] = (), /) -> Any:
        raise NotImplementedError

    def any_of(self, column: str, parameter: int | None = None) -> str:
        return f"{column} = ANY(?{parameter or ''})"

    def array(self, values: Collection[Any]) -> list[Any]:
        return list(values)

    def indexed(self, table: str, index: str) -> str:
        return table

    def insert_new(self, table: str, key: str, rows: Sequence[Sequence[Any]], returning: str) -> list[Any]:
        types = list(self._scope.types[table].items())[: len(rows[0])] if rows else []
        if not types:
            return []
        for row in rows:
            _check(row)
        arrays = ", ".join(f"?::{type}[]" for _, type in types)
        found = self.execute(
            f"INSERT INTO {table} ({', '.join(name for name, _ in types)}) SELECT * FROM unnest({arrays})"
            f" ON CONFLICT ({key}) DO NOTHING RETURNING {returning}",
            [_column(column, type) for column, (_, type) in zip(zip(*rows, strict=True), types, strict=True)],
        )
        return [row[0] for row in found.fetchall()]

    def last_id(self, table: str) -> int:
        row = self.execute("SELECT last FROM sequences WHERE name = ?", (table,)).fetchone()
        return int(row[0]) if row else 0

    def next_ids(self, table: str, count: int) -> int:
        row = self.execute(
            "INSERT INTO sequences (name, last) VALUES (?1, ?2)"
            " ON CONFLICT (name) DO UPDATE SET last = sequences.last + ?2 RETURNING last",
            (table, count),
        ).fetchone()
        return int(row[0]) - count + 1

    def skip_id(self, table: str) -> int:
        return self.next_ids(table, 1)

    def dump(self, value: Any) -> str:
        return json.dumps(value)

    def load(self, value: str) -> Any:
        return json.loads(value)


def _check(parameters: Sequence[Any]) -> None:
    for value in parameters:
        if type(value) is str and "\0" in value:
            raise InvalidInput("text must not contain the character U+0000")


class WriterConnection(_Dialect):
    """Writes in transactions that `edn.runtime.postgres.writer` begins and commits."""

    def __init__(self, scope: Scope, box: SecretBox) -> None:
        super().__init__(scope, box)
        self._session: Session | None = None
        self._pipeline: AbstractContextManager[Any] | None = None
        #: statements of the running operation that are not sent
        self._collected: list[tuple[_Statement, Sequence[Any], bool, _Written]] = []
        self._guarded = False
        #: newest ids by table, if no other session can change them: those of a shard
        self._last_ids: dict[str, int] = {}

    def use(self, session: Session) -> None:
        """Uses another session from now on, in pipeline mode."""
        self._session = session
        # Kept: pipeline mode would end with this object.
        self._pipeline = session.pipeline()
        self._pipeline.__enter__()
        self.reset()

    def reset(self) -> None:
        """Forgets the operation of a transaction that has ended."""
        self._collected.clear()
        self._guarded = False
        self._last_ids.clear()

    @property
    def session(self) -> Session:
        assert self._session is not None
        return self._session

    def close(self) -> None:
        if self._session is not None and not self._session.closed:
            # Not the regular end of pipeline mode, which would wait for results.
            self._session.pgconn.finish()
        if self._pipeline is not None:
            with contextlib.suppress(psycopg.Error):
                self._pipeline.__exit__(None, None, None)
            self._pipeline = None

    # -- queries ----------------------------------------------------------------------------------------

    def execute(self, text: str, parameters: Sequence[Any] = (), /) -> Any:
        statement = self._translate(text)
        _check(parameters)
        if statement.is_write:
            written = _Written(self)
            self._collected.append((statement, parameters, False, written))
            return written
        self.send_guarded(also=" RETURNING " in text)
        return self.cursor().execute(statement.text, parameters, binary=True)

    def executemany(self, text: str, parameters: Iterable[Sequence[Any]], /) -> Any:
        rows = list(parameters)
        for row in rows:
            _check(row)
        written = _Written(self)
        if rows:
            self._collected.append((self._translate(text), rows, True, written))
        return written

    def next_ids(self, table: str, count: int) -> int:
        if "sequences" not in self._scope.views:
            return super().next_ids(table, count)
        # Without a round trip: the lock of the lease keeps every other session away from the row.
        first = self.last_id(table) + 1
        self._last_ids[table] = last = first + count - 1
        self.execute(
            "INSERT INTO sequences (name, last) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET last = ?2",
            (table, last),
        )
        return first

    def last_id(self, table: str) -> int:
        found = self._last_ids.get(table)
        return super().last_id(table) if found is None else found

    def cursor(self) -> RawCursor[Any]:
        """Returns a cursor that sends statements at once."""
        return RawCursor(self.session)

    def _send(self) -> None:
        collected, self._collected = self._collected, []
        for statement, parameters, is_many, written in collected:
            written.cursor = cursor = self.cursor()
            if not is_many:
                cursor.execute(statement.text, parameters)
            elif statement.arrays is not None and len(parameters) >= _MANY:
                query, types = statement.arrays
                columns = zip(*parameters, strict=True)
                cursor.execute(query, [_column(*pair) for pair in zip(columns, types, strict=True)])
            else:
                for row in parameters:
                    cursor.execute(statement.text, row)

    def send_guarded(self, *, also: bool = False) -> None:
        """Sends the collected writes of an operation that goes on, after a savepoint."""
        if (self._collected or also) and not self._guarded:
            self.cursor().execute(b"SAVEPOINT operation")
            self._guarded = True
        self._send()

    def sync(self) -> None:
        """Waits for the results of all statements; raises the first error."""
        pipeline = self.session._pipeline
        assert pipeline is not None
        pipeline.sync()

    def roll_back(self) -> None:
        """Ends a transaction without an effect; raises `psycopg.Error` if the session is lost."""
        with contextlib.suppress(psycopg.Error):
            self.sync()
        self.reset()
        session = self.session
        session.execute("ROLLBACK")
        session.execute("DEALLOCATE ALL", prepare=False)
        self.sync()
        # The driver takes a statement for prepared that was skipped, because an earlier one of the pipeline
        # failed. Every later transaction that uses it would be refused.
        session._prepared.clear()
        session._prepared._to_flush.clear()

    # -- operations -------------------------------------------------------------------------------------

    def end_operation(self) -> None:
        """Sends the writes of an operation that succeeded."""
        self._send()
        if self._guarded:
            self.cursor().execute(b"RELEASE operation")
            self._guarded = False

    def fail_operation(self) -> None:
        """Takes back the writes of an operation that failed."""
        self._collected.clear()
        self._last_ids.clear()
        if self._guarded:
            self.cursor().execute(b"ROLLBACK TO operation")
            self.cursor().execute(b"RELEASE operation")
            self._guarded = False


class ReaderConnection(_Dialect):
    """Reads committed state; connects at its first use and after a failure. One thread at a time."""

    def __init__(
        self, scope: Scope, box: SecretBox, connect: Callable[[], Session], generation: Callable[[], int]
    ) -> None:
        """`connect` opens a session of the primary; a session of an older `generation` is not used."""
        super().__init__(scope, box)
        self._connect = connect
        self._newest = generation
        self._generation = -1
        self._session: Session | None = None

    def execute(self, text: str, parameters: Sequence[Any] = (), /) -> Any:
        statement = self._translate(text)
        try:
            return RawCursor(self._ready()).execute(statement.text, parameters, binary=True)
        except (psycopg.OperationalError, psycopg.InterfaceError) as error:
            self.close()
            raise unavailable(error) from None

    def executemany(self, text: str, parameters: Iterable[Sequence[Any]], /) -> Any:
        for row in parameters:
            self.execute(text, row)

    def _ready(self) -> Session:
        newest = self._newest()
        if self._session is not None and (self._generation != newest or self._session.closed):
            self.close()
        if self._session is None:
            self._generation = newest
            self._session = self._connect()
        return self._session

    def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            with contextlib.suppress(psycopg.Error):
                session.close()
