"""The promises of a log store: order, atomicity, durability, isolation of readers, bounds of truncation."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import numpy as np
import pytest

from dispatcher.store import directory, meta, replays, retention
from dispatcher.store.event_log import Log
from dispatcher.store.interface import Connection, Transaction
from dispatcher.store.records import EventsRecord
from dispatcher.store.replays import Replay
from edn.errors import Conflict
from tests.store.conftest import Engine


def events(count: int, availability: float | None = None) -> Callable[[Transaction], list[str]]:
    """An operation that appends events."""

    def operation(transaction: Transaction) -> list[str]:
        return transaction.append_events(
            1,
            [None] * count,
            [None] * count,
            b"{}\n" * count,
            np.zeros((count, 1)),
            None if availability is None else np.full(count, availability),
        )

    return operation


def control(transaction: Transaction) -> int:
    return transaction.append_control("s1", "join", incarnation=1)


def itself(transaction: Transaction) -> Transaction:
    return transaction


def write(**values: int) -> Callable[[Transaction], None]:
    return lambda transaction: meta.write(transaction.connection, values)


def read(*keys: str) -> Callable[[Connection], dict[str, int]]:
    return lambda connection: meta.read(connection, *keys)


class Gate:
    """An operation that holds the writer until it is opened, so that others queue behind it."""

    def __init__(self) -> None:
        self.reached, self._opened = threading.Event(), threading.Event()

    def __call__(self, transaction: Transaction) -> None:
        self.reached.set()
        assert self._opened.wait(30)

    def open(self) -> None:
        self._opened.set()


# -- order ----------------------------------------------------------------------------------------------


def test_offsets_are_gapless_over_events_changes_failures_and_lives(engine: Engine) -> None:
    def fails(transaction: Transaction) -> None:
        events(5)(transaction)
        raise Conflict("no")

    async def work(log: Log) -> None:
        submitted = [log.submit(one) for one in (events(3), fails, control, fails, events(2))]
        await asyncio.gather(*submitted, return_exceptions=True)

    engine.run(work)
    engine.run(work)
    spans = [(record.first, record.last) for record in engine.seen]
    assert spans == [(1, 3), (4, 4), (5, 6), (7, 9), (10, 10), (11, 12)]


def test_records_are_announced_in_order_before_anybody_is_answered(engine: Engine) -> None:
    async def work(log: Log) -> None:
        answered: list[int] = []

        async def submit(number: int) -> None:
            offset = await log.submit(control)
            assert engine.seen[-1].last >= offset, "answered before it was announced"
            answered.append(offset)
            assert number == offset

        await asyncio.gather(*(submit(number) for number in range(1, 201)))
        assert answered == list(range(1, 201))

    engine.run(work)
    assert [record.last for record in engine.seen] == list(range(1, 201))


def test_operations_that_wait_together_share_a_commit(engine: Engine) -> None:
    async def work(log: Log) -> None:
        gate = Gate()
        first = log.submit(gate)
        await asyncio.to_thread(gate.reached.wait, 30)
        waiting = [log.submit(itself) for _ in range(50)]
        gate.open()
        await first
        own, *others = await asyncio.gather(*waiting)
        assert all(transaction is own for transaction in others)

    engine.run(work)


def test_later_operations_of_a_transaction_see_the_writes_of_earlier_ones(engine: Engine) -> None:
    async def work(log: Log) -> None:
        gate = Gate()
        first = log.submit(gate)
        await asyncio.to_thread(gate.reached.wait, 30)
        written = log.submit(write(a=1))
        found = log.submit(lambda transaction: read("a")(transaction.connection))
        gate.open()
        await asyncio.gather(first, written)
        assert await found == {"a": 1}

    engine.run(work)


# -- atomicity ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("together", [True, False])
def test_a_failed_operation_takes_nothing_of_its_neighbours(engine: Engine, together: bool) -> None:
    def fails(transaction: Transaction) -> None:
        meta.write(transaction.connection, {"before": 0, "failed": 1})
        control(transaction)
        raise Conflict("no")

    async def work(log: Log) -> None:
        gate = Gate()
        first = log.submit(gate)
        if together:
            await asyncio.to_thread(gate.reached.wait, 30)
        else:
            gate.open()
            await first
        before, failed, after = log.submit(write(before=1)), log.submit(fails), log.submit(write(after=1))
        gate.open()
        await asyncio.gather(first, before, after)
        with pytest.raises(Conflict):
            await failed
        assert await log.reading(read("before", "failed", "after")) == {"before": 1, "after": 1}
        assert log.head == 0
        assert await log.submit(control) == 1

    engine.run(work)
    assert [record.last for record in engine.seen] == [1]


def test_an_operation_whose_caller_went_away_is_carried_out(engine: Engine) -> None:
    async def work(log: Log) -> None:
        gate = Gate()
        first = log.submit(gate)
        await asyncio.to_thread(gate.reached.wait, 30)
        cancelled = log.submit(control)
        cancelled.cancel()
        gate.open()
        await first
        assert await log.submit(control) == 2

    engine.run(work)
    assert [record.last for record in engine.seen] == [1, 2]


def test_an_upkeep_shares_its_transaction_with_nobody(engine: Engine) -> None:
    async def work(log: Log) -> None:
        gate = Gate()
        first = log.submit(gate)
        await asyncio.to_thread(gate.reached.wait, 30)
        own = [log.submit(itself), log.upkeep(itself), log.submit(itself)]
        gate.open()
        await first
        before, alone, after = await asyncio.gather(*own)
        assert alone is not before
        assert alone is not after

        def fails(_: Transaction) -> None:
            raise Conflict("no")

        first_offset, failing, offset = log.submit(control), log.upkeep(fails), log.submit(control)
        assert await asyncio.gather(first_offset, offset) == [1, 2]
        with pytest.raises(Conflict):
            await failing

    engine.run(work)


# -- durability -----------------------------------------------------------------------------------------


def test_everything_answered_is_there_after_opening_again(engine: Engine) -> None:
    lives: list[tuple[str, int]] = []

    async def first(log: Log) -> None:
        lives.append((log.id, log.incarnation))
        await log.submit(events(3))
        await log.submit(write(a=7))
        await log.save_clock("steady")

    async def second(log: Log) -> None:
        lives.append((log.id, log.incarnation))
        assert (log.head, log.time, log.saved_clock) == (3, 1_000_000_000, "steady")
        assert await log.reading(read("a")) == {"a": 7}
        [record] = await log.read(0, 1 << 20)
        assert isinstance(record, EventsRecord)
        assert (record.first, record.last, record.lines) == (1, 3, b"{}\n{}\n{}\n")

    engine.run(first)
    engine.run(second)
    assert lives == [(lives[0][0], 1), (lives[0][0], 2)]


def test_queued_operations_are_committed_before_the_store_closes(engine: Engine) -> None:
    async def work(log: Log) -> None:
        for _ in range(100):
            log.submit(control)

    async def again(log: Log) -> None:
        assert log.head == 100

    engine.run(work)
    engine.run(again)


def test_versions_grow_over_lives_though_the_clock_falls_back(engine: Engine) -> None:
    versions: list[int] = []

    async def work(log: Log) -> None:
        versions.append(log.next_version())
        engine.now = 1.0
        versions.append(log.next_version())
        await log.save_clock("")

    engine.run(work)
    engine.run(work)
    assert versions == sorted(set(versions))


# -- readers --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scanning", [True, False])
def test_readers_see_only_committed_state(engine: Engine, scanning: bool) -> None:
    async def work(log: Log) -> None:
        look = log.scanning if scanning else log.reading
        await log.submit(write(a=1))
        written = threading.Event()
        go_on = threading.Event()

        def slow(transaction: Transaction) -> None:
            meta.write(transaction.connection, {"a": 2})
            events(1)(transaction)
            written.set()
            assert go_on.wait(30)

        submitted = log.submit(slow)
        await asyncio.to_thread(written.wait, 30)
        assert await look(read("a")) == {"a": 1}
        assert await log.read(0, 1 << 20) == []
        go_on.set()
        await submitted
        assert await look(read("a")) == {"a": 2}
        assert len(await log.read(0, 1 << 20)) == 1

    engine.run(work)


def test_readers_and_the_writer_do_not_wait_for_each_other(engine: Engine) -> None:
    """Each scan sees one moment: the two counters are always written together."""

    async def work(log: Log) -> None:
        await log.submit(write(a=0, b=0))
        stopping = threading.Event()

        def scan(connection: Connection) -> int:
            looks = 0
            while not stopping.is_set():
                [row] = connection.execute(
                    "SELECT a.value, b.value FROM meta a, meta b WHERE a.key = 'a' AND b.key = 'b'"
                ).fetchall()
                assert row[0] == row[1]
                looks += 1
            return looks

        scans = [asyncio.create_task(log.scanning(scan)) for _ in range(3)]
        for number in range(1, 101):
            await log.submit(write(a=number, b=number))
            assert await log.reading(read("a", "b")) == {"a": number, "b": number}
        stopping.set()
        assert all(await asyncio.gather(*scans))

    engine.run(work)


def test_a_reader_cannot_write(engine: Engine) -> None:
    async def work(log: Log) -> None:
        for look in (log.reading, log.scanning):
            with pytest.raises(Exception, match=r"read-?only"):
                await look(lambda connection: meta.write(connection, {"a": 1}))
        assert await log.reading(read("a")) == {}

    engine.run(work)


def test_a_failing_read_raises_to_its_caller_only(engine: Engine) -> None:
    def fails(_: Connection) -> None:
        raise Conflict("no")

    async def work(log: Log) -> None:
        for look in (log.reading, log.scanning):
            with pytest.raises(Conflict):
                await look(fails)
        assert await log.reading(directory.of_subtrees) == []

    engine.run(work)


def test_expired_subscriptions_are_found_all_or_some(engine: Engine) -> None:
    async def work(log: Log) -> None:
        def insert(transaction: Transaction) -> None:
            for number in range(4):
                one = directory.Subscription(
                    id=f"s{number}", version=1, owner="o", topic=1, filter=None, url="https://example.org/",
                    recipient=None, expires=10 - number, server="s1", created=1,
                )  # fmt: skip
                directory.insert(transaction.connection, one, frozenset())

        await log.submit(insert)
        for limit, names in ((None, ["s3", "s2", "s1"]), (2, ["s3", "s2"])):
            assert await log.reading(directory.expired, 9, limit) == names

    engine.run(work)


def test_reading_the_log_begins_after_an_offset_and_ends_near_the_limit(engine: Engine) -> None:
    async def work(log: Log) -> None:
        for _ in range(10):
            await log.submit(events(100))
        size = 1500
        assert [record.last for record in await log.read(400, 1 << 20)] == [500, 600, 700, 800, 900, 1000]
        assert [record.last for record in await log.read(450, 1)] == [500]
        assert len(await log.read(0, size)) < 10
        assert await log.read(1000, 1 << 20) == []

    engine.run(work)


# -- truncation -----------------------------------------------------------------------------------------


def replay_after(offset: int) -> Replay:
    return Replay("s", 1, "s1", 1, None, 1 << 40, 0, None, offset)


@pytest.mark.parametrize(
    ("upto", "after", "left"),
    [
        (0, None, [2, 4, 6, 8]),
        (4, None, [6, 8]),
        (5, None, [6, 8]),
        (99, None, [8]),  # the end of the log is read from its last record
        (99, 4, [6, 8]),  # a replay in place of a lost server needs all beyond its cursor
        (3, 4, [4, 6, 8]),
    ],
)
def test_truncation_leaves_the_last_record_and_the_records_of_replays(
    engine: Engine, upto: int, after: int | None, left: list[int]
) -> None:
    async def work(log: Log) -> None:
        for _ in range(4):
            await log.submit(events(2))
        if after is not None:
            await log.submit(lambda transaction: replays.insert(transaction, replay_after(after)))
        await log.truncate(upto, 0)
        assert [record.last for record in await log.read(0, 1 << 20)] == left
        assert log.floor == min(upto, 8 if after is None else after)

    async def again(log: Log) -> None:
        assert log.head == 8
        assert [record.last for record in await log.read(0, 1 << 20)] == left
        assert log.floor == min(upto, 8 if after is None else after)

    engine.run(work)
    engine.run(again)


def test_events_that_are_available_outlive_truncation_until_they_expire(engine: Engine) -> None:
    async def work(log: Log) -> None:
        await log.submit(events(1, availability=60.0))
        await log.submit(events(1))
        await log.submit(events(1))
        await log.truncate(3, 0)
        assert [record.last for record in await log.read(0, 1 << 20)] == [1, 3]
        assert not await log.reading(retention.has_expired, log.now())
        engine.now += 61.0
        assert await log.reading(retention.has_expired, log.now())
        await log.truncate(3, 0)
        assert [record.last for record in await log.read(0, 1 << 20)] == [3]

    engine.run(work)


def test_publishers_go_on_while_much_is_truncated(engine: Engine) -> None:
    async def work(log: Log) -> None:
        await asyncio.gather(*(log.submit(control) for _ in range(2500)))
        truncating = asyncio.create_task(log.truncate(2500, 0))
        offsets = [await log.submit(control) for _ in range(10)]
        assert offsets == list(range(2501, 2511))
        await truncating
        assert [record.last for record in await log.read(0, 1 << 20)] == list(range(2501, 2511))

    engine.run(work)
