"""Bytes that each tenant's retained events occupy in the log, and their limit.

An event that stays available to later subscribers stays in the log as long as its publisher said, for ever if
it said so. Triggers count the bytes per tenant in the transaction that writes or deletes a record, so the sum
is exact and never computed. Beyond the limit publishing *with* availability is refused; events without go on.
"""

from __future__ import annotations

import sqlite3

from edn.errors import Overloaded

#: seconds after which trying again is worth it: events expire, topics are deleted
PATIENCE = 60.0

TABLE = """
CREATE TABLE IF NOT EXISTS retained (tenant TEXT PRIMARY KEY, bytes INTEGER NOT NULL) WITHOUT ROWID
"""


def _counting(row: str, sign: str) -> str:
    """Count a record. Its topic is there: deleting a topic ends the availability of its events first."""
    return (
        "INSERT INTO retained SELECT substr(name, 1, max(0, instr(name, '/') - 1)),"
        f" {sign}length({row}.payload) FROM topics WHERE uid = {row}.topic"
        " ON CONFLICT (tenant) DO UPDATE SET bytes = bytes + excluded.bytes;"
    )


TRIGGERS = (
    "CREATE TRIGGER IF NOT EXISTS retained_more AFTER INSERT ON records WHEN NEW.expires IS NOT NULL BEGIN"
    f" {_counting('NEW', '')} END",
    "CREATE TRIGGER IF NOT EXISTS retained_less AFTER DELETE ON records WHEN OLD.expires IS NOT NULL BEGIN"
    f" {_counting('OLD', '-')} END",
    "CREATE TRIGGER IF NOT EXISTS retained_ended AFTER UPDATE OF expires ON records"
    f" WHEN OLD.expires IS NOT NULL AND NEW.expires IS NULL BEGIN {_counting('OLD', '-')} END",
)


def used(connection: sqlite3.Connection, tenant: str) -> int:
    row = connection.execute("SELECT bytes FROM retained WHERE tenant = ?", (tenant,)).fetchone()
    return int(row[0]) if row else 0


def check(connection: sqlite3.Connection, tenant: str, limit: int | None) -> None:
    """Raise `Overloaded` if a tenant's retained events are beyond its limit; None is no limit."""
    if limit is not None and (found := used(connection, tenant)) > limit:
        raise Overloaded(
            f"retained_bytes: events that stay available would occupy {found} bytes, the limit is {limit}; "
            "publish without availability, or wait until some expire",
            retry_after=PATIENCE,
        )
