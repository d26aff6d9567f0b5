"""Lists the routes of the table, one per topic and server."""

from __future__ import annotations

from dataclasses import dataclass

from dispatcher.routing.table import RoutingTable
from dispatcher.servers.bindings import Bindings
from dispatcher.servers.registry import ServerRegistry
from dispatcher.store import directory
from dispatcher.store.event_log import Log
from dispatcher.store.topic_rows import Binding
from dispatcher.subscriptions.topics import Topics
from edn.api.routes import Route
from edn.model import namespace
from edn.runtime.ownership import owned


@owned("loop")
@dataclass(frozen=True, eq=False)
class RoutingEntries:
    _log: Log
    _table: RoutingTable
    _registry: ServerRegistry
    _bindings: Bindings
    _topics: Topics

    async def found(self, name: str | None = None) -> list[Route]:
        """List the routes of all topics, or of a topic or subtree, by topic and server.

        A route exists if a server hosts a subscription to the topic, or the table has a rectangle of it.
        """
        hosted = await self._log.reading(directory.count_by_topic)
        routes = []
        tables = [self._table.describe(server.id) for server in self._registry]
        for topic in self._topics.all():
            if name is not None and not namespace.includes(name, topic.path):
                continue
            for table in tables:
                held = table.topics.get(topic.uid)
                count = hosted.get((topic.uid, table.server), 0)
                if held is None and not count:
                    continue
                epoch, seq = table.epoch, table.seq
                routes.append(
                    Route(
                        name=topic.path,
                        server=table.server,
                        everything=table.everything,
                        rectangles=held.rectangles + held.widenings if held else 0,
                        maximal=held.maximal if held else 0,
                        precision=held.rectangles / held.maximal if held and held.maximal else None,
                        bytes=held.bytes if held else 0,
                        subscriptions=count,
                        revision=None if epoch is None or seq is None else [epoch, seq],
                    )
                )
        return routes

    async def misplaced(self, binding: Binding) -> int:
        """Count subscriptions on servers that a binding does not allow; they stay until they are migrated."""
        if binding.servers is None:
            return 0
        bound = {topic.uid for topic in self._topics.all() if self._bindings.hosts_of(topic.path) == binding}
        counts = await self._log.reading(
            lambda connection: [directory.count_by_server(connection, uid) for uid in bound]
        )
        return sum(
            count
            for by_server in counts
            for server, count in by_server.items()
            if server not in binding.servers
        )
