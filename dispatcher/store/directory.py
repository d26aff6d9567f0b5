"""The directory: id → server, owner, filter. What is known of every subscription without asking its server.

A subscription to a subtree is a row without a topic and without a server; what it has of these its
**members** have, a row a topic (`edn.model.namespace`). Listings show the one or the others, never both.

Reads go to the log's reading connection; writes happen inside an operation of the log, so that the directory
and the log never disagree.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from dispatcher.store.interface import Connection
from edn.errors import InvalidInput
from edn.model import namespace
from edn.model.filter import Filter

_FIELDS = (
    "id, version, owner, topic, filter, url, recipient, expires, server, created, serial, location, ring, "
    "paused, subtree"
)


@dataclass(frozen=True, slots=True)
class Subscription:
    #: its key: with the tenant, if it has one (`edn.model.namespace`)
    id: str
    #: grows with each change of filter or sink
    version: int
    owner: str
    #: uid of the topic; 0 of a subtree
    topic: int
    #: the filter in its JSON form; None is everything
    filter: Any
    url: str
    recipient: str | None
    #: microseconds since 1970; None is never
    expires: int | None
    #: empty of a subtree
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
    #: path of the subtree, if it is to one
    subtree: str | None = None


def _load(row: tuple[Any, ...]) -> Subscription:
    values = list(row)
    values[4] = None if row[4] is None else json.loads(row[4])
    values[11] = None if row[11] is None else tuple(json.loads(row[11]))
    values[13] = bool(row[13])
    return Subscription(*values)


def find(connection: Connection, subscription: str) -> Subscription | None:
    row = connection.execute(f"SELECT {_FIELDS} FROM subscriptions WHERE id = ?", (subscription,)).fetchone()
    return None if row is None else _load(row)


def insert(connection: Connection, new: Subscription, attributes: frozenset[str]) -> None:
    """In its place in listings, if it has one and that is free; else at their end."""
    serial = new.serial or None
    if serial and connection.execute("SELECT 1 FROM subscriptions WHERE serial = ?", (serial,)).fetchone():
        serial = None
    connection.execute(
        "INSERT INTO subscriptions (serial, id, version, owner, topic, filter, attributes, url, recipient, "
        "expires, server, created, location, ring, paused, subtree, predicates) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
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
            new.subtree,
            _predicates(new),
        ),
    )


def replace(connection: Connection, changed: Subscription, attributes: frozenset[str]) -> None:
    connection.execute(
        "UPDATE subscriptions SET version = ?, filter = ?, attributes = ?, url = ?, recipient = ?, "
        "expires = ?, ring = ?, predicates = ? WHERE id = ?",
        (
            changed.version,
            _json(changed.filter),
            json.dumps(sorted(attributes)),
            changed.url,
            changed.recipient,
            changed.expires,
            changed.ring,
            _predicates(changed),
            changed.id,
        ),
    )


def _predicates(one: Subscription) -> int:
    """Count the predicates of a subscription for its quota; members of a subtree have none of their own."""
    return 0 if namespace.is_member(one.id) else Filter.parse(one.filter).predicates


def move(connection: Connection, subscription: str, server: str, version: int) -> None:
    """It goes on as this version, on another server."""
    connection.execute(
        "UPDATE subscriptions SET server = ?, version = ? WHERE id = ?", (server, version, subscription)
    )


def renew(connection: Connection, subscription: str, expires: int | None) -> None:
    connection.execute("UPDATE subscriptions SET expires = ? WHERE id = ?", (expires, subscription))


def pause(connection: Connection, subscription: str, paused: bool) -> None:
    connection.execute("UPDATE subscriptions SET paused = ? WHERE id = ?", (paused, subscription))


def delete(connection: Connection, subscription: str) -> None:
    connection.execute("DELETE FROM subscriptions WHERE id = ?", (subscription,))


def page(
    connection: Connection,
    *,
    now: int,
    limit: int,
    cursor: str | None,
    topics: list[int] | None = None,
    below: str | None = None,
    owner: str | None = None,
    search: str | None = None,
    members: bool = False,
) -> tuple[list[Subscription], str | None]:
    """A page in the order of creation, and the cursor of the next one, None at the end.

    `topics`: only what is subscribed to these. `below` is a subtree: those to subtrees inside it are there,
    too; without it, of one topic, those to subtrees that it is in. `search` stands in the id, owner, address,
    recipient or filter, in whatever case; it looks at every row. `members`: them, in place of the wholes.
    """
    conditions = ["serial > ?", "(expires IS NULL OR expires > ?)"]
    values: list[int | str] = [_decode(cursor), now]
    if owner is not None:
        conditions.append("owner = ?")
        values.append(owner)
    if search is not None:
        said = (
            f"substr(id, instr(id, '{namespace.OWNED}') + 1) || char(10) || owner || char(10) || url"
            " || char(10) || coalesce(recipient, '')"
        )
        conditions.append(f"instr(lower({said} || char(10) || coalesce(filter, '')), lower(?))")
        values.append(search)
    conditions.append("subtree IS NULL" if members else f"instr(id, '{namespace.MEMBER}') = 0")

    def rows(condition: str, *more: int | str, source: str = "subscriptions") -> list[Subscription]:
        found = connection.execute(
            f"SELECT {_FIELDS} FROM {source} WHERE {' AND '.join([*conditions, condition])}"
            " ORDER BY serial LIMIT ?",
            (*values, *more, limit + 1),
        )
        return [_load(row) for row in found]

    def wholes(condition: str, *more: int | str) -> list[Subscription]:
        # There are few of them among many: not all rows shall be looked at.
        indexed = "subscriptions INDEXED BY subscriptions_by_subtree"
        return [] if members else rows(f"subtree IS NOT NULL AND {condition}", *more, source=indexed)

    if topics is None:
        found = rows("TRUE")
    elif below is not None:
        stem = namespace.path_prefix(below)
        found = rows("topic IN (SELECT value FROM json_each(?))", json.dumps(topics))
        found += wholes(_INSIDE, stem, stem, stem)
    else:
        having = "EXISTS (SELECT 1 FROM subscriptions m WHERE m.id = subscriptions.id || ?)"
        found = [one for topic in topics for one in rows("topic = ?", topic)]
        found += [one for topic in topics for one in wholes(having, namespace.member_id("", topic))]
    found.sort(key=lambda one: one.serial)
    following = _encode(found[limit - 1].serial) if len(found) > limit else None
    return found[:limit], following


#: of a row: it is to a subtree inside another, of the same tenant; takes the stem of that one three times
_INSIDE = "substr(subtree, 1, length(?)) = ? AND instr(subtree, '/') = instr(?, '/')"


def members(connection: Connection, subscription: str) -> list[Subscription]:
    """Return the members of a subtree subscription, in the order of creation."""
    # Those whose ids begin with its own and the sign: one range of their index.
    rows = connection.execute(
        f"SELECT {_FIELDS} FROM subscriptions WHERE id > ? AND id < ? ORDER BY serial",
        (subscription + namespace.MEMBER, subscription + chr(ord(namespace.MEMBER) + 1)),
    )
    return [_load(row) for row in rows]


def reaching(connection: Connection, path: str, now: int) -> list[Subscription]:
    """The living subscriptions to subtrees that a topic is in, whether they have it or not."""
    rows = connection.execute(
        f"SELECT {_FIELDS} FROM subscriptions WHERE subtree IN (SELECT value FROM json_each(?))"
        " AND (expires IS NULL OR expires > ?) ORDER BY serial",
        (json.dumps(namespace.subtrees_of(path)), now),
    )
    return [_load(row) for row in rows]


def of_subtrees(connection: Connection) -> list[Subscription]:
    """All subscriptions to subtrees."""
    rows = connection.execute(
        f"SELECT {_FIELDS} FROM subscriptions WHERE subtree IS NOT NULL ORDER BY serial"
    )
    return [_load(row) for row in rows]


def family(connection: Connection, found: Subscription) -> list[Subscription]:
    """A subscription, and its members if it is to a subtree."""
    return [found] if found.subtree is None else [found, *members(connection, found.id)]


def places_of_topic(connection: Connection, topic: int) -> list[tuple[str, str]]:
    """Return (server, id) of the subscriptions to a topic, members of subtrees too."""
    return connection.execute(
        "SELECT server, id FROM subscriptions WHERE topic = ? ORDER BY serial", (topic,)
    ).fetchall()


def orphans(connection: Connection) -> list[str]:
    """Return the members whose subscription to a subtree is gone."""
    rows = connection.execute(
        "SELECT id FROM subscriptions m WHERE instr(id, ?1) AND NOT EXISTS (SELECT 1 FROM subscriptions w"
        " WHERE w.id = substr(m.id, 1, instr(m.id, ?1) - 1) AND w.subtree IS NOT NULL)",
        (namespace.MEMBER,),
    )
    return [id for (id,) in rows]


def topics_of(connection: Connection, ids: Iterable[str]) -> dict[str, int]:
    """Return the topic of each of these subscriptions that there is."""
    found = {}
    for id in ids:
        row = connection.execute("SELECT topic FROM subscriptions WHERE id = ?", (id,)).fetchone()
        if row is not None:
            found[id] = int(row[0])
    return found


def filters_on(connection: Connection, server: str, limit: int) -> list[tuple[str, int, Any]]:
    """Return (id, topic, filter) of subscriptions that a server hosts."""
    rows = connection.execute(
        "SELECT id, topic, filter FROM subscriptions WHERE server = ? LIMIT ?", (server, limit)
    )
    return [(id, topic, None if text is None else json.loads(text)) for id, topic, text in rows]


def attribute_users(connection: Connection, topic: int, attributes: set[str]) -> dict[str, str]:
    """Return which of these attributes filters of a topic use, each with one of the subscriptions."""
    used: dict[str, str] = {}
    for id, names in connection.execute("SELECT id, attributes FROM subscriptions WHERE topic = ?", (topic,)):
        for attribute in attributes.intersection(json.loads(names)):
            used.setdefault(attribute, id)
    return used


def attributes_of(connection: Connection, subscription: str) -> list[str]:
    """Return the attributes that a subscription's filter uses."""
    (names,) = connection.execute(
        "SELECT attributes FROM subscriptions WHERE id = ?", (subscription,)
    ).fetchone()
    found: list[str] = json.loads(names)
    return found


def is_subscribed(connection: Connection, topic: int) -> bool:
    """Return whether a topic has subscriptions, members of subtrees too."""
    found = connection.execute("SELECT 1 FROM subscriptions WHERE topic = ? LIMIT 1", (topic,))
    return found.fetchone() is not None


def count(connection: Connection, topic: int, *, members: bool = True) -> int:
    """Count the subscriptions to a topic, with or without members of subtrees."""
    # Without the condition the count is read from the index alone.
    only = "" if members else f" AND instr(id, '{namespace.MEMBER}') = 0"
    (found,) = connection.execute(
        f"SELECT count(*) FROM subscriptions WHERE topic = ?{only}", (topic,)
    ).fetchone()
    return int(found)


def count_by_server(connection: Connection, topic: int | None = None) -> dict[str, int]:
    """Count the subscriptions per server, of one topic or of all."""
    where, values = ("", ()) if topic is None else (" WHERE topic = ?", (topic,))
    return dict(
        connection.execute(f"SELECT server, count(*) FROM subscriptions{where} GROUP BY server", values)
    )


def count_by_topic(connection: Connection) -> dict[tuple[int, str], int]:
    """Count the hosted subscriptions per topic and server."""
    rows = connection.execute(
        "SELECT topic, server, count(*) FROM subscriptions WHERE server != '' GROUP BY topic, server"
    )
    return {(topic, server): count for topic, server, count in rows}


def topics_on(connection: Connection, server: str) -> list[int]:
    """Return the topics of which a server hosts subscriptions."""
    rows = connection.execute("SELECT DISTINCT topic FROM subscriptions WHERE server = ?", (server,))
    return [topic for (topic,) in rows]


def count_on(connection: Connection, server: str) -> int:
    """Count the subscriptions that a server hosts."""
    (found,) = connection.execute("SELECT count(*) FROM subscriptions WHERE server = ?", (server,)).fetchone()
    return int(found)


#: the topics of the tenant ?1
_TOPICS = "SELECT uid FROM topics WHERE tenant = ?1"


def count_of_tenant(connection: Connection, tenant: str, without: Collection[str] = ()) -> tuple[int, int]:
    """Count a tenant's subscriptions and their predicates; one to a subtree counts once.

    `without`: ids that are left out.
    """
    count, predicates = connection.execute(
        "SELECT count(*), coalesce(sum(predicates), 0) FROM subscriptions"
        f" WHERE (topic IN ({_TOPICS}) AND instr(id, '{namespace.MEMBER}') = 0"
        "  OR (subtree IS NOT NULL AND substr(subtree, 1, length(?2)) = ?2"
        "   AND instr(subtree, '/') = length(?2)))"
        " AND id NOT IN (SELECT value FROM json_each(?3))",
        (tenant, f"{tenant}/" if tenant else "", json.dumps(list(without))),
    ).fetchone()
    return int(count), int(predicates)


def count_members_of_tenant(connection: Connection, tenant: str) -> int:
    """Count the topics that a tenant's subscriptions to subtrees reach."""
    (found,) = connection.execute(
        f"SELECT count(*) FROM subscriptions WHERE topic IN ({_TOPICS})"
        f" AND instr(id, '{namespace.MEMBER}') > 0",
        (tenant,),
    ).fetchone()
    return int(found)


def expired(connection: Connection, now: int, limit: int) -> list[str]:
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
