"""A courier an address: rows in order, one POST at a time, until each is delivered or given up.

Addresses know nothing of each other: a slow or dead one delays nobody else's rows (`sinks.concurrency`). Rows
are read a page at a time, so that a long backlog lies on disk, and rows that wait together go out together
(`outbox.batches`, `outbox.bodies`); `sender` makes one attempt. A batch is settled, off the courier's path,
after its delivery; a crash in between repeats the POST under the same webhook-id.

After a failure the courier rests and looks at the disk again: a dead address costs a sleeping task. The state
of an address (`circuit_breaker`) survives restarts; an abandoned POST becomes a dead letter (`dead_letters`).
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import secrets
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Concatenate

import numpy as np
import structlog

from edn.http import sink_policy
from edn.http.request_limits import descriptor_limit
from edn.runtime import clock
from edn.runtime.ownership import owned
from edn_server.config import Settings
from edn_server.delivery import circuit_breaker, cleanup, dead_letters, retry
from edn_server.delivery.attempts import Attempt, Attempts
from edn_server.delivery.circuit_breaker import HEALTHY, Health
from edn_server.delivery.dead_letters import Death
from edn_server.delivery.sender import Sender, Sent, Timings
from edn_server.outbox import batches
from edn_server.outbox.batches import DeliveryBatch
from edn_server.outbox.bodies import Composer, enclose
from edn_server.outbox.cleanup import Settle
from edn_server.outbox.payload_cache import PayloadCache
from edn_server.sinks.base import Answer, Sinks
from edn_server.sinks.concurrency import Slots
from edn_server.storage import outbox
from edn_server.storage.addresses import host_of, is_sink, tenant_of, url_of
from edn_server.storage.database import restored
from edn_server.storage.interface import Connection, Given, Reader, StoreError
from edn_server.storage.outbox import Row
from edn_server.storage.writer import Job, Result, Writer
from edn_server.subscriptions.view import RegistryView

logger = structlog.get_logger()

#: rows of an address in memory
PAGE = 64
#: addresses whose success is remembered
TRIED = 100_000
#: how long a courier rests after a failure of ours
FAILED_SECONDS = 5.0


@owned("loop")
@dataclass(slots=True)
class Counters:
    #: POSTs that were taken, and attempts that were not
    delivered: int = 0
    failed: int = 0
    #: notifications in the POSTs that were taken
    notified: int = 0
    #: rows of subscriptions that ended while their address failed
    dropped: int = 0
    #: POSTs that became dead letters, and letters that went at a tenant's limit
    dead: int = 0
    letters_dropped: int = 0
    #: notifications of paused subscriptions, and of streams, that went at a tenant's limit
    paused_dropped: int = 0
    unread_dropped: int = 0
    #: notifications (one an event and row) that wait
    backlog: int = 0


@owned("loop")
class Notifier:
    """Lives on the event loop; its methods may be called there only."""

    def __init__(
        self,
        *,
        view: RegistryView,
        writer: Writer,
        reader: Reader,
        sinks: Sinks,
        key: str,
        settings: Settings,
        timings: Timings | None = None,
        on_attempt: Callable[[tuple[Row, ...], Attempt], None] = lambda rows, attempt: None,
    ) -> None:
        """`on_attempt` is called after each attempt at rows of the outbox."""
        self._view = view
        self._writer = writer
        self._reader = reader
        self._settings = settings
        #: tells this server's rows from those of any other
        self.prefix = hashlib.sha256(key.encode()).hexdigest()[:12]
        self._prefix = "msg_" + self.prefix
        # Descriptors are needed for other things, too: connections of clients, files.
        self._slots = Slots(min(settings.concurrent_posts, max(1, descriptor_limit() // 3)))
        #: addresses that an attempt succeeded at since the start, the least recent first
        self._tried: OrderedDict[str, None] = OrderedDict()
        self._couriers: dict[str, asyncio.Task[None]] = {}
        self._woken: set[str] = set()
        self._resting: dict[str, asyncio.Event] = {}
        self._settling: set[asyncio.Future[int]] = set()
        #: addresses that may have rows for nobody who lives
        self._left: set[str] = set()
        #: those that are not healthy
        self._health: dict[str, Health] = {}
        #: rows that were tried by themselves, and must not find company at the next attempt
        self._alone: set[int] = set()
        #: rows up to this one were here before this start, and of each address those that may have been tried
        self._found = 0
        #: rows up to this one came with a backup: the network that it was made of may have sent them since
        self._restored = 0
        self._doubtful: dict[str, int] = {}
        # Reading and composing happen in the reader's thread. Two, so that it has the next job at hand; more
        # would wait there in the order of asking.
        self._reads = Slots(2, bound=2)
        self.recent = PayloadCache()
        self._composer = Composer(view, self.recent)
        self.counters = Counters()
        self._timings = timings or Timings()
        self._posting = Sender(sinks, view, self._timings)
        self._on_attempt = on_attempt

    async def start(self, *, again: bool) -> None:
        """Go on with what the last run left; `again` if there was one."""
        self._health = await self._reader.reading(circuit_breaker.load)
        self._restored = await self._reader.reading(restored)
        if again:
            self._found = await self._reader.reading(outbox.last_row)
        self.wake(await self._reader.reading(outbox.waiting_addresses))

    async def stop(self) -> None:
        """Attempts in flight are given up; they are made again after the next start."""
        couriers = list(self._couriers.values())
        for courier in couriers:
            courier.cancel()
        await asyncio.gather(*couriers, return_exceptions=True)
        await asyncio.gather(*self._settling, return_exceptions=True)
        self._reader.close()

    def wake(self, addresses: Iterable[str]) -> None:
        """These addresses have new rows."""
        for address in addresses:
            if not is_sink(address):
                continue
            self._woken.add(address)
            if self._settings.batching.delay and address in self._resting:
                self._resting[address].set()  # its batch may be full now
            if address not in self._couriers:
                task = asyncio.create_task(self._courier(address), name="courier")
                self._couriers[address] = task

    async def idle(self) -> None:
        """Wait until nothing is left to do. For tests."""
        while self._couriers:
            await asyncio.wait(list(self._couriers.values()))

    # -- what others ask --------------------------------------------------------------------------------

    @property
    def attempts(self) -> Attempts:
        return self._posting.attempts

    def health(self, address: str) -> Health:
        return self._health.get(address, HEALTHY)

    @property
    def failing(self) -> int:
        """How many addresses fail, or are disabled."""
        return sum(bool(one.failures or one.disabled) for one in self._health.values())

    @property
    def disabled(self) -> list[str]:
        """Addresses that were given up."""
        return [address for address, health in self._health.items() if health.disabled is not None]

    @property
    def waiting(self) -> list[str]:
        """Addresses that something waits for."""
        return list(self._couriers)

    def webhook_id(self, row: int) -> str:
        return f"{self._prefix}_{row}"

    def hurry(self, address: str) -> None:
        """Make the next attempt now, and look at the disk before it."""
        known = self._health.get(address)
        if known is not None and known.disabled is None:
            self._health[address] = replace(known, next_attempt=0)
        self.wake([address])
        if address in self._resting:
            self._resting[address].set()

    async def enable(self, address: str) -> None:
        """Whatever was, the address is healthy until it fails again."""
        await self._become(address, HEALTHY)
        self.hurry(address)

    async def example(self, address: str, body: bytes) -> Attempt:
        """One attempt outside of the order, of something that never happened."""
        name = f"{self._prefix}_example_{secrets.token_hex(8)}"
        async with self._slot(address):
            sent = await self._posting.send(address, name, body, 1)
        return self._posting.remember(sent, "example")

    async def entries(
        self, address: str, after: int, rows: int
    ) -> tuple[list[tuple[int, list[bytes]]], outbox.Gone]:
        """Read the next rows of a stream after one, as ids and entries per event, and which rows went."""

        def read(db: Connection) -> tuple[list[tuple[int, list[bytes]]], outbox.Gone]:
            found = outbox.page(db, address, rows, after)
            told = [(row.id, self._composer.each_entry(db, row)) for row in found]
            return told, outbox.gone(db, address)

        return await self._read(address, read)

    def subtract(self, notifications: int) -> None:
        """Count notifications that no longer wait."""
        self.counters.backlog -= notifications

    async def drop_ended(self) -> None:
        """Rows of addresses that have failed for long, for nobody who lives: they would wait for days more.

        While there is hope they are due: the subscription was there when they were found.
        """
        self._left |= self._view.take_left_addresses()
        for address in list(self._left):
            if address not in self._couriers:
                self._left.discard(address)
            elif self.health(address).warned is not None:
                self._left.discard(address)
                rows = await self._read(address, cleanup.find, address, self._view)
                if rows:
                    dropped = await self._submit(cleanup.Drop(rows))
                    self.counters.backlog -= dropped  # not in one: it changes while one waits
                    self.counters.dropped += len(rows)
                    self._alone.difference_update(id for id, _ in rows)
                    self.hurry(address)

    # -- one address ------------------------------------------------------------------------------------

    async def _courier(self, address: str) -> None:
        try:
            # A wake that comes while the last page is on its way has set the mark again.
            while address in self._woken:
                self._woken.discard(address)
                try:
                    await self._deliver_waiting(address)
                except Exception as error:
                    logger.error("courier_failed", sink=sink_policy.redacted(url_of(address)), exc_info=error)
                    self._woken.add(address)
                    await self._recover(address, error)
        finally:
            del self._couriers[address]
            self._doubtful.pop(address, None)

    async def _recover(self, address: str, error: Exception) -> None:
        """Account for an error of this server's own, so that it cannot repeat for ever without a trace.

        The rows are still there. An error of the store (a full disk) is no fault of the row: the courier
        rests, and the address shows why. Any other error counts as a failed attempt at the oldest row.
        """
        if not isinstance(error, StoreError):
            try:
                await self._count_broken(address, f"internal error: {type(error).__name__}: {error}"[:500])
                return
            except Exception as further:
                logger.error(
                    "failure_not_recorded", sink=sink_policy.redacted(url_of(address)), exc_info=further
                )
                error = further
        now = int(clock.steady() * 1e6)
        due = now + int(FAILED_SECONDS * 1e6)
        before, reason = self.health(address), f"internal error: {error}"[:500]
        since = before.failing_since if before.failing_since is not None else now
        self._health[address] = replace(
            before, failures=before.failures + 1, failing_since=since, next_attempt=due, reason=reason
        )
        self._posting.remember(
            Sent(address, "", 0, Answer(None, reason=reason), clock.estimate(), 0.0),
            "again",
            int((clock.estimate() + FAILED_SECONDS) * 1e6),
        )
        await asyncio.sleep(FAILED_SECONDS)

    async def _count_broken(self, address: str, reason: str) -> None:
        """Count an error of this server's own as a failed attempt at an address's oldest row."""
        rows = await self._read(address, outbox.page, address, 1)
        if not rows:
            return
        try:
            parcel = await self._pack(rows)
        except StoreError:
            raise
        except Exception:  # the row itself cannot be composed: its dead letter names nobody
            parcel = DeliveryBatch((rows[0],), enclose([]))
        name, answer = self.webhook_id(parcel.id), Answer(None, reason=reason)
        sent = Sent(address, name, parcel.events, answer, clock.estimate(), 0.0)
        decision, after = self._decide(parcel, sent.answer, broken=True)
        now = int(clock.steady() * 1e6)
        due = int((clock.estimate() + decision.delay) * 1e6) if decision.kind == "again" else None
        self._posting.remember(sent, decision.kind, due)
        self.counters.failed += 1
        await self._failed(address, parcel, sent.answer, decision, after, now)

    async def _deliver_waiting(self, address: str) -> None:
        settling: list[asyncio.Future[int]] = []
        rows: list[Row] = []
        try:
            while True:
                if not rows:
                    # Whoever reads this address next must not find what is delivered.
                    await asyncio.shield(asyncio.gather(*settling))
                    settling.clear()
                    self._woken.discard(address)
                    rows = await self._read(address, outbox.page, address, PAGE)
                    if not rows:
                        return
                    # Only what the last run had read at once can have been sent and not settled.
                    old = max((row.id for row in rows if row.id <= self._found), default=0)
                    self._doubtful.setdefault(address, old)
                if self.health(address).disabled is not None:
                    rows = await self._bury_first(address, rows)
                    continue
                pause = self._pause(address, rows)
                if pause > 0:
                    # What came while the page was on its way may have filled the batch.
                    if not (self._settings.batching.delay and address in self._woken):
                        await self._rest(address, pause)
                    rows = []
                    continue
                parcel = await self._attempt(address, rows)
                if parcel is None:
                    rows = []
                else:
                    settling.append(self._settle(parcel))
                    rows = _without(rows, parcel)
        finally:
            await asyncio.shield(asyncio.gather(*settling))

    def _pause(self, address: str, rows: Sequence[Row]) -> float:
        """Seconds to wait before the next attempt: for the address, or for company."""
        now, first = clock.steady(), rows[0]
        known = self.health(address)
        pause = known.next_attempt / 1e6 - now
        batching = self._settings.batching
        fresh = first.batch is not None and not known.attempts_of(first.id)
        full = len(rows) == PAGE or sum(row.events for row in rows) >= batching.events
        if batching.delay and fresh and not full:
            pause = max(pause, first.created / 1e6 + batching.delay - now)
        # A folder that came with a backup may hold times that are yet to come.
        return min(pause, max(self._settings.retries.longest_asked, *self._settings.retries.steps))

    async def _rest(self, address: str, seconds: float) -> None:
        woken = self._resting[address] = asyncio.Event()
        try:
            async with asyncio.timeout(seconds):
                await woken.wait()
        except TimeoutError:
            pass
        finally:
            del self._resting[address]

    async def _attempt(self, address: str, rows: Sequence[Row]) -> DeliveryBatch | None:
        """The parcel that was taken, or None."""
        known = self.health(address)
        async with self._slot(address):
            parcel = await self._pack(rows)
            name = self.webhook_id(parcel.id)
            sent = await self._posting.send(address, name, parcel.body, parcel.events, parcel.trace)
        answer = sent.answer
        if answer.pause:
            await self._rest(address, answer.pause)
            return None
        decision, after = self._decide(parcel, answer)
        now = int(clock.steady() * 1e6)
        due = int((clock.estimate() + decision.delay) * 1e6) if decision.kind == "again" else None
        self._on_attempt(parcel.rows, self._posting.remember(sent, decision.kind, due))
        if decision.kind == "delivered":
            self.counters.delivered += 1
            self.counters.notified += parcel.events
            self._timings.deliveries.observe(max(0.0, (now - parcel.created) / 1e6))
            self._view.counters.delivered(self._numbers(parcel))
            self._tried[address] = None
            self._tried.move_to_end(address)
            if len(self._tried) > TRIED:
                self._tried.popitem(last=False)
            await self._become(address, known.succeeded(sent.seconds))
            return parcel
        self.counters.failed += 1
        await self._failed(address, parcel, answer, decision, after, now)
        return None

    def _decide(
        self, parcel: DeliveryBatch, answer: Answer, *, broken: bool = False
    ) -> tuple[retry.Decision, retry.Failed]:
        known = self.health(parcel.rows[0].address)
        after = retry.Failed(
            attempt=known.attempts_of(parcel.id) + 1,
            failures=known.failures + 1,
            age=clock.steady() - parcel.created / 1e6,
        )
        decision = retry.decide(
            self._settings.retries,
            answer.status,
            answer.retry_after,
            after,
            chance=random.random(),
            now=datetime.fromtimestamp(clock.estimate(), UTC),
            permanent=answer.permanent,
            broken=broken,
        )
        return decision, after

    async def _failed(
        self,
        address: str,
        parcel: DeliveryBatch,
        answer: Answer,
        decision: retry.Decision,
        after: retry.Failed,
        now: int,
    ) -> None:
        reason = answer.reason or f"it answered {answer.status}"
        logger.warning(
            "attempt_failed",
            sink=sink_policy.redacted(url_of(address)),
            row=parcel.id,
            attempt=after.attempt,
            status=answer.status,
            reason=reason,
            outcome=decision.kind,
            delay=round(decision.delay, 3),
        )
        before = self.health(address)
        became = before.failed(
            self._settings.breaking,
            row=parcel.id,
            now=now,
            next_attempt=now + int(decision.delay * 1e6),
            reason=reason,
        )
        if decision.kind == "gone":
            became = became.stopped("gone", now)
        if decision.kind == "dead":
            await self._bury([Death(parcel, after.attempt, answer.status, reason)])
            if after.age >= self._settings.retries.give_up_seconds:
                await self._bury_old(address, now, reason)
        await self._become(address, became)
        self._tell(address, before, became)

    def _tell(self, address: str, before: Health, became: Health) -> None:
        """Log the changes of an address that an operator should know."""
        sink = sink_policy.redacted(url_of(address))
        since = clock.instant((became.failing_since or 0) / 1e6)
        shown = datetime.fromtimestamp(since, UTC).isoformat()
        if became.disabled is not None and before.disabled is None:
            logger.error("sink_disabled", sink=sink, why=became.disabled, failing_since=shown)
        elif became.warned is not None and before.warned is None:
            logger.warning("sink_will_be_disabled", sink=sink, failing_since=shown)

    # -- giving up --------------------------------------------------------------------------------------

    async def _bury_first(self, address: str, rows: list[Row]) -> list[Row]:
        """Rows of a disabled address become letters, a page in one transaction."""
        known = self.health(address)
        reason = "the address is disabled: " + (known.reason or known.disabled or "")
        deaths: list[Death] = []
        left = rows
        while left:
            parcel = await self._pack(left)
            deaths.append(Death(parcel, known.attempts_of(parcel.id), None, reason))
            left = _without(left, parcel)
        await self._bury(deaths)
        return []

    async def _bury_old(self, address: str, now: int, reason: str) -> None:
        """What waited behind a row that was given up for its age, and is as old, is given up with it."""
        oldest = now - int(self._settings.retries.give_up_seconds * 1e6)
        while True:
            rows = await self._read(address, outbox.page, address, PAGE)
            deaths: list[Death] = []
            while rows and rows[0].created <= oldest:
                parcel = await self._pack(rows)
                deaths.append(Death(parcel, 0, None, f"its address failed all the time: {reason}"))
                rows = _without(rows, parcel)
            if not deaths:
                return
            await self._bury(deaths)

    async def _bury(self, deaths: Sequence[Death]) -> None:
        burial = dead_letters.Bury(deaths, int(clock.steady() * 1e6), self._view.limits.dead)
        self.counters.backlog -= await self._submit(burial)
        self.counters.letters_dropped += burial.dropped
        self.counters.dead += len(deaths)
        self._alone.difference_update(death.parcel.id for death in deaths)
        for death in deaths:
            self._view.counters.failed(self._numbers(death.parcel))

    def _slot(self, address: str, slots: Slots | None = None) -> AbstractAsyncContextManager[None]:
        standing = self.health(address).standing(tried=address in self._tried)
        return (slots or self._slots).slot(tenant_of(address), standing, host_of(address))

    async def _read(
        self,
        address: str,
        function: Callable[Concatenate[Connection, Given], Result],
        *arguments: Given.args,
        **named: Given.kwargs,
    ) -> Result:
        """Call a function in the thread that reads and composes; addresses share it as they share slots."""
        async with self._slot(address, self._reads):
            return await self._reader.reading(function, *arguments, **named)

    # -- parts ------------------------------------------------------------------------------------------

    async def _pack(self, rows: Sequence[Row]) -> DeliveryBatch:
        """The next POST; what composes it is on disk when this returns."""
        doubtful = self._doubtful.get(rows[0].address, 0)
        parcel, new = await self._read(
            rows[0].address,
            batches.pack,
            rows,
            self._settings.batching,
            self._composer.entries,
            lambda row: row.id <= max(doubtful, self._restored) or row.id in self._alone,
        )
        if new:
            await self._submit(batches.Keep(parcel))
        elif len(parcel.rows) == 1:
            self._alone.add(parcel.id)
        return parcel

    async def _become(self, address: str, became: Health) -> None:
        before = self.health(address)
        if became == HEALTHY:
            self._health.pop(address, None)
        else:
            self._health[address] = became
        # That an address is slow is not worth a write; that it fails is.
        if became.failures or became.disabled:
            await self._submit(circuit_breaker.Save(address, became))
        elif before.failures or before.disabled:
            await self._submit(circuit_breaker.Save(address, None))

    def _settle(self, parcel: DeliveryBatch) -> asyncio.Future[int]:
        several = parcel.id if len(parcel.rows) > 1 else None
        future = asyncio.wrap_future(self._writer.submit(Settle(parcel.places, parcel=several)))
        self._settling.add(future)
        future.add_done_callback(lambda done: self._settled(parcel, done))
        return future

    def _settled(self, parcel: DeliveryBatch, future: asyncio.Future[int]) -> None:
        self._settling.discard(future)
        if not future.cancelled() and future.exception() is None:
            # Only now: a row that stays, because the disk was full, is sent again as it was.
            self._alone.discard(parcel.id)
            self.counters.backlog -= future.result()

    async def _submit(self, job: Job[Result]) -> Result:
        return await asyncio.shield(asyncio.wrap_future(self._writer.submit(job)))

    def _numbers(self, parcel: DeliveryBatch) -> np.ndarray[tuple[int], np.dtype[np.integer]]:
        """The version of each match in a parcel."""
        found = [row.numbers for row in parcel.rows if row.batch is not None]
        if parcel.rows[0].batch is None:
            named = dead_letters.recipients(parcel.body, parcel.rows[0].address)
            # Which member of several it was, the body does not say: it counts for the first that lives.
            parts = (self._view.parts(subscription)[:1] for subscription in named)
            living = (self._view.newest(part) for one in parts for part in one)
            found.append(np.array([number for number in living if number is not None], dtype=np.int32))
        return np.concatenate(found)


def _without(rows: Sequence[Row], parcel: DeliveryBatch) -> list[Row]:
    sent = {row.id for row in parcel.rows}
    return [row for row in rows if row.id not in sent]
