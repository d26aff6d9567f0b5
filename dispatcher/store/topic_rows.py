"""Topics, and bindings: the servers and engines that operators bind to names.

The **path** of a topic is `tenant/name`, or the bare name for a topic of the operator.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from dispatcher.store.interface import (
    OFF,
    Advertising,
    Connection,
    TopicState,
    Transaction,
    insert_row,
    row_of,
)
from edn import protocol
from edn.model import namespace
from edn.model.schema import Schema

#: engine of a topic without a binding
DEFAULT_ENGINE = "bitmap"
_FIELDS = (
    "uid, tenant, name, revision, columns, attributes, engine, created, availability, chosen, closed"
    ", advertising"
)


@dataclass(frozen=True, slots=True)
class Topic:
    #: never reused, not even by a topic of the same name
    uid: int
    path: str
    revision: int
    schema: Schema
    engine: str
    #: microseconds since 1970
    created: int
    #: default availability of its events in seconds, `inf` for ever
    availability: float = 0.0
    #: whether the engine was set for this topic, not inherited from a binding
    chosen: bool = False
    advertising: Advertising = OFF

    @property
    def closed(self) -> bool:
        """Whether its events have no fields but the attributes."""
        return self.schema.closed

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def tenant(self) -> str:
        return self.path.rpartition("/")[0]

    def info(self) -> protocol.TopicInfo:
        return protocol.TopicInfo(self.uid, self.tenant, self.name, self.schema.to_wire(), self.engine)


@dataclass(frozen=True, slots=True)
class Binding:
    #: path of a topic or a subtree
    name: str
    #: servers that may host its subscriptions; None: all
    servers: tuple[str, ...] | None
    #: engine that topics inherit; None: none
    engine: str | None
    #: microseconds since 1970
    created: int

    def allows(self, server: str) -> bool:
        return self.servers is None or server in self.servers


def stored_schema(columns: str, attributes: str, closed: bool) -> Schema:
    wanted = json.loads(attributes)
    schema = Schema.from_wire([(name, kind) for name, kind in json.loads(columns)], closed=closed)
    return schema if schema.attributes == wanted else schema.evolve(wanted)


def _split(path: str) -> tuple[str, str]:
    tenant, _, name = path.rpartition("/")
    return tenant, name


def _load(row: tuple[Any, ...]) -> Topic:
    (
        uid,
        tenant,
        name,
        revision,
        columns,
        attributes,
        engine,
        created,
        availability,
        chosen,
        closed,
        mode,
    ) = row
    path = f"{tenant}/{name}" if tenant else name
    schema = stored_schema(columns, attributes, bool(closed))
    return Topic(uid, path, revision, schema, engine, created, availability, bool(chosen), mode)


def all_topics(connection: Connection) -> list[Topic]:
    return [_load(row) for row in connection.execute(f"SELECT {_FIELDS} FROM topics ORDER BY tenant, name")]


def find(connection: Connection, path: str) -> Topic | None:
    row = connection.execute(
        f"SELECT {_FIELDS} FROM topics WHERE tenant = ? AND name = ?", _split(path)
    ).fetchone()
    return None if row is None else _load(row)


def find_by_uid(connection: Connection, uid: int) -> Topic | None:
    row = connection.execute(f"SELECT {_FIELDS} FROM topics WHERE uid = ?", (uid,)).fetchone()
    return None if row is None else _load(row)


def find_uid(connection: Connection, path: str) -> int | None:
    row = connection.execute("SELECT uid FROM topics WHERE tenant = ? AND name = ?", _split(path)).fetchone()
    return None if row is None else int(row[0])


def state_of(connection: Connection, uid: int) -> TopicState | None:
    """Return what appends of events compare; None if the topic does not exist."""
    row = connection.execute(
        "SELECT revision, advertising, advertised FROM topics WHERE uid = ?", (uid,)
    ).fetchone()
    return None if row is None else TopicState(*row)


def state_in(transaction: Transaction, uid: int) -> TopicState | None:
    """Return the state of a topic, with one query per transaction; None if the topic does not exist."""
    found = transaction.topics.get(uid)
    if found is None:
        found = state_of(transaction.connection, uid)
        if found is not None:
            transaction.topics[uid] = found
    return found


def touch_advertisements(transaction: Transaction, uid: int) -> None:
    """Raise the revision of a topic's advertisements."""
    transaction.connection.execute("UPDATE topics SET advertised = advertised + 1 WHERE uid = ?", (uid,))
    transaction.topics.pop(uid, None)


def revision(connection: Connection, uid: int) -> tuple[int, dict[str, Any]] | None:
    """Return a topic's revision and the types of its attributes; None if the topic does not exist."""
    row = connection.execute("SELECT revision, attributes FROM topics WHERE uid = ?", (uid,)).fetchone()
    return None if row is None else (row[0], json.loads(row[1]))


def revisions_below(connection: Connection, subtree: str) -> set[tuple[int, int]]:
    """Return uid and revision of all topics of a subtree, given by its path."""
    tenant, stem = _split(namespace.path_prefix(subtree))
    rows = connection.execute(
        "SELECT uid, revision FROM topics"
        " WHERE tenant = ?1 AND (name = ?2 OR substr(name, 1, length(?3)) = ?3)",
        (tenant, stem.removesuffix("."), stem),
    )
    return {(uid, number) for uid, number in rows}


def count_of_tenant(connection: Connection, tenant: str) -> tuple[int, int]:
    """Count a tenant's topics, and the columns of all of them."""
    count, columns = connection.execute(
        "SELECT count(*), coalesce(sum(json_array_length(columns)), 0) FROM topics WHERE tenant = ?",
        (tenant,),
    ).fetchone()
    return int(count), int(columns)


def insert(transaction: Transaction, topic: Topic) -> None:
    schema = topic.schema
    row = row_of(
        topic,
        tenant=topic.tenant,
        name=topic.name,
        columns=_json(schema.to_wire()),
        attributes=_json(schema.attributes),
        closed=int(schema.closed),
    )
    del row["path"], row["schema"]
    insert_row(transaction.connection, "topics", row, key="uid")
    transaction.topics.pop(topic.uid, None)


def delete(transaction: Transaction, uid: int) -> None:
    """Delete a topic, its subscriptions and its event ids, and end the availability of its events."""
    connection = transaction.connection
    sequences = "SELECT subscription FROM sequence_topics WHERE topic = ?"
    connection.execute(f"DELETE FROM subscriptions WHERE topic = ? OR id IN ({sequences})", (uid, uid))
    connection.execute("DELETE FROM sequence_topics WHERE subscription NOT IN (SELECT id FROM subscriptions)")
    connection.execute("DELETE FROM event_ids WHERE topic = ?", (uid,))
    connection.execute("DELETE FROM advertisements WHERE topic = ?", (uid,))
    # The records stay for servers that lag.
    connection.execute("UPDATE records SET expires = NULL WHERE topic = ? AND expires > 0", (uid,))
    for stream in transaction.streams[1:]:
        connection.execute(
            "UPDATE log_records SET expires = NULL WHERE log = ? AND topic = ? AND expires > 0",
            (stream.log, uid),
        )
    connection.execute("DELETE FROM topics WHERE uid = ?", (uid,))
    transaction.topics.pop(uid, None)


def all_bindings(connection: Connection) -> list[Binding]:
    rows = connection.execute("SELECT name, servers, engine, created FROM bindings ORDER BY name")
    return [
        Binding(name, None if servers is None else tuple(json.loads(servers)), engine, created)
        for name, servers, engine, created in rows
    ]


def find_binding(connection: Connection, name: str) -> Binding | None:
    return next((one for one in all_bindings(connection) if one.name == name), None)


def insert_binding(transaction: Transaction, binding: Binding) -> None:
    servers = None if binding.servers is None else json.dumps(binding.servers)
    insert_row(transaction.connection, "bindings", row_of(binding, servers=servers), key="name")


def delete_binding(transaction: Transaction, name: str) -> bool:
    """Delete a binding; return whether it existed."""
    return bool(transaction.connection.execute("DELETE FROM bindings WHERE name = ?", (name,)).rowcount)


def engine_for(connection: Connection, path: str) -> str:
    """Return the engine that a new topic inherits."""
    for name, of_topic in _upwards(path):
        if of_topic:
            row = connection.execute(
                "SELECT engine FROM topics WHERE tenant = ? AND name = ? AND chosen != 0", _split(name)
            ).fetchone()
        else:
            row = connection.execute(
                "SELECT engine FROM bindings WHERE name = ? AND engine IS NOT NULL", (name,)
            ).fetchone()
        if row is not None:
            return str(row[0])
    return DEFAULT_ENGINE


def _upwards(path: str) -> Iterator[tuple[str, bool]]:
    """Yield the names that may bind an engine, the nearest first, and whether the name is a topic's."""
    for subtree in namespace.subtrees_of(path):
        root = namespace.path_prefix(subtree).removesuffix(".")
        if root == path:
            yield root, False
            yield subtree, False
        else:
            yield subtree, False
            yield root, False
            yield root, True


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
