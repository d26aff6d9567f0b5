"""What is bound to names: the matcher that topics inherit, and the servers that may host subscriptions.

An operator binds a topic's name, or a subtree, to either or both. Each is looked for by itself, from the
name upwards, and the nearest binding that says something of it counts:

    servers    bound to the topic itself; to the subtrees that it is in, the smallest first
    matcher    the same; and, on the way up, bound to the name of a topic above, or chosen when that was
               created. It counts when a topic is created without a matcher, and never afterwards

So a topic's own subtree is nearer than anything that is bound further up. No binding reaches into another
tenant. Rows beside the log, which other dispatchers learn of as of any change; in memory for placing.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dispatcher import changes
from dispatcher.changes import Kind
from dispatcher.log import Log, Transaction
from edn import namespace, wire
from edn.errors import InvalidInput, NotFound
from edn.index import engine_name

#: of topics above which nothing is bound
DEFAULT_ENGINE = "bitmap"
_FIELDS = "name, servers, engine, created"


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


def engine_for(connection: sqlite3.Connection, path: str) -> str:
    """The matcher of a topic that is created without one."""
    for name, of_topic in _upwards(path):
        query = (
            "SELECT engine FROM topics WHERE name = ? AND chosen"
            if of_topic
            else "SELECT engine FROM bindings WHERE name = ? AND engine IS NOT NULL"
        )
        row = connection.execute(query, (name,)).fetchone()
        if row is not None:
            return str(row[0])
    return DEFAULT_ENGINE


def _upwards(path: str) -> Iterator[tuple[str, bool]]:
    """Names at which a matcher may be bound, the nearest first, and whether it is asked what a topic has."""
    for subtree in namespace.subtrees_of(path):
        root = namespace.stem(subtree).removesuffix(".")
        if root == path:
            yield root, False
            yield subtree, False
        else:
            yield subtree, False
            yield root, False
            yield root, True


class Bindings:
    """All of them; event loop only."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._by_name: dict[str, Binding] = {}
        self.reload()

    def reload(self) -> None:
        """What is in the log's file counts from now on."""
        rows = self._log.reader.execute(f"SELECT {_FIELDS} FROM bindings ORDER BY name")
        self._by_name = {row[0]: _load(row) for row in rows}

    def all(self) -> list[Binding]:
        return list(self._by_name.values())

    def get(self, name: str) -> Binding:
        try:
            return self._by_name[name]
        except KeyError:
            raise NotFound(f'nothing is bound to "{name[:80]}"') from None

    def hosts_of(self, path: str) -> Binding | None:
        """The binding that says which servers may host subscriptions to a topic; None: any may."""
        if not self._by_name:
            return None
        for name in (path, *namespace.subtrees_of(path)):
            found = self._by_name.get(name)
            if found is not None and found.servers is not None:
                return found
        return None

    async def put(
        self, name: str, servers: Sequence[str] | None, engine: str | None, known: Sequence[str]
    ) -> tuple[Binding, bool]:
        """Bind a name, or bind it anew; whether nothing was bound to it. `known`: the network's servers."""
        check_name(name)
        if servers is None and engine is None:
            raise InvalidInput(f'nothing to bind to "{name}": servers, an engine, or both are right')
        if servers is not None:
            _check_servers(servers, known)
        chosen = None if servers is None else tuple(sorted(set(servers)))
        matcher = None if engine is None else engine_name(engine)

        def operation(transaction: Transaction) -> tuple[Binding, bool]:
            row = transaction.connection.execute(
                "SELECT created FROM bindings WHERE name = ?", (name,)
            ).fetchone()
            binding = Binding(name, chosen, matcher, transaction.time if row is None else row[0])
            insert(transaction.connection, binding)
            changes.note(transaction, Kind.BINDING, name)
            return binding, row is None

        binding, new = await self._log.submit(operation)
        self.reload()
        return binding, new

    async def delete(self, name: str) -> None:
        def operation(transaction: Transaction) -> None:
            if not remove(transaction.connection, name):
                raise NotFound(f'nothing is bound to "{name[:80]}"')
            changes.note(transaction, Kind.BINDING, name, gone=transaction.time)

        await self._log.submit(operation)
        self.reload()


def check_name(path: str) -> None:
    """Raise unless something can be bound to it: a topic or a subtree, the operator's or a tenant's."""
    tenant, slash, name = path.rpartition("/")
    if slash and not namespace.is_tenant(tenant):
        raise InvalidInput(
            "name must be that of a topic or a subtree, or a tenant, a slash and such a name, got "
            f'"{path[:80]}"',
            pointer="/name",
        )
    if namespace.is_subtree(name):
        namespace.check_subtree_name(name)
    else:
        namespace.check_topic_name(name)


def _check_servers(servers: Sequence[str], known: Sequence[str]) -> None:
    listed = ", ".join(sorted(known)[:20]) or "none"
    if not servers:
        raise InvalidInput(
            f"no server may host anything then; leave servers out for all, or name some (there are {listed})",
            pointer="/servers",
        )
    for place, server in enumerate(servers):
        if server not in known:
            raise InvalidInput(
                f'no server "{server[:80]}" in this network (there are {listed})', pointer=f"/servers/{place}"
            )


def insert(connection: sqlite3.Connection, binding: Binding) -> None:
    servers = None if binding.servers is None else json.dumps(binding.servers)
    connection.execute(
        f"INSERT OR REPLACE INTO bindings ({_FIELDS}) VALUES (?, ?, ?, ?)",
        (binding.name, servers, binding.engine, binding.created),
    )


def take(connection: sqlite3.Connection, state: wire.BindingState) -> None:
    """One that another dispatcher has made."""
    servers = None if state.servers is None else tuple(state.servers)
    insert(connection, Binding(state.name, servers, state.engine, state.created))


def remove(connection: sqlite3.Connection, name: str) -> bool:
    return bool(connection.execute("DELETE FROM bindings WHERE name = ?", (name,)).rowcount)


def _load(row: tuple[Any, ...]) -> Binding:
    name, servers, engine, created = row
    return Binding(name, None if servers is None else tuple(json.loads(servers)), engine, created)
