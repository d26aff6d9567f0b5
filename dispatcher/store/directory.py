"""The directory: all subscriptions, with their servers, owners, filters and sinks.

A subtree subscription is one row without a topic and a server, and one row per **member**, which has both
(`edn.model.namespace`). Listings show the subtree subscriptions or the members, never both.

Writes happen inside an operation of the log, so that the directory and the log never disagree.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from dispatcher.store.interface import (
    Connection,
    column_names,
    first_column,
    has_rows,
    insert_row,
    read_int,
    row_of,
)
from edn.errors import InvalidInput
from edn.formats import sink_settings
from edn.model import namespace
from edn.model.filter import Filter
from edn.model.sequence import decode, is_sequence
from edn.runtime.sql import SealedColumn


@dataclass(frozen=True, slots=True)
class Subscription:
    #: key: the id, with the tenant if there is one (`edn.model.namespace`)
    id: str
    #: number of the current version
    version: int
    owner: str
    #: uid of the topic; 0 for a subtree subscription
    topic: int
    #: filter as JSON; None matches everything
    filter: Any
    url: str
    recipient: str | None
    #: microseconds since 1970; None is never
    expires: int | None
    #: empty for a subtree subscription
    server: str
    created: int
    #: position in listings
    serial: int = 0
    location: tuple[float, ...] | None = None
    #: id of the key ring; empty if notifications are not signed
    ring: str = ""
    paused: bool = False
    #: path of the subtree; None for a subscription to a topic
    subtree: str | None = None
    #: settings of the sink (`edn.formats.sink_settings`) as JSON; empty: those of the server
    settings: str = ""

    def is_expired(self, now: int) -> bool:
        return self.expires is not None and self.expires <= now


#: a sink's URL for the search: without the credentials before the host of a broker, which nobody may guess
_SEARCHED_URL = (
    "CASE WHEN url LIKE 'http%' OR url LIKE 'mailto:%' THEN url"
    " WHEN instr(url, '@') > 0 THEN substr(url, instr(url, '@'))"
    " WHEN instr(url, '%40') > 0 THEN substr(url, instr(url, '%40')) ELSE url END"
)
_FIELDS = column_names(Subscription)
_CHANGEABLE = (
    "version",
    "filter",
    "attributes",
    "url",
    "recipient",
    "expires",
    "ring",
    "predicates",
    "settings",
)
#: credentials of sinks, by the id of their settings
CREDENTIALS = SealedColumn("credentials", "id", "sealed")


def _load(row: tuple[Any, ...]) -> Subscription:
    values = list(row)
    values[4] = None if row[4] is None else json.loads(row[4])
    values[11] = None if row[11] is None else tuple(json.loads(row[11]))
    values[13] = bool(row[13])
    return Subscription(*values)


def _select(connection: Connection, condition: str, *values: Any) -> list[Subscription]:
    """Return the subscriptions that meet a condition, in the order of creation."""
    rows = connection.execute(
        f"SELECT {_FIELDS} FROM subscriptions WHERE {condition} ORDER BY serial", values
    )
    return [_load(row) for row in rows]


def find(connection: Connection, subscription: str) -> Subscription | None:
    row = connection.execute(f"SELECT {_FIELDS} FROM subscriptions WHERE id = ?", (subscription,)).fetchone()
    return None if row is None else _load(row)


def find_live(connection: Connection, subscription: str, now: int) -> Subscription | None:
    found = find(connection, subscription)
    return None if found is None or found.is_expired(now) else found


def insert(
    connection: Connection,
    new: Subscription,
    attributes: frozenset[str],
    further: Mapping[int, frozenset[str]] | None = None,
) -> None:
    """Insert a subscription with its serial, or with the next one if it has none or the serial is used.

    `further`: the other topics of a sequence, each with the attributes that it uses.
    """
    row = _row(new, attributes)
    if not new.serial or has_rows(connection, "SELECT 1 FROM subscriptions WHERE serial = ?", new.serial):
        row["serial"] = connection.next_ids("subscriptions", 1)
    insert_row(connection, "subscriptions", row)
    if further:
        _insert_topics(connection, new.id, further)


def replace(
    connection: Connection,
    changed: Subscription,
    attributes: frozenset[str],
    further: Mapping[int, frozenset[str]] | None = None,
) -> None:
    """Update filter, sink and expiry of a subscription."""
    connection.execute("DELETE FROM sequence_topics WHERE subscription = ?", (changed.id,))
    _insert_topics(connection, changed.id, further or {})
    row = _row(changed, attributes)
    connection.execute(
        f"UPDATE subscriptions SET {', '.join(f'{name} = ?' for name in _CHANGEABLE)}, renewed = 0"
        " WHERE id = ?",
        (*(row[name] for name in _CHANGEABLE), changed.id),
    )


def _insert_topics(connection: Connection, id: str, further: Mapping[int, frozenset[str]]) -> None:
    connection.executemany(
        "INSERT INTO sequence_topics (subscription, topic, attributes) VALUES (?, ?, ?)",
        [(id, topic, json.dumps(sorted(names))) for topic, names in further.items()],
    )


def _predicates(stored: Any) -> int:
    return decode(stored).predicates if is_sequence(stored) else Filter.parse(stored).predicates


def _row(one: Subscription, attributes: frozenset[str]) -> dict[str, Any]:
    # The predicates of a subtree subscription are counted once, not per member.
    predicates = 0 if namespace.is_member(one.id) else _predicates(one.filter)
    return row_of(
        one,
        filter=_json(one.filter),
        location=_json(one.location),
        attributes=json.dumps(sorted(attributes)),
        predicates=predicates,
    )


def move(connection: Connection, subscription: str, server: str, version: int) -> None:
    connection.execute(
        "UPDATE subscriptions SET server = ?, version = ?, renewed = 0 WHERE id = ?",
        (server, version, subscription),
    )


def renew(connection: Connection, subscription: str, expires: int | None) -> None:
    connection.execute(
        "UPDATE subscriptions SET expires = ?, renewed = 1 WHERE id = ?", (expires, subscription)
    )


def pause(connection: Connection, subscription: str, paused: bool) -> None:
    connection.execute("UPDATE subscriptions SET paused = ? WHERE id = ?", (paused, subscription))


def delete(connection: Connection, subscription: str) -> None:
    connection.execute("DELETE FROM subscriptions WHERE id = ?", (subscription,))
    connection.execute("DELETE FROM sequence_topics WHERE subscription = ?", (subscription,))


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
    serials: Collection[int] | None = None,
) -> tuple[list[Subscription], str | None]:
    """Return a page in the order of creation, and the cursor of the next page, None at the end.

    `topics`: uids; only subscriptions to these. `below`: the subtree of these topics; the page then includes
    subscriptions to subtrees inside it, otherwise those to subtrees that contain the topics. `search`: text
    in id, owner, URL, recipient or filter, ignoring case; it reads all rows. `members`: list members in place
    of subtree subscriptions. `serials`: only these.
    """
    conditions = ["serial > ?", "(expires IS NULL OR expires > ?)"]
    values: list[Any] = [decode_cursor(cursor), now]
    if owner is not None:
        conditions.append("owner = ?")
        values.append(owner)
    if serials is not None:
        conditions.append(connection.any_of("serial"))
        values.append(connection.array(list(serials)))
    if search is not None:
        text = (
            f"substr(id, instr(id, '{namespace.OWNED}') + 1) || '\n' || owner || '\n' || {_SEARCHED_URL}"
            " || '\n' || coalesce(recipient, '')"
        )
        conditions.append(f"instr(lower({text} || '\n' || coalesce(filter, '')), lower(?)) > 0")
        values.append(search)
    conditions.append("subtree IS NULL" if members else f"instr(id, '{namespace.MEMBER}') = 0")

    def rows(condition: str, *more: Any, source: str = "subscriptions") -> list[Subscription]:
        found = connection.execute(
            f"SELECT {_FIELDS} FROM {source} WHERE {' AND '.join([*conditions, condition])}"
            " ORDER BY serial LIMIT ?",
            (*values, *more, limit + 1),
        )
        return [_load(row) for row in found]

    def of_subtrees(condition: str, *more: int | str) -> list[Subscription]:
        # Subtree subscriptions are few, so the engine must not scan all rows.
        indexed = connection.indexed("subscriptions", "subscriptions_by_subtree")
        return [] if members else rows(f"subtree IS NOT NULL AND {condition}", *more, source=indexed)

    if topics is None:
        found = rows("TRUE")
    elif below is not None:
        stem = namespace.path_prefix(below)
        found = rows(connection.any_of("topic"), connection.array(topics))
        found += rows(f"id IN ({_SEQUENCES} WHERE {connection.any_of('topic')})", connection.array(topics))
        found += of_subtrees(_INSIDE, stem, stem, stem)
    else:
        having = "EXISTS (SELECT 1 FROM subscriptions m WHERE m.id = subscriptions.id || ?)"
        found = [one for topic in topics for one in rows("topic = ?", topic)]
        found += [one for topic in topics for one in rows(f"id IN ({_SEQUENCES} WHERE topic = ?)", topic)]
        found += [one for topic in topics for one in of_subtrees(having, namespace.member_id("", topic))]
    found = sorted({one.serial: one for one in found}.values(), key=lambda one: one.serial)
    following = encode_cursor(found[limit - 1].serial) if len(found) > limit else None
    return found[:limit], following


#: sequences that name a topic after their first step
_SEQUENCES = "SELECT subscription FROM sequence_topics"
#: condition: the subtree lies inside another of the same tenant; its three parameters are the stem of that
_INSIDE = "substr(subtree, 1, length(?)) = ? AND instr(subtree, '/') = instr(?, '/')"


def members(connection: Connection, subscription: str) -> list[Subscription]:
    """Return the members of a subtree subscription, in the order of creation."""
    # The ids of members begin with the parent's id, so they are one range of the index.
    first, end = subscription + namespace.MEMBER, subscription + chr(ord(namespace.MEMBER) + 1)
    return _select(connection, "id > ? AND id < ?", first, end)


def reaching(connection: Connection, path: str, now: int) -> list[Subscription]:
    """Return the live subscriptions to subtrees that contain a topic, with or without a member for it."""
    return _select(
        connection,
        f"{connection.any_of('subtree')} AND (expires IS NULL OR expires > ?)",
        connection.array(list(namespace.subtrees_of(path))),
        now,
    )


def of_subtrees(connection: Connection) -> list[Subscription]:
    return _select(connection, "subtree IS NOT NULL")


def family(connection: Connection, found: Subscription) -> list[Subscription]:
    """Return a subscription, and its members if it is to a subtree."""
    return [found] if found.subtree is None else [found, *members(connection, found.id)]


def places_of_topic(connection: Connection, topic: int) -> list[tuple[str, str]]:
    """Return (server, id) of the subscriptions to a topic, including members."""
    return connection.execute(
        f"SELECT server, id FROM subscriptions WHERE topic = ? OR id IN ({_SEQUENCES} WHERE topic = ?)"
        " ORDER BY serial",
        (topic, topic),
    ).fetchall()


def orphans(connection: Connection) -> list[str]:
    """Return the members whose subtree subscription has ended."""
    return first_column(
        connection,
        "SELECT id FROM subscriptions m WHERE instr(id, ?1) > 0 AND NOT EXISTS (SELECT 1 FROM subscriptions p"
        " WHERE p.id = substr(m.id, 1, instr(m.id, ?1) - 1) AND p.subtree IS NOT NULL)",
        namespace.MEMBER,
    )


def topics_of(connection: Connection, ids: Iterable[str]) -> dict[str, int]:
    """Return the topics of subscriptions, without the missing ones."""
    found = {}
    for id in ids:
        row = connection.execute("SELECT topic FROM subscriptions WHERE id = ?", (id,)).fetchone()
        if row is not None:
            found[id] = int(row[0])
    return found


def filters_on(connection: Connection, server: str, limit: int) -> list[tuple[str, int, Any]]:
    """Return (id, topic, filter) of up to `limit` subscriptions of a server."""
    rows = connection.execute(
        "SELECT id, topic, filter FROM subscriptions WHERE server = ? LIMIT ?", (server, limit)
    )
    return [(id, topic, None if text is None else json.loads(text)) for id, topic, text in rows]


def parents_of_all(connection: Connection, serials: Collection[int]) -> list[int]:
    """Return the serials of subtree subscriptions that have members, and only members among `serials`."""
    among = set(serials)
    found = []
    for parent in of_subtrees(connection):
        below = members(connection, parent.id)
        if below and all(member.serial in among for member in below):
            found.append(parent.serial)
    return found


def signature(connection: Connection, topic: int) -> tuple[int, int, int]:
    """Return three numbers of a topic that change whenever one of its subscriptions does."""
    row = connection.execute(
        "SELECT count(*), coalesce(max(serial), 0), coalesce(max(version), 0) FROM subscriptions"
        " WHERE topic = ?",
        (topic,),
    ).fetchone()
    return int(row[0]), int(row[1]), int(row[2])


def versions_of_topic(connection: Connection, topic: int) -> list[tuple[int, int]]:
    """Return (serial, version) of all subscriptions to a topic, including members, by serial."""
    return connection.execute(
        "SELECT serial, version FROM subscriptions WHERE topic = ? ORDER BY serial", (topic,)
    ).fetchall()


def filters_of(connection: Connection, serials: Collection[int]) -> Iterator[tuple[int, Any]]:
    """Yield (serial, filter) of subscriptions by serial, without the missing ones.

    One at a time: thousands of filters at once occupy the garbage collector longer than all the rest takes.
    """
    rows = connection.execute(
        f"SELECT serial, filter FROM subscriptions WHERE {connection.any_of('serial')} ORDER BY serial",
        (connection.array(list(serials)),),
    ).fetchall()
    for serial, text in rows:
        yield serial, None if text is None else msgspec.json.decode(text)


def attribute_users(connection: Connection, topic: int, attributes: set[str]) -> dict[str, str]:
    """Return the attributes that filters of a topic use, each with one of the subscriptions."""
    used: dict[str, str] = {}
    for id, names in connection.execute(
        "SELECT id, attributes FROM subscriptions WHERE topic = ?"
        " UNION ALL SELECT subscription, attributes FROM sequence_topics WHERE topic = ?",
        (topic, topic),
    ):
        for attribute in attributes.intersection(json.loads(names)):
            used.setdefault(attribute, id)
    return used


def attributes_of(connection: Connection, subscription: str) -> list[str]:
    (names,) = connection.execute(
        "SELECT attributes FROM subscriptions WHERE id = ?", (subscription,)
    ).fetchone()
    found: list[str] = json.loads(names)
    return found


def is_subscribed(connection: Connection, topic: int) -> bool:
    """Return whether a topic has subscriptions, including members."""
    return has_rows(connection, "SELECT 1 FROM subscriptions WHERE topic = ? LIMIT 1", topic) or has_rows(
        connection, "SELECT 1 FROM sequence_topics WHERE topic = ? LIMIT 1", topic
    )


def count(connection: Connection, topic: int, *, members: bool = True) -> int:
    """Count the subscriptions to a topic, with or without members."""
    # Without the condition SQLite reads the index alone.
    only = "" if members else f" AND instr(id, '{namespace.MEMBER}') = 0"
    plain = read_int(connection, f"SELECT count(*) FROM subscriptions WHERE topic = ?{only}", topic)
    return plain + read_int(connection, "SELECT count(*) FROM sequence_topics WHERE topic = ?", topic)


def count_by_server(connection: Connection, topic: int | None = None) -> dict[str, int]:
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
    return first_column(connection, "SELECT DISTINCT topic FROM subscriptions WHERE server = ?", server)


def count_on(connection: Connection, server: str) -> int:
    return read_int(connection, "SELECT count(*) FROM subscriptions WHERE server = ?", server)


#: the topics of the tenant ?1
_TOPICS = "SELECT uid FROM topics WHERE tenant = ?1"


def count_of_tenant(connection: Connection, tenant: str, without: Collection[str] = ()) -> tuple[int, int]:
    """Count a tenant's subscriptions and their predicates, `without` some; members do not count."""
    count, predicates = connection.execute(
        "SELECT count(*), coalesce(sum(predicates), 0) FROM subscriptions"
        f" WHERE (topic IN ({_TOPICS}) AND instr(id, '{namespace.MEMBER}') = 0"
        "  OR (subtree IS NOT NULL AND substr(subtree, 1, length(?2)) = ?2"
        "   AND instr(subtree, '/') = length(?2)))"
        f" AND NOT {connection.any_of('id', 3)}",
        (tenant, f"{tenant}/" if tenant else "", connection.array(list(without))),
    ).fetchone()
    return int(count), int(predicates)


def count_members_of_tenant(connection: Connection, tenant: str) -> int:
    """Count the members of a tenant's subtree subscriptions."""
    return read_int(
        connection,
        f"SELECT count(*) FROM subscriptions WHERE topic IN ({_TOPICS})"
        f" AND instr(id, '{namespace.MEMBER}') > 0",
        tenant,
    )


def expired(connection: Connection, now: int, limit: int | None) -> list[str]:
    """Return expired subscriptions: all, or up to `limit`."""
    query = "SELECT id FROM subscriptions WHERE expires <= ? ORDER BY expires"
    if limit is None:
        return first_column(connection, query, now)
    return first_column(connection, f"{query} LIMIT ?", now, limit)


# -- credentials of sinks --------------------------------------------------------------------------------


def store_credentials(connection: Connection, credentials: Mapping[str, str], now: int) -> None:
    """Insert credentials by the id of their settings; `now` in microseconds."""
    connection.executemany(
        "INSERT INTO credentials (id, sealed, created) VALUES (?, ?, ?)"
        " ON CONFLICT (id) DO UPDATE SET created = excluded.created",
        [(id, CREDENTIALS.seal(connection, id, plain), now) for id, plain in sorted(credentials.items())],
    )


def read_credentials(connection: Connection, settings: Iterable[str]) -> dict[str, str]:
    """Return the credentials of settings, given as JSON, by the id of the settings."""
    found: dict[str, str] = {}
    for text in set(settings) - {""}:
        one = sink_settings.decode(text)
        row = None
        if one.credentials:
            row = connection.execute("SELECT sealed FROM credentials WHERE id = ?", (one.id,)).fetchone()
        if row is not None:
            found[one.id] = CREDENTIALS.require(connection, one.id, row[0])
    return found


def unused_credentials(connection: Connection, before: int) -> list[str]:
    """Return credentials that no subscription uses, unless they are newer than `before`.

    New ones are stored just before their subscription.
    """
    old: list[str] = first_column(connection, "SELECT id FROM credentials WHERE created < ?", before)
    if not old:
        return []
    used = {
        sink_settings.decode(text).id
        for text in set(
            first_column(
                connection, "SELECT settings FROM subscriptions WHERE settings != '' ORDER BY serial"
            )
        )
    }
    return [id for id in old if id not in used]


def delete_credentials(connection: Connection, ids: Iterable[str], before: int) -> None:
    """Delete credentials, unless they were stored again since `before`."""
    connection.executemany(
        "DELETE FROM credentials WHERE id = ? AND created < ?", [(id, before) for id in ids]
    )


def encode_cursor(serial: int) -> str:
    """Encode the position of the last row of a page."""
    return base64.urlsafe_b64encode(b"1:%d" % serial).decode().rstrip("=")


def decode_cursor(cursor: str | None) -> int:
    """Decode the cursor of a page; raises `InvalidInput`."""
    if cursor is None:
        return 0
    try:
        version, _, serial = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).partition(b":")
        if version != b"1" or not serial.isdigit() or len(serial) > 18:
            raise ValueError
        return int(serial)
    except (ValueError, binascii.Error):
        raise InvalidInput(
            'cursor must be the "next" of a listing; leave it out for the first page', pointer="/cursor"
        ) from None


def _json(value: Any) -> str | None:
    return None if value is None else msgspec.json.encode(value).decode()
