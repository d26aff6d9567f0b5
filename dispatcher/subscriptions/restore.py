"""Restores subscriptions on a server whose data folder is an old copy, for example a backup.

The control records after the server's cursor name the versions that it must activate. Those that the
directory still has are stored on the server again before its stream resumes. Storing is idempotent.
"""

from __future__ import annotations

from collections import defaultdict

from dispatcher.servers.client import ServerClient
from dispatcher.store import directory, repartitions, servers, signing_keys
from dispatcher.store.directory import Subscription
from dispatcher.store.event_log import Log
from dispatcher.store.interface import Connection
from dispatcher.subscriptions.lifecycle import store_item
from dispatcher.subscriptions.sequences.binding import further_topics
from dispatcher.subscriptions.topics import Topic, Topics
from edn import protocol
from edn.errors import NotFound

STEP = 500


def find_missing(connection: Connection, server: str, cursor: int) -> list[tuple[Subscription, bool]]:
    """Return the subscriptions that a server activates after its cursor, and whether each is migrating."""
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


class ServerRestore:
    def __init__(self, log: Log, topics: Topics, calls: ServerClient) -> None:
        self._log = log
        self._topics = topics
        self._calls = calls

    async def store_missing(self, server: str, url: str, cursor: int) -> None:
        """Store the missing subscriptions; raises `Unavailable` if the server does not answer."""
        log = self._log
        by_topic: dict[int, list[tuple[Subscription, bool]]] = defaultdict(list)
        for row, arriving in await log.scanning(find_missing, server, cursor):
            by_topic[row.topic].append((row, arriving))
        for uid, rows in by_topic.items():
            topic = self._topics.by_uid(uid)
            if topic is None:
                continue
            rows = [one for one in rows if self._is_complete(one[0])]
            for start in range(0, len(rows), STEP):
                some = rows[start : start + STEP]
                items = [store_item(row, topic, arriving) for row, arriving in some]
                rings = await log.reading(signing_keys.read, {row.ring for row, _ in some})
                credentials = await log.reading(directory.read_credentials, {row.settings for row, _ in some})
                others = {one.uid: one for row, _ in some for one in self._further(row)}
                request = protocol.Store(
                    log.id,
                    log.incarnation,
                    topic.info(),
                    items,
                    rings,
                    credentials=credentials,
                    topics=[one.info() for one in others.values() if one.uid != topic.uid],
                )
                await self._calls.store(server, request, url=url)

    def _further(self, row: Subscription) -> tuple[Topic, ...]:
        return further_topics(row.filter, self._topics.by_uid)

    def _is_complete(self, row: Subscription) -> bool:
        """Return whether all topics of a sequence exist; otherwise its end follows in the log."""
        try:
            self._further(row)
        except NotFound:
            return False
        return True
