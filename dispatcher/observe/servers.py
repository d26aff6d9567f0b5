"""Describes the servers for REST, metrics and the dashboard."""

from __future__ import annotations

from typing import Any

from dispatcher.routing.table import RoutingTable
from dispatcher.servers.registry import ServerRegistry
from dispatcher.store.log_tail import Tail
from edn.runtime import clock


class ServerDescriptions:
    def __init__(self, members: ServerRegistry, table: RoutingTable, tail: Tail) -> None:
        self._members = members
        self._table = table
        self._tail = tail

    def all(self) -> list[dict[str, Any]]:
        now = clock.monotonic()
        described = []
        for member in self._members:
            forwarder = member.forwarder
            routed = self._table.describe(member.id)
            described.append(
                {
                    "id": member.id,
                    "url": member.url,
                    "state": self._members.state(member),
                    "leaving": member.leaving,
                    "subscriptions": member.subscriptions,
                    "backlog": member.backlog,
                    "cpu": member.cpu,
                    "cursor": forwarder.acked if forwarder else None,
                    "lag": max(0, self._tail.head - forwarder.position) if forwarder else None,
                    "forwarded": forwarder.forwarded if forwarder else 0,
                    "useful": forwarder.useful if forwarder else 0,
                    "matched": forwarder.matched if forwarder else 0,
                    "notified": member.notified,
                    "clock_suspect": member.suspect,
                    "failure": forwarder.failure if forwarder else None,
                    "hit_ratio": routed.routed / routed.asked if routed.asked else None,
                    "precision": routed.precision,
                    "last_seen_seconds": round(now - member.seen, 3) if member.seen else None,
                }
            )
        return described
