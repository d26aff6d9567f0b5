"""Housekeeping: writes down what is counted, and deletes what nothing needs, now and then."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from edn.errors import Unavailable
from edn.runtime import clock, memory
from edn.runtime.ownership import owned
from edn_server.config import Settings
from edn_server.delivery import attempts
from edn_server.delivery.dead_letters import Purge
from edn_server.delivery.notifier import Notifier
from edn_server.dispatchers.client import Dispatchers
from edn_server.dispatchers.failed_sinks import end_failed
from edn_server.ingest import dedup
from edn_server.outbox import cleanup
from edn_server.sinks.consent import FORGET_SECONDS, Consents
from edn_server.sinks.sse import TRIM_SECONDS, Streams
from edn_server.storage.database import SqliteStore, shrink_memory
from edn_server.storage.dead_letters import STEP
from edn_server.storage.interface import StoreError
from edn_server.storage.writer import Call
from edn_server.subscriptions import counters
from edn_server.subscriptions.registry import SubscriptionRegistry
from edn_server.subscriptions.view import RegistryView

logger = structlog.get_logger()

#: batches that are so far behind the newest are trimmed to the payloads that waiting rows name
OLD_BATCHES = 256
#: seconds between two collections
COLLECT_SECONDS = 5.0
#: seconds between two looks for dead letters that nobody wants
PURGE_SECONDS = 60.0
#: transactions of one such look; the others come with the next collection
PURGE_STEPS = 20


@owned("loop")
@dataclass(slots=True)
class Housekeeping:
    """Lives on the event loop; `run` for as long as the server lives."""

    settings: Settings
    store: SqliteStore
    registry: SubscriptionRegistry
    view: RegistryView
    notifier: Notifier
    streams: Streams
    consents: Consents
    dispatchers: Dispatchers
    #: returns the newest batch of payloads
    newest_batch: Callable[[], int]
    #: batches up to this one are trimmed
    trimmed: int

    async def run(self) -> None:
        """Collect every `COLLECT_SECONDS`; each kind of cleaning has a period of its own."""
        purged = streams = consents = 0.0
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(COLLECT_SECONDS)
            try:
                await self.write_counters()
                await self.notifier.drop_ended()
                await end_failed(self.view, self.notifier.disabled, self.dispatchers)
                if loop.time() - purged > PURGE_SECONDS and await self._purge_letters():
                    purged = loop.time()
                if loop.time() - consents > FORGET_SECONDS:
                    consents = loop.time()
                    await self._forget_consents()
                if loop.time() - streams > TRIM_SECONDS:
                    streams = loop.time()
                    await self.streams.trim()
                await self._collect_versions()
                await self._trim_batches()
            except (StoreError, Unavailable) as error:
                logger.error("collection failed", exc_info=error)

    async def write_counters(self) -> None:
        """Write the attempts and counters that are only in memory."""
        taken = self.notifier.attempts.take()
        if taken:
            oldest = attempts.oldest(self.settings.attempts_kept)
            await self.store.committed(attempts.Write(taken, oldest))
        await self.store.committed(counters.Write(self.view.counters))

    async def _purge_letters(self) -> bool:
        """Delete dead letters that nobody wants; returns whether all of them are gone."""
        oldest = int((clock.steady() - self.settings.dead_letters_kept) * 1e6)
        purge = Purge(oldest, self._has_ended)
        done = False
        for _ in range(PURGE_STEPS):
            done = await self.store.committed(purge) < STEP
            if done:
                break
        await self.store.committed(cleanup.ForgetDrops(self._has_ended))
        return done

    def _has_ended(self, subscription: str) -> bool:
        return not self.view.members_of(subscription)

    async def _forget_consents(self) -> None:
        if self.consents.any:
            used = await self.store.committed(Call(lambda _: self.registry.used_addresses()))
            await self.consents.forget(used)

    async def _collect_versions(self) -> None:
        while await self.store.committed(cleanup.Collect(self.registry)) == cleanup.Collect.LIMIT:
            pass
        if not self.registry.idle:
            return
        if await self.store.committed(cleanup.ForgetTopics(self.registry)):
            # Pages that SQLite caches of their rows go first.
            await self.store.committed(Call(shrink_memory))
            await asyncio.to_thread(memory.release)

    async def _trim_batches(self) -> None:
        oldest = int(clock.now() * 1e6) - dedup.KEPT
        while (
            self.registry.multi_dispatcher and await self.store.committed(dedup.Forget(oldest)) == dedup.STEP
        ):
            pass
        while self.trimmed < self.newest_batch() - OLD_BATCHES:
            self.trimmed += 1
            await self.store.committed(cleanup.Trim(self.trimmed))
