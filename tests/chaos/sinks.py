"""Receivers of notifications, reliable and not: every POST is recorded before it is answered.

    steady     takes everything
    flaky      of ten POSTs about two are refused, one is taken but its answer lost
    slow       takes everything and answers after a while
    vanishing  is not there from time to time (`vanish`), and then is again

A POST whose answer is lost counts as accepted: the server cannot know, and sends it again under its
webhook-id.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

from edn.tools.checker import Recorder
from tests.network.posts import PostProtocol

Temper = Literal["steady", "flaky", "slow", "vanishing"]

#: the status that is recorded for a POST that is refused by hanging up
_HUNG_UP = 599


class _Connection(PostProtocol):
    """One connection of a server."""

    def __init__(self, sink: Sink) -> None:
        super().__init__()
        self._sink = sink
        self._tasks: set[asyncio.Task[None]] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._sink.connections.add(self.transport)

    def connection_lost(self, error: Exception | None) -> None:
        self._sink.connections.discard(self.transport)

    def posted(self, path: str, webhook_id: str, body: bytes) -> None:
        task = asyncio.create_task(self._respond(self._sink.take(path, webhook_id, body)))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _respond(self, answer: _Answer) -> None:
        if answer.after:
            await asyncio.sleep(answer.after)
        if answer.heard and answer.status != _HUNG_UP:
            self.answer(answer.status)
        else:
            self.transport.abort()


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int = 204
    #: seconds
    after: float = 0.0
    #: False: taken, but the connection ends before the answer
    heard: bool = True


@dataclass(eq=False)
class Sink:
    """Some addresses of one temper, at one port."""

    temper: Temper
    recorder: Recorder
    chance: random.Random
    port: int = 0
    addresses: list[str] = field(default_factory=list)
    connections: set[asyncio.Transport] = field(default_factory=set)
    #: POSTs by the status that they were answered
    posts: Counter[int] = field(default_factory=Counter)
    last_post: float = 0.0
    _server: asyncio.Server | None = None

    async def open(self, addresses: int) -> None:
        await self._listen()
        names = (f"{self.temper}-{number}" for number in range(1, addresses + 1))
        self.addresses = [f"http://127.0.0.1:{self.port}/{name}" for name in names]
        for address in self.addresses:
            self.recorder.listening(address)

    async def _listen(self) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: _Connection(self), "127.0.0.1", self.port, reuse_address=True
        )
        self.port = self._server.sockets[0].getsockname()[1]

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for connection in list(self.connections):
            connection.abort()

    async def vanish(self, seconds: float) -> None:
        """Nobody answers at the port for a while; a receiver that is down accepts nothing."""
        if self._server is None:
            return  # is gone already
        self.close()
        try:
            await asyncio.sleep(seconds)
        finally:
            await self._listen()

    def take(self, path: str, webhook_id: str, body: bytes) -> _Answer:
        answer = self._decide()
        self.recorder.notification(
            f"http://127.0.0.1:{self.port}{path}", webhook_id, body, status=answer.status
        )
        self.posts[answer.status] += 1
        self.last_post = asyncio.get_running_loop().time()
        return answer

    def _decide(self) -> _Answer:
        chance = self.chance.random()
        if self.temper == "slow":
            return _Answer(after=0.05 + chance * 0.6)
        if self.temper == "flaky":
            if chance < 0.2:
                return _Answer(status=self.chance.choice([500, 503, _HUNG_UP]))
            if chance < 0.3:
                return _Answer(heard=False)
        return _Answer()


async def open_sinks(recorder: Recorder, seed: int) -> list[Sink]:
    sinks = []
    for temper, addresses in (("steady", 8), ("flaky", 2), ("slow", 2), ("vanishing", 2)):
        sink = Sink(temper, recorder, random.Random(f"{temper} sink of {seed}"))  # type: ignore[arg-type]  # mypy widens the literals
        await sink.open(addresses)
        sinks.append(sink)
    return sinks
