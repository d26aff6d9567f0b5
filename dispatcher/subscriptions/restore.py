"""A server that comes back may lack what it was given last: its data folder is a copy of an earlier moment.

The log says which versions of subscriptions a server is to begin beyond the place that it has read. Whatever
of these the directory still has is stored there once more before its stream goes on. Storing is idempotent,
so for a server that lacks nothing this changes nothing; and mostly there is nothing beyond its place.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from dispatcher.servers.client import ServerClient
from dispatcher.store import directory, repartitions, servers, signing_keys
from dispatcher.store.directory import Subscription
from dispatcher.store.event_log import Log
from dispatcher.store.interface import Connection
from dispatcher.subscriptions.topics import Topic, Topics
from edn import protocol

#: subscriptions of one request
STEP = 500


def lacking(connection: Connection, server: str, cursor: int) -> list[tuple[Subscription, bool]]:
    """What a server that has read up to there is to begin with after it, and whether it is arriving."""
    named: dict[tuple[str, int], None] = {}
    for control in servers.controls(connection, server, cursor):
        if control.kind in ("activate", "change", "move"):
            named.update(dict.fromkeys(control.versions))
    found = []
    for id, version in named:
        row = directory.find(connection, id)
        if row is not None and (row.version, row.server) == (version, server):
            found.append((row, repartitions.is_moving(connection, id, version)))
    return found


class Restoring:
    def __init__(self, log: Log, topics: Topics, calls: ServerClient) -> None:
        self._log = log
        self._topics = topics
        self._calls = calls

    async def store_again(self, server: str, url: str, cursor: int) -> None:
        """Raises `Unavailable` if the server does not answer."""
        by_topic: dict[int, list[tuple[Subscription, bool]]] = defaultdict(list)
        for row, arriving in await self._log.scanning(lambda connection: lacking(connection, server, cursor)):
            by_topic[row.topic].append((row, arriving))
        for uid, rows in by_topic.items():
            topic = self._topics.by_uid(uid)
            if topic is None:
                continue
            for start in range(0, len(rows), STEP):
                await self._store(server, url, topic, rows[start : start + STEP])

    async def _store(
        self, server: str, url: str, topic: Topic, rows: Sequence[tuple[Subscription, bool]]
    ) -> None:
        log = self._log
        items = [
            protocol.StoreItem(
                row.id,
                row.version,
                topic.tenant,
                row.owner,
                row.filter,
                row.url,
                row.recipient,
                row.expires,
                row.ring,
                arriving,
            )
            for row, arriving in rows
        ]
        rings = await log.reading(
            lambda connection: signing_keys.read(connection, {row.ring for row, _ in rows})
        )
        await self._calls.store(
            server, protocol.Store(log.id, log.incarnation, topic.info(), items, rings), url=url
        )
