"""What a stream keeps, what it drops, and that whoever missed something is told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from deliverykit import EVENT, notifying
from serverkit import Kit, activate, control, item

from edn_server.sinks import sse as streams
from edn_server.sinks.sse import Streams
from edn_server.storage import addresses
from edn_server.storage.writer import Job
from edn_server.subscriptions.view import RegistryView

ADDRESS = addresses.stream_of("s")


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[Kit]:
    opened = Kit(tmp_path / "s1")
    opened.store(item("s", url=ADDRESS))
    opened.frame(0, 1, activate(1, ("s", 1)))
    yield opened
    opened.close()


def fill(kit: Kit, first: int, rows: int, each: int = 1) -> None:
    """Rows of so many events, from the offset on."""
    for row in range(rows):
        begin = first + row * each
        kit.frame(begin - 1, begin + each - 1, events=[(begin + n, EVENT) for n in range(each)])


def at_streams(kit: Kit, work: Callable[[Streams], Awaitable[None]]) -> None:
    def submit(job: Job[int]) -> asyncio.Future[int]:
        return asyncio.wrap_future(kit.writer.submit(job))

    async def run() -> None:
        async with notifying(kit) as notifier:
            await work(Streams(RegistryView(kit.registry), notifier, submit))

    asyncio.run(run())


async def read(made: Streams, count: int, last: str | None = None) -> list[dict[str, Any]]:
    lines = await made.follow("s", last)
    found: list[dict[str, Any]] = []
    async with asyncio.timeout(30), aclosing(lines):
        async for line in lines:
            if line.strip():
                found.append(json.loads(line))
            if len(found) == count:
                break
    return found


def names(lines: list[dict[str, Any]]) -> list[str]:
    return [line["data"]["event"]["id"] if "id" in line else line["event"] for line in lines]


def test_rows_stay_until_an_id_passes_them(kit: Kit) -> None:
    fill(kit, 2, rows=3, each=2)

    async def work(made: Streams) -> None:
        seen = await read(made, 6)
        assert names(seen) == ["e2", "e3", "e4", "e5", "e6", "e7"]
        for place in range(6):
            rest = await read(made, 5 - place, seen[place]["id"]) if place < 5 else []
            assert names(rest) == names(seen)[place + 1 :]
        assert len(kit.rows()) == 1  # the last one, of which one event was seen last

    at_streams(kit, work)


def test_a_second_reader_is_told_of_events_that_the_first_has_passed(kit: Kit) -> None:
    fill(kit, 2, rows=9)
    ids: list[str] = []

    async def work(made: Streams) -> None:
        ids.extend(line["id"] for line in await read(made, 9))
        assert names(await read(made, 2, ids[6])) == ["e9", "e10"]  # A passes e2 to e8
        assert names(await read(made, 3, ids[1])) == ["gap", "e9", "e10"]  # B has seen e2 and e3
        assert names(await read(made, 2, ids[6])) == ["e9", "e10"]  # A has missed nothing
        assert names(await read(made, 2)) == ["e9", "e10"]  # a reader who has seen nothing begins here

    at_streams(kit, work)
    kit.reopen()

    async def again(made: Streams) -> None:
        [line, *rest] = await read(made, 3, ids[1])
        assert line == {
            "event": "gap",
            "data": {"reason": "another reader of this stream has read events"},
        }
        assert names(rest) == ["e9", "e10"]
        assert names(await read(made, 2, ids[6])) == ["e9", "e10"]

    at_streams(kit, again)


def test_a_reader_who_is_connected_is_told_of_events_that_another_has_passed(kit: Kit) -> None:
    fill(kit, 2, rows=3)

    async def work(made: Streams) -> None:
        async with asyncio.timeout(30), aclosing(await made.follow("s", None)) as slow:
            seen = [json.loads(await anext(slow)) for _ in range(3)]
            fill(kit, 5, rows=70)  # more than a page
            made.wake([ADDRESS])
            seen.append(json.loads(await anext(slow)))  # e5, with the rest of its page in hand
            last = (await read(made, 73))[-1]["id"]
            fill(kit, 75, rows=1)
            assert names(await read(made, 1, last)) == ["e75"]
            told = names(seen) + names([json.loads(await anext(slow)) for _ in range(65)])
            assert told == [f"e{number}" for number in range(2, 69)] + ["gap", "e75"]

    at_streams(kit, work)


def test_a_row_that_another_has_passed_while_half_read_is_a_gap(kit: Kit) -> None:
    fill(kit, 2, rows=2, each=2)

    async def work(made: Streams) -> None:
        seen = await read(made, 4)
        assert names(await read(made, 2, seen[1]["id"])) == ["e4", "e5"]
        assert names(await read(made, 3, seen[0]["id"])) == ["gap", "e4", "e5"]

    at_streams(kit, work)


def test_what_is_noted_of_a_stream_goes_with_its_subscription(kit: Kit) -> None:
    fill(kit, 2, rows=2)
    before = kit.count("stream_marks")

    async def work(made: Streams) -> None:
        seen = await read(made, 2)
        assert names(await read(made, 1, seen[0]["id"])) == ["e3"]
        assert kit.count("stream_marks") == before + 1
        await made.trim()
        assert kit.count("stream_marks") == before + 1
        kit.frame(3, 4, control(4, "deactivate", ids=["s"]))
        await made.trim()
        assert kit.count("stream_marks") == before

    at_streams(kit, work)


@pytest.mark.parametrize("most", [1, 2, 5])
def test_of_too_many_the_oldest_go_and_who_missed_them_is_told(
    kit: Kit, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "KEPT_EVENTS", most)
    fill(kit, 2, rows=8)

    async def work(made: Streams) -> None:
        seen = await read(made, 8)
        await made.trim()
        newest = names(seen)[8 - most :]
        assert names(await read(made, most + 1)) == ["gap", *newest]
        # Whoever had seen the last that went has missed nothing.
        assert names(await read(made, most, seen[7 - most]["id"])) == newest
        assert names(await read(made, most + 1, seen[6 - most]["id"])) == ["gap", *newest]

    at_streams(kit, work)
    kit.reopen()
    at_streams(kit, lambda made: _still_told(made, most))


async def _still_told(made: Streams, most: int) -> None:
    assert names(await read(made, most + 1))[0] == "gap"


def test_a_row_that_went_half_read_is_a_gap_and_one_read_to_its_end_is_none(
    kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "KEPT_EVENTS", 2)
    fill(kit, 2, rows=2, each=2)

    async def work(made: Streams) -> None:
        seen = await read(made, 4)
        await made.trim()
        assert names(await read(made, 2, seen[1]["id"])) == ["e4", "e5"]
        assert names(await read(made, 3, seen[0]["id"])) == ["gap", "e4", "e5"]

    at_streams(kit, work)


def test_what_is_too_old_goes(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "KEPT_SECONDS", -1.0)
    fill(kit, 2, rows=3)

    async def work(made: Streams) -> None:
        await made.trim()
        assert kit.rows() == []
        fill(kit, 5, rows=1)
        made.wake([ADDRESS])
        assert names(await read(made, 2)) == ["gap", "e5"]

    at_streams(kit, work)


def test_an_id_of_another_server_is_answered_with_a_gap_and_all_there_is(kit: Kit) -> None:
    fill(kit, 2, rows=1)

    async def work(made: Streams) -> None:
        assert names(await read(made, 2, "0123456789ab.7.0")) == ["gap", "e2"]

    at_streams(kit, work)


def test_a_stream_ends_with_its_subscription_and_its_rows_go_a_while_later(
    kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(kit, 2, rows=2)

    async def work(made: Streams) -> None:
        lines = await made.follow("s", None)
        kit.frame(3, 4, control(4, "deactivate", ids=["s"]))
        async with asyncio.timeout(30):
            told = [json.loads(line) async for line in lines if line.strip()]
        assert names(told) == ["e2", "e3", "end"]
        await made.trim()
        assert len(kit.rows()) == 2
        monkeypatch.setattr(streams, "LEFT_SECONDS", -1.0)
        await made.trim()
        assert kit.rows() == []

    at_streams(kit, work)
