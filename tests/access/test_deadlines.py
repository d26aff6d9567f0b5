"""Requests that do not come to an end, over real sockets: their connections do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from edn.http import request_limits
from edn.http.asgi import read_body
from edn.http.request_limits import LimitedProtocol

WHOLE = b"POST / HTTP/1.1\r\nhost: edn\r\ncontent-length: 2\r\n\r\n{}"
#: what a client sends, and then nothing more
BEGINNINGS = {
    "nothing": b"",
    "half a line": b"POST / HT",
    "headers without end": b"POST / HTTP/1.1\r\nhost: edn\r\nx-slow: a",
    "a body that lacks a byte": WHOLE[:-1],
    "a whole request and half of another": WHOLE + WHOLE[:20],
}


async def answer(scope: Scope, receive: Receive, send: Send) -> None:
    """Late, but then."""
    await read_body(receive)
    await asyncio.sleep(3 * request_limits.REQUEST_SECONDS)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@asynccontextmanager
async def serving() -> AsyncIterator[int]:
    config = uvicorn.Config(
        answer, port=0, lifespan="off", log_config=None, access_log=False, http=LimitedProtocol
    )
    server = uvicorn.Server(config)
    config.load()
    server.lifespan = config.lifespan_class(config)
    await server.startup()
    try:
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        await server.shutdown()


@pytest.mark.parametrize("sent", BEGINNINGS.values(), ids=BEGINNINGS)
def test_a_request_that_does_not_end_ends_its_connection(
    monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(request_limits, "REQUEST_SECONDS", 0.2)

    async def run() -> bytes:
        async with serving() as port, asyncio.timeout(30):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(sent)
            try:
                return await reader.read()
            except ConnectionError:
                return b""
            finally:
                writer.close()

    answered = asyncio.run(run())
    assert answered == b"" or answered.count(b"HTTP/1.1 200") == 1


def test_an_answer_may_take_longer_than_its_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_limits, "REQUEST_SECONDS", 0.2)

    async def run() -> list[bytes]:
        async with serving() as port, asyncio.timeout(30):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            answers = []
            for _ in range(2):
                writer.write(WHOLE)
                answers.append(await reader.readuntil(b"ok"))
            writer.close()
            return answers

    assert all(one.startswith(b"HTTP/1.1 200") for one in asyncio.run(run()))
