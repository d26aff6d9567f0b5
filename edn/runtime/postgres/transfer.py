"""Copies the stores of a network between SQLite files and a PostgreSQL schema, table by table.

A file belongs to one dispatcher or server. Its table `outbox` is `shard_outbox` in the schema, with the name
of the shard in each row; the tables of the directory have the same name in both. Rows are copied as they are,
so offsets, ids, cursors and webhook-ids stay. What the engines store differently is converted here:

    SQLite                               PostgreSQL
    meta: log, incarnation, or epoch     name and token of the lease
    sqlite_sequence                      sequences, shard_sequences
    values of meta as they are           JSON in the tables of the log, text in those of a shard

A copy into a schema goes to another schema first, which gets its name when everything is there (`publish`).
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from psycopg import IsolationLevel, sql

from edn.errors import Conflict, CorruptMessage, InvalidInput
from edn.runtime.disk import SqliteConnection
from edn.runtime.postgres.database import Database, Session
from edn.runtime.postgres.schema import Owner

#: name of the dispatcher whose log is moved
NAME = "dispatcher"
#: rows of one statement
_PAGE = 500
#: values of `meta` that the lease has in PostgreSQL, and those that only a file has
_LEASED = {"log": ("log", "incarnation"), "shard": ("epoch",)}
_OF_FILE = frozenset({"format"})
_ID, _FENCE = "log", {"log": "incarnation", "shard": "epoch"}

Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Part:
    """The store of one process."""

    kind: Owner
    #: id of the log or of the server
    name: str
    #: how often it was opened
    fence: int
    #: rows by table, of those that were copied
    rows: dict[str, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        return sum(self.rows.values())


def staging(database: Database) -> Database:
    """Returns the schema that a copy is made in."""
    return replace(database, schema=f"{database.schema[:34]}_moving")


def check_free(database: Database) -> None:
    """Refuses a schema that has tables already; raises `Conflict`."""
    with database.refusing(), contextlib.closing(database.connect("edn: move")) as session:
        if _tables(session, database):
            raise Conflict(
                f'the schema "{database.schema}" of the database {database} must be empty, but it has tables'
            )


def drop(database: Database) -> None:
    """Drops a schema, such as one that a copy was interrupted in."""
    with database.refusing(), contextlib.closing(database.connect("edn: move")) as session:
        session.execute("SET client_min_messages = warning")
        session.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(database.schema)))


def publish(source: Database, target: Database) -> None:
    """Gives a complete copy its name, in one transaction."""
    with database_session(target) as session, session.transaction():
        # An empty schema of that name may exist: an administrator created it for the network's user.
        session.execute(sql.SQL("DROP SCHEMA IF EXISTS {}").format(sql.Identifier(target.schema)))
        session.execute(
            sql.SQL("ALTER SCHEMA {} RENAME TO {}").format(
                sql.Identifier(source.schema), sql.Identifier(target.schema)
            )
        )


@contextlib.contextmanager
def database_session(database: Database) -> Iterator[Session]:
    with database.refusing(), contextlib.closing(database.connect("edn: move")) as session:
        session.execute("SET client_min_messages = warning")
        yield session


# -- from a file into a schema ----------------------------------------------------------------------------


def load_part(
    db: SqliteConnection, database: Database, kind: Owner, name: str | None, progress: Progress
) -> Part:
    """Copies a file into the tables of a schema, in one transaction, and checks the numbers of rows.

    `name`: id of the server; the file of a dispatcher has the id of its log.
    """
    stored = dict(db.execute("SELECT * FROM meta").fetchall())
    owner = name or str(stored[_ID])
    part = Part(kind, owner, int(stored[_FENCE[kind]]))
    with database_session(database) as session, session.transaction():
        tables = _tables(session, database)
        for table in _tables_of_file(db):
            target = _target(kind, table, tables)
            if target is None:
                _check_left(db, table)
                continue
            columns = _columns_of_file(db, table)
            _check_columns(table, columns, tables[target], kind)
            rows = db.execute(f"SELECT {', '.join(map(_quoted, columns))} FROM {_quoted(table)}")
            copied = _copy_in(
                session, target, columns, _pages(rows), kind, owner, _to_database(kind, table), progress
            )
            _check_count(session, target, kind, owner, copied)
            part.rows[table] = copied
        _load_sequences(db, session, kind, owner)
        session.execute(
            "INSERT INTO leases (name, fence) VALUES (%s, %s)"
            " ON CONFLICT (name) DO UPDATE SET fence = excluded.fence",
            (f"{kind}:{owner}", part.fence),
        )
        if kind == "log":
            # The dispatcher without a name of its own continues it.
            session.execute(
                "INSERT INTO logs (log, name, url, state, opened) VALUES (%s, %s, NULL, 'open', 0)",
                (owner, NAME),
            )
    return part


def _copy_in(
    session: Session,
    target: str,
    columns: Sequence[str],
    rows: Iterator[Sequence[Any]],
    kind: Owner,
    owner: str,
    convert: Callable[[Sequence[Any]], Sequence[Any] | None],
    progress: Progress,
) -> int:
    table = sql.Identifier(target)
    owned = target.startswith(f"{kind}_")
    named = [*columns, kind] if owned else list(columns)
    copied = 0
    # The triggers count what the counters in the file have counted already.
    session.execute(sql.SQL("ALTER TABLE {} DISABLE TRIGGER USER").format(table))
    query = sql.SQL("COPY {} ({}) FROM STDIN").format(table, sql.SQL(", ").join(map(sql.Identifier, named)))
    with session.cursor() as cursor, cursor.copy(query) as copy:
        for row in rows:
            values = convert(row)
            if values is not None:
                if any(isinstance(value, str) and "\0" in value for value in values):
                    raise InvalidInput(f"text of the table {target} must not contain the character U+0000")
                copy.write_row([*values, owner] if owned else list(values))
                copied += 1
                progress(1)
    session.execute(sql.SQL("ALTER TABLE {} ENABLE TRIGGER USER").format(table))
    for name, sequence in session.execute(
        "SELECT a.attname::text, pg_get_serial_sequence(%s, a.attname) FROM pg_attribute a"
        " WHERE a.attrelid = %s::regclass AND a.attidentity != ''",
        (target, target),
    ).fetchall():
        session.execute(
            sql.SQL("SELECT setval(%s, coalesce(max({}), 1)) FROM {}").format(sql.Identifier(name), table),
            (sequence,),
        )
    return copied


def _check_count(session: Session, target: str, kind: Owner, owner: str, copied: int) -> None:
    owned = target.startswith(f"{kind}_")
    condition = sql.SQL(" WHERE {} = %s").format(sql.Identifier(kind)) if owned else sql.SQL("")
    query = sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(target)) + condition
    row = session.execute(query, (owner,) if owned else ()).fetchone()
    if row is None or row[0] != copied:
        raise CorruptMessage(f"the table {target} must have {copied} rows after the copy, got {row}")


def _load_sequences(db: SqliteConnection, session: Session, kind: Owner, owner: str) -> None:
    rows = db.execute("SELECT name, seq FROM sqlite_sequence").fetchall()
    for name, last in rows:
        if kind == "log":
            session.execute("INSERT INTO sequences (name, last) VALUES (%s, %s)", (name, last))
        else:
            session.execute(
                "INSERT INTO shard_sequences (name, last, shard) VALUES (%s, %s, %s)", (name, last, owner)
            )


def _check_left(db: SqliteConnection, table: str) -> None:
    row = db.execute(f"SELECT count(*) FROM {_quoted(table)}").fetchone()
    if row[0]:
        raise Conflict(
            f"the table {table} of the data folder has {row[0]} rows, and PostgreSQL has no such table"
        )


# -- from a schema into a file ----------------------------------------------------------------------------


class Snapshot:
    """All tables of a network at one moment; refuses a network that runs."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._stack = contextlib.ExitStack()
        self.session: Session

    def __enter__(self) -> Snapshot:
        self._stack.enter_context(self._database.refusing())
        self.session = self._stack.enter_context(contextlib.closing(self._database.connect("edn: move")))
        self.session.isolation_level = IsolationLevel.REPEATABLE_READ
        self._stack.enter_context(self.session.transaction())
        self.tables = _tables(self.session, self._database)
        if not {"leases", "logs"} <= self.tables.keys():
            self._stack.close()
            raise Conflict(f'the schema "{self._database.schema}" of {self._database} has no network')
        return self

    def __exit__(self, *failure: Any) -> None:
        self._stack.__exit__(*failure)

    def parts(self) -> list[Part]:
        """Returns the logs and shards, logs first."""
        rows = self.session.execute(
            "SELECT name, fence FROM leases WHERE name LIKE 'shard:%' OR EXISTS (SELECT 1 FROM logs"
            " WHERE logs.state != 'retired' AND leases.name = 'log:' || logs.log) ORDER BY name"
        ).fetchall()
        found = []
        for lease, fence in rows:
            kind, _, name = str(lease).partition(":")
            if kind in _FENCE:
                found.append(Part("log" if kind == "log" else "shard", name, int(fence)))
        return found

    def check_stopped(self) -> None:
        """Raises `Conflict` if a process owns a log or shard."""
        row = self.session.execute(
            "SELECT name, holder FROM leases WHERE owner != '' AND until > clock_timestamp() ORDER BY name"
        ).fetchone()
        if row is not None:
            raise Conflict(f"the network must be stopped, but {row[1]} owns {row[0]}")

    def states(self) -> list[Any]:
        """Returns what changes whenever a process commits."""
        return self.session.execute("SELECT name, fence, commits FROM leases ORDER BY name").fetchall()

    def save_part(self, part: Part, db: SqliteConnection, progress: Progress) -> None:
        """Copies a log or shard into the empty tables of a file, and checks the numbers of rows."""
        triggers = db.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'").fetchall()
        db.execute("BEGIN IMMEDIATE")
        for name, _ in triggers:
            db.execute(f"DROP TRIGGER {_quoted(name)}")
        for table in _tables_of_file(db):
            target = _target(part.kind, table, self.tables)
            if target is None:
                continue
            columns = _columns_of_file(db, table)
            _check_columns(table, columns, self.tables[target], part.kind)
            if table != "meta":
                db.execute(f"DELETE FROM {_quoted(table)}")
            part.rows[table] = self._save_table(part, db, table, target, columns, progress)
        self._save_sequences(part, db)
        leased: list[tuple[str, str | int]] = [(_FENCE[part.kind], part.fence)]
        leased += [(_ID, part.name)] if part.kind == "log" else []
        db.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", leased)
        for _, statement in triggers:
            db.execute(statement)
        db.execute("COMMIT")

    def _save_table(
        self,
        part: Part,
        db: SqliteConnection,
        table: str,
        target: str,
        columns: Sequence[str],
        progress: Progress,
    ) -> int:
        owned = target.startswith(f"{part.kind}_")
        query = sql.SQL("SELECT {} FROM {}").format(
            sql.SQL(", ").join(map(sql.Identifier, columns)), sql.Identifier(target)
        )
        if owned:
            query += sql.SQL(" WHERE {} = %s").format(sql.Identifier(part.kind))
        marks = ", ".join("?" * len(columns))
        insert = (
            f"INSERT OR REPLACE INTO {_quoted(table)} ({', '.join(map(_quoted, columns))}) VALUES ({marks})"
        )
        convert = _to_file(part.kind, table)
        copied = 0
        with self.session.cursor("copy") as cursor:
            cursor.execute(query, (part.name,) if owned else ())
            while page := cursor.fetchmany(_PAGE):
                rows = [convert(row) for row in page]
                db.executemany(insert, rows)
                copied += len(rows)
                progress(len(rows))
        row = db.execute(f"SELECT count(*) FROM {_quoted(table)}").fetchone()
        if table != "meta" and row[0] != copied:
            raise CorruptMessage(f"the table {table} must have {copied} rows after the copy, got {row[0]}")
        return copied

    def _save_sequences(self, part: Part, db: SqliteConnection) -> None:
        if part.kind == "log":
            rows = self.session.execute("SELECT name, last FROM sequences").fetchall()
        else:
            rows = self.session.execute(
                "SELECT name, last FROM shard_sequences WHERE shard = %s", (part.name,)
            ).fetchall()
        for name, last in rows:
            db.execute("DELETE FROM sqlite_sequence WHERE name = ?", (name,))
            db.execute("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", (name, last))


# -- both ways --------------------------------------------------------------------------------------------


def _target(kind: Owner, table: str, tables: dict[str, set[str]]) -> str | None:
    """Returns the table of the schema that a table of a file is copied to."""
    if f"{kind}_{table}" in tables and kind in tables[f"{kind}_{table}"]:
        return f"{kind}_{table}"
    return table if kind == "log" and table in tables else None


def _tables(session: Session, database: Database) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for table, column in session.execute(
        "SELECT table_name::text, column_name::text FROM information_schema.columns WHERE table_schema = %s",
        (database.schema,),
    ).fetchall():
        found.setdefault(table, set()).add(column)
    return found


def _tables_of_file(db: SqliteConnection) -> list[str]:
    query = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name"
    return [name for (name,) in db.execute(query).fetchall()]


def _columns_of_file(db: SqliteConnection, table: str) -> list[str]:
    return [row[1] for row in db.execute(f"PRAGMA table_info({_quoted(table)})").fetchall()]


def _check_columns(table: str, columns: Sequence[str], found: set[str], kind: Owner) -> None:
    if set(columns) != found - {kind} and set(columns) != found:
        differing = ", ".join(sorted(set(columns) ^ (found - {kind})))
        raise Conflict(f"the table {table} differs between SQLite and PostgreSQL in the columns {differing}")


def _pages(rows: Any) -> Iterator[Sequence[Any]]:
    while page := rows.fetchmany(_PAGE):
        yield from page


def _to_database(kind: Owner, table: str) -> Callable[[Sequence[Any]], Sequence[Any] | None]:
    if table != "meta":
        return lambda row: row
    left = {*_LEASED[kind], *_OF_FILE}

    def convert(row: Sequence[Any]) -> Sequence[Any] | None:
        if row[0] in left:
            return None
        return row[0], json.dumps(row[1]) if kind == "log" else str(row[1])

    return convert


def _to_file(kind: Owner, table: str) -> Callable[[Sequence[Any]], Sequence[Any]]:
    if table != "meta":
        return lambda row: row
    if kind == "log":
        return lambda row: (row[0], json.loads(row[1]))
    return lambda row: (row[0], int(row[1]) if row[0] in ("seq", "restored") else row[1])


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
