"""Describes the servers for the REST interface, metrics and the dashboard."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dispatcher.routing.table import RoutingTable
from dispatcher.servers.log_tail import Tail
from dispatcher.servers.registry import ServerRegistry
from edn.runtime import clock
from edn.runtime.ownership import owned


@owned("loop")
@dataclass(frozen=True, eq=False)
class ServerDescriptions:
    _registry: ServerRegistry
    _table: RoutingTable
    _tail: Tail

    def all(self) -> list[dict[str, Any]]:
        now = clock.monotonic()
        described = []
        for server in self._registry:
            forwarder = server.forwarder
            routed = self._table.describe(server.id)
            described.append(
                {
                    "id": server.id,
                    "url": server.url,
                    "state": self._registry.state(server),
                    "leaving": server.leaving,
                    "subscriptions": server.subscriptions,
                    "backlog": server.backlog,
                    "cpu": server.cpu,
                    "cursor": forwarder.acked if forwarder else None,
                    "lag": max(0, self._tail.head - forwarder.position) if forwarder else None,
                    "forwarded": forwarder.forwarded if forwarder else 0,
                    "useful": forwarder.useful if forwarder else 0,
                    "matched": forwarder.matched if forwarder else 0,
                    "notified": server.notified,
                    "clock_suspect": server.suspect,
                    "failure": forwarder.failure if forwarder else None,
                    "hit_ratio": routed.routed / routed.asked if routed.asked else None,
                    "precision": routed.precision,
                    "last_seen_seconds": round(now - server.seen, 3) if server.seen else None,
                }
            )
        return described
