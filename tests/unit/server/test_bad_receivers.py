"""Receivers that misbehave: each affects only its own address."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from deliverykit import EVENT, Receiver, eventually, notifying, receiving
from serverkit import Kit, activate, item

from edn_server.storage.addresses import address_of

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def read_request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    return head + await reader.readexactly(length)


async def garbage(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await read_request(reader)
    writer.write(b"\x00\xff this is no HTTP \r\n\r\n")


async def half_an_answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await read_request(reader)
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf")


async def answer_first(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 503 No\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")


async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await read_request(reader)
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1073741824\r\n\r\n")
    for _ in range(16_384):
        writer.write(b"x" * 65536)
        await writer.drain()


async def trickle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await read_request(reader)
    for byte in b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n" * 100:
        writer.write(bytes([byte]))
        await writer.drain()
        await asyncio.sleep(1)


async def speak_http2(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await read_request(reader)
    # A SETTINGS frame, as a server that speaks HTTP/2 only begins.
    writer.write(b"\x00\x00\x00\x04\x00\x00\x00\x00\x00")
    await asyncio.sleep(60)


async def upgrade(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await read_request(reader)
    writer.write(b"HTTP/1.1 101 Switching Protocols\r\nupgrade: h2c\r\nconnection: upgrade\r\n\r\n\x00\x00")
    await asyncio.sleep(60)


async def talk_after_close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Announces the end of the connection, keeps it open, and answers what was not asked."""
    await read_request(reader)
    writer.write(b"HTTP/1.1 500 No\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n" * 3)
    await asyncio.sleep(60)


#: receivers that accept no notification
REFUSING = (garbage, half_an_answer, answer_first, trickle, speak_http2, upgrade, talk_after_close)


def serving(answer: Answer) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await answer(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    return serve


def test_receivers_that_misbehave_fail_alone_and_a_healthy_one_gets_everything(kit: Kit) -> None:
    async def scenario(receiver: Receiver) -> None:
        behaviours = (*REFUSING, endless)
        servers = [await asyncio.start_server(serving(one), "127.0.0.1", 0) for one in behaviours]
        urls = {
            one.__name__: f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
            for one, server in zip(behaviours, servers, strict=True)
        }
        names = [*urls, "healthy"]
        given = [*urls.values(), receiver.url("/healthy")]
        kit.store(*(item(name, url=url) for name, url in zip(names, given, strict=True)))
        kit.frame(0, 1, activate(1, *((name, 1) for name in names)))
        async with notifying(kit, attempt_seconds=0.5, retry_steps=(0.05,)) as notifier:
            for offset in range(2, 22):
                applied = await asyncio.to_thread(kit.frame, offset - 1, offset, events=[(offset, EVENT)])
                notifier.announce(applied.rows, applied.addresses)
            await receiver.until(lambda: len(receiver.posts) == 20)
            received = [post.body["notifications"][0]["event"]["id"] for post in receiver.posts]
            assert received == [f"e{offset}" for offset in range(2, 22)]
            for one in REFUSING:
                address = address_of("", urls[one.__name__], "")
                await eventually(lambda address=address: notifier.health(address).failures > 1)  # type: ignore[misc]
            # Its status counts; the rest of its answer is cut off.
            await eventually(lambda: not any(row.address.endswith(urls["endless"]) for row in kit.rows()))
        for server in servers:
            server.close()

    async def main() -> None:
        async with receiving() as receiver, asyncio.timeout(60):
            await scenario(receiver)

    asyncio.run(main())
    left = {row.address for row in kit.rows()}
    assert len(left) == len(REFUSING)
