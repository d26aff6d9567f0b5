"""Delivers the rows of the outbox: in order per address, one POST at a time, until each row is settled.

    committed rows ──announce──> AddressQueue ──worker──> form a batch ──> send ──> settle
                                      ^                                      │ failure
                                      └──────── read the outbox <── rest <───┘

The writer's thread passes committed rows on in memory (`queue`), so a healthy address costs no read of the
database. A single row of a healthy address with an idle connection is sent at once, by callbacks; a worker
does everything else, a task that ends with the last row of its address. Delivered batches are settled many at
a time (`settlement`); a crash before that repeats the POST under the same webhook-id. Addresses are
independent: a slow or dead one delays no other (`sinks.concurrency`).

After a failure the worker frees its rows, rests and reads the outbox again: a dead address costs a sleeping
task. The circuit breaker of an address survives restarts; an abandoned batch becomes a dead letter.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from typing import Concatenate

import numpy as np
import structlog

from edn.http import sink_policy
from edn.http.request_limits import descriptor_limit
from edn.runtime import clock
from edn.runtime.ownership import owned
from edn_server.config import Settings
from edn_server.delivery import circuit_breaker, cleanup, dead_letters, retry
from edn_server.delivery.attempts import Attempt, Attempts, RecentBodies
from edn_server.delivery.circuit_breaker import HEALTHY, Health
from edn_server.delivery.dead_letters import Abandoned
from edn_server.delivery.queue import PAGE, AddressQueue, Memory
from edn_server.delivery.sender import Sender, Sent, Timings
from edn_server.delivery.settlement import Settlements
from edn_server.delivery.unordered import UnorderedWorker
from edn_server.outbox import batches
from edn_server.outbox.batches import DeliveryBatch
from edn_server.outbox.bodies import Composer, enclose
from edn_server.outbox.payload_cache import PayloadCache
from edn_server.sinks.base import Answer, Sinks
from edn_server.sinks.concurrency import Slots, Standing
from edn_server.sinks.profile import Profiles
from edn_server.storage import outbox
from edn_server.storage.addresses import host_of, is_sink, tenant_of, url_of
from edn_server.storage.database import restored
from edn_server.storage.interface import Connection, Given, Reader, StoreError
from edn_server.storage.outbox import Row
from edn_server.storage.writer import Job, Result, Writer
from edn_server.subscriptions.view import RegistryView

logger = structlog.get_logger()

#: rows of an address that may be delivered and not settled, and so may be repeated after a crash
MOST_UNSETTLED = PAGE
#: addresses whose success is remembered
TRIED = 100_000
#: how long a worker rests after an error of this server, and while another process may own the store
FAILED_SECONDS = 5.0
UNOWNED_SECONDS = 0.2


@owned("loop")
@dataclass(slots=True)
class Counters:
    #: POSTs that were accepted, and attempts that failed
    delivered: int = 0
    failed: int = 0
    #: notifications in accepted POSTs
    notified: int = 0
    #: rows of subscriptions that ended while their address failed
    dropped: int = 0
    #: POSTs that became dead letters, and dead letters dropped at a tenant's limit
    dead: int = 0
    letters_dropped: int = 0
    #: notifications of paused subscriptions, and of streams, dropped at a tenant's limit
    paused_dropped: int = 0
    unread_dropped: int = 0
    #: notifications in the outbox
    backlog: int = 0


@owned("loop")
class Notifier:
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
        on_attempt: Callable[[Sequence[Row], Attempt], None] = lambda rows, attempt: None,
        may_send: Callable[[], bool] = lambda: True,
    ) -> None:
        """`on_attempt` is called after each attempt at rows of the outbox.

        `may_send`: whether this process owns the outbox; without that no attempt begins.
        """
        self._view = view
        self._writer = writer
        self._reader = reader
        self._settings = settings
        #: distinguishes the rows of this server from those of any other
        self.prefix = hashlib.sha256(key.encode()).hexdigest()[:12]
        self._prefix = "msg_" + self.prefix
        # Clients' connections and files need descriptors, too.
        self._slots = Slots(min(settings.concurrent_posts, max(1, descriptor_limit() // 3)))
        #: addresses with a successful attempt since the start, least recent first
        self._tried: OrderedDict[str, None] = OrderedDict()
        #: addresses with rows that may be delivered
        self._queues: dict[str, AddressQueue] = {}
        self._memory = Memory()
        #: queues to be started in the next turn of the loop, together with the rows that arrive until then
        self._opened: list[AddressQueue] = []
        self._is_stopping = False
        #: addresses without a queue whose next row is undecided
        self._blocked: set[str] = set()
        self._settlements = Settlements(writer, self._on_settled, self._on_unsettled)
        #: errors of settlements, by address, until its worker sees them
        self._errors: dict[str, BaseException] = {}
        #: addresses that may have rows without a live recipient
        self._left: set[str] = set()
        #: addresses that are not healthy
        self._health: dict[str, Health] = {}
        #: first rows of batches that were attempted and are not settled: their rows are fixed
        self._attempted: set[int] = set()
        #: the newest row at the start; the last run may have sent rows up to it
        self._found = 0
        #: the newest row of the backup that this folder was restored from; the network may have sent them
        self._restored = 0
        #: how many of an address's oldest rows the last run may have sent alone
        self._suspects: dict[str, int] = {}
        # The reader has one thread. Two slots, so that the next call is at hand.
        self._reads = Slots(2, bound=2)
        self.recent = PayloadCache()
        self._composer = Composer(view, self.recent)
        self.counters = Counters()
        self._timings = timings or Timings()
        self._profiles = Profiles(view, settings.retries)
        self._sender = Sender(sinks, view, self._profiles, self._timings)
        self._on_attempt = on_attempt
        self._may_send = may_send

    async def start(self, *, again: bool) -> None:
        """Deliver the rows of the last run; `again` if there was one."""
        self._health = await self._reader.reading(circuit_breaker.load)
        self._restored = await self._reader.reading(restored)
        if again:
            self._found = await self._reader.reading(outbox.last_row)
        self.wake(await self._reader.reading(outbox.waiting_addresses))

    async def stop(self) -> None:
        """Cancel attempts in flight; they are repeated after the next start."""
        self._is_stopping = True
        tasks = [queue.task for queue in self._queues.values() if queue.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._settlements.flush()
        self._reader.close()

    def announce(self, rows: Iterable[Row], addresses: Iterable[str]) -> None:
        """Deliver rows that were just committed, and read the rows of other addresses from the outbox."""
        self.wake(addresses)
        queues, delay = self._queues, self._settings.batching.delay
        for row in rows:
            # A worker may have read and delivered a row between its commit and this call.
            if self._settlements.is_delivered(row):
                continue
            queue = queues.get(row.address)
            if queue is None:
                if row.address in self._blocked:
                    continue
                queue = self._open(row.address, is_complete=True)
            queue.append(row)
            if delay or queue.is_unordered:
                queue.hurry()  # its batch may be full now, or a lane free

    def wake(self, addresses: Iterable[str]) -> None:
        """Read the rows of addresses from the outbox."""
        for address in addresses:
            if not is_sink(address):
                continue
            self._blocked.discard(address)
            queue = self._queues.get(address) or self._open(address, is_complete=False)
            queue.invalidate()
            queue.is_rewound = True
            if self._settings.batching.delay or queue.is_unordered:
                queue.hurry()

    def _open(self, address: str, *, is_complete: bool) -> AddressQueue:
        queue = self._queues[address] = AddressQueue(address, self._memory, is_complete=is_complete)
        if not self._opened:
            asyncio.get_running_loop().call_soon(self._start_opened)
        self._opened.append(queue)
        return queue

    def _start_opened(self) -> None:
        opened, self._opened = self._opened, []
        for queue in opened:
            self._start(queue)

    def _start(self, queue: AddressQueue) -> None:
        if not self._is_stopping and not self._send_at_once(queue):
            self._start_worker(queue)

    def _start_worker(self, queue: AddressQueue, first: Callable[[], Awaitable[None]] | None = None) -> None:
        queue.task = asyncio.create_task(self._work(queue, first), name="address worker")

    def _close(self, queue: AddressQueue) -> None:
        queue.clear()
        del self._queues[queue.address]
        self._suspects.pop(queue.address, None)

    async def idle(self) -> None:
        """Wait until nothing is left to do. For tests."""
        while self._queues or not self._settlements.is_idle:
            if tasks := [queue.task for queue in self._queues.values() if queue.task is not None]:
                await asyncio.wait(tasks)
            elif self._queues:
                await asyncio.sleep(0.001)
            await self._settlements.flush()

    # -- for other parts --------------------------------------------------------------------------------

    @property
    def attempts(self) -> Attempts:
        return self._sender.attempts

    @property
    def bodies(self) -> RecentBodies:
        return self._sender.bodies

    def health(self, address: str) -> Health:
        return self._health.get(address, HEALTHY)

    @property
    def failing(self) -> int:
        """The number of addresses that fail or are disabled."""
        return sum(bool(one.failures or one.disabled) for one in self._health.values())

    @property
    def disabled(self) -> list[str]:
        """Disabled addresses."""
        return [address for address, health in self._health.items() if health.disabled is not None]

    @property
    def waiting(self) -> list[str]:
        """Addresses with rows."""
        return list(self._queues)

    def webhook_id(self, row: int) -> str:
        return f"{self._prefix}_{row}"

    def hurry(self, address: str) -> None:
        """Make the next attempt now, after reading the outbox."""
        known = self._health.get(address)
        if known is not None and known.disabled is None:
            self._health[address] = replace(known, next_attempt=0)
        self.wake([address])
        if address in self._queues:
            self._queues[address].is_hurried = True
            self._queues[address].hurry()

    def retrying(self, address: str) -> int:
        """Return the number of notifications of an unordered address that are retried alone."""
        queue = self._queues.get(address)
        return 0 if queue is None else queue.asides

    async def enable(self, address: str) -> None:
        """Make the address healthy until it fails again."""
        await self._become(address, HEALTHY)
        self.hurry(address)

    async def example(self, address: str, body: bytes) -> Attempt:
        """Make one attempt at a test notification, outside of the order."""
        name = f"{self._prefix}_example_{secrets.token_hex(8)}"
        async with self._slots.slot(tenant_of(address), self._standing(address), host_of(address)):
            sent = await self._sender.send(address, name, body, 1)
        return self._sender.remember(sent, "example")

    async def entries(
        self, address: str, after: int, rows: int
    ) -> tuple[list[tuple[int, list[bytes]]], outbox.Gone]:
        """Read the next rows of a stream after one, as ids and entries per event, and which rows are gone."""

        def read(db: Connection) -> tuple[list[tuple[int, list[bytes]]], outbox.Gone]:
            page = outbox.page(db, address, rows, after)
            entries = [(row.id, self._composer.read_entries(db, row)) for row in page.rows]
            return entries, outbox.gone(db, address)

        return await self._read(address, read)

    def subtract(self, notifications: int) -> None:
        """Count notifications that are no longer in the outbox."""
        self.counters.backlog -= notifications

    async def drop_ended(self) -> None:
        """Drop rows without a live recipient at addresses that have failed for long.

        Before that they are due: the subscription was live when they matched.
        """
        self._left |= self._view.pop_ended_addresses()
        for address in list(self._left):
            if address not in self._queues:
                self._left.discard(address)
            elif self.health(address).warned is not None:
                self._left.discard(address)
                rows = await self._read(address, cleanup.find, address, self._view)
                if rows:
                    dropped = await self._submit(cleanup.Drop(rows))
                    self.counters.backlog -= dropped  # in two steps: it changes during the wait
                    self.counters.dropped += len(rows)
                    self._attempted.difference_update(id for id, _ in rows)
                    self.hurry(address)

    # -- one address ------------------------------------------------------------------------------------

    def _send_at_once(self, queue: AddressQueue) -> bool:
        """Send the only row of a healthy address without a task; False if a worker must do it."""
        address = queue.address
        if (
            len(queue.rows) != 1
            or self._settings.batching.delay
            or address in self._health
            or address in self._errors
            or self._settlements.unsettled(address) >= MOST_UNSETTLED
            or not self._profiles.of(address).ordered
            or not self._may_send()
        ):
            return False
        standing, tenant = self._standing(address), tenant_of(address)
        if not self._slots.try_take(tenant, standing):
            return False
        batch = None
        try:
            batch = self._form(queue)
            if batch is not None:
                self._attempted.add(batch.id)
                on_sent = partial(self._on_sent, queue, batch, tenant, standing)
                name = self.webhook_id(batch.id)
                if self._sender.begin(address, name, batch.body, batch.events, batch.trace, on_sent):
                    return True
        except Exception:  # the worker meets it, too, and counts it
            logger.debug("not_sent_at_once", exc_info=True)
        self._slots.give(tenant, standing)
        if batch is not None:
            self._attempted.discard(batch.id)
        return False

    def _on_sent(
        self, queue: AddressQueue, batch: DeliveryBatch, tenant: str, standing: Standing, sent: Sent | None
    ) -> None:
        """Continue after the answer to a batch that was sent at once."""
        self._slots.give(tenant, standing)
        if self._is_stopping:
            return
        try:
            if sent is None:  # the connection had been closed: the worker repeats the POST
                self._start_worker(queue)
            elif sent.is_accepted:
                self._delivered(queue, batch, sent)
                if queue.rows or not queue.is_complete:
                    self._start(queue)
                else:
                    self._close(queue)
            else:
                self._start_worker(
                    queue, partial(self._failed, address=queue.address, batch=batch, sent=sent)
                )
        except Exception as error:
            self._start_worker(queue, partial(_raise, error))

    async def _work(self, queue: AddressQueue, first: Callable[[], Awaitable[None]] | None = None) -> None:
        """Deliver the rows of an address; `first` is done before."""
        address = queue.address
        profile = self._profiles.of(address)
        worker = None if profile.ordered else UnorderedWorker(_Desk(self), queue, profile)
        queue.is_unordered = worker is not None
        try:
            while (
                first is not None
                or queue.rows
                or not queue.is_complete
                or (worker is not None and worker.is_busy)
            ):
                try:
                    if worker is not None:
                        await worker.step()
                    elif first is None:
                        await self._step(queue)
                    else:
                        step, first = first, None
                        queue.clear()
                        await step()
                except Exception as error:
                    logger.error(
                        "delivery_failed", sink=sink_policy.redacted(url_of(address)), exc_info=error
                    )
                    queue.clear()
                    await self._recover(queue, error)
        finally:
            if worker is not None:
                await worker.stop()
            self._close(queue)

    async def _step(self, queue: AddressQueue) -> None:
        """Rest, read rows, or make one attempt."""
        address = queue.address
        if self._errors and (error := self._errors.pop(address, None)) is not None:
            raise error
        known = self._health.get(address)
        if known is not None and known.disabled is None:
            pause = known.next_attempt / 1e6 - clock.steady()
            if pause > 0:
                queue.clear()
                # A folder from a backup may hold times that are far ahead.
                await queue.rest(min(pause, self._profiles.of(address).retries.longest))
                return
        if not queue.rows:
            await self._load(queue)
        elif known is not None and known.disabled is not None:
            await self._abandon_rows(queue, known)
        else:
            pause = self._batching_pause(queue) if self._settings.batching.delay else 0.0
            if pause <= 0 and (limiter := self._profiles.of(address).limiter) is not None:
                pause = limiter.wait()
            if pause > 0:
                await queue.rest(pause)
            else:
                await self._attempt(queue)

    async def _load(self, queue: AddressQueue) -> None:
        """Read the next rows of an address from the outbox."""
        address = queue.address
        queue.begin_read()
        if self._settlements.unsettled(address):
            await self._settlements.flush()  # delivered rows must not be read again
            if address in self._errors:
                return
        page = await self._read(address, outbox.page, address, PAGE)
        queue.add_page(page)
        if page.is_blocked and not page.rows and queue.is_complete:
            self._blocked.add(address)

    def _batching_pause(self, queue: AddressQueue) -> float:
        """Return the seconds for which a batch waits for more rows."""
        first, batching = queue.rows[0], self._settings.batching
        is_new = first.frame_id is not None and first.id not in self._attempted
        is_full = len(queue.rows) >= PAGE or sum(row.events for row in queue.rows) >= batching.events
        if not is_new or is_full:
            return 0.0
        pause = first.created / 1e6 + batching.delay - clock.steady()
        return min(pause, batching.delay)

    async def _attempt(self, queue: AddressQueue) -> None:
        """Send the next batch of an address, and act on the answer."""
        address = queue.address
        if self._settlements.unsettled(address) >= MOST_UNSETTLED:
            await self._settlements.flush()
            return
        standing, tenant = self._standing(address), tenant_of(address)
        slots = self._slots
        if not slots.try_take(tenant, standing):
            await slots.take(tenant, standing, host_of(address))
        try:
            batch = self._form(queue)
            if batch is None:
                batch = await self._form_from_outbox(queue)
            elif len(batch.rows) > 1:
                await self._settlements.record(batch)
            if not self._may_send():  # asked last: all of the above may have waited
                await queue.rest(UNOWNED_SECONDS)
                return
            self._attempted.add(batch.id)
            name = self.webhook_id(batch.id)
            sent = await self._sender.send(address, name, batch.body, batch.events, batch.trace)
        finally:
            slots.give(tenant, standing)
        answer = sent.answer
        if answer.pause:
            queue.clear()
            await queue.rest(answer.pause)
            return
        if sent.is_accepted:
            self._delivered(queue, batch, sent)
        else:
            queue.clear()
            await self._failed(queue.address, batch, sent)

    def _delivered(self, queue: AddressQueue, batch: DeliveryBatch, sent: Sent) -> None:
        address, counters = queue.address, self.counters
        self._on_attempt(batch.rows, self._sender.remember(sent, "delivered"))
        counters.delivered += 1
        counters.notified += batch.events
        self._timings.deliveries.observe(max(0.0, clock.steady() - batch.created / 1e6))
        if address in self._suspects:
            self._suspects[address] -= sum(row.id <= self._found for row in batch.rows)
        queue.remove(batch.rows)
        self._settlements.add(batch)
        self._tried[address] = None
        self._tried.move_to_end(address)
        if len(self._tried) > TRIED:
            self._tried.popitem(last=False)
        before = self._health.get(address, HEALTHY)
        became = before.succeeded(sent.seconds)
        if became is not before:
            self._set_health(address, became)
            if before.failures or before.disabled:
                self._writer.submit(circuit_breaker.Save(address, None))

    # -- forming batches --------------------------------------------------------------------------------

    def _form(self, queue: AddressQueue) -> DeliveryBatch | None:
        """Form a batch in memory; None if the outbox must be read for it."""
        first = queue.rows[0]
        if first.id <= self._found or first.id <= self._restored or first.id in self._attempted:
            return None  # it may be recorded as part of a batch
        return batches.form(queue.rows, self._settings.batching, self._composer.part, self._is_attempted)

    def _is_attempted(self, row: Row) -> bool:
        return row.id in self._attempted

    async def _form_from_outbox(self, queue: AddressQueue) -> DeliveryBatch:
        """Form the next batch; rows of several are recorded when this returns."""
        address, rows = queue.address, list(queue.rows)
        # The last run may have sent MOST_UNSETTLED rows; twice, because a requeued letter may precede them.
        left = self._suspects.setdefault(address, 2 * MOST_UNSETTLED) if rows[0].id <= self._found else 0
        suspects = {row.id for row in islice((row for row in rows if row.id <= self._found), max(0, left))}
        batch, is_new = await self._read(
            address,
            batches.load,
            rows,
            self._settings.batching,
            self._composer.read_part,
            lambda row: row.id <= self._restored or row.id in suspects or row.id in self._attempted,
        )
        if is_new:
            await self._settlements.record(batch)
        return batch

    # -- failures ---------------------------------------------------------------------------------------

    async def _failed(self, address: str, batch: DeliveryBatch, sent: Sent, *, broken: bool = False) -> None:
        """Decide what follows a failed attempt: a retry, a dead letter, a disabled address."""
        before = self.health(address)
        after = retry.Failed(
            attempt=before.attempts_of(batch.id) + 1,
            failures=before.failures + 1,
            age=clock.steady() - batch.created / 1e6,
        )
        decision = self._record_failure(address, batch, sent, after, broken=broken)
        if decision.kind == "dead":
            status, reason = sent.answer.status, _reason_of(sent.answer)
            await self._abandon([Abandoned(batch, after.attempt, status, reason)])
            if after.age >= self._profiles.of(address).retries.give_up_seconds:
                await self._abandon_old(address, int(clock.steady() * 1e6), reason)
        await self._become_failed(address, batch, sent, decision, decision.delay)

    def _record_failure(
        self, address: str, batch: DeliveryBatch, sent: Sent, after: retry.Failed, *, broken: bool
    ) -> retry.Decision:
        """Decide what follows a failed attempt, and record it."""
        answer = sent.answer
        decision = retry.decide(
            self._profiles.of(address).retries,
            answer.status,
            answer.retry_after,
            after,
            chance=random.random(),
            now=datetime.fromtimestamp(clock.estimate(), UTC),
            permanent=answer.permanent,
            broken=broken,
        )
        due = int((clock.estimate() + decision.delay) * 1e6) if decision.kind == "again" else None
        attempt = self._sender.remember(sent, decision.kind, due)
        if not broken:
            self._on_attempt(batch.rows, attempt)
        self.counters.failed += 1
        logger.warning(
            "attempt_failed",
            sink=sink_policy.redacted(url_of(address)),
            row=batch.id,
            attempt=after.attempt,
            status=answer.status,
            reason=_reason_of(answer),
            outcome=decision.kind,
            delay=round(decision.delay, 3),
        )
        return decision

    async def _become_failed(
        self, address: str, batch: DeliveryBatch, sent: Sent, decision: retry.Decision, rest: float
    ) -> None:
        """Change the state of an address after a failed attempt; it rests for some seconds."""
        before, now = self.health(address), int(clock.steady() * 1e6)
        became = before.failed(
            self._settings.breaking,
            row=batch.id,
            now=now,
            next_attempt=now + int(rest * 1e6),
            reason=_reason_of(sent.answer),
        )
        if decision.kind == "gone":
            became = became.stopped("gone", now)
        await self._become(address, became)
        _log_change(address, before, became)

    async def _recover(self, queue: AddressQueue, error: Exception) -> None:
        """Account for an error of this server, so that it cannot repeat for ever without a trace.

        The rows are still in the outbox. An error of the store (a full disk) is no fault of a row: the worker
        rests, and the address shows the reason. Any other error counts as a failed attempt at the oldest row.
        """
        address = queue.address
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
        self._sender.remember(
            Sent(address, "", 0, Answer(None, reason=reason), clock.estimate(), 0.0),
            "again",
            int((clock.estimate() + FAILED_SECONDS) * 1e6),
        )
        await asyncio.sleep(FAILED_SECONDS)

    async def _count_broken(self, address: str, reason: str) -> None:
        """Count an error of this server as a failed attempt at an address's oldest row."""
        page = await self._read(address, outbox.page, address, 1)
        if not page.rows:
            return
        try:
            batch, _ = await self._read(
                address,
                batches.load,
                page.rows,
                self._settings.batching,
                self._composer.read_part,
                lambda _: True,
            )
        except StoreError:
            raise
        except Exception:  # the row itself cannot be composed: its dead letter names nobody
            batch = DeliveryBatch((page.rows[0],), enclose([]))
        sent = Sent(
            address,
            self.webhook_id(batch.id),
            batch.events,
            Answer(None, reason=reason),
            clock.estimate(),
            0.0,
        )
        await self._failed(address, batch, sent, broken=True)

    # -- dead letters -----------------------------------------------------------------------------------

    async def _abandon_rows(self, queue: AddressQueue, known: Health) -> None:
        """Make dead letters of the rows of a disabled address, a page in one transaction."""
        reason = "the address is disabled: " + (known.reason or known.disabled or "")
        abandoned: list[Abandoned] = []
        while queue.rows:
            batch = await self._form_from_outbox(queue)
            abandoned.append(Abandoned(batch, known.attempts_of(batch.id), None, reason))
            queue.remove(batch.rows)
        queue.clear()
        await self._abandon(abandoned)

    async def _abandon_old(self, address: str, now: int, reason: str) -> None:
        """Make dead letters of the rows that are as old as one that was just abandoned for its age."""
        oldest = now - int(self._profiles.of(address).retries.give_up_seconds * 1e6)
        queue = AddressQueue(address, Memory(), is_complete=False)
        while True:
            queue.add_page(await self._read(address, outbox.page, address, PAGE))
            abandoned: list[Abandoned] = []
            while queue.rows and queue.rows[0].created <= oldest:
                batch = await self._form_from_outbox(queue)
                abandoned.append(Abandoned(batch, 0, None, f"its address failed all the time: {reason}"))
                queue.remove(batch.rows)
            if not abandoned:
                return
            await self._abandon(abandoned)
            queue.clear()

    async def _abandon(self, abandoned: Sequence[Abandoned]) -> None:
        job = dead_letters.StoreDeadLetters(abandoned, int(clock.steady() * 1e6), self._view.limits.dead)
        self.counters.backlog -= await self._submit(job)
        self.counters.letters_dropped += job.dropped
        self.counters.dead += len(abandoned)
        self._attempted.difference_update(one.batch.id for one in abandoned)
        for one in abandoned:
            self._view.counters.failed(self._numbers(one.batch))

    # -- settlements ------------------------------------------------------------------------------------

    def _on_settled(self, settled: Sequence[DeliveryBatch], notifications: int) -> None:
        # Only now: a row that a full disk keeps in the outbox is sent again as it was.
        self._attempted.difference_update([batch.id for batch in settled])
        self.counters.backlog -= notifications
        self._view.counters.delivered(np.concatenate([self._numbers(batch) for batch in settled]))

    def _on_unsettled(self, batches: Sequence[DeliveryBatch], error: BaseException) -> None:
        """Have the workers rest and send these batches again: their rows are still in the outbox."""
        for batch in batches:
            address = batch.rows[0].address
            self._errors[address] = error
            self.wake([address])

    # -- parts ------------------------------------------------------------------------------------------

    def _standing(self, address: str) -> Standing:
        return self._health.get(address, HEALTHY).standing(tried=address in self._tried)

    async def _read(
        self,
        address: str,
        function: Callable[Concatenate[Connection, Given], Result],
        *arguments: Given.args,
        **named: Given.kwargs,
    ) -> Result:
        """Call a function in the thread that reads and composes; addresses share it as they share slots."""
        async with self._reads.slot(tenant_of(address), self._standing(address), host_of(address)):
            return await self._reader.reading(function, *arguments, **named)

    def _set_health(self, address: str, became: Health) -> None:
        if became == HEALTHY:
            self._health.pop(address, None)
        else:
            self._health[address] = became

    async def _become(self, address: str, became: Health) -> None:
        before = self.health(address)
        self._set_health(address, became)
        # That an address is slow is not worth a write; that it fails is.
        if became.failures or became.disabled:
            await self._submit(circuit_breaker.Save(address, became))
        elif before.failures or before.disabled:
            await self._submit(circuit_breaker.Save(address, None))

    async def _submit(self, job: Job[Result]) -> Result:
        return await asyncio.shield(asyncio.wrap_future(self._writer.submit(job)))

    def _numbers(self, batch: DeliveryBatch) -> np.ndarray[tuple[int], np.dtype[np.integer]]:
        """Return the version of each match in a batch."""
        found = [row.numbers for row in batch.rows if row.frame_id is not None]
        if batch.rows[0].frame_id is None:
            named = dead_letters.recipients(batch.body, batch.rows[0].address)
            # The body does not say which member of a subtree subscription it was: the first live one counts.
            parts = (self._view.members_of(subscription)[:1] for subscription in named)
            living = (self._view.newest(part) for one in parts for part in one)
            found.append(np.array([number for number in living if number is not None], dtype=np.int32))
        return found[0] if len(found) == 1 else np.concatenate(found)


@owned("loop")
class _Desk:
    """The notifier for workers of unordered addresses."""

    def __init__(self, notifier: Notifier) -> None:
        self._notifier = notifier
        self.health = notifier.health
        self.read = notifier._read
        self.submit = notifier._submit
        self.accept = notifier._delivered
        self.abandon = notifier._abandon
        self.is_delivered = notifier._settlements.is_delivered
        self.settle = notifier._settlements.flush

    def pop_error(self, address: str) -> BaseException | None:
        return self._notifier._errors.pop(address, None)

    def must_settle(self, address: str) -> bool:
        return self._notifier._settlements.unsettled(address) >= MOST_UNSETTLED

    async def form_alone(self, row: Row) -> DeliveryBatch:
        notifier = self._notifier
        batching, composer = notifier._settings.batching, notifier._composer
        batch = batches.form([row], batching, composer.part, lambda _: True)
        if batch is None:
            loaded, _ = await notifier._read(
                row.address, batches.load, [row], batching, composer.read_part, lambda _: True
            )
            return loaded
        return batch

    async def post(self, address: str, batch: DeliveryBatch) -> Sent:
        notifier = self._notifier
        name = notifier.webhook_id(batch.id)
        async with notifier._slots.slot(tenant_of(address), notifier._standing(address), host_of(address)):
            if not notifier._may_send():
                answer = Answer(None, pause=UNOWNED_SECONDS)
                return Sent(address, name, batch.events, answer, clock.estimate(), 0.0)
            return await notifier._sender.send(
                address,
                name,
                batch.body,
                batch.events,
                batch.trace,
                is_counted=True,
            )

    async def decide(
        self,
        address: str,
        batch: DeliveryBatch,
        sent: Sent,
        after: retry.Failed,
        rest: Callable[[int, retry.Decision], float],
        *,
        broken: bool,
    ) -> retry.Decision:
        notifier = self._notifier
        decision = notifier._record_failure(address, batch, sent, after, broken=broken)
        failures = notifier.health(address).failures + 1
        await notifier._become_failed(address, batch, sent, decision, rest(failures, decision))
        return decision


async def _raise(error: Exception) -> None:
    raise error


def _reason_of(answer: Answer) -> str:
    return answer.reason or f"it answered {answer.status}"


def _log_change(address: str, before: Health, became: Health) -> None:
    """Log changes of an address that concern an operator."""
    sink = sink_policy.redacted(url_of(address))
    since = clock.instant((became.failing_since or 0) / 1e6)
    shown = datetime.fromtimestamp(since, UTC).isoformat()
    if became.disabled is not None and before.disabled is None:
        logger.error("sink_disabled", sink=sink, why=became.disabled, failing_since=shown)
    elif became.warned is not None and before.warned is None:
        logger.warning("sink_will_be_disabled", sink=sink, failing_since=shown)
