"""A courier an address: rows in order, one POST at a time, again until it is delivered.

Addresses know nothing of each other: one that is slow or dead delays nobody else's rows. Rows are read a page
at a time, so that a long backlog lies on disk. A row is settled, off the courier's path, after its delivery;
a crash in between repeats the POST under the same webhook-id.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime

import structlog

from edn import clock
from edn_server import outbox, retry
from edn_server.delivery import Answer, Delivery
from edn_server.hosting import Hosting
from edn_server.outbox import Event, Row
from edn_server.writer import Writer

logger = structlog.get_logger()

#: rows of an address in memory
PAGE = 16
#: how long a courier rests after a failure of ours
FAILED_SECONDS = 5.0


class RecentEvents:
    """Payloads of the newest batches, so that what is delivered at once is not read back from disk.

    Whoever composes one leaves its fragment in its place: an event is written once, however many hear of it.
    """

    def __init__(self, most_bytes: int = 32 << 20) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._batches: OrderedDict[int, tuple[dict[int, Event | bytes], int]] = OrderedDict()
        self._lock = threading.Lock()

    def put(self, batch: int, events: dict[int, Event]) -> None:
        size = sum(len(event.body) + 200 for event in events.values())
        with self._lock:
            self._batches[batch] = (dict(events), size)
            self._bytes += size
            while self._bytes > self._most_bytes and self._batches:
                _, (_, gone) = self._batches.popitem(last=False)
                self._bytes -= gone

    def get(self, batch: int) -> dict[int, Event | bytes] | None:
        with self._lock:
            found = self._batches.get(batch)
            return None if found is None else found[0]


@dataclass(slots=True)
class Counters:
    #: POSTs that were answered with 2xx, and attempts that were not
    delivered: int = 0
    failed: int = 0
    #: rows whose sink answered 410
    dropped: int = 0
    #: notifications (one an event and row) that wait
    backlog: int = 0


class Notifier:
    """Lives on the event loop; `wake` may be called there only."""

    def __init__(
        self,
        *,
        hosting: Hosting,
        writer: Writer,
        reader: sqlite3.Connection,
        delivery: Delivery,
        key: str,
        concurrent_posts: int,
    ) -> None:
        self._hosting = hosting
        self._writer = writer
        self._reader = reader
        self._delivery = delivery
        #: tells this server's rows from those of any other
        self._prefix = "msg_" + hashlib.sha256(key.encode()).hexdigest()[:12]
        self._slots = asyncio.Semaphore(concurrent_posts)
        self._couriers: dict[str, asyncio.Task[None]] = {}
        self._woken: set[str] = set()
        self._settling: set[asyncio.Future[int]] = set()
        # Reading and composing happen in a thread of their own; the connection is its alone.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="outbox")
        self.recent = RecentEvents()
        self.counters = Counters()

    async def start(self) -> None:
        """Go on with what the last run left."""
        loop = asyncio.get_running_loop()
        self.wake(await loop.run_in_executor(self._thread, outbox.waiting_addresses, self._reader))

    async def stop(self) -> None:
        """Attempts in flight are given up; they are made again after the next start."""
        couriers = list(self._couriers.values())
        for courier in couriers:
            courier.cancel()
        await asyncio.gather(*couriers, return_exceptions=True)
        await asyncio.gather(*self._settling, return_exceptions=True)
        self._thread.shutdown()
        self._reader.close()

    def wake(self, addresses: Iterable[str]) -> None:
        """These addresses have new rows."""
        for address in addresses:
            self._woken.add(address)
            if address not in self._couriers:
                task = asyncio.create_task(self._courier(address), name=f"courier {address}")
                self._couriers[address] = task

    async def idle(self) -> None:
        """Wait until nothing is left to do. For tests."""
        while self._couriers:
            await asyncio.wait(list(self._couriers.values()))

    # -- one address ------------------------------------------------------------------------------------

    async def _courier(self, address: str) -> None:
        try:
            # A wake that comes while the last page is on its way has set the mark again.
            while address in self._woken:
                self._woken.discard(address)
                try:
                    await self._deliver_waiting(address)
                except Exception as error:
                    # Nothing is lost: the rows are there. A full disk, say, may have room again later.
                    logger.error("a courier failed", address=address, exc_info=error)
                    self._woken.add(address)
                    await asyncio.sleep(FAILED_SECONDS)
        finally:
            del self._couriers[address]

    async def _deliver_waiting(self, address: str) -> None:
        loop = asyncio.get_running_loop()
        while True:
            rows = await loop.run_in_executor(self._thread, outbox.page, self._reader, address, PAGE)
            if not rows:
                return
            settling = []
            try:
                for row in rows:
                    await self._deliver(row)
                    settling.append(self._settle(row))
            finally:
                # Whoever reads this address next must not find what is delivered.
                await asyncio.shield(asyncio.gather(*settling))

    def _settle(self, row: Row) -> asyncio.Future[int]:
        future = asyncio.wrap_future(self._writer.submit(outbox.Settle([(row.id, row.batch)])))
        self._settling.add(future)
        future.add_done_callback(self._settled)
        return future

    def _settled(self, future: asyncio.Future[int]) -> None:
        self._settling.discard(future)
        if not future.cancelled() and future.exception() is None:
            self.counters.backlog -= future.result()

    async def _deliver(self, row: Row) -> None:
        """Attempts until the row needs no further one."""
        loop = asyncio.get_running_loop()
        attempt = 0
        body = None
        while True:
            attempt += 1
            async with self._slots:
                # A body is kept over one quick retry only: dead addresses shall not fill the memory.
                if body is None:
                    body = await loop.run_in_executor(self._thread, self._compose, row)
                webhook_id = f"{self._prefix}_{row.id}"
                answer = await self._delivery.post(row.address, webhook_id, int(clock.now()), body)
            chance = random.random()
            decision = retry.decide(answer.status, answer.retry_after, attempt, chance, datetime.now(UTC))
            if decision.kind == "delivered":
                self.counters.delivered += 1
                return
            self._report(row, answer, attempt, decision)
            if decision.kind == "dropped":
                self.counters.dropped += 1
                return
            self.counters.failed += 1
            if attempt > 1:
                body = None
            await asyncio.sleep(decision.delay)

    def _compose(self, row: Row) -> bytes:
        """The body of a row; in the outbox thread."""
        places = row.places
        events = self.recent.get(row.batch)
        if events is None:
            events = dict(outbox.read_events(self._reader, row.batch, places))
        topics = self._hosting.topics
        fragments = []
        for place in places:
            event = events[place]
            if not isinstance(event, bytes):
                event = events[place] = outbox.event_fragment(event, topics[event.topic].name)
            fragments.append(event)
        return outbox.body_of(row, fragments, self._hosting.fragments)

    def _report(self, row: Row, answer: Answer, attempt: int, decision: retry.Decision) -> None:
        logger.warning(
            "a notification was refused"
            if decision.kind == "dropped"
            else "a notification will be tried again",
            address=row.address,
            row=row.id,
            attempt=attempt,
            status=answer.status,
            reason=answer.reason,
            delay=round(decision.delay, 3),
        )
