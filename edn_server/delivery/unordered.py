"""Delivers the rows of an unordered address: several at a time, and a failing row delays no other.

Theory of operation
-------------------
A row of such an address has one notification (`outbox.rows`) and is one POST. Up to `LANES` attempts run at
once. A row whose attempt fails is put **aside**: its attempts and the time of its next one are stored with
it, and it is retried alone by the address's schedule, under the same webhook-id, until it is delivered or
becomes a dead letter. Meanwhile the other rows go on:

    fresh rows ──attempt──> delivered
                  │ failure
                  v
                aside ──due, attempt──> delivered, aside again, or dead letter

A poison event is told from a dead sink by the failures in a row, over all rows. Up to `TOLERATED` of them
the address goes on. Beyond it the address rests by its schedule, at most `LONGEST_REST`, and makes one
attempt at a time, with a row that was not tried yet, until one succeeds. An answer that refuses a row (4xx)
says that the sink lives, and is no reason to rest; a Retry-After always is.

At most `MOST_ASIDE` rows are aside; then the address waits for them. So a dead sink costs no more memory, and
few more attempts, than one with an ordered address.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Concatenate, Protocol

from edn.runtime import clock
from edn.runtime.ownership import owned
from edn_server.delivery import retry
from edn_server.delivery.circuit_breaker import Health
from edn_server.delivery.dead_letters import Abandoned
from edn_server.delivery.queue import PAGE, AddressQueue
from edn_server.delivery.sender import Sent
from edn_server.outbox.batches import DeliveryBatch
from edn_server.outbox.bodies import enclose
from edn_server.sinks.base import Answer
from edn_server.sinks.profile import Profile
from edn_server.storage import outbox
from edn_server.storage.interface import Connection, Given, StoreError
from edn_server.storage.outbox import Aside, Row
from edn_server.storage.writer import Call, Job, Result

#: concurrent attempts of an address, and how many of them may be at rows that failed before
LANES = 16
ASIDE_LANES = 4
#: failures in a row without a rest
TOLERATED = 5
#: seconds; the next row may succeed
LONGEST_REST = 60.0
MOST_ASIDE = 1000
#: seconds until a row is tried again after an error of the store
STORE_SECONDS = 5.0
#: seconds without a reason to look
IDLE_SECONDS = 3600.0


class Desk(Protocol):
    """The parts of the notifier that workers of all addresses share."""

    def health(self, address: str) -> Health: ...

    def pop_error(self, address: str) -> BaseException | None:
        """Remove and return the error of a settlement."""

    def must_settle(self, address: str) -> bool:
        """Return whether delivered rows must be settled before further attempts."""

    async def settle(self) -> None: ...

    async def read(
        self,
        address: str,
        function: Callable[Concatenate[Connection, Given], Result],
        *arguments: Given.args,
        **named: Given.kwargs,
    ) -> Result: ...

    async def submit(self, job: Job[Result]) -> Result: ...

    def is_delivered(self, row: Row) -> bool: ...

    async def form_alone(self, row: Row) -> DeliveryBatch:
        """Form the batch of one row."""

    async def post(self, address: str, batch: DeliveryBatch) -> Sent:
        """Make one attempt in a slot of the address's tenant; the caller has counted it for the rate."""

    def accept(self, queue: AddressQueue, batch: DeliveryBatch, sent: Sent) -> None:
        """Settle a delivered batch."""

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
        """Record a failed attempt; `rest` returns the seconds that the address rests after its failures."""

    async def abandon(self, abandoned: Sequence[Abandoned]) -> None: ...


@owned("loop")
class UnorderedWorker:
    """The attempts of one address; `step` is called while there is anything to do."""

    def __init__(self, desk: Desk, queue: AddressQueue, profile: Profile) -> None:
        self._desk = desk
        self._queue = queue
        self._profile = profile
        #: rows with an attempt under way, and how many of them were aside
        self._running: dict[int, asyncio.Task[None]] = {}
        self._retrying = 0
        #: None: to be read, because earlier rows may be in the outbox
        self._aside: dict[int, Aside] | None = {} if queue.is_complete else None
        #: pages are read after this row
        self._after = 0
        #: rows that ended since a page was asked for, which it may still contain
        self._ended: set[int] = set()
        self._error: BaseException | None = None

    @property
    def is_busy(self) -> bool:
        return self._aside is None or bool(self._aside or self._running)

    async def stop(self) -> None:
        """Cancel the attempts under way; they are repeated after the next start."""
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def step(self) -> None:
        """Begin attempts, read rows, or wait."""
        desk, queue, address = self._desk, self._queue, self._queue.address
        error = desk.pop_error(address) or self._error
        if error is not None:
            self._error, self._after = None, 0
            raise error
        if self._aside is None:
            found = await desk.read(address, outbox.asides, address)
            self._aside = {row.id: row for row in found}
            queue.asides = len(self._aside)
            return
        if queue.is_hurried:
            queue.is_hurried = False
            self._aside = {id: row._replace(due=0) for id, row in self._aside.items()}
        known = desk.health(address)
        if known.disabled is not None:
            await (queue.rest(IDLE_SECONDS) if self._running else self._abandon_all(known))
            return
        if desk.must_settle(address):
            await desk.settle()
            return
        now = clock.steady()
        resting = known.next_attempt / 1e6 - now
        if resting > 0:
            # A folder from a backup may hold times that are far ahead.
            await queue.rest(min(resting, self._profile.retries.longest))
            return
        is_probing = known.failures > TOLERATED
        if is_probing and await self._abandon_old(known):
            return
        wait = self._begin(now, is_probing=is_probing)
        has_lane = len(self._running) < (1 if is_probing else LANES)
        if has_lane and not queue.rows and not queue.is_complete and self._has_room():
            await self._load()
        else:
            await queue.rest(wait)

    # -- beginning attempts -----------------------------------------------------------------------------

    def _has_room(self) -> bool:
        assert self._aside is not None
        return len(self._aside) + len(self._running) - self._retrying < MOST_ASIDE

    def _begin(self, now: float, *, is_probing: bool) -> float:
        """Begin attempts as far as possible; return the seconds until more may be possible."""
        assert self._aside is not None
        limiter, rows = self._profile.limiter, self._queue.rows
        due = sorted(
            (row for row in self._aside.values() if row.id not in self._running), key=lambda row: row.due
        )
        lanes = 1 if is_probing else LANES
        while len(self._running) < lanes:
            is_due = bool(due) and due[0].due / 1e6 <= now and self._retrying < ASIDE_LANES
            is_fresh = bool(rows) and self._has_room()
            if not (is_due or is_fresh):
                break
            if limiter is not None and (wait := limiter.take()):
                return wait
            # A probe with a row that failed before would say little about the sink.
            if is_due and not (is_probing and is_fresh):
                row = due.pop(0)
                self._retrying += 1
                self._run(row.id, None, row.attempts)
            else:
                fresh = rows[0]
                self._queue.remove([fresh])
                self._after = max(self._after, fresh.id)
                self._run(fresh.id, fresh, 0)
        if len(self._running) >= lanes or not due or self._retrying >= ASIDE_LANES:
            return IDLE_SECONDS  # the end of an attempt, or a new row, wakes the worker
        return max(0.0, due[0].due / 1e6 - now)

    def _run(self, id: int, row: Row | None, attempts: int) -> None:
        """Begin an attempt at a row; a row that was aside is read first."""
        self._running[id] = asyncio.create_task(self._attempt(id, row, attempts), name="unordered attempt")

    async def _attempt(self, id: int, row: Row | None, attempts: int) -> None:
        was_aside, batch = row is None, None
        try:
            if row is None:
                found = await self._desk.read(self._queue.address, outbox.rows_by_id, [id])
                if not found:  # dropped meanwhile
                    self._end(id)
                    return
                row = found[0]
            try:
                batch = await self._desk.form_alone(row)
                sent = await self._desk.post(self._queue.address, batch)
            except StoreError:
                raise
            except Exception as error:  # of this server: it counts as a failed attempt
                reason = f"internal error: {type(error).__name__}: {error}"[:500]
                batch = batch or DeliveryBatch((row,), enclose([]))
                sent = Sent(
                    self._queue.address, "", row.events, Answer(None, reason=reason), clock.estimate(), 0
                )
                await self._failed(batch, sent, attempts + 1, broken=True)
                return
            if sent.answer.pause:
                self._put_aside(Aside(id, attempts, int((clock.steady() + sent.answer.pause) * 1e6)))
            elif sent.is_accepted:
                self._end(id)
                self._desk.accept(self._queue, batch, sent)
            else:
                await self._failed(batch, sent, attempts + 1, broken=False)
        except Exception as error:  # also of recording a failure: the row is still in the outbox
            self._error = error
            self._put_aside(Aside(id, attempts, int((clock.steady() + STORE_SECONDS) * 1e6)))
        finally:
            self._running.pop(id, None)
            self._retrying -= was_aside
            self._queue.hurry()

    # -- failures ---------------------------------------------------------------------------------------

    async def _failed(self, batch: DeliveryBatch, sent: Sent, attempts: int, *, broken: bool) -> None:
        age = clock.steady() - batch.created / 1e6
        after = retry.Failed(attempt=attempts, failures=attempts, age=age)
        status = sent.answer.status

        def rest(failures: int, decision: retry.Decision) -> float:
            steps = self._profile.retries.steps
            asked = decision.asked
            if failures <= TOLERATED or broken or retry.is_refusal(status):
                return asked
            return max(asked, min(steps[min(failures - TOLERATED, len(steps)) - 1], LONGEST_REST))

        decision = await self._desk.decide(self._queue.address, batch, sent, after, rest, broken=broken)
        if decision.kind == "dead":
            reason = sent.answer.reason or f"it answered {status}"
            await self._desk.abandon([Abandoned(batch, attempts, status, reason)])
            self._end(batch.id)
            return
        # After "gone" the address is disabled, and its rows become dead letters together.
        row = Aside(batch.id, attempts, int((clock.steady() + decision.delay) * 1e6))
        self._put_aside(row)
        await self._desk.submit(Call(lambda db: outbox.put_aside(db, row), fresh=False))

    def _put_aside(self, row: Aside) -> None:
        assert self._aside is not None
        self._aside[row.id] = row
        self._queue.asides = len(self._aside)

    def _end(self, id: int) -> None:
        """Forget a row that was delivered, is a dead letter, or was dropped."""
        assert self._aside is not None
        self._ended.add(id)
        self._aside.pop(id, None)
        self._queue.asides = len(self._aside)

    async def _abandon_all(self, known: Health) -> None:
        """Make dead letters of the rows of a disabled address, a page at a time."""
        assert self._aside is not None
        reason = "the address is disabled: " + (known.reason or known.disabled or "")
        self._queue.begin_read()
        self._queue.clear()
        self._after = 0
        await self._desk.settle()
        page = await self._desk.read(self._queue.address, outbox.page, self._queue.address, PAGE)
        await self._abandon(page.rows, reason)
        if not page.rows:
            self._aside.clear()
            self._queue.asides = 0
            self._queue.add_page(page)

    async def _abandon_old(self, known: Health) -> bool:
        """Make dead letters of rows that grew too old while the sink failed; return whether any was."""
        oldest = int((clock.steady() - self._profile.retries.give_up_seconds) * 1e6)
        old = [row for row in self._queue.rows if row.created <= oldest]
        if old:
            self._queue.remove(old)
            self._after = max(self._after, old[-1].id)
            await self._abandon(old, f"its address failed all the time: {known.reason or ''}")
        return bool(old)

    async def _abandon(self, rows: Sequence[Row], reason: str) -> None:
        assert self._aside is not None
        abandoned = []
        for row in rows:
            attempts = self._aside[row.id].attempts if row.id in self._aside else 0
            abandoned.append(Abandoned(await self._desk.form_alone(row), attempts, None, reason))
        if abandoned:
            await self._desk.abandon(abandoned)
        for row in rows:
            self._end(row.id)

    # -- reading ----------------------------------------------------------------------------------------

    async def _load(self) -> None:
        """Read the next rows from the outbox, without those that this worker knows."""
        queue, desk = self._queue, self._desk
        if queue.is_rewound:  # rows before the last one may have become ready
            queue.is_rewound, self._after = False, 0
        queue.begin_read()
        self._ended.clear()
        page = await desk.read(queue.address, outbox.page, queue.address, PAGE, self._after)
        if page.rows:
            self._after = page.rows[-1].id
        queue.add_page(page._replace(rows=[row for row in page.rows if self._is_fresh(row)]))

    def _is_fresh(self, row: Row) -> bool:
        assert self._aside is not None
        is_known = row.id in self._running or row.id in self._aside or row.id in self._ended
        return not is_known and not self._desk.is_delivered(row)
