"""Rows of topics, and of bindings: the servers and matchers that operators bind to names.

A topic is one row of (tenant, name). Its **path**, `tenant/name` or the bare name of one of the operator's
topics, is how operators and the rest of the dispatcher spell both together.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from dispatcher.store.interface import Connection, Transaction
from edn import protocol
from edn.model import namespace
from edn.model.schema import Schema

#: the matcher of topics above which nothing is bound
DEFAULT_ENGINE = "bitmap"
_FIELDS = "uid, tenant, name, revision, columns, attributes, engine, created, availability, chosen"
_BINDING = "name, servers, engine, created"


@dataclass(frozen=True, slots=True)
class Topic:
    #: never used again, not even by a topic of the same name
    uid: int
    #: unique; see `dispatcher.subscriptions.topics.path_of`
    path: str
    #: counts the changes of the schema
    revision: int
    schema: Schema
    engine: str
    #: microseconds since 1970
    created: int
    #: seconds, `inf` for ever: how long its events stay available to later subscribers, if they do not say
    availability: float = 0.0
    #: the engine was chosen for this very name, and not inherited
    chosen: bool = False

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
    #: that may host its subscriptions; None: any
    servers: tuple[str, ...] | None
    #: that topics inherit; None: none
    engine: str | None
    #: microseconds since 1970
    created: int


def stored_schema(columns: str, attributes: str) -> Schema:
    wanted = json.loads(attributes)
    schema = Schema.from_wire([(name, kind) for name, kind in json.loads(columns)])
    return schema if schema.attributes == wanted else schema.evolve(wanted)


def _split(path: str) -> tuple[str, str]:
    """Split a path into tenant and name."""
    tenant, _, name = path.rpartition("/")
    return tenant, name


def _load(row: tuple[Any, ...]) -> Topic:
    uid, tenant, name, revision, columns, attributes, engine, created, availability, chosen = row
    path = f"{tenant}/{name}" if tenant else name
    schema = stored_schema(columns, attributes)
    return Topic(uid, path, revision, schema, engine, created, availability, bool(chosen))


def all_topics(connection: Connection) -> list[Topic]:
    return [_load(row) for row in connection.execute(f"SELECT {_FIELDS} FROM topics ORDER BY tenant, name")]


def find(connection: Connection, path: str) -> Topic | None:
    row = connection.execute(
        f"SELECT {_FIELDS} FROM topics WHERE tenant = ? AND name = ?", _split(path)
    ).fetchone()
    return None if row is None else _load(row)


def find_uid(connection: Connection, path: str) -> int | None:
    row = connection.execute("SELECT uid FROM topics WHERE tenant = ? AND name = ?", _split(path)).fetchone()
    return None if row is None else int(row[0])


def exists(connection: Connection, uid: int) -> bool:
    return connection.execute("SELECT 1 FROM topics WHERE uid = ?", (uid,)).fetchone() is not None


def revision(connection: Connection, uid: int) -> tuple[int, dict[str, Any]] | None:
    """Return a topic's revision and the types of its attributes; None if it is deleted."""
    row = connection.execute("SELECT revision, attributes FROM topics WHERE uid = ?", (uid,)).fetchone()
    return None if row is None else (row[0], json.loads(row[1]))


def revisions_below(connection: Connection, subtree: str) -> set[tuple[int, int]]:
    """Return uid and revision of every topic of a subtree, which is given by its path."""
    tenant, stem = _split(namespace.path_prefix(subtree))
    rows = connection.execute(
        "SELECT uid, revision FROM topics"
        " WHERE tenant = ?1 AND (name = ?2 OR substr(name, 1, length(?3)) = ?3)",
        (tenant, stem.removesuffix("."), stem),
    )
    return {(uid, number) for uid, number in rows}


def count_of_tenant(connection: Connection, tenant: str) -> tuple[int, int]:
    """Return how many topics a tenant has, and how many columns these have."""
    count, columns = connection.execute(
        "SELECT count(*), coalesce(sum(json_array_length(columns)), 0) FROM topics WHERE tenant = ?",
        (tenant,),
    ).fetchone()
    return int(count), int(columns)


def insert(transaction: Transaction, topic: Topic) -> None:
    """Insert a topic, or change the one of its uid."""
    transaction.connection.execute(
        f"INSERT INTO topics ({_FIELDS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (uid) DO UPDATE SET revision = excluded.revision, columns = excluded.columns,"
        " attributes = excluded.attributes,"
        " engine = excluded.engine, availability = excluded.availability, chosen = excluded.chosen",
        (
            topic.uid,
            topic.tenant,
            topic.name,
            topic.revision,
            _json(topic.schema.to_wire()),
            _json(topic.schema.attributes),
            topic.engine,
            topic.created,
            topic.availability,
            topic.chosen,
        ),
    )


def delete(transaction: Transaction, uid: int) -> None:
    """Delete a topic, its subscriptions and its event ids, and end the availability of its events."""
    connection = transaction.connection
    connection.execute("DELETE FROM subscriptions WHERE topic = ?", (uid,))
    connection.execute("DELETE FROM event_ids WHERE topic = ?", (uid,))
    # Nobody can subscribe to them any more; servers that lag may still need the records.
    connection.execute("UPDATE records SET expires = NULL WHERE topic = ? AND expires > 0", (uid,))
    connection.execute("DELETE FROM topics WHERE uid = ?", (uid,))


# -- bindings -------------------------------------------------------------------------------------------


def all_bindings(connection: Connection) -> list[Binding]:
    rows = connection.execute(f"SELECT {_BINDING} FROM bindings ORDER BY name")
    return [
        Binding(name, None if servers is None else tuple(json.loads(servers)), engine, created)
        for name, servers, engine, created in rows
    ]


def find_binding(connection: Connection, name: str) -> Binding | None:
    return next((one for one in all_bindings(connection) if one.name == name), None)


def insert_binding(transaction: Transaction, binding: Binding) -> None:
    """Insert a binding, or replace the one of its name."""
    servers = None if binding.servers is None else json.dumps(binding.servers)
    transaction.connection.execute(
        f"INSERT OR REPLACE INTO bindings ({_BINDING}) VALUES (?, ?, ?, ?)",
        (binding.name, servers, binding.engine, binding.created),
    )


def delete_binding(transaction: Transaction, name: str) -> bool:
    """Return whether there was one."""
    return bool(transaction.connection.execute("DELETE FROM bindings WHERE name = ?", (name,)).rowcount)


def engine_for(connection: Connection, path: str) -> str:
    """Return the matcher of a topic that is created without one."""
    for name, of_topic in _upwards(path):
        if of_topic:
            row = connection.execute(
                "SELECT engine FROM topics WHERE tenant = ? AND name = ? AND chosen", _split(name)
            ).fetchone()
        else:
            row = connection.execute(
                "SELECT engine FROM bindings WHERE name = ? AND engine IS NOT NULL", (name,)
            ).fetchone()
        if row is not None:
            return str(row[0])
    return DEFAULT_ENGINE


def _upwards(path: str) -> Iterator[tuple[str, bool]]:
    """Yield names at which a matcher may be bound, the nearest first, and whether the name is a topic's."""
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
