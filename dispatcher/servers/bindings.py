"""Bindings of topic names to matchers, and to the servers that may host subscriptions.

An operator binds a topic or a subtree to servers, to an engine, or to both. Both are looked up separately,
and the nearest binding that has a value applies:

    servers    of the topic itself, then of the subtrees that contain it, the smallest first
    engine     the same, and of each topic above it: its binding or the engine it was created with. It applies
               when a topic is created without an engine, never afterwards

A binding never applies to another tenant's topics. Bindings are stored beside the log, and cached in memory
for placement.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from dispatcher.store import topic_rows
from dispatcher.store.event_log import Log
from dispatcher.store.interface import Kind, Transaction
from dispatcher.store.topic_rows import Binding
from edn.errors import Conflict, InvalidInput, NotFound
from edn.index import engine_name
from edn.model import namespace
from edn.runtime.ownership import owned


def _by_name(found: Sequence[Binding]) -> dict[str, Binding]:
    return {binding.name: binding for binding in found}


@owned("loop")
class Bindings:
    def __init__(self, log: Log) -> None:
        self._log = log
        self._by_name = _by_name(log.load(topic_rows.all_bindings))
        self._reloading = asyncio.Lock()

    async def reload(self) -> None:
        """Read all bindings again. Calls run one at a time, so the last sees every commit before it."""
        async with self._reloading:
            self._by_name = _by_name(await self._log.reading(topic_rows.all_bindings))

    def replace(self, found: Sequence[Binding]) -> None:
        """Take over the bindings that another dispatcher has changed."""
        self._by_name = _by_name(found)

    def all(self) -> list[Binding]:
        return list(self._by_name.values())

    def hosts_of(self, path: str) -> Binding | None:
        """Return the binding that restricts the servers for subscriptions to a topic, if any."""
        if not self._by_name:
            return None
        for name in (path, *namespace.subtrees_of(path)):
            found = self._by_name.get(name)
            if found is not None and found.servers is not None:
                return found
        return None

    def hosts_of_all(self, paths: Sequence[str]) -> Binding | None:
        """Return a binding that restricts the servers as those of several topics together do, if any.

        Raises `Conflict` if no server may host subscriptions to all of them.
        """
        found: Binding | None = None
        for path in paths:
            other = self.hosts_of(path)
            if other is None or other.servers is None:
                continue
            if found is None or found.servers is None:
                found = other
                continue
            both = tuple(server for server in found.servers if server in other.servers)
            if not both:
                raise Conflict(
                    f'one server must host all steps of a sequence: route "{found.name}" binds to '
                    f'{", ".join(found.servers)}, route "{other.name}" to {", ".join(other.servers)}'
                )
            found = Binding(f"{found.name}, {other.name}", both, None, other.created)
        return found

    async def put(
        self, name: str, servers: Sequence[str] | None, engine: str | None, known: Sequence[str]
    ) -> tuple[Binding, bool]:
        """Create or replace a binding; return it and whether it is new. `known`: the network's servers."""
        check_name(name)
        if servers is None and engine is None:
            raise InvalidInput(f'binding of "{name}" must have servers, an engine, or both, got neither')
        if servers is not None:
            _check_servers(servers, known)
        chosen = None if servers is None else tuple(sorted(set(servers)))
        matcher = None if engine is None else engine_name(engine)

        def operation(transaction: Transaction) -> tuple[Binding, bool]:
            known = topic_rows.find_binding(transaction.connection, name)
            binding = Binding(name, chosen, matcher, transaction.time if known is None else known.created)
            topic_rows.insert_binding(transaction, binding)
            transaction.note(Kind.BINDING, name)
            return binding, known is None

        binding, new = await self._log.submit(operation)
        await self.reload()
        return binding, new

    async def delete(self, name: str) -> None:
        def operation(transaction: Transaction) -> None:
            if not topic_rows.delete_binding(transaction, name):
                raise NotFound(f'binding of "{name[:80]}" does not exist')
            transaction.note(Kind.BINDING, name)

        await self._log.submit(operation)
        await self.reload()


def check_name(path: str) -> None:
    """Raise `InvalidInput` unless the path names a topic or a subtree, of the operator or a tenant."""
    tenant, slash, name = path.rpartition("/")
    if slash and not namespace.is_tenant(tenant):
        raise InvalidInput(
            f'name must be a topic, a subtree, or either after "<tenant>/", got "{path[:80]}"',
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
            f"servers must not be empty; omit it to allow all, or name some of {listed}",
            pointer="/servers",
        )
    for place, server in enumerate(servers):
        if server not in known:
            raise InvalidInput(
                f'server "{server[:80]}" does not exist; servers are {listed}', pointer=f"/servers/{place}"
            )
