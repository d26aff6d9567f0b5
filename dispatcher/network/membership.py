"""The dispatchers of the network, as the database shows them.

The **leader** runs the work that one dispatcher should do for all: repartitions and hand-overs. It is the one
with the smallest log id of those whose lease is not over. Two of them for a moment do no harm: every step is
checked in its transaction.
"""

from __future__ import annotations

from typing import Any

from dispatcher.store.event_log import Log, LogRow
from edn.errors import Unavailable
from edn.runtime.ownership import owned


@owned("loop")
class Membership:
    def __init__(self, log: Log, url: str | None) -> None:
        self._log = log
        self._url = url
        #: empty for a single dispatcher on SQLite
        self.logs: list[LogRow] = []

    async def poll(self) -> None:
        """Read the logs of all dispatchers; called every second."""
        try:
            self.logs = await self._log.living()
        except Unavailable:
            pass  # readiness says it

    @property
    def alone(self) -> bool:
        """Whether there is no other log."""
        return len(self.logs) <= 1

    def urls(self) -> list[str]:
        """Return the URLs of all dispatchers that have not been replaced."""
        urls = [row.url for row in self.logs if row.state == "open"]
        # Servers keep their settings unless they can reach every dispatcher by its URL.
        return [url for url in urls if url] if all(urls) else []

    def leader(self) -> str:
        """Return the log of the leader."""
        alive = [row.log for row in self.logs if row.state == "open" and row.lease > 0]
        return min(alive, default=self._log.id)

    def leads(self) -> bool:
        return self.leader() == self._log.id

    def describe(self) -> list[dict[str, Any]]:
        own = self._log.id
        if not self.logs:
            alone = {"log": own, "name": None, "url": self._url, "self": True}
            return [{**alone, "ready": True, "draining": False, "leader": True}]
        leader = self.leader()
        found = [
            {
                "log": row.log,
                "name": row.name,
                "url": row.url,
                "self": row.log == own,
                "ready": row.state == "open" and row.lease > 0,
                "draining": row.state == "draining",
                "leader": row.log == leader,
            }
            for row in self.logs
        ]
        return sorted(found, key=lambda one: (not one["self"], one["name"], one["log"]))
