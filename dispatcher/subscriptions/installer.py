"""Installs subscriptions on servers: choose a server, store the filter, widen the routing table.

The rectangles of a filter are computed here, not read from the server's answer, so that a lost answer cannot
leave the table too narrow. If a later step fails, the stored versions are discarded through the log; until
then they only widen the table. A server refuses a store request that arrives after the discard
(`edn_server.subscriptions.store`), and discards the leftovers of an earlier incarnation with the next join.

Servers receive the members of a subtree subscription in requests of one topic each, a few at a time, so that
others are served in between. After a failure no further request is sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import structlog

from dispatcher.servers.bindings import Bindings
from dispatcher.servers.client import ServerClient
from dispatcher.servers.placement import Candidate, Placer
from dispatcher.servers.summaries import Summaries
from dispatcher.store import directory, signing_keys
from dispatcher.store.event_log import Log
from dispatcher.store.interface import Transaction
from dispatcher.store.replays import Replay
from dispatcher.subscriptions.lifecycle import PendingVersion, Stored, append_versions, store_item
from dispatcher.subscriptions.sequences.binding import rects_on
from dispatcher.subscriptions.topics import Topic
from edn import protocol
from edn.errors import Conflict, EdnError
from edn.model.rect import Rects
from edn.runtime.tasks import Tasks

logger = structlog.get_logger()

STORED_AT_ONCE = 1000
#: concurrent store requests per server; its writer commits waiting ones together
REQUESTS_AT_ONCE = 16
#: seconds for which placement may block the event loop
SLICE_SECONDS = 0.005
RETRY_SECONDS = 1.0


class SubscriptionInstaller:
    """Event loop only."""

    def __init__(
        self,
        log: Log,
        placing: Placer,
        bindings: Bindings,
        calls: ServerClient,
        summaries: Summaries,
        tasks: Tasks,
        on_replay: Callable[[Replay], None],
    ) -> None:
        self._log = log
        self._placing = placing
        self._bindings = bindings
        self._calls = calls
        self._summaries = summaries
        self._tasks = tasks
        self._on_replay = on_replay

    async def place(
        self, items: Sequence[PendingVersion], suggested: Mapping[str, str] | None = None
    ) -> list[PendingVersion]:
        """Choose a server for each version and reserve capacity there; `suggested`: id → server."""
        placed: list[PendingVersion] = []
        began = time.monotonic()
        try:
            for item in items:
                one = item.subscription
                candidate = Candidate(
                    item.topic.uid,
                    item.bound.rects(),
                    one.location,
                    suggested.get(one.id) if suggested else None,
                    self._bindings.hosts_of_all(item.paths),
                )
                [server] = self._placing.place([candidate])
                placed.append(replace(item, subscription=replace(one, server=server)))
                if time.monotonic() - began > SLICE_SECONDS:
                    await asyncio.sleep(0)
                    began = time.monotonic()
        except BaseException:
            self.release_capacity(Counter(item.subscription.server for item in placed))
            raise
        return placed

    def check_host(self, item: PendingVersion) -> None:
        """Raise `Conflict` if the bindings of a changed sequence's topics do not allow its server."""
        if not item.further:
            return
        binding = self._bindings.hosts_of_all(item.paths)
        server = item.subscription.server
        if binding is not None and not binding.allows(server):
            raise Conflict(
                f'route "{binding.name}" binds the topics of the sequence to '
                f"{', '.join(binding.servers or ())}, and the subscription is on {server}"
            )

    async def install(
        self,
        placed: Sequence[PendingVersion],
        commit: Callable[[Transaction, Stored], tuple[Mapping[str, int], list[Replay]]],
        changed: Sequence[PendingVersion] = (),
        *,
        ask_consent: bool = False,
    ) -> None:
        """Store new and changed versions on their servers, then activate them with `commit`.

        `commit` returns how many subscriptions ended per server, and the replays that begin.
        """
        together = [*placed, *changed]
        try:
            stored = await self.store(together, ask_consent=ask_consent)
            ended, replays = await self._log.submit(lambda transaction: commit(transaction, stored))
        except BaseException as error:
            self.release_capacity(Counter(item.subscription.server for item in placed))
            if isinstance(error, EdnError):
                await self.discard(together)
            else:  # the request was cancelled: this task must not await any more
                self._tasks.spawn(self.discard(together), "discarding")
            raise
        self._summaries.report_change()
        self.release_capacity(ended)
        for replay in replays:
            self._on_replay(replay)

    def release_capacity(self, by_server: Mapping[str, int]) -> None:
        """Count subscriptions that have ended, or were placed in vain, per server."""
        for server, count in by_server.items():
            self._placing.remove_load(server, count)

    async def store(
        self, items: Sequence[PendingVersion], *, ask_consent: bool = False
    ) -> dict[tuple[str, int], protocol.Stored]:
        """Store versions on their servers and widen the routing table; return the answers.

        `ask_consent`: ask sinks that must consent now, not at the first notification.
        """
        groups: dict[str, dict[int, list[PendingVersion]]] = {}
        for item in items:
            topics = groups.setdefault(item.subscription.server, {})
            topics.setdefault(item.topic.uid, []).append(item)
        stored: dict[tuple[str, int], protocol.Stored] = {}
        failed: list[Exception] = []

        async def work(server: str, waiting: list[tuple[int, list[PendingVersion]]]) -> None:
            while waiting and not failed:
                topic, items = waiting.pop()
                try:
                    stored[server, topic] = await self._store_on(server, items, ask_consent)
                except Exception as error:
                    failed.append(error)

        # A failure is raised after all answers: the caller discards only versions that were stored.
        await asyncio.gather(
            *(
                work(server, waiting)
                for server, topics in groups.items()
                for waiting in [list(reversed(topics.items()))]
                for _ in range(min(REQUESTS_AT_ONCE, len(waiting)))
            )
        )
        if failed:
            raise failed[0]
        return stored

    async def _store_on(self, server: str, items: list[PendingVersion], ask_consent: bool) -> protocol.Stored:
        """Store versions of one topic on a server; return its last answer, which covers the earlier ones."""
        log = self._log
        topic = max((item.topic for item in items), key=lambda topic: topic.revision)
        for first in range(0, len(items), STORED_AT_ONCE):
            some = items[first : first + STORED_AT_ONCE]
            rings = await log.reading(signing_keys.read, {item.subscription.ring for item in some})
            messages = [store_item(item.subscription, item.topic, item.arriving) for item in some]
            settings = {item.subscription.settings for item in some} - {""}
            credentials = await log.reading(directory.read_credentials, settings) if settings else {}
            others = {one.uid: one for item in some for one in sorted(item.further, key=_revision)}
            request = protocol.Store(
                log.id,
                log.incarnation,
                topic.info(),
                messages,
                rings,
                ask_consent,
                credentials,
                [one.info() for one in others.values() if one.uid != topic.uid],
            )
            stored = await self._calls.store(server, request)
            self._widen(server, topic, some, stored)
        return stored

    def _widen(
        self, server: str, topic: Topic, items: Sequence[PendingVersion], stored: protocol.Stored
    ) -> None:
        by_topic: dict[int, list[Rects]] = {}
        for item in items:
            for one in (topic, *item.further):
                by_topic.setdefault(one.uid, []).append(rects_on(item.bound, one.uid))
        for uid, rects in by_topic.items():
            self._summaries.widen(server, uid, rects, stored)

    async def discard(self, items: Sequence[PendingVersion]) -> None:
        """Delete stored versions from their servers, through the log."""
        if not items:
            return

        def forget(transaction: Transaction) -> None:
            append_versions(transaction, "deactivate", [item.subscription for item in items])

        try:
            await self._log.submit(forget)
        except EdnError as error:
            logger.warning("discard_failed", versions=len(items), reason=str(error))
            self._tasks.spawn(self._discard_later(forget), "discarding")

    async def _discard_later(self, forget: Callable[[Transaction], None]) -> None:
        """Retry a discard until it is committed: otherwise the versions stay until the next start."""
        while True:
            await asyncio.sleep(RETRY_SECONDS)
            with contextlib.suppress(EdnError):
                await self._log.submit(forget)
                return


def _revision(topic: Topic) -> int:
    return topic.revision
