"""Copies all tables of a network's schema to files as of one moment, and back into a new schema.

A copy is taken in one transaction (REPEATABLE READ) while the network runs. So the logs and all servers
agree: no server has read more of a log than there is. What a restored network must not do is to use a
webhook-id of the old network for another body, or to obey a process of the old one. `prepare_restored` sees
to both; it is also for databases that the tools of PostgreSQL have restored to an earlier moment.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from psycopg import IsolationLevel, sql

from edn.errors import Conflict, CorruptMessage
from edn.runtime.postgres.database import Database, Session

#: by how much the fencing tokens of a restored network are larger
FENCE_GAP = 1 << 20
#: tables that say nothing about the network
_LEFT = frozenset({"proofs"})
_CHUNK = 1 << 20

#: writes the chunks of a file
Write = Callable[[Path, Iterator[bytes]], None]


def dump(
    database: Database, folder: Path, write: Write, progress: Callable[[int], None]
) -> tuple[dict[str, int], dict[str, int]]:
    """Writes each table to `<table>.copy`; returns the numbers of rows and the formats of the components."""
    with database.refusing(), contextlib.closing(database.connect("edn: backup")) as session:
        _check_network(session, database)
        # A commit first: a former primary could show what the network has never acknowledged, or lack it.
        session.execute(
            "INSERT INTO proofs VALUES ('backup', 1)"
            " ON CONFLICT (name) DO UPDATE SET number = proofs.number + 1"
        )
        session.isolation_level = IsolationLevel.REPEATABLE_READ
        rows: dict[str, int] = {}
        with session.transaction():
            for table, columns in _tables(session, database).items():
                query = sql.SQL("COPY (SELECT {} FROM {}) TO STDOUT").format(
                    sql.SQL(", ").join(map(sql.Identifier, columns)), sql.Identifier(table)
                )
                with session.cursor() as cursor:
                    with cursor.copy(query) as copy:
                        write(folder / f"{table}.copy", _chunks(copy))
                    rows[table] = cursor.rowcount
                progress(1)
            formats = dict(session.execute("SELECT component, number FROM formats").fetchall())
        return rows, formats


def _chunks(copy: object) -> Iterator[bytes]:
    """Joins the small pieces of a copy."""
    gathered, size = [], 0
    for piece in copy:  # type: ignore[attr-defined]  # psycopg types it with the cursor
        gathered.append(bytes(piece))
        size += len(piece)
        if size >= _CHUNK:
            yield b"".join(gathered)
            gathered, size = [], 0
    yield b"".join(gathered)


def load(
    database: Database,
    folder: Path,
    rows: dict[str, int],
    formats: dict[str, int],
    progress: Callable[[int], None],
) -> None:
    """Fills the empty tables of a schema from files, in one transaction, and checks the numbers of rows."""
    with database.refusing(), contextlib.closing(database.connect("edn: restore")) as session:
        found = dict(session.execute("SELECT component, number FROM formats").fetchall())
        if found != formats:
            raise Conflict(f"the backup must have the formats {found} of this version, got {formats}")
        with session.transaction():
            tables = _tables(session, database)
            if tables.keys() != rows.keys():
                differing = ", ".join(sorted(tables.keys() ^ rows.keys()))
                raise Conflict(f"the backup must have the tables of this version; these differ: {differing}")
            for table, columns in tables.items():
                _load_table(session, folder / f"{table}.copy", table, columns, rows[table])
                progress(1)
            # The owners at the moment of the backup do not own the copy.
            session.execute("UPDATE leases SET owner = '', until = '-infinity'")


def _load_table(session: Session, file: Path, table: str, columns: list[str], expected: int) -> None:
    name = sql.Identifier(table)
    session.execute(sql.SQL("ALTER TABLE {} DISABLE TRIGGER USER").format(name))
    # The migrations may have put rows into it.
    session.execute(sql.SQL("DELETE FROM {}").format(name))
    query = sql.SQL("COPY {} ({}) FROM STDIN").format(name, sql.SQL(", ").join(map(sql.Identifier, columns)))
    with session.cursor() as cursor, cursor.copy(query) as copy, file.open("rb") as opened:
        while chunk := opened.read(_CHUNK):
            copy.write(chunk)
    session.execute(sql.SQL("ALTER TABLE {} ENABLE TRIGGER USER").format(name))
    row = session.execute(sql.SQL("SELECT count(*) FROM {}").format(name)).fetchone()
    if row is None or row[0] != expected:
        raise CorruptMessage(f"the table {table} must have {expected} rows, got {row}")
    for column, sequence in session.execute(
        "SELECT a.attname::text, pg_get_serial_sequence(%s, a.attname) FROM pg_attribute a"
        " WHERE a.attrelid = %s::regclass AND a.attidentity != ''",
        (table, table),
    ).fetchall():
        session.execute(
            sql.SQL("SELECT setval(%s, coalesce(max({}), 1)) FROM {}").format(sql.Identifier(column), name),
            (sequence,),
        )


def prepare_restored(database: Database, id_gap: int) -> tuple[int, int]:
    """Prepares a restored network for its start; returns the numbers of servers and of API keys.

    `id_gap`: distance between the old and the new ids of outbox rows.
    """
    with database.refusing(), contextlib.closing(database.connect("edn: restore")) as session:
        _check_network(session, database)
        with session.transaction():
            row = session.execute(
                "SELECT name, holder FROM leases WHERE owner != '' AND until > clock_timestamp()"
            ).fetchone()
            if row is not None:
                raise Conflict(f"the network must be stopped, but {row[1]} owns {row[0]}")
            session.execute(
                "UPDATE leases SET owner = '', until = '-infinity', fence = fence + %s", (FENCE_GAP,)
            )
            # Notifications up to this row may have been sent by the old network.
            session.execute(
                "INSERT INTO shard_meta (name, value, shard)"
                " SELECT 'restored', last::text, shard FROM shard_sequences WHERE name = 'outbox'"
                " ON CONFLICT (shard, name) DO UPDATE SET value = excluded.value"
            )
            session.execute("UPDATE shard_sequences SET last = last + %s WHERE name = 'outbox'", (id_gap,))
            servers = session.execute("SELECT count(*) FROM leases WHERE name LIKE 'shard:%'").fetchone()
            keys = session.execute("SELECT count(*) FROM keys").fetchone()
    assert servers is not None
    assert keys is not None
    return int(servers[0]), int(keys[0])


def _check_network(session: Session, database: Database) -> None:
    row = session.execute("SELECT to_regclass('leases') IS NOT NULL").fetchone()
    if row is None or not row[0]:
        raise Conflict(f'the schema "{database.schema}" of the database {database} has no network')


def _tables(session: Session, database: Database) -> dict[str, list[str]]:
    """Returns the columns of the network's tables."""
    found: dict[str, list[str]] = {}
    for table, column in session.execute(
        "SELECT c.table_name::text, c.column_name::text FROM information_schema.columns c"
        " JOIN information_schema.tables t USING (table_schema, table_name)"
        " WHERE c.table_schema = %s AND t.table_type = 'BASE TABLE' ORDER BY 1, c.ordinal_position",
        (database.schema,),
    ).fetchall():
        if table not in _LEFT:
            found.setdefault(table, []).append(column)
    return found
