"""Writes counts for people: 1 event, 2 events, 1,000 events."""

from __future__ import annotations


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """Returns the count with its noun; the plural is the noun with an s unless it is given."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"
