"""Advertisements: what publishers will send, per topic.

A publisher is the name of a key inside the topic's tenant. Every change raises the revision of the topic's
advertisements in the same transaction (`topic_rows.state_in`), which the append of events compares.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import msgspec

from dispatcher.store import topic_rows
from dispatcher.store.directory import decode_cursor, encode_cursor
from dispatcher.store.interface import (
    Connection,
    Kind,
    Transaction,
    column_names,
    first_column,
    insert_row,
    read_int,
    row_of,
)


@dataclass(frozen=True, slots=True)
class Advertisement:
    #: key: the id, with the tenant if there is one (`edn.model.namespace`)
    id: str
    #: grows with every change
    version: int
    #: uid
    topic: int
    publisher: str
    #: as JSON (`edn.model.filter.advertisement`)
    advertisement: dict[str, Any]
    #: microseconds since 1970; None is never
    expires: int | None
    created: int
    #: position in listings
    serial: int = 0

    def is_expired(self, now: int) -> bool:
        return self.expires is not None and self.expires <= now


_FIELDS = column_names(Advertisement)
_LIVE = "(expires IS NULL OR expires > ?)"


def _load(row: tuple[Any, ...]) -> Advertisement:
    values = list(row)
    values[4] = json.loads(row[4])
    return Advertisement(*values)


def find(connection: Connection, id: str) -> Advertisement | None:
    row = connection.execute(f"SELECT {_FIELDS} FROM advertisements WHERE id = ?", (id,)).fetchone()
    return None if row is None else _load(row)


def find_live(connection: Connection, id: str, now: int) -> Advertisement | None:
    found = find(connection, id)
    return None if found is None or found.is_expired(now) else found


def insert(transaction: Transaction, new: Advertisement) -> None:
    row = _row(new)
    row["serial"] = transaction.connection.next_ids("advertisements", 1)
    insert_row(transaction.connection, "advertisements", row)
    _touch(transaction, new.topic)


def replace(transaction: Transaction, changed: Advertisement) -> None:
    """Update what is advertised, and the expiry."""
    row = _row(changed)
    transaction.connection.execute(
        "UPDATE advertisements SET version = ?, advertisement = ?, expires = ? WHERE id = ?",
        (row["version"], row["advertisement"], row["expires"], row["id"]),
    )
    _touch(transaction, changed.topic)


def delete(transaction: Transaction, one: Advertisement) -> None:
    transaction.connection.execute("DELETE FROM advertisements WHERE id = ?", (one.id,))
    _touch(transaction, one.topic)


def _touch(transaction: Transaction, topic: int) -> None:
    topic_rows.touch_advertisements(transaction, topic)
    transaction.note(Kind.ADVERTISEMENT, str(topic))


def of_publisher(connection: Connection, topic: int, publisher: str, now: int) -> list[Advertisement]:
    """Return a publisher's live advertisements on a topic, in the order of creation."""
    rows = connection.execute(
        f"SELECT {_FIELDS} FROM advertisements WHERE topic = ? AND publisher = ? AND {_LIVE} ORDER BY serial",
        (topic, publisher, now),
    )
    return [_load(row) for row in rows]


def of_topic(connection: Connection, topic: int, now: int) -> list[Advertisement]:
    """Return all live advertisements on a topic, in the order of creation."""
    rows = connection.execute(
        f"SELECT {_FIELDS} FROM advertisements WHERE topic = ? AND {_LIVE} ORDER BY serial", (topic, now)
    )
    return [_load(row) for row in rows]


def advertised_topics(connection: Connection, now: int) -> list[int]:
    """Return the topics that have live advertisements."""
    return first_column(connection, f"SELECT DISTINCT topic FROM advertisements WHERE {_LIVE}", now)


def next_expiry(connection: Connection, topic: int, publisher: str | None = None) -> int | None:
    """Return the earliest expiry of a topic's advertisements, of one publisher or of all."""
    only, values = ("", [topic]) if publisher is None else (" AND publisher = ?", [topic, publisher])
    row = connection.execute(
        f"SELECT min(expires) FROM advertisements WHERE topic = ?{only}", values
    ).fetchone()
    return None if row[0] is None else int(row[0])


def count(connection: Connection, topic: int, publisher: str) -> int:
    return read_int(
        connection, "SELECT count(*) FROM advertisements WHERE topic = ? AND publisher = ?", topic, publisher
    )


def count_all(connection: Connection) -> int:
    return read_int(connection, "SELECT count(*) FROM advertisements")


def page(
    connection: Connection,
    *,
    now: int,
    limit: int,
    cursor: str | None,
    topics: Collection[int] | None,
    publisher: str | None,
) -> tuple[list[Advertisement], str | None]:
    """Return a page in the order of creation, and the cursor of the next; `topics`: uids, None for all."""
    conditions = ["serial > ?", _LIVE]
    values: list[Any] = [decode_cursor(cursor), now]
    if topics is not None:
        conditions.append(connection.any_of("topic"))
        values.append(connection.array(list(topics)))
    if publisher is not None:
        conditions.append("publisher = ?")
        values.append(publisher)
    rows = connection.execute(
        f"SELECT {_FIELDS} FROM advertisements WHERE {' AND '.join(conditions)} ORDER BY serial LIMIT ?",
        (*values, limit + 1),
    )
    found = [_load(row) for row in rows]
    return found[:limit], encode_cursor(found[limit - 1].serial) if len(found) > limit else None


def expired(connection: Connection, now: int, limit: int) -> list[Advertisement]:
    rows = connection.execute(
        f"SELECT {_FIELDS} FROM advertisements WHERE expires <= ? ORDER BY expires LIMIT ?", (now, limit)
    )
    return [_load(row) for row in rows]


def attribute_users(connection: Connection, topic: int, attributes: Collection[str]) -> dict[str, str]:
    """Return the attributes that advertisements of a topic name, each with one of the advertisements."""
    used: dict[str, str] = {}
    query = "SELECT id, advertisement FROM advertisements WHERE topic = ?"
    for id, text in connection.execute(query, (topic,)):
        for attribute in json.loads(text).keys() & set(attributes):
            used.setdefault(attribute, id)
    return used


def _row(one: Advertisement) -> dict[str, Any]:
    return row_of(one, advertisement=msgspec.json.encode(one.advertisement).decode())
