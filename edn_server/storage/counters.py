"""Counters per version, as pages of blobs, and of events per topic."""

from __future__ import annotations

from collections.abc import Iterable

from edn_server.storage.interface import Connection


def pages(db: Connection) -> list[tuple[int, bytes]]:
    """Return all pages of counters in their order."""
    return db.execute("SELECT page, counts FROM tallies ORDER BY page").fetchall()


def evaluated(db: Connection) -> str | None:
    """Return the counts of events per topic, as JSON."""
    row = db.execute("SELECT value FROM meta WHERE name = 'evaluated'").fetchone()
    return None if row is None else str(row[0])


def store(db: Connection, pages: Iterable[tuple[int, bytes]], evaluated: str) -> None:
    """Store pages that changed, and the counts of events per topic."""
    db.executemany("INSERT OR REPLACE INTO tallies VALUES (?, ?)", pages)
    db.execute("INSERT OR REPLACE INTO meta VALUES ('evaluated', ?)", (evaluated,))
