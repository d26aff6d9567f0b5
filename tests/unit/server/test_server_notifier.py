"""Delivery to a real HTTP receiver on loopback: order, retries, independence of addresses, identity."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest
from serverkit import Kit, activate, control, item

from edn_server import outbox, retry
from edn_server.delivery import Delivery
from edn_server.notifier import Notifier

EVENT = {"symbol": "GE", "price": 5}


@dataclass
class Post:
    path: str
    headers: dict[str, str]
    body: Any


@dataclass
class Receiver:
    """Answers each path from its list of statuses, then 204; remembers every POST."""

    answers: dict[str, list[str]] = field(default_factory=dict)
    posts: list[Post] = field(default_factory=list)
    #: paths that are answered only once their event is set
    held: dict[str, asyncio.Event] = field(default_factory=dict)
    in_flight: dict[str, int] = field(default_factory=dict)
    most_in_flight: dict[str, int] = field(default_factory=dict)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    port: int = 0

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def at(self, path: str) -> list[Post]:
        return [post for post in self.posts if post.path == path]

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not condition():
                self.arrived.clear()
                await self.arrived.wait()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                request, *lines = head.decode().strip().split("\r\n")
                path = request.split(" ")[1]
                headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines)}
                body = json.loads(await reader.readexactly(int(headers["content-length"])))
                self.in_flight[path] = self.in_flight.get(path, 0) + 1
                self.most_in_flight[path] = max(self.most_in_flight.get(path, 0), self.in_flight[path])
                self.posts.append(Post(path, headers, body))
                self.arrived.set()
                if path in self.held:
                    await self.held[path].wait()
                answer = self.answers[path].pop(0) if self.answers.get(path) else "204 No Content\r\n"
                self.in_flight[path] -= 1
                writer.write(f"HTTP/1.1 {answer}content-length: 0\r\n\r\n".encode())
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def receiving() -> AsyncIterator[Receiver]:
    receiver = Receiver()
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0)
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        server.close()


@asynccontextmanager
async def notifying(kit: Kit, *, allow_loopback: bool = True) -> AsyncIterator[Notifier]:
    async with Delivery(allow_loopback=allow_loopback, connections=8) as delivery:
        notifier = Notifier(
            hosting=kit.hosting,
            writer=kit.writer,
            reader=kit.folder.connect(read_only=True),
            delivery=delivery,
            key="0" * 32,
            concurrent_posts=8,
        )
        await notifier.start()
        try:
            yield notifier
        finally:
            await notifier.stop()


async def eventually(condition: Callable[[], bool]) -> None:
    for _ in range(30_000):
        if condition():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it did not come to that within half a minute")


def run(scenario: Callable[[Receiver], Awaitable[None]]) -> None:
    async def main() -> None:
        async with receiving() as receiver, asyncio.timeout(60):
            await scenario(receiver)

    asyncio.run(main())


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "FIRST", 0.001)


def fill(kit: Kit, *urls: str, rows: int = 1) -> None:
    """As many rows for each address, an event a row."""
    names = [f"s{index}" for index in range(len(urls))]
    kit.store(*(item(name, url=url) for name, url in zip(names, urls, strict=True)))
    kit.frame(0, 1, activate(1, *((name, 1) for name in names)))
    for row in range(rows):
        kit.frame(1 + row, 2 + row, events=[(2 + row, EVENT)])


def test_a_notification_has_the_documented_form_and_headers_and_its_row_goes(kit: Kit) -> None:
    async def scenario(receiver: Receiver) -> None:
        kit.store(item("s", url=receiver.url("/a"), recipient="r"), item("t", url=receiver.url("/a")))
        kit.frame(0, 2, activate(1, ("s", 1), ("t", 1)), events=[(2, {"symbol": "é", "price": 1.5})])
        [row] = kit.rows()
        async with notifying(kit) as notifier:
            await notifier.idle()
            assert (notifier.counters.delivered, notifier.counters.failed) == (1, 0)
        [post] = receiver.posts
        assert post.body == {
            "notifications": [
                {
                    "topic": "quotes",
                    "event": {
                        "id": "e2",
                        "time": "1970-01-01T00:00:02Z",
                        "attributes": {"symbol": "é", "price": 1.5},
                    },
                    "matches": [{"subscription": "s", "recipient": "r"}, {"subscription": "t"}],
                }
            ]
        }
        assert post.headers["content-type"] == "application/json"
        assert post.headers["user-agent"].startswith("edn/")
        assert post.headers["webhook-id"].startswith("msg_")
        assert post.headers["webhook-id"].endswith(f"_{row.id}")
        assert abs(int(post.headers["webhook-timestamp"]) - datetime.now(UTC).timestamp()) < 60

    run(scenario)
    assert kit.count("outbox") == kit.count("events") == 0


def test_an_address_gets_its_rows_in_order_one_at_a_time_over_pages(kit: Kit) -> None:
    async def scenario(receiver: Receiver) -> None:
        fill(kit, receiver.url("/a"), rows=40)
        async with notifying(kit) as notifier:
            await notifier.idle()
        ids = [post.body["notifications"][0]["event"]["id"] for post in receiver.posts]
        assert ids == [f"e{o}" for o in range(2, 42)]
        assert receiver.most_in_flight == {"/a": 1}

    run(scenario)


@pytest.mark.parametrize("status", ["500 No", "404 No", "302 Found\r\nlocation: /elsewhere", "429 Slow"])
def test_a_failed_attempt_is_repeated_under_the_same_webhook_id_and_in_order(kit: Kit, status: str) -> None:
    async def scenario(receiver: Receiver) -> None:
        fill(kit, receiver.url("/a"), rows=2)
        receiver.answers["/a"] = [f"{status}\r\n"] * 3
        async with notifying(kit) as notifier:
            await notifier.idle()
            assert (notifier.counters.delivered, notifier.counters.failed) == (2, 3)
        ids = [post.headers["webhook-id"] for post in receiver.at("/a")]
        assert len(receiver.posts) == 5
        assert ids[:4] == [ids[0]] * 4
        assert ids[4] != ids[0]
        assert [post.body for post in receiver.posts[:4]] == [receiver.posts[0].body] * 4

    run(scenario)


def test_an_address_that_never_answers_delays_no_other(kit: Kit) -> None:
    async def scenario(receiver: Receiver) -> None:
        receiver.held["/stuck"] = asyncio.Event()
        fill(kit, receiver.url("/stuck"), receiver.url("/fine"), rows=5)
        async with notifying(kit):
            await receiver.until(lambda: len(receiver.at("/fine")) == 5)
            assert len(receiver.at("/stuck")) == 1
            receiver.held["/stuck"].set()
            await receiver.until(lambda: len(receiver.at("/stuck")) == 5)

    run(scenario)


def test_a_dead_address_keeps_its_rows_and_delays_no_other(kit: Kit) -> None:
    async def scenario(receiver: Receiver) -> None:
        fill(kit, "http://127.0.0.1:1/dead", receiver.url("/fine"), rows=3)
        async with notifying(kit) as notifier:
            counters = notifier.counters
            await eventually(lambda: counters.delivered == 3 and counters.failed > 1)

    run(scenario)
    assert {row.address for row in kit.rows()} == {"http://127.0.0.1:1/dead"}
    assert len(kit.rows()) == 3


def test_gone_drops_the_row_and_goes_on(kit: Kit) -> None:
    async def scenario(receiver: Receiver) -> None:
        fill(kit, receiver.url("/a"), rows=2)
        receiver.answers["/a"] = ["410 Gone\r\n"]
        async with notifying(kit) as notifier:
            await notifier.idle()
            assert (notifier.counters.delivered, notifier.counters.dropped) == (1, 1)
        assert len(receiver.posts) == 2

    run(scenario)
    assert kit.rows() == []


def test_a_crash_between_post_and_settlement_repeats_it_with_the_same_id_and_body(kit: Kit) -> None:
    async def scenario(receiver: Receiver) -> None:
        fill(kit, receiver.url("/a"))
        kit.frame(2, 3, control(3, "deactivate", ids=["s0"]))
        receiver.held["/a"] = asyncio.Event()
        async with notifying(kit):
            await receiver.until(lambda: len(receiver.posts) == 1)
        # Stopped before the answer: the row is there after a restart, and so is whom it names.
        kit.reopen()
        kit.collect()
        receiver.held["/a"].set()
        async with notifying(kit) as notifier:
            await notifier.idle()
        first, second = receiver.posts
        assert first.headers["webhook-id"] == second.headers["webhook-id"]
        assert first.body == second.body
        assert first.body["notifications"][0]["matches"] == [{"subscription": "s0"}]

    run(scenario)
    assert kit.rows() == []


def test_rows_that_come_while_a_courier_works_are_delivered_too(kit: Kit) -> None:
    async def scenario(receiver: Receiver) -> None:
        address = receiver.url("/a")
        fill(kit, address)
        async with notifying(kit) as notifier:
            await receiver.until(lambda: len(receiver.posts) == 1)
            for offset in range(2, 12):
                applied = await asyncio.to_thread(kit.frame, offset, offset + 1, events=[(offset + 1, EVENT)])
                notifier.wake(applied.addresses)
            await notifier.idle()
        assert len(receiver.posts) == 11

    run(scenario)


def test_a_wake_between_the_last_look_and_the_end_of_a_courier_is_not_lost(
    kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(receiver: Receiver) -> None:
        loop = asyncio.get_running_loop()
        fill(kit, receiver.url("/a"))
        looked: list[bool] = []

        def page(*arguments: Any) -> list[outbox.Row]:
            found = real_page(*arguments)
            if not found and not looked:
                looked.append(True)
                applied = kit.frame(2, 3, events=[(3, EVENT)])
                loop.call_soon_threadsafe(notifier.wake, applied.addresses)
            return found

        real_page = outbox.page
        monkeypatch.setattr(outbox, "page", page)
        async with notifying(kit) as notifier:
            await notifier.idle()
        assert looked
        assert len(receiver.posts) == 2

    run(scenario)


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:{port}/a", "http://localhost:{port}/a", "http://2130706433:{port}/a"]
)
def test_no_connection_is_made_to_an_address_that_the_policy_forbids(url: str) -> None:
    async def scenario(receiver: Receiver) -> None:
        async with Delivery(allow_loopback=False, connections=2) as delivery:
            answer = await delivery.post(url.format(port=receiver.port), "msg_1", 0, b"{}")
        assert answer.status is None
        assert "--allow-loopback-sinks" in (answer.reason or "")
        assert receiver.posts == []

    run(scenario)


def test_the_connection_goes_to_the_checked_address_under_the_sinks_own_name() -> None:
    async def scenario(receiver: Receiver) -> None:
        async with Delivery(allow_loopback=True, connections=2) as delivery:
            url = f"http://localhost:{receiver.port}/a"
            assert (await delivery.post(url, "msg_1", 0, b"{}")).status == 204
        assert receiver.posts[0].headers["host"] == f"localhost:{receiver.port}"

    run(scenario)


def test_an_answer_that_does_not_end_costs_only_its_connection() -> None:
    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        try:
            while True:
                writer.write(b"1000\r\n" + b"x" * 4096 + b"\r\n")
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    async def main() -> None:
        server = await asyncio.start_server(endless, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with Delivery(allow_loopback=True, connections=2) as delivery, asyncio.timeout(30):
            assert (await delivery.post(f"http://127.0.0.1:{port}/", "msg_1", 0, b"{}")).status == 200
        server.close()

    asyncio.run(main())


NOW = datetime(2026, 1, 1, tzinfo=UTC)

DECISIONS = [
    (200, None, 1, 0.0, retry.Decision("delivered")),
    (204, "99", 9, 0.0, retry.Decision("delivered")),
    (299, None, 1, 0.0, retry.Decision("delivered")),
    (410, "99", 1, 0.0, retry.Decision("dropped")),
    (500, None, 1, 0.0, retry.Decision("again", 0.5)),
    (None, None, 1, 0.0, retry.Decision("again", 0.5)),
    (301, None, 1, 0.0, retry.Decision("again", 0.5)),
    (400, None, 2, 0.0, retry.Decision("again", 1.0)),
    (400, None, 4, 0.5, retry.Decision("again", 3.0)),  # 4.0 s, shortened by a quarter
    (400, None, 8, 0.0, retry.Decision("again", 60.0)),  # 64 s is beyond the longest
    (400, None, 10_000, 0.0, retry.Decision("again", 60.0)),
    (429, "7", 1, 0.0, retry.Decision("again", 7.0)),
    (429, "0", 1, 0.0, retry.Decision("again", 0.5)),
    (503, " 120 ", 1, 0.9, retry.Decision("again", 120.0)),
    (503, "999999999999999999999", 1, 0.0, retry.Decision("again", 3600.0)),
    (503, "Thu, 01 Jan 2026 00:00:30 GMT", 1, 0.0, retry.Decision("again", 30.0)),
    (503, "Wed, 31 Dec 2025 00:00:00 GMT", 1, 0.0, retry.Decision("again", 0.5)),
    (503, "soon", 1, 0.0, retry.Decision("again", 0.5)),
    (503, "-5", 1, 0.0, retry.Decision("again", 0.5)),
    (503, "1.5", 1, 0.0, retry.Decision("again", 0.5)),
]


@pytest.mark.parametrize(("status", "retry_after", "attempt", "chance", "expected"), DECISIONS)
def test_what_follows_an_attempt(
    status: int | None,
    retry_after: str | None,
    attempt: int,
    chance: float,
    expected: retry.Decision,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(retry, "FIRST", 0.5)
    assert retry.decide(status, retry_after, attempt, chance, NOW) == expected
