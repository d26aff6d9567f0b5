"""Streams whose client goes away close their connections to the servers, also those of a subtree."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

from dispatcher.api.merged_streams import MergedStream
from dispatcher.api.streams import while_valid
from edn.model import namespace

MEMBERS = 3


def test_every_member_is_closed_although_cancellation_is_repeated() -> None:
    """Starlette cancels a response again at every step until it has ended."""
    opened: list[str] = []
    closed: list[str] = []
    all_open = asyncio.Event()

    @contextlib.asynccontextmanager
    async def open_member(member: Any, last: str | None) -> AsyncIterator[AsyncIterator[bytes]]:
        async def lines() -> AsyncIterator[bytes]:
            while True:
                yield b""
                await asyncio.sleep(3600)

        opened.append(member.id)
        if len(opened) == MEMBERS:
            all_open.set()
        try:
            yield lines()
        finally:
            for _ in range(5):  # closing a connection takes several steps
                await asyncio.sleep(0)
            closed.append(member.id)

    members = [SimpleNamespace(id=f"s{namespace.MEMBER}{number}") for number in range(MEMBERS)]

    async def main() -> None:
        async def find() -> list[SimpleNamespace]:
            return members

        merged = MergedStream(open_member, find)  # type: ignore[arg-type]

        async def read() -> None:
            async with contextlib.aclosing(merged.lines({})) as told:
                async for _ in told:
                    pass

        reading = asyncio.create_task(read())
        async with asyncio.timeout(20):
            await all_open.wait()
            while not reading.done():
                reading.cancel()
                await asyncio.sleep(0)
            others = asyncio.all_tasks() - {asyncio.current_task()}
            if others:
                await asyncio.wait(others)

    asyncio.run(main())
    assert sorted(closed) == sorted(opened)


def test_a_stream_that_is_watched_is_closed_although_cancellation_is_repeated() -> None:
    begun, closed = asyncio.Event(), False

    async def lines() -> AsyncIterator[bytes]:
        nonlocal closed
        yield b"first"
        begun.set()
        try:
            await asyncio.sleep(3600)
        finally:
            for _ in range(5):
                await asyncio.sleep(0)
            closed = True

    async def main() -> None:
        async def read() -> None:
            async for _ in while_valid(lines(), lambda: True):
                pass

        reading = asyncio.create_task(read())
        async with asyncio.timeout(20):
            await begun.wait()
            while not reading.done():
                reading.cancel()
                await asyncio.sleep(0)

    asyncio.run(main())
    assert closed
