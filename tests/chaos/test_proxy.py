"""The proxy passes bytes on, and misbehaves exactly as it is told."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from tests.chaos.proxy import Proxy

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@contextlib.asynccontextmanager
async def echoing() -> AsyncIterator[int]:
    """A server that sends back what it gets, and ends when the client does; its port."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
            writer.write(b"bye")
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await server.wait_closed()


@contextlib.asynccontextmanager
async def connected(proxy: Proxy) -> AsyncIterator[Streams]:
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


def through_a_proxy(test: Callable[[Proxy, Streams], Awaitable[None]]) -> None:
    async def run() -> None:
        async with asyncio.timeout(20), echoing() as port, Proxy() as proxy:
            proxy.upstream = port
            async with connected(proxy) as streams:
                assert await said(streams, b"hello") == b"hello"
                await test(proxy, streams)

    asyncio.run(run())


async def said(streams: Streams, data: bytes) -> bytes:
    reader, writer = streams
    writer.write(data)
    await writer.drain()
    return await reader.readexactly(len(data))


async def nothing_comes(reader: asyncio.StreamReader) -> bool:
    try:
        async with asyncio.timeout(0.1):
            await reader.read(1)
    except TimeoutError:
        return True
    return False


def test_much_data_passes_unchanged() -> None:
    async def test(_: Proxy, streams: Streams) -> None:
        data = bytes(range(256)) * 8192
        sending = asyncio.create_task(streams[1].drain())
        assert await said(streams, data) == data
        await sending

    through_a_proxy(test)


def test_an_end_passes_in_one_direction_and_the_other_goes_on() -> None:
    async def test(_: Proxy, streams: Streams) -> None:
        streams[1].write_eof()
        assert await streams[0].read() == b"bye"

    through_a_proxy(test)


def test_a_cut_resets_every_connection_and_new_ones_pass() -> None:
    async def test(proxy: Proxy, streams: Streams) -> None:
        assert proxy.cut() == 1
        with pytest.raises(ConnectionResetError):
            await streams[0].read()
        async with connected(proxy) as fresh:
            assert await said(fresh, b"again") == b"again"

    through_a_proxy(test)


def test_half_closed_towards_the_client_says_that_no_more_will_come() -> None:
    async def test(proxy: Proxy, streams: Streams) -> None:
        assert proxy.half_close(towards_client=True) == 1
        assert await streams[0].read() == b""

    through_a_proxy(test)


def test_half_closed_towards_the_server_lets_its_last_words_through() -> None:
    async def test(proxy: Proxy, streams: Streams) -> None:
        proxy.half_close(towards_client=False)
        assert await streams[0].read() == b"bye"

    through_a_proxy(test)


def test_a_blackhole_holds_everything_and_ends_nothing() -> None:
    async def test(proxy: Proxy, streams: Streams) -> None:
        proxy.swallow()
        streams[1].write(b"lost in the dark")
        assert await nothing_comes(streams[0])
        async with connected(proxy) as fresh:
            fresh[1].write(b"me too")
            assert await nothing_comes(fresh[0])
            proxy.release(cut=False)
            assert await streams[0].readexactly(16) == b"lost in the dark"
            assert await fresh[0].readexactly(6) == b"me too"

    through_a_proxy(test)


def test_a_blackhole_may_end_in_a_cut() -> None:
    async def test(proxy: Proxy, streams: Streams) -> None:
        proxy.swallow()
        streams[1].write(b"lost for ever")
        assert await nothing_comes(streams[0])
        proxy.release(cut=True)
        with pytest.raises(ConnectionResetError):
            await streams[0].read()

    through_a_proxy(test)


def test_a_delay_holds_every_piece_back() -> None:
    async def test(proxy: Proxy, streams: Streams) -> None:
        proxy.delay = 0.3
        streams[1].write(b"late")
        assert await nothing_comes(streams[0])
        assert await streams[0].readexactly(4) == b"late"

    through_a_proxy(test)


def test_a_server_that_is_not_there_is_a_reset() -> None:
    async def test(proxy: Proxy, _: Streams) -> None:
        proxy.upstream = None
        async with connected(proxy) as fresh:
            with pytest.raises(ConnectionResetError):
                await fresh[0].read()

    through_a_proxy(test)


def test_a_server_that_comes_back_at_another_port_is_found() -> None:
    async def run() -> None:
        async with asyncio.timeout(20), echoing() as first, echoing() as second, Proxy() as proxy:
            for port in (first, second):
                proxy.upstream = port
                async with connected(proxy) as streams:
                    assert await said(streams, b"hello") == b"hello"

    asyncio.run(run())
