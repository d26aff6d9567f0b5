"""Migrations of a network's schema, and views that limit a session to one log or shard.

One network is one PostgreSQL schema. Each component (leases, dispatcher, server) has a list of migrations;
`formats` holds how many of them the schema has. A program refuses a schema that is newer than itself.

Tables that several owners share have a last column with the owner, and it is the first column of their keys:
`log_records (…, log)`, `shard_outbox (…, shard)`. A session of an owner sees them as temporary views without
the prefix: `outbox` is `shard_outbox WHERE shard = 's1'`, and rows that it inserts get that shard. So queries
are the same as for a file of one owner, and no query can forget the owner.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from psycopg import sql

from edn.runtime.postgres.database import Database, Session
from edn.runtime.process import CannotStart

Owner = Literal["log", "shard"]

#: types and functions of SQLite that queries use, the leases, and the check of the fencing token
LEASES = (
    """
CREATE DOMAIN blob AS BYTEA;
CREATE FUNCTION instr(TEXT, TEXT) RETURNS INTEGER LANGUAGE SQL IMMUTABLE PARALLEL SAFE
    AS 'SELECT strpos($1, $2)';
CREATE FUNCTION json_array_length(TEXT) RETURNS INTEGER LANGUAGE SQL IMMUTABLE PARALLEL SAFE
    AS 'SELECT pg_catalog.json_array_length($1::json)';
CREATE TABLE leases (
    name TEXT COLLATE "C" PRIMARY KEY, fence BIGINT NOT NULL DEFAULT 0, commits BIGINT NOT NULL DEFAULT 0,
    owner TEXT NOT NULL DEFAULT '', until TIMESTAMPTZ NOT NULL DEFAULT '-infinity',
    pid INTEGER, started TIMESTAMPTZ,
    -- length of the lease, where its owner runs, since when, and how often a process died as its owner
    seconds DOUBLE PRECISION NOT NULL DEFAULT 0, holder TEXT NOT NULL DEFAULT '', taken TIMESTAMPTZ,
    takeovers BIGINT NOT NULL DEFAULT 0,
    -- number of the last change that the owner must know, and of the last that it knows
    revision BIGINT NOT NULL DEFAULT 0, known BIGINT NOT NULL DEFAULT 0) WITH (fillfactor = 20);
-- every commit of an owner updates its row
ALTER TABLE leases SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
-- a commit here proves that a session's server is the primary
CREATE TABLE proofs (name TEXT COLLATE "C" PRIMARY KEY, number BIGINT NOT NULL) WITH (fillfactor = 20);
-- every transaction of an owner begins with it: the row lock orders owners, the token refuses a former one,
-- and `known` refuses one that has not learned the newest change (-1: it will learn it in this transaction)
CREATE FUNCTION claim(lease TEXT, token BIGINT, length DOUBLE PRECISION, known BIGINT) RETURNS BIGINT
    LANGUAGE plpgsql AS $$
DECLARE number BIGINT;
BEGIN
    UPDATE leases SET commits = commits + 1, until = clock_timestamp() + length * INTERVAL '1 second',
        seconds = length
        WHERE name = lease AND fence = token RETURNING revision INTO number;
    IF number IS NULL THEN
        RAISE EXCEPTION 'another process owns %', lease USING ERRCODE = 'EDN01';
    END IF;
    IF known >= 0 AND known != number THEN
        RAISE EXCEPTION '% has changes that its owner does not know', lease USING ERRCODE = 'EDN02';
    END IF;
    RETURN number;
END $$;
""",
)


def migrate(session: Session, database: Database, component: str, migrations: Sequence[str]) -> None:
    """Brings the tables of a component up to date; raises `CannotStart` for a newer schema."""
    with session.transaction():
        session.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 20))", (f"edn {database.schema}",))
        if not session.execute(
            "SELECT 1 FROM pg_namespace WHERE nspname = %s", (database.schema,)
        ).fetchone():
            session.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(database.schema)))
        session.execute(
            "CREATE TABLE IF NOT EXISTS formats (component TEXT PRIMARY KEY, number BIGINT NOT NULL)"
        )
        for name, wanted in (("leases", LEASES), (component, migrations)):
            row = session.execute("SELECT number FROM formats WHERE component = %s", (name,)).fetchone()
            found = int(row[0]) if row else 0
            if found > len(wanted):
                raise CannotStart(
                    f'the schema "{database.schema}" of the database {database} has format {found} of the'
                    f" {name} tables; this program knows formats up to {len(wanted)}: run the newer version"
                )
            for migration in wanted[found:]:
                session.execute(migration.encode(), prepare=False)
            if found < len(wanted):
                session.execute(
                    "INSERT INTO formats VALUES (%s, %s)"
                    " ON CONFLICT (component) DO UPDATE SET number = excluded.number",
                    (name, len(wanted)),
                )


def prepare(database: Database, component: str, migrations: Sequence[str]) -> None:
    """Creates the tables of a component, or brings them up to date; raises `CannotStart`."""
    with database.refusing(), contextlib.closing(database.connect("edn: migration")) as session:
        migrate(session, database, component, migrations)


@dataclass(frozen=True, slots=True)
class Scope:
    """The owner whose rows a session sees."""

    kind: Owner
    name: str
    #: column types of the network's tables, by the name that queries use
    types: dict[str, dict[str, str]] = field(default_factory=dict)
    #: names of the views
    views: set[str] = field(default_factory=set)

    @property
    def lease(self) -> str:
        return f"{self.kind}:{self.name}"

    def apply(self, session: Session, database: Database) -> None:
        """Creates the views of this owner in a new session."""
        prefix = f"{self.kind}_"
        tables: dict[str, dict[str, str]] = {}
        for table, column, type in session.execute(
            "SELECT c.relname::text, a.attname::text, format_type(a.atttypid, NULL) FROM pg_class c"
            " JOIN pg_attribute a ON a.attrelid = c.oid WHERE c.relnamespace = %s::regnamespace"
            " AND c.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped ORDER BY c.relname, a.attnum",
            (f'"{database.schema}"',),
        ).fetchall():
            tables.setdefault(table, {})[column] = type
        for table, columns in tables.items():
            if not table.startswith(prefix) or self.kind not in columns:
                self.types.setdefault(table, columns)
                continue
            view = table.removeprefix(prefix)
            self.types[view] = self.types[table] = columns
            self.views.add(view)
            session.execute(
                sql.SQL(
                    "CREATE OR REPLACE TEMPORARY VIEW {view} AS SELECT {columns} FROM {schema}.{table}"
                    " WHERE {owner} = {name};"
                    " ALTER VIEW pg_temp.{view} ALTER COLUMN {owner} SET DEFAULT {name}"
                ).format(
                    view=sql.Identifier(view),
                    columns=sql.SQL(", ").join(map(sql.Identifier, columns)),
                    schema=sql.Identifier(database.schema),
                    table=sql.Identifier(table),
                    owner=sql.Identifier(self.kind),
                    name=sql.Literal(self.name),
                ),
                prepare=False,
            )
