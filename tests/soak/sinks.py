"""Sinks that come and go: a path decides how each answers, and every listening port ends after a while."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

from tests.network.posts import PostProtocol

#: seconds that a port listens; addresses there are dead afterwards
_LIFE = 45.0
#: a new port opens this often
_EVERY = 3.0
SLOW_SECONDS = 2.5


class _Connection(PostProtocol):
    def __init__(self, sinks: Sinks) -> None:
        super().__init__()
        self._sinks = sinks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._sinks.connections.add(self.transport)

    def connection_lost(self, error: Exception | None) -> None:
        self._sinks.connections.discard(self.transport)

    def posted(self, path: str, webhook_id: str, body: bytes) -> None:
        kind = path.split("/")[1]
        self._sinks.posts[kind] += 1
        if kind == "slow":
            asyncio.get_running_loop().call_later(SLOW_SECONDS, self._late)
        elif kind == "never":
            pass
        else:
            self.answer(int(kind) if kind.isdecimal() else 204)

    def _late(self) -> None:
        if not self.transport.is_closing():
            self.answer(204)


class Sinks:
    """As a task; `address` draws the URL of a new sink."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._number = 0
        self._ports: list[int] = []
        self._lasting = 0
        self.posts: Counter[str] = Counter()
        self.connections: set[asyncio.Transport] = set()

    def address(self) -> str:
        """Most are healthy; the others are slow, fail, refuse, are gone, never answer or do not exist."""
        self._number += 1
        kind = self._chance.choices(
            ["ok", "slow", "500", "400", "410", "never", "closed", "unknown"], [60, 8, 8, 5, 3, 3, 8, 2]
        )[0]
        if kind == "closed":
            return f"http://127.0.0.1:1/closed/{self._number}"
        if kind == "unknown":
            return f"https://soak-{self._number}.invalid/hook"
        return f"http://127.0.0.1:{self._chance.choice(self._ports)}/{kind}/{self._number}"

    def healthy(self) -> str:
        """The URL of a new sink that answers until the end."""
        self._number += 1
        return f"http://127.0.0.1:{self._lasting}/ok/{self._number}"

    async def run(self, ending: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        open_until: list[tuple[float, asyncio.Server]] = []
        lasting = await loop.create_server(lambda: _Connection(self), "127.0.0.1", 0)
        self._lasting = lasting.sockets[0].getsockname()[1]
        try:
            while not ending.is_set():
                server = await loop.create_server(lambda: _Connection(self), "127.0.0.1", 0)
                open_until.append((loop.time() + _LIFE, server))
                while open_until[0][0] < loop.time():
                    open_until.pop(0)[1].close()
                self._ports = [one.sockets[0].getsockname()[1] for _, one in open_until]
                try:
                    async with asyncio.timeout(_EVERY):
                        await ending.wait()
                except TimeoutError:
                    pass
        finally:
            lasting.close()
            for _, server in open_until:
                server.close()
            for transport in list(self.connections):
                transport.abort()
