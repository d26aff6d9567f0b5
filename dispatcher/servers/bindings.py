"""Bindings of names: the matcher that topics inherit, and the servers that may host subscriptions.

An operator binds a topic's name, or a subtree, to either or both. Each is looked for by itself, from the
name upwards, and the nearest binding that says something of it counts:

    servers    bound to the topic itself; to the subtrees that it is in, the smallest first
    matcher    the same; and, on the way up, bound to the name of a topic above, or chosen when that was
               created. It counts when a topic is created without a matcher, and never afterwards

So a topic's own subtree is nearer than anything that is bound further up. No binding reaches into another
tenant. Rows beside the log, which other dispatchers learn of as of any change; in memory for placing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from dispatcher.store import change_feed, topic_rows
from dispatcher.store.change_feed import Kind
from dispatcher.store.event_log import Log
from dispatcher.store.interface import Transaction
from dispatcher.store.topic_rows import Binding
from edn.errors import InvalidInput, NotFound
from edn.index import engine_name
from edn.model import namespace


def _by_name(found: Sequence[Binding]) -> dict[str, Binding]:
    return {binding.name: binding for binding in found}


class Bindings:
    """All of them; event loop only."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._by_name = _by_name(log.load(topic_rows.all_bindings))
        self._reloading = asyncio.Lock()

    async def reload(self) -> None:
        """Read all of them again, one call after another: the last one has seen every commit before it."""
        async with self._reloading:
            self._by_name = _by_name(await self._log.reading(topic_rows.all_bindings))

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
            known = topic_rows.find_binding(transaction.connection, name)
            binding = Binding(name, chosen, matcher, transaction.time if known is None else known.created)
            topic_rows.insert_binding(transaction, binding)
            change_feed.note(transaction, Kind.BINDING, name)
            return binding, known is None

        binding, new = await self._log.submit(operation)
        await self.reload()
        return binding, new

    async def delete(self, name: str) -> None:
        def operation(transaction: Transaction) -> None:
            if not topic_rows.delete_binding(transaction, name):
                raise NotFound(f'nothing is bound to "{name[:80]}"')
            change_feed.note(transaction, Kind.BINDING, name, gone=transaction.time)

        await self._log.submit(operation)
        await self.reload()


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
