"""What leaves the log, and what never does."""

from __future__ import annotations

from pathlib import Path

import pytest

from dispatcher.store.event_log import Log
from dispatcher.store.interface import Transaction
from tests.unit.dispatcher.test_log import events, run


@pytest.mark.parametrize(("upto", "left"), [(0, [2, 4, 6]), (3, [4, 6]), (4, [6]), (6, [6]), (99, [6])])
def test_records_up_to_an_offset_leave_but_the_last_one_stays(
    tmp_path: Path, upto: int, left: list[int]
) -> None:
    async def work(log: Log) -> None:
        for _ in range(3):
            await log.submit(events(b"{}", b"{}"))
        await log.truncate(upto, 0)
        assert [record.last for record in await log.read(0, 1 << 20)] == left
        assert log.floor <= left[0]
        assert log.floor == min(upto, 6)

    run(tmp_path, work)


def test_the_end_of_a_truncated_log_survives_a_restart(tmp_path: Path) -> None:
    async def first(log: Log) -> None:
        await log.submit(events(b"{}", b"{}"))
        await log.submit(events(b"{}"))
        await log.truncate(3, 0)

    async def second(log: Log) -> None:
        assert log.head == 3
        await log.submit(events(b"{}"))
        assert log.head == 4

    run(tmp_path, first)
    run(tmp_path, second)


def test_a_long_truncation_goes_in_steps_and_ends(tmp_path: Path) -> None:
    async def work(log: Log) -> None:
        def many(transaction: Transaction) -> None:
            for _ in range(2500):
                transaction.append_control("s", "join", incarnation=1)

        await log.submit(many)
        await log.truncate(2500, 0)
        assert log.floor == 2500
        assert [record.last for record in await log.read(0, 1 << 20)] == [2500]

    run(tmp_path, work)


def test_chosen_event_ids_are_forgotten_by_their_age(tmp_path: Path) -> None:
    async def work(log: Log) -> None:
        def remember(transaction: Transaction) -> None:
            for name, time in (("old", 10), ("new", 20)):
                transaction.connection.execute("INSERT INTO event_ids VALUES (1, ?, x'00', ?)", (name, time))

        await log.submit(remember)
        await log.truncate(0, 20)
        assert log._reader.execute("SELECT id FROM event_ids").fetchall() == [("new",)]

    run(tmp_path, work)
