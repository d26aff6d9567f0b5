"""The log: what is committed, in which order, and what a failure takes with it."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from dispatcher.store.event_log import Log
from dispatcher.store.interface import Transaction
from dispatcher.store.records import ControlRecord, EventsRecord, Record
from dispatcher.store.sqlite.log import SqliteLog
from dispatcher.store.sqlite.schema import FORMAT, WrongFormat
from edn.errors import Conflict, Unavailable


class Clock:
    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def run(
    folder: Path,
    work: Callable[[Log], Awaitable[None]],
    seen: list[Record] | None = None,
    clock: Clock | None = None,
) -> None:
    async def main() -> None:
        records = seen if seen is not None else []
        log = SqliteLog(folder, on_commit=records.extend, clock=clock or Clock())
        log.start()
        try:
            await work(log)
        finally:
            await log.stop()

    asyncio.run(main())


def events(
    *bodies: bytes, ids: list[str | None] | None = None, topic: int = 1
) -> Callable[[Transaction], list[str]]:
    def operation(transaction: Transaction) -> list[str]:
        count = len(bodies)
        points = np.arange(2.0 * count).reshape(count, 2)
        return transaction.append_events(
            topic, ids or [None] * count, [None] * count, b"".join(body + b"\n" for body in bodies), points
        )

    return operation


def test_offsets_count_events_and_changes_without_gaps(tmp_path: Path) -> None:
    seen: list[Record] = []

    async def work(log: Log) -> None:
        await log.submit(events(b"{}", b"{}", b"{}"))
        offset = await log.submit(lambda t: t.append_control("s1", "deactivate", ids=["a"]))
        assert offset == 4
        await log.submit(events(b"{}"))
        assert log.head == 5

    run(tmp_path, work, seen)
    assert [(record.first, record.last) for record in seen] == [(1, 3), (4, 4), (5, 5)]


def test_an_id_that_nobody_chose_is_unique_to_log_and_offset(tmp_path: Path) -> None:
    async def work(log: Log) -> None:
        ids = await log.submit(events(b"{}", b"{}", ids=[None, "mine"]))
        assert ids == [f"{log.id[:8]}-1", "mine"]

    run(tmp_path, work)


def test_records_are_visible_before_the_caller_is_answered(tmp_path: Path) -> None:
    seen: list[Record] = []

    async def work(log: Log) -> None:
        await log.submit(events(b"{}"))
        assert len(seen) == 1

    run(tmp_path, work, seen)


def test_an_operation_that_fails_takes_nothing_of_its_neighbours(tmp_path: Path) -> None:
    seen: list[Record] = []

    async def work(log: Log) -> None:
        def fails(transaction: Transaction) -> None:
            transaction.append_control("s1", "join", incarnation=1)
            raise Conflict("no")

        results = await asyncio.gather(
            log.submit(events(b'{"a":1}')),
            log.submit(fails),
            log.submit(events(b'{"a":2}')),
            return_exceptions=True,
        )
        assert isinstance(results[1], Conflict)
        assert [record.last for record in await log.read(0, 1 << 20)] == [1, 2]

    run(tmp_path, work, seen)
    assert [record.lines for record in seen if isinstance(record, EventsRecord)] == [
        b'{"a":1}\n',
        b'{"a":2}\n',
    ]
    assert not any(isinstance(record, ControlRecord) for record in seen)


def test_a_failed_commit_fails_everybody_in_it_and_gives_the_offsets_back(tmp_path: Path) -> None:
    seen: list[Record] = []

    async def work(log: Log) -> None:
        def disk_full(transaction: Transaction) -> None:
            raise sqlite3.OperationalError("database or disk is full")

        results = await asyncio.gather(
            log.submit(events(b"{}")), log.submit(disk_full), return_exceptions=True
        )
        # They may have been committed apart: then the first one stands, and only then.
        assert isinstance(results[1], Unavailable)
        kept = 0 if isinstance(results[0], Unavailable) else 1
        assert log.head == kept == len(list(await log.read(0, 1 << 20))) == len(seen)
        await log.submit(events(b"{}"))
        assert log.head == kept + 1

    run(tmp_path, work, seen)


def test_everything_is_there_after_a_restart(tmp_path: Path) -> None:
    ids: list[str] = []

    async def first(log: Log) -> None:
        ids.append(log.id)
        assert log.incarnation == 1
        await log.submit(events(b'{"a":1}', b'{"a":2}'))
        await log.submit(lambda t: t.append_control("s1", "activate", versions=[("x", 7)]))

    async def second(log: Log) -> None:
        assert (log.id, log.incarnation, log.head) == (ids[0], 2, 3)
        stored, control = await log.read(0, 1 << 20)
        assert isinstance(stored, EventsRecord)
        assert isinstance(control, ControlRecord)
        assert stored.lines == b'{"a":1}\n{"a":2}\n'
        assert stored.points.tolist() == [[0.0, 1.0], [2.0, 3.0]]
        assert (control.server, control.control.versions) == ("s1", [("x", 7)])

    run(tmp_path, first)
    run(tmp_path, second)


def test_reading_begins_after_the_cursor_and_stops_near_the_limit(tmp_path: Path) -> None:
    async def work(log: Log) -> None:
        for _ in range(10):
            await log.submit(events(b"x" * 1000))
        assert [record.last for record in await log.read(4, 1 << 20)] == [5, 6, 7, 8, 9, 10]
        assert [record.last for record in await log.read(4, 1500)] == [5, 6]
        assert list(await log.read(10, 1 << 20)) == []

    run(tmp_path, work)


def test_the_order_is_that_of_the_offsets_when_a_corrected_clock_sets_the_time_back(tmp_path: Path) -> None:
    seen: list[Record] = []
    clock = Clock(500.0)

    async def work(log: Log) -> None:
        await log.submit(events(b"{}"))
        clock.now = 100.0
        assert log.now() == 100_000_000
        await log.submit(events(b"{}"))
        clock.now = 600.0
        await log.submit(events(b"{}"))

    run(tmp_path, work, seen, clock)
    records = [record for record in seen if isinstance(record, EventsRecord)]
    assert [(record.first, record.time) for record in records] == [
        (1, 500_000_000),
        (2, 100_000_000),
        (3, 600_000_000),
    ]


def test_versions_grow_when_the_time_falls_back_and_after_a_restart(tmp_path: Path) -> None:
    clock = Clock(500.0)
    versions: list[int] = []

    async def work(log: Log) -> None:
        versions.append(log.next_version())
        clock.now = 100.0
        versions.append(log.next_version())
        await log.save_clock("")

    async def again(log: Log) -> None:
        versions.append(log.next_version())

    run(tmp_path, work, [], clock)
    run(tmp_path, again, [], clock)
    assert versions == [500_000_000, 500_000_001, 500_000_002]


@pytest.mark.parametrize(("found", "said"), [(FORMAT + 1, "another version"), (FORMAT - 1, "edn export")])
def test_a_log_of_another_format_is_refused_as_it_is(tmp_path: Path, found: int, said: str) -> None:
    run(tmp_path, _nothing)
    with closing(sqlite3.connect(tmp_path / "dispatcher.db", isolation_level=None)) as db:
        db.execute("UPDATE meta SET value = ? WHERE key = 'format'", (found,))
        before = list(db.iterdump())
    with pytest.raises(WrongFormat, match=f"must have format {FORMAT}, got {found}.*{said}"):
        SqliteLog(tmp_path, on_commit=lambda records: None)
    with closing(sqlite3.connect(tmp_path / "dispatcher.db")) as db:
        assert list(db.iterdump()) == before


async def _nothing(log: Log) -> None:
    pass


def test_what_waits_for_its_commit_is_counted(tmp_path: Path) -> None:
    async def work(log: Log) -> None:
        future = log.submit(events(b"{}"), size=100)
        assert log.pending == 100
        await future
        assert log.pending == 0

    run(tmp_path, work)


def test_a_patient_log_waits_for_company_where_there_was_some_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits: list[int] = []
    waits: list[float] = []
    begun, go, waiting, more = (threading.Event() for _ in range(4))

    def wait(seconds: float) -> None:
        waits.append(seconds)
        waiting.set()
        assert more.wait(10)

    def first(transaction: Transaction) -> int:
        begun.set()
        assert go.wait(10)
        return transaction.append_control("s", "join")

    async def main() -> None:
        log = SqliteLog(tmp_path, on_commit=lambda records: commits.append(len(records)), clock=Clock())
        log.start()
        log.set_patience(0.25)
        monkeypatch.setattr("time.sleep", wait)
        alone = log.submit(first)
        await asyncio.to_thread(begun.wait, 10)
        pair = [log.submit(events(b"{}")), log.submit(events(b"{}"))]
        go.set()
        await asyncio.gather(alone, *pair)
        assert (commits, waits) == ([1, 2], [])
        early = log.submit(events(b"{}"))
        await asyncio.to_thread(waiting.wait, 10)
        late = log.submit(events(b"{}"))
        more.set()
        await asyncio.gather(early, late)
        assert (commits, waits) == ([1, 2, 2], [0.25])
        await log.submit(events(b"{}"))
        await log.submit(events(b"{}"))
        assert (commits, waits) == ([1, 2, 2, 1, 1], [0.25, 0.25])
        await log.stop()

    asyncio.run(main())
