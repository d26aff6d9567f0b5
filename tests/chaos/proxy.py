"""A TCP proxy that can be told to misbehave: the network between two processes of a test.

What it does to the connections that pass through it:

    cut          they end at once, in both directions, with a reset
    half-close   one direction ends in good order, the other goes on
    delay        every piece of data waits for a while
    blackhole    nothing passes and nothing ends, as on a cable that is pulled; afterwards what waited goes
                 on, or everything is cut. Also in one direction only
    halve        the next large piece of a client passes half, then nothing more of any client: whoever gets
                 it has begun something that does not come to an end
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from dataclasses import dataclass, field
from typing import Literal, Self

Direction = Literal["up", "down", "both"]

_PIECE = 65_536
#: bytes from which on a piece is halved
_LARGE = 1_000
_LINGER_NOT = struct.pack("ii", 1, 0)


@dataclass(eq=False)
class _Link:
    """One connection: two writers, and a task a direction."""

    client: asyncio.StreamWriter
    upstream: asyncio.StreamWriter
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def reset(self) -> None:
        for writer in (self.client, self.upstream):
            _reset(writer)
        for task in self.tasks:
            task.cancel()


class Proxy:
    """Listens at `port`, which stays the same; passes on to `upstream`, which may change."""

    def __init__(self) -> None:
        self.port = 0
        self.upstream: int | None = None
        #: seconds that every piece waits
        self.delay = 0.0
        #: whether data passes, from clients and to them
        self._up, self._down = asyncio.Event(), asyncio.Event()
        self._up.set()
        self._down.set()
        #: set when a piece was halved; None unless one shall be
        self._halved: asyncio.Event | None = None
        self._links: set[_Link] = set()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self._up.set()
        self._down.set()
        tasks = [task for link in self._links for task in link.tasks]
        self.cut()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._server.wait_closed()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def connections(self) -> int:
        return len(self._links)

    # -- misbehaviour -----------------------------------------------------------------------------------

    def cut(self) -> int:
        """End every connection with a reset; how many there were."""
        links = list(self._links)
        for link in links:
            link.reset()
        return len(links)

    def half_close(self, *, towards_client: bool) -> int:
        """Say "no more will come" on every connection, in one direction; how many there were."""
        links = list(self._links)
        for link in links:
            writer = link.client if towards_client else link.upstream
            with contextlib.suppress(OSError, RuntimeError):
                writer.write_eof()
        return len(links)

    def swallow(self, direction: Direction = "both") -> None:
        """Nothing passes from now on, from clients ("up"), to them ("down") or at all."""
        if direction != "down":
            self._up.clear()
        if direction != "up":
            self._down.clear()

    def halve(self) -> asyncio.Event:
        """Pass half of the next large piece of a client, then nothing from clients; the event says when."""
        self._halved = asyncio.Event()
        return self._halved

    def release(self, *, cut: bool) -> None:
        """Everything passes again: what waited, or, after a cut, what comes anew."""
        if cut:
            self.cut()
        self._halved = None
        self._up.set()
        self._down.set()

    # -- passing on -------------------------------------------------------------------------------------

    async def _accept(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        await self._up.wait()
        try:
            if self.upstream is None:
                raise OSError("nothing to pass on to")
            from_upstream, upstream = await asyncio.open_connection("127.0.0.1", self.upstream)
        except OSError:
            _reset(client)
            return
        link = _Link(client, upstream)
        self._links.add(link)
        link.tasks = [
            asyncio.create_task(self._pass_on(reader, upstream, self._up)),
            asyncio.create_task(self._pass_on(from_upstream, client, self._down)),
        ]
        try:
            await asyncio.gather(*link.tasks, return_exceptions=True)
        finally:
            self._links.discard(link)
            for writer in (client, upstream):
                writer.close()

    async def _pass_on(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, passable: asyncio.Event
    ) -> None:
        try:
            while piece := await reader.read(_PIECE):
                if self.delay:
                    await asyncio.sleep(self.delay)
                await passable.wait()
                if self._halved is not None and passable is self._up and len(piece) > _LARGE:
                    writer.write(piece[: len(piece) // 2])
                    piece = piece[len(piece) // 2 :]
                    passable.clear()
                    self._halved.set()
                    await passable.wait()
                writer.write(piece)
                await writer.drain()
            writer.write_eof()
        except OSError:
            # One side is gone with a reset; the other shall learn it in the same way.
            _reset(writer)
        except RuntimeError:
            pass  # half-closed meanwhile: what came for that direction has nowhere to go


def _reset(writer: asyncio.StreamWriter) -> None:
    raw = writer.get_extra_info("socket")
    if raw is not None:
        with contextlib.suppress(OSError):
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NOT)
    writer.transport.abort()
