"""The lean connection to a server, against a server that misbehaves."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from dispatcher.channel import Channel, ChannelError, Channels

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def ok(body: bytes, extra: bytes = b"") -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n%s\r\n%s" % (len(body), extra, body)


async def request(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    return head, await reader.readexactly(length)


def against(handler: Handler, work: Callable[[Channel], Awaitable[None]], *, timeout: float = 5.0) -> None:
    async def at(url: str) -> None:
        channel = Channel(url, "the secret", timeout=timeout)
        try:
            await work(channel)
        finally:
            channel.close()

    serving(handler, at)


def serving(handler: Handler, work: Callable[[str], Awaitable[None]]) -> None:
    """Call with the address of a server."""

    async def main() -> None:
        async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await handler(reader, writer)
            except asyncio.IncompleteReadError:
                pass
            finally:
                writer.close()

        server = await asyncio.start_server(served, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        try:
            await work(f"http://127.0.0.1:{port}/base")
        finally:
            server.close()
            await server.wait_closed()

    asyncio.run(main())


def test_requests_share_a_connection_and_carry_the_secret() -> None:
    connections = 0

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        while True:
            head, body = await request(reader)
            assert head.startswith(b"POST /base/internal/stream HTTP/1.1\r\n")
            assert b"authorization: Bearer the secret\r\n" in head
            writer.write(ok(body[::-1]))

    async def work(channel: Channel) -> None:
        for body in (b"abc", b"", b"x" * 100_000):
            assert await channel.post("/internal/stream", body, "text/plain") == (200, body[::-1])

    against(echo, work)
    assert connections == 1


@pytest.mark.parametrize("extra", [b"", b"Connection: close\r\n"])
def test_a_connection_that_was_closed_between_requests_is_opened_again(extra: bytes) -> None:
    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, body = await request(reader)
        writer.write(ok(body, extra))

    async def work(channel: Channel) -> None:
        for body in (b"one", b"two", b"three"):
            assert await channel.post("/x", body, "text/plain") == (200, body)

    against(once, work)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (b"", "closed before the answer was complete"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", "closed before the answer was complete"),
        (b"HTTP/1.1 200 OK\r\n\r\n", "without a usable content-length, status 200"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 999999999\r\n\r\n", "usable content-length"),
        (b"nonsense\r\n\r\n", "."),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000, "."),
    ],
)
def test_an_answer_that_is_none_is_an_error(answer: bytes, says: str) -> None:
    async def bad(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        writer.write(answer)

    async def work(channel: Channel) -> None:
        with pytest.raises(ChannelError, match=says):
            await channel.post("/x", b"body", "text/plain")

    against(bad, work)


def test_a_server_that_never_answers_is_given_up() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async def work(channel: Channel) -> None:
        with pytest.raises(ChannelError, match="no answer in time"):
            await channel.post("/x", b"body", "text/plain")

    against(silent, work, timeout=0.1)


def test_nobody_listening_is_an_error_and_not_a_hang() -> None:
    async def main() -> None:
        with pytest.raises(ChannelError):
            await Channel("http://127.0.0.1:9", "secret").post("/x", b"", "text/plain")

    asyncio.run(main())


def test_a_request_that_was_given_up_leaves_no_answer_for_the_next_one() -> None:
    async def slow_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            _, body = await request(reader)
            if body == b"slow":
                await asyncio.sleep(0.2)
            writer.write(ok(body))

    async def work(channel: Channel) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await channel.post("/x", b"slow", "text/plain")
        assert await channel.post("/x", b"next", "text/plain") == (200, b"next")

    against(slow_once, work)


def several(handler: Handler, work: Callable[[Channels, str], Awaitable[None]]) -> None:
    """The same for as many channels as it takes."""

    async def at(url: str) -> None:
        channels = Channels("the secret", timeout=5.0)
        try:
            await work(channels, url)
        finally:
            channels.close()

    serving(handler, at)


def test_requests_at_the_same_time_have_a_connection_each_and_later_ones_use_those() -> None:
    connections = 0
    all_there = asyncio.Event()

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        if connections == 3:
            all_there.set()
        while True:
            _, body = await request(reader)
            await all_there.wait()
            writer.write(ok(body[::-1]))

    async def work(channels: Channels, url: str) -> None:
        for _ in range(2):
            bodies = [b"abc", b"", b"x" * 100_000]
            answers = await asyncio.gather(*(channels.post(url, "/x", body, "text/plain") for body in bodies))
            assert answers == [(200, body[::-1]) for body in bodies]

    several(echo, work)
    assert connections == 3


def test_of_several_channels_one_that_the_server_closed_is_not_used_again() -> None:
    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, body = await request(reader)
        writer.write(ok(body))

    async def work(channels: Channels, url: str) -> None:
        for body in (b"one", b"two", b"three"):
            assert await channels.post(url, "/x", body, "text/plain") == (200, body)
            await asyncio.sleep(0.05)  # its end arrives

    several(once, work)


def test_what_several_channels_send_is_sent_once_whatever_happens() -> None:
    got: list[bytes] = []

    async def breaks(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(2):
            _, body = await request(reader)
            got.append(body)
            if body == b"breaks":
                return
            writer.write(ok(body))

    async def work(channels: Channels, url: str) -> None:
        assert await channels.post(url, "/x", b"kept", "text/plain") == (200, b"kept")
        with pytest.raises(ChannelError):
            await channels.post(url, "/x", b"breaks", "text/plain")
        assert await channels.post(url, "/x", b"goes on", "text/plain") == (200, b"goes on")

    several(breaks, work)
    assert got == [b"kept", b"breaks", b"goes on"]
