"""The engines that are compared: the same processes on SQLite files, and on PostgreSQL with a standby."""

from __future__ import annotations

from edn.tools.bench.database.replicated import Replicated

SQLITE, POSTGRESQL = "SQLite", "PostgreSQL"
ENGINES = (SQLITE, POSTGRESQL)


def database_of(engine: str, database: Replicated) -> str | None:
    """Returns the URL of a new database for a network on this engine; None for a data folder."""
    return database.new_database() if engine == POSTGRESQL else None
