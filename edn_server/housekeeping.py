"""Writes counters and deletes unused data, periodically."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import quote

import structlog

from edn.errors import Unavailable
from edn.http.control_client import CallFailed
from edn.runtime import clock, memory
from edn.runtime.ownership import owned
from edn_server.config import Settings
from edn_server.delivery import attempts
from edn_server.delivery.dead_letters import Purge
from edn_server.delivery.notifier import Notifier
from edn_server.dispatchers.client import Dispatchers
from edn_server.outbox import cleanup
from edn_server.sinks.consent import FORGET_SECONDS, Consents
from edn_server.sinks.sse import TRIM_SECONDS, Streams
from edn_server.storage import addresses, logs
from edn_server.storage.dead_letters import STEP
from edn_server.storage.interface import StoreError
from edn_server.storage.store import Store
from edn_server.storage.writer import Call
from edn_server.subscriptions.registry import SubscriptionRegistry
from edn_server.subscriptions.view import RegistryView

logger = structlog.get_logger()

#: intervals of ended logs that one job deletes
TRIM_ROWS = 5000
#: number of newest frames whose unused payloads are not deleted yet
OLD_FRAMES = 256
#: seconds between two rounds
COLLECT_SECONDS = 5.0
#: seconds between two purges of dead letters
PURGE_SECONDS = 60.0
#: transactions per purge; the rest follows in the next round
PURGE_STEPS = 20


@owned("loop")
@dataclass(slots=True)
class Housekeeping:
    settings: Settings
    store: Store
    registry: SubscriptionRegistry
    view: RegistryView
    notifier: Notifier
    streams: Streams
    consents: Consents
    dispatchers: Dispatchers
    #: returns the newest frame id
    newest_frame_id: Callable[[], int]
    #: frames up to this one are trimmed
    trimmed: int
    #: number of ended logs that are trimmed
    trimmed_logs: int = 0

    async def run(self) -> None:
        """Runs a round every `COLLECT_SECONDS`; some tasks have longer periods."""
        purged = streams = consents = 0.0
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(COLLECT_SECONDS)
            try:
                await self.write_counters()
                await self.notifier.drop_ended()
                await self._end_failed()
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
            except (*StoreError, Unavailable) as error:
                logger.error("housekeeping_failed", exc_info=error)

    async def write_counters(self) -> None:
        """Writes attempts and counters from memory."""
        taken = self.notifier.attempts.take()
        if taken:
            oldest = attempts.oldest(self.settings.attempts_kept)
            await self.store.committed(attempts.Write(taken, oldest))
        await self.store.committed(Call(self.view.counters.save))

    async def _purge_letters(self) -> bool:
        """Deletes expired dead letters; returns whether none is left."""
        oldest = int((clock.steady() - self.settings.dead_letters_kept) * 1e6)
        purge = Purge(oldest, self._has_ended)
        done = False
        for _ in range(PURGE_STEPS):
            done = await self.store.committed(purge) < STEP
            if done:
                break
        await self.store.committed(cleanup.ForgetDrops(self._has_ended))
        return done

    async def _end_failed(self) -> None:
        """Requests the end of SOAP subscriptions at disabled addresses, as WS-Eventing demands.

        Every round repeats the request until the log ends the subscription.
        """
        for address in self.notifier.disabled:
            if not addresses.url_of(address).startswith("soap:"):
                continue
            for subscription in self.view.subscriptions_at(address):
                path = f"/internal/subscriptions/{quote(subscription, safe='')}/failed"
                try:
                    answer = await self.dispatchers.request("POST", path)
                except CallFailed as error:
                    logger.warning("end_request_failed", reason=str(error))
                    return
                if answer.status_code not in (204, 404):
                    logger.warning("end_request_refused", status=answer.status_code)
                    return

    def _has_ended(self, subscription: str) -> bool:
        return not self.view.members_of(subscription)

    async def _forget_consents(self) -> None:
        if self.consents.any:
            used = await self.store.committed(Call(lambda _: self.registry.used_addresses()))
            await self.consents.forget(used)

    async def _collect_versions(self) -> None:
        while await self.store.committed(cleanup.Collect(self.registry)) == cleanup.Collect.LIMIT:
            pass
        if len(self.registry.ended_logs) > self.trimmed_logs:
            ended = len(self.registry.ended_logs)
            trim = Call(lambda db: logs.trim_ended(db, TRIM_ROWS))
            while await self.store.committed(trim) == TRIM_ROWS:
                pass
            self.trimmed_logs = ended
        if not self.registry.idle:
            return
        if await self.store.committed(cleanup.ForgetTopics(self.registry)):
            await self.store.shrink_memory()
            await asyncio.to_thread(memory.release)

    async def _trim_batches(self) -> None:
        while self.trimmed < self.newest_frame_id() - OLD_FRAMES:
            self.trimmed += 1
            await self.store.committed(cleanup.Trim(self.trimmed))
