"""The directory: id → server, owner, filter. What is known of every subscription without asking its server.

Reads go to the log's reading connection; writes happen inside an operation of the log, so that the directory
and the log never disagree.
"""

from __future__ import annotations

import base64
import binascii
import json
import sqlite3
from dataclasses import dataclass
from typing import Any

import msgspec

from edn.errors import InvalidInput

_FIELDS = (
    "id, version, owner, topic, filter, url, recipient, expires, server, created, serial, location, ring, "
    "paused"
)


@dataclass(frozen=True, slots=True)
class Subscription:
    id: str
    #: grows with each change of filter or sink
    version: int
    owner: str
    #: uid of the topic
    topic: int
    #: the filter in its JSON form; None is everything
    filter: Any
    url: str
    recipient: str | None
    #: microseconds since 1970; None is never
    expires: int | None
    server: str
    created: int
    #: place in listings
    serial: int = 0
    #: of the subscriber, if they said where they are
    location: tuple[float, ...] | None = None
    #: id of the key ring that its notifications are signed with; empty is none
    ring: str = ""
    #: notifications are kept, not sent
    paused: bool = False


def _load(row: tuple[Any, ...]) -> Subscription:
    values = list(row)
    values[4] = None if row[4] is None else json.loads(row[4])
    values[11] = None if row[11] is None else tuple(json.loads(row[11]))
    values[13] = bool(row[13])
    return Subscription(*values)


def find(connection: sqlite3.Connection, subscription: str) -> Subscription | None:
    row = connection.execute(f"SELECT {_FIELDS} FROM subscriptions WHERE id = ?", (subscription,)).fetchone()
    return None if row is None else _load(row)


def insert(connection: sqlite3.Connection, new: Subscription, attributes: frozenset[str]) -> None:
    """In its place in listings, if it has one and that is free; else at their end."""
    serial = new.serial or None
    if serial and connection.execute("SELECT 1 FROM subscriptions WHERE serial = ?", (serial,)).fetchone():
        serial = None
    connection.execute(
        "INSERT INTO subscriptions (serial, id, version, owner, topic, filter, attributes, url, recipient, "
        "expires, server, created, location, ring, paused) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            serial,
            new.id,
            new.version,
            new.owner,
            new.topic,
            _json(new.filter),
            json.dumps(sorted(attributes)),
            new.url,
            new.recipient,
            new.expires,
            new.server,
            new.created,
            _json(new.location),
            new.ring,
            new.paused,
        ),
    )


def replace(connection: sqlite3.Connection, changed: Subscription, attributes: frozenset[str]) -> None:
    connection.execute(
        "UPDATE subscriptions SET version = ?, filter = ?, attributes = ?, url = ?, recipient = ?, "
        "expires = ?, ring = ? WHERE id = ?",
        (
            changed.version,
            _json(changed.filter),
            json.dumps(sorted(attributes)),
            changed.url,
            changed.recipient,
            changed.expires,
            changed.ring,
            changed.id,
        ),
    )


def move(connection: sqlite3.Connection, subscription: str, server: str, version: int) -> None:
    """It goes on as this version, on another server."""
    connection.execute(
        "UPDATE subscriptions SET server = ?, version = ? WHERE id = ?", (server, version, subscription)
    )


def renew(connection: sqlite3.Connection, subscription: str, expires: int | None) -> None:
    connection.execute("UPDATE subscriptions SET expires = ? WHERE id = ?", (expires, subscription))


def pause(connection: sqlite3.Connection, subscription: str, paused: bool) -> None:
    connection.execute("UPDATE subscriptions SET paused = ? WHERE id = ?", (paused, subscription))


def delete(connection: sqlite3.Connection, subscription: str) -> None:
    connection.execute("DELETE FROM subscriptions WHERE id = ?", (subscription,))


def page(
    connection: sqlite3.Connection,
    *,
    now: int,
    limit: int,
    cursor: str | None,
    topics: list[int] | None = None,
    owner: str | None = None,
    search: str | None = None,
) -> tuple[list[Subscription], str | None]:
    """A page in the order of creation, and the cursor of the next one, None at the end.

    `search` stands in the id, owner, address, recipient or filter, in whatever case; it looks at every row.
    """
    conditions = ["serial > ?", "(expires IS NULL OR expires > ?)"]
    values: list[int | str] = [_decode(cursor), now]
    if topics is not None and len(topics) == 1:
        conditions.append("topic = ?")
        values.append(topics[0])
    elif topics is not None:
        conditions.append("topic IN (SELECT value FROM json_each(?))")
        values.append(json.dumps(topics))
    if owner is not None:
        conditions.append("owner = ?")
        values.append(owner)
    if search is not None:
        said = "id || char(10) || owner || char(10) || url || char(10) || coalesce(recipient, '')"
        conditions.append(f"instr(lower({said} || char(10) || coalesce(filter, '')), lower(?))")
        values.append(search)
    rows = connection.execute(
        f"SELECT {_FIELDS} FROM subscriptions WHERE {' AND '.join(conditions)} ORDER BY serial LIMIT ?",
        (*values, limit + 1),
    ).fetchall()
    found = [_load(row) for row in rows]
    following = _encode(found[limit - 1].serial) if len(found) > limit else None
    return found[:limit], following


def count(connection: sqlite3.Connection, topic: int) -> int:
    """How many there are of a topic."""
    (found,) = connection.execute("SELECT count(*) FROM subscriptions WHERE topic = ?", (topic,)).fetchone()
    return int(found)


def expired(connection: sqlite3.Connection, now: int, limit: int) -> list[str]:
    rows = connection.execute(
        "SELECT id FROM subscriptions WHERE expires <= ? ORDER BY expires LIMIT ?", (now, limit)
    )
    return [row[0] for row in rows]


def _encode(serial: int) -> str:
    return base64.urlsafe_b64encode(b"1:%d" % serial).decode().rstrip("=")


def _decode(cursor: str | None) -> int:
    if cursor is None:
        return 0
    try:
        version, _, serial = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).partition(b":")
        if version != b"1" or not serial.isdigit() or len(serial) > 18:
            raise ValueError
        return int(serial)
    except (ValueError, binascii.Error):
        raise InvalidInput(
            'cursor: not one that a listing gave as "next"; begin without one', pointer="/cursor"
        ) from None


def _json(value: Any) -> str | None:
    return None if value is None else msgspec.json.encode(value).decode()
