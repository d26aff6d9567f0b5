"""The HTTP sink against raw sockets: every way to answer, and what is kept between POSTs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import ClassVar

import pytest
import uvloop
from deliverykit import settings

from edn.errors import InvalidSink
from edn.http import sink_policy
from edn_server.config import Settings
from edn_server.sinks.base import Answer, Message, Sinks
from edn_server.sinks.http import HttpSink

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def answers(serve: Serve, posts: int = 1, *, uv: bool = False, seconds: float = 15) -> list[Answer]:
    """What the sink makes of a server's answers to so many POSTs, one after another."""

    async def main() -> list[Answer]:
        serving: list[asyncio.Task[None]] = []

        async def tracked(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            serving.append(task)
            try:
                await serve(reader, writer)
            except (asyncio.IncompleteReadError, ConnectionError):
                pass
            finally:
                writer.close()
                with contextlib.suppress(ConnectionError):
                    await writer.wait_closed()

        server = await asyncio.start_server(tracked, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        sink = HttpSink(settings(attempt_seconds=seconds))
        message = Message(f"http://127.0.0.1:{port}/in?a=b", "msg_1", 0, b'{"a":1}')
        async with asyncio.timeout(30):
            found = [await sink.send(message) for _ in range(posts)]
            await sink.close()
            server.close()
            await asyncio.gather(*serving)
        return found

    return uvloop.run(main()) if uv else asyncio.run(main())


async def read_request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    return head + await reader.readexactly(len(b'{"a":1}'))


def saying(raw: bytes) -> Serve:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(raw)

    return serve


# what is said before the connection ends → status, Retry-After, text, part of the reason
SAID = [
    (b"HTTP/1.1 204 No Content\r\n\r\n", 204, None, "", None),
    (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi", 200, None, "hi", None),
    (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n", 200, None, "hi", None),
    (b"HTTP/1.0 200 OK\r\n\r\nuntil the end", 200, None, "until the end", None),
    (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Made\r\ncontent-length: 0\r\n\r\n", 201, None, "", None),
    (b"HTTP/1.1 103 Early Hints\r\nretry-after: 9\r\n\r\nHTTP/1.1 204 No\r\n\r\n", 204, None, "", None),
    (b"HTTP/1.1 503 No\r\nRetry-After: 7\r\ncontent-length: 0\r\n\r\n", 503, "7", "", "it answered 503"),
    (b"HTTP/1.1 302 Found\r\nlocation: /x\r\ncontent-length: 0\r\n\r\n", 302, None, "", "it answered 302"),
    (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhi", None, None, "", "closed before"),
    (b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n\xff\xfe!", 200, None, "��!", None),
    (b"", None, None, "", "closed before"),
    (b"SSH-2.0-OpenSSH_9.2\r\n", None, None, "", "not HTTP"),
    (
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
        None,
        None,
        "",
        "not HTTP",
    ),
    (b"HTTP/1.1 200 OK\r\n" + b"x: " + b"y" * 70_000 + b"\r\n\r\n", None, None, "", "head"),
]


@pytest.mark.parametrize("uv", [False, True])
@pytest.mark.parametrize(("raw", "status", "retry_after", "text", "reason"), SAID)
def test_what_an_answer_means(
    raw: bytes, status: int | None, retry_after: str | None, text: str, reason: str | None, uv: bool
) -> None:
    [answer] = answers(saying(raw), uv=uv)
    assert (answer.status, answer.retry_after, answer.text) == (status, retry_after, text)
    assert (answer.reason is None) if reason is None else reason in (answer.reason or "")


@pytest.mark.parametrize("line", [b"x: ", b"HTTP/1.1 100 Continue\r\n\r\n"])
def test_a_head_without_an_end_is_given_up_soon(line: bytes) -> None:
    """Neither one header that goes on and on nor answers that are none: memory would not do."""
    said = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal said
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\n" if line == b"x: " else b"")
        more = b"y" * 50_000 if line == b"x: " else line * 2000
        writer.write(line)
        while not writer.is_closing():
            writer.write(more)
            said += len(more)
            await writer.drain()

    [answer] = answers(serve, seconds=3)
    assert answer.status is None
    assert "head of the answer exceeds 65536 bytes" in (answer.reason or "")
    assert said < 50_000_000


def test_the_request_is_whole_and_a_connection_is_kept_for_the_next() -> None:
    requests: list[bytes] = []
    connections: list[int] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(1)
        while True:
            requests.append(await read_request(reader))
            writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")

    found = answers(serve, posts=3)
    assert [answer.status for answer in found] == [204] * 3
    assert len(connections) == 1
    lines = requests[0].decode().split("\r\n")
    assert lines[0] == "POST /in?a=b HTTP/1.1"
    assert "content-length: 7" in lines
    assert "webhook-id: msg_1" in lines
    assert lines[-1] == '{"a":1}'


def test_a_kept_connection_that_is_closed_before_it_answers_is_replaced() -> None:
    served: list[int] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        served.append(1)
        writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
        if len(served) == 1:
            await read_request(reader)  # the second POST comes here, and is not answered

    assert [answer.status for answer in answers(serve, posts=2)] == [204, 204]
    assert len(served) == 2


def test_an_answer_that_says_close_and_data_that_nobody_asked_for_end_a_connection() -> None:
    connections: list[int] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(1)
        await read_request(reader)
        writer.write(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\nHTTP/1.1 200 OK\r\n\r\n")

    assert [answer.status for answer in answers(serve, posts=3)] == [204] * 3
    assert len(connections) == 3


def test_whoever_does_not_answer_in_time_costs_that_time_and_the_connection() -> None:
    ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        ended.set()

    [answer] = answers(serve, seconds=0.05)
    assert answer.status is None
    assert "0.05 s" in (answer.reason or "")
    assert ended.is_set()


def test_nobody_there_is_an_answer_too() -> None:
    async def main() -> Answer:
        sink = HttpSink(settings())
        try:
            return await sink.send(Message("http://127.0.0.1:1/", "msg_1", 0, b"{}"))
        finally:
            await sink.close()

    answer = asyncio.run(main())
    assert (answer.status, "no connection to 127.0.0.1" in (answer.reason or "")) == (None, True)


class PagerSink:
    """A sink of somebody else, as an entry point would give it."""

    sent: ClassVar[list[Message]] = []

    def __init__(self, given: Settings) -> None:
        assert given.id == "s1"

    @staticmethod
    def check(url: str) -> None:
        if not url.removeprefix("pager:").isdecimal():
            raise InvalidSink("a pager has a number")

    async def send(self, message: Message) -> Answer:
        self.sent.append(message)
        if message.webhook_id == "msg_2":
            raise RuntimeError("the battery is empty")
        return Answer(200)

    async def close(self) -> None:
        """Nothing to close."""


def test_another_scheme_is_an_entry_point_that_checks_and_sends_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Point:
        name = "pager"

        @staticmethod
        def load() -> type[PagerSink]:
            return PagerSink

    monkeypatch.setattr(sink_policy, "entry_points", lambda group: [Point] if group == "edn.sinks" else [])
    sink_policy._extensions.cache_clear()
    try:
        sink_policy.check_url("pager:42")
        with pytest.raises(InvalidSink, match="number"):
            sink_policy.check_url("pager:home")
        with pytest.raises(InvalidSink, match="fax"):
            sink_policy.check_url("fax:42")

        async def main() -> list[Answer]:
            async with Sinks(settings(), {}) as sinks:
                asked = [("pager:42", "msg_1"), ("pager:42", "msg_2"), ("fax:1", "msg_3")]
                return [await sinks.send(Message(url, id, 0, b"{}")) for url, id in asked]

        taken, failed, unknown = asyncio.run(main())
    finally:
        sink_policy._extensions.cache_clear()
    assert taken.status == 200
    assert (failed.status, "battery" in (failed.reason or "")) == (None, True)
    assert (unknown.status, "fax" in (unknown.reason or "")) == (None, True)
    assert [message.webhook_id for message in PagerSink.sent] == ["msg_1", "msg_2"]


def test_nothing_is_sent_if_the_lease_ends_while_the_sink_connects() -> None:
    async def main() -> tuple[Answer, list[bytes]]:
        received: list[bytes] = []
        ended = asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            received.append(await reader.read(100))
            writer.close()
            await writer.wait_closed()
            ended.set()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        sink = HttpSink(settings(), may_send=lambda: False)
        answer = await sink.send(Message(f"http://127.0.0.1:{port}/", "msg_1", 0, b"{}"))
        await sink.close()
        async with asyncio.timeout(30):
            await ended.wait()
        server.close()
        await server.wait_closed()
        return answer, received

    answer, received = asyncio.run(main())
    assert answer.status is None
    assert answer.pause > 0, "the attempt is no failure of the address"
    assert b"".join(received) == b""
