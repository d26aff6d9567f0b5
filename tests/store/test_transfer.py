"""Moving stores between SQLite and PostgreSQL: every row of every table survives both ways."""

from __future__ import annotations

import contextlib
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from dispatcher import prepare_store as prepare_dispatcher
from edn.errors import Conflict
from edn.runtime import disk
from edn.runtime.disk import SqliteConnection
from edn.runtime.postgres import transfer
from edn.runtime.postgres.database import Database
from edn.runtime.postgres.schema import Owner
from edn_server import prepare_store as prepare_server
from tests.postgres import Cluster
from tests.store.conftest import new_database

FILES: dict[Owner, tuple[Any, str]] = {
    "log": (prepare_dispatcher, "dispatcher.db"),
    "shard": (prepare_server, "server.db"),
}
#: values that a CHECK wants
CHOICES = {"state": ["ready"], "phase": ["history", "live"], "source": ["log", "server"], "body": [None]}


def fill(db: SqliteConnection, chance: random.Random, rows: int) -> None:
    """Insert rows into every table, with every type of value, without the help of triggers."""
    triggers = db.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'").fetchall()
    for name, _ in triggers:
        db.execute(f'DROP TRIGGER "{name}"')
    tables = db.execute(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    ).fetchall()
    for (table,) in tables:
        columns = db.execute(f'PRAGMA table_info("{table}")').fetchall()
        if table in ("meta", "changes", "peers"):
            continue
        for number in range(rows):
            values = [value(chance, table, *column[1:4], number=number) for column in columns]
            db.execute(f'INSERT INTO "{table}" VALUES ({", ".join("?" * len(values))})', values)
    for _, statement in triggers:
        db.execute(statement)


def value(chance: random.Random, table: str, name: str, type: str, required: int, *, number: int) -> Any:
    if name in CHOICES and table in ("outbox", "replays") and not (table == "replays" and name == "state"):
        return chance.choice(CHOICES[name])
    if table == "outbox" and name == "frame_id":
        return number
    if type == "INTEGER":
        return (1 << 53) * number + number  # also as a key
    if type == "REAL":
        return chance.choice([0.5, float("inf"), -1.25e-300])
    if type == "BLOB":
        return bytes(chance.randrange(256) for _ in range(20)) + bytes([number])
    return f"{name}-{number}-é\n\t\\N\"'"


def contents(db: SqliteConnection) -> dict[str, list[tuple[Any, ...]]]:
    tables = db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
    found = {}
    for (table,) in tables:
        rows = [tuple(row) for row in db.execute(f'SELECT * FROM "{table}"').fetchall()]
        found[table] = sorted(rows, key=repr)
    found.pop("sqlite_stat1", None)
    return found


@pytest.mark.parametrize("kind", ["log", "shard"])
def test_every_row_of_every_table_survives_both_ways(kind: Owner, postgres: Cluster, tmp_path: Path) -> None:
    prepare, file = FILES[kind]
    assert prepare.main([str(tmp_path / "first")]) == 0
    assert prepare.main([str(tmp_path / "second")]) == 0
    database = new_database(postgres)
    staged = transfer.staging(database)
    for each in (prepare_dispatcher, prepare_server):
        assert each.main([staged.url, staged.schema]) == 0
    with contextlib.closing(disk.connect(tmp_path / "first" / file)) as db:
        fill(db, random.Random(kind), 4)
        if kind == "log":
            own = [("log", "f" * 32), ("incarnation", 7), ("clock", '{"a":1}'), ("floor", 12)]
            db.executemany("INSERT INTO meta VALUES (?, ?)", own)
        before = contents(db)
        part = transfer.load_part(db, staged, kind, None if kind == "log" else "s1", lambda _: None)
        assert {
            table: len(rows) for table, rows in before.items() if table in part.rows and table != "meta"
        } == {table: count for table, count in part.rows.items() if table != "meta"}
    transfer.publish(staged, database)
    with pytest.raises(Conflict, match="must be empty"):
        transfer.check_free(database)
    with transfer.Snapshot(database) as snapshot:
        snapshot.check_stopped()
        [found] = snapshot.parts()
        assert (found.kind, found.name, found.fence) == (part.kind, part.name, part.fence)
        with contextlib.closing(disk.connect(tmp_path / "second" / file)) as db:
            snapshot.save_part(found, db, lambda _: None)
            assert contents(db) == before
            triggers = db.execute("SELECT count(*) FROM sqlite_schema WHERE type = 'trigger'").fetchone()
            assert triggers[0] >= 3


def test_a_running_network_and_an_empty_schema_are_refused(postgres: Cluster) -> None:
    database = new_database(postgres)
    with pytest.raises(Conflict, match="has no network"), transfer.Snapshot(database):
        pass
    for each in (prepare_dispatcher, prepare_server):
        each.main([database.url, database.schema])
    postgres.execute(
        f"INSERT INTO {database.schema}.leases (name, owner, holder, until)"
        " VALUES ('shard:s1', 'x', 'host pid 7', now() + INTERVAL '1 minute')"
    )
    with transfer.Snapshot(database) as snapshot, pytest.raises(Conflict, match="host pid 7 owns shard:s1"):
        snapshot.check_stopped()


def test_text_that_postgresql_cannot_store_is_refused(postgres: Cluster, tmp_path: Path) -> None:
    prepare_server.main([str(tmp_path / "first")])
    database: Database = new_database(postgres)
    prepare_server.main([database.url, database.schema])
    with contextlib.closing(disk.connect(tmp_path / "first" / "server.db")) as db:
        db.execute("INSERT INTO topics VALUES (1, '', ?, '[]', 'bitmap')", ("a\0b",))
        with pytest.raises(Exception, match=r"U\+0000"):
            transfer.load_part(db, database, "shard", "s1", lambda _: None)
    shutil.rmtree(tmp_path / "first")
