"""A stream over a subtree: every member from where the client is, and an id that says so of all of them."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

from dispatcher.api import merged_streams
from dispatcher.api.merged_streams import MergedStream, read_positions, write_positions
from dispatcher.store.directory import Subscription
from edn.errors import InvalidInput, Unavailable

PREFIX = "3f2a91c04b1d"


class Fake:
    """Members with rows in memory, a row an event; what a client has seen is taken away, as servers do."""

    def __init__(self, *topics: str) -> None:
        self.rows: dict[str, list[tuple[int, str]]] = {topic: [] for topic in topics}
        self.opened: list[tuple[str, str | None]] = []
        self.away: set[str] = set()
        #: how often those are asked in vain before they are back; 0 is for ever
        self.patience = 0
        self.ended = False
        self._news = {topic: asyncio.Event() for topic in topics}
        self._broken: set[str] = set()
        self._next = 0

    def tell(self, topic: str, text: str) -> None:
        self._next += 1
        self.rows[topic].append((self._next, text))
        self._news[topic].set()

    def add(self, topic: str) -> None:
        self.rows[topic], self._news[topic] = [], asyncio.Event()

    def break_off(self, topic: str) -> None:
        self._broken.add(topic)
        self._news[topic].set()

    async def members(self) -> list[Subscription] | None:
        if self.ended:
            return None
        return [
            Subscription(f"w+{topic}", 1, "o", 1, None, f"stream:w+{topic}", None, None, "s", 1)
            for topic in self.rows
        ]

    @contextlib.asynccontextmanager
    async def open(self, member: Subscription, last: str | None) -> AsyncIterator[AsyncIterator[bytes]]:
        topic = member.id.partition("+")[2]
        self.opened.append((topic, last))
        if topic in self.away:
            self.patience -= 1
            if not self.patience:
                self.away.discard(topic)
            raise Unavailable("away")
        seen = int(last.split(".")[1]) if last else 0
        self.rows[topic] = [row for row in self.rows[topic] if row[0] > seen]
        yield self._lines(topic, seen)

    async def _lines(self, topic: str, seen: int) -> AsyncIterator[bytes]:
        yield b""
        while True:
            for row, text in list(self.rows[topic]):
                if row > seen:
                    seen = row
                    yield json.dumps({"id": f"{PREFIX}.{row}.0", "data": text}).encode()
            if topic in self._broken:
                return
            self._news[topic].clear()
            await self._news[topic].wait()


async def read(fake: Fake, count: int, last: str | None = None) -> tuple[list[str], str]:
    """The next so many events, sorted by nobody, and the last id."""
    found: list[str] = []
    stream = MergedStream(fake.open, fake.members)
    async with asyncio.timeout(30), contextlib.aclosing(stream.lines(read_positions(last))) as lines:
        async for line in lines:
            if line:
                told = json.loads(line)
                found.append(told["data"])
                last = told["id"]
            if len(found) == count:
                break
    return found, last or ""


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(work())


def test_all_members_are_told_each_in_its_order() -> None:
    async def work() -> None:
        fake = Fake("a1", "b2")
        for n in range(5):
            fake.tell("a1", f"a{n}")
            fake.tell("b2", f"b{n}")
        found, last = await read(fake, 10)
        assert [text for text in found if text[0] == "a"] == [f"a{n}" for n in range(5)]
        assert [text for text in found if text[0] == "b"] == [f"b{n}" for n in range(5)]
        assert set(read_positions(last)) == {"a1", "b2"}

    run(work)


@pytest.mark.parametrize("seen", range(1, 8))
def test_who_comes_back_misses_nothing_and_hears_nothing_twice(seen: int) -> None:
    async def work() -> None:
        fake = Fake("a1", "b2", "c3")
        texts = [f"{topic}-{n}" for n in range(3) for topic in fake.rows]
        for text in texts:
            fake.tell(text.partition("-")[0], text)
        first, last = await read(fake, seen)
        middle, last = await read(fake, 1, last)
        rest, _ = await read(fake, len(texts) - seen - 1, last)
        assert sorted(first + middle + rest) == sorted(texts)

    run(work)


def test_an_id_names_only_those_who_spoke_since_the_connection_was_made() -> None:
    async def work() -> None:
        fake = Fake("a1", "b2")
        fake.tell("a1", "one")
        fake.tell("b2", "two")
        _, last = await read(fake, 2)
        fake.tell("b2", "three")
        found, last = await read(fake, 1, last)
        assert found == ["three"]
        assert set(read_positions(last)) == {"b2"}

    run(work)


def test_a_member_whose_server_is_away_keeps_its_place_and_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(merged_streams, "LOOK_SECONDS", 0.01)

    async def work() -> None:
        fake = Fake("a1", "b2")
        fake.tell("a1", "one")
        fake.tell("b2", "two")
        _, last = await read(fake, 2)
        before = read_positions(last)
        fake.away = {"a1"}
        fake.tell("a1", "later")
        fake.tell("b2", "three")
        found, last = await read(fake, 1, last)
        assert found == ["three"]
        assert read_positions(last)["a1"] == before["a1"]

        fake.patience = 3  # so often it is asked in vain
        found, _ = await read(fake, 1, last)
        assert found == ["later"]

    run(work)


def test_a_topic_that_comes_is_heard_and_one_that_breaks_off_ends_the_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What was sent may not have arrived: the client must say from where to go on."""
    monkeypatch.setattr(merged_streams, "LOOK_SECONDS", 0.01)

    async def work() -> None:
        fake = Fake("a1")
        fake.tell("a1", "one")
        stream = MergedStream(fake.open, fake.members)
        found = []
        async with asyncio.timeout(30):
            async for line in stream.lines({}):
                found.append(json.loads(line)["data"])
                if found == ["one"]:
                    fake.add("b2")
                    fake.tell("b2", "two")
                elif found == ["one", "two"]:
                    fake.break_off("a1")
        assert found == ["one", "two"]

    run(work)


def test_the_end_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merged_streams, "LOOK_SECONDS", 0.01)

    async def work() -> None:
        fake = Fake("a1")
        fake.ended = True
        stream = MergedStream(fake.open, fake.members)
        told = [json.loads(line) async for line in stream.lines({})]
        assert [line["event"] for line in told] == ["end"]

    run(work)


def test_an_id_that_becomes_too_long_ends_the_connection_and_the_next_is_short(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(merged_streams, "LONGEST", 60)

    async def work() -> None:
        topics = [f"{n:x}" for n in range(1, 9)]
        fake = Fake(*topics)
        for topic in topics:
            fake.tell(topic, topic)
        found: list[str] = []
        last, connections = None, 0
        async with asyncio.timeout(30):
            while len(found) < len(topics):
                connections += 1
                stream = MergedStream(fake.open, fake.members)
                async with contextlib.aclosing(stream.lines(read_positions(last))) as lines:
                    async for line in lines:
                        told = json.loads(line)
                        found.append(told["data"])
                        last = told["id"]
                        if len(found) == len(topics):
                            break
                assert last is not None
                assert len(last) < 100
        assert sorted(found) == sorted(topics)
        assert connections > 1

    run(work)


@pytest.mark.parametrize("text", ["x", "1:2", f"g:{PREFIX}.1.0", f"a1:{PREFIX}.1", f"a1:{PREFIX}.1.0,", ","])
def test_an_id_that_no_such_stream_gave_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="Last-Event-ID"):
        read_positions(text)


def test_ids_read_as_they_were_written() -> None:
    positions = {"a1": f"{PREFIX}.17.0", "1c9e04": f"{PREFIX}.3.12"}
    assert read_positions(write_positions(positions)) == positions
    assert read_positions(None) == read_positions("") == {}
