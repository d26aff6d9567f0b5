"""Settles delivered batches: one transaction for many POSTs.

    settle    after a delivery: the rows are deleted from the outbox
    record    before the first attempt at a batch of several rows: the rows that it consists of are stored

One transaction of each kind is under way at a time; batches that arrive meanwhile share the next one. A crash
before the settlement repeats the POST under the same webhook-id with the same body.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from edn.runtime.ownership import owned
from edn_server.outbox.batches import DeliveryBatch, Record
from edn_server.outbox.cleanup import Settle
from edn_server.storage.outbox import Row
from edn_server.storage.writer import Writer

#: least seconds between two settlements
TICK_SECONDS = 0.02

Batches = Sequence[DeliveryBatch]


@owned("loop")
class Settlements:
    def __init__(
        self,
        writer: Writer,
        on_settled: Callable[[Batches, int], None],
        on_failed: Callable[[Batches, BaseException], None],
    ) -> None:
        """`on_settled` gets the number of notifications; `on_failed`: the rows are still in the outbox."""
        self._writer = writer
        self._on_settled = on_settled
        self._on_failed = on_failed
        self._collected: list[DeliveryBatch] = []
        self._writing: Batches = ()
        self._timer: asyncio.TimerHandle | None = None
        #: loop time before which nothing is written, except by `flush`
        self._due = 0.0
        self._waiters: list[asyncio.Future[None]] = []
        #: ids of rows that are delivered and not settled, and their number by address
        self._rows: set[int] = set()
        self._unsettled: dict[str, int] = {}
        self._records: list[tuple[DeliveryBatch, asyncio.Future[None]]] = []
        self._is_recording = False

    # -- settling ---------------------------------------------------------------------------------------

    def add(self, batch: DeliveryBatch) -> None:
        """Settle a batch soon."""
        self._collected.append(batch)
        self._rows.update([row.id for row in batch.rows])
        address = batch.rows[0].address
        self._unsettled[address] = self._unsettled.get(address, 0) + len(batch.rows)
        if self._timer is None and not self._writing:
            self._schedule()

    def unsettled(self, address: str) -> int:
        """Return the number of rows of an address that are delivered and not settled."""
        return self._unsettled.get(address, 0)

    def is_delivered(self, row: Row) -> bool:
        """Return whether a row is delivered and not settled."""
        return row.id in self._rows

    @property
    def is_idle(self) -> bool:
        return not (self._collected or self._writing)

    async def flush(self) -> None:
        """Wait until everything added so far is settled, or has failed to be."""
        rounds = bool(self._writing) + bool(self._collected)
        for _ in range(rounds):
            self._write()
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter

    def _write(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._writing or not self._collected:
            return
        self._writing, self._collected = self._collected, []
        self._due = asyncio.get_running_loop().time() + TICK_SECONDS
        job = self._writer.submit(
            Settle(
                [(row.id, row.frame_id) for batch in self._writing for row in batch.rows],
                [batch.id for batch in self._writing if len(batch.rows) > 1],
            )
        )
        asyncio.wrap_future(job).add_done_callback(self._written)

    def _written(self, future: asyncio.Future[int]) -> None:
        batches, self._writing = self._writing, ()
        for batch in batches:
            self._rows.difference_update([row.id for row in batch.rows])
            address = batch.rows[0].address
            left = self._unsettled[address] - len(batch.rows)
            if left:
                self._unsettled[address] = left
            else:
                del self._unsettled[address]
        error = asyncio.CancelledError() if future.cancelled() else future.exception()
        try:
            if error is None:
                self._on_settled(batches, future.result())
            else:
                self._on_failed(batches, error)
        finally:  # a worker that waits must go on, whatever a callback does
            waiters, self._waiters = self._waiters, []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)
            if self._collected and self._timer is None:
                self._schedule()

    def _schedule(self) -> None:
        """Write at once after a quiet time, otherwise one tick after the last write."""
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(max(0.0, self._due - loop.time()), self._write)

    # -- recording --------------------------------------------------------------------------------------

    async def record(self, batch: DeliveryBatch) -> None:
        """Store which rows a batch consists of."""
        loop = asyncio.get_running_loop()
        recorded = loop.create_future()
        self._records.append((batch, recorded))
        if not self._is_recording:
            self._is_recording = True
            loop.call_soon(self._write_records)  # with the batches that other workers form in this turn
        await recorded

    def _write_records(self) -> None:
        taken, self._records = self._records, []
        self._is_recording = bool(taken)
        if not taken:
            return
        job = self._writer.submit(Record([batch for batch, _ in taken]))

        def recorded(future: asyncio.Future[None]) -> None:
            error = asyncio.CancelledError() if future.cancelled() else future.exception()
            for _, waiter in taken:
                if waiter.done():
                    continue
                if error is None:
                    waiter.set_result(None)
                else:
                    waiter.set_exception(error)
            self._write_records()

        asyncio.wrap_future(job).add_done_callback(recorded)
