"""Locks by name: operations on the same name run one after the other."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable


class KeyedLock:
    """Locks that exist only while they are held or awaited. Event loop only."""

    def __init__(self) -> None:
        self._locks: dict[str, asyncio.Lock] = {}
        self._users: dict[str, int] = {}

    @contextlib.asynccontextmanager
    async def hold(self, names: Iterable[str]) -> AsyncIterator[None]:
        """Hold the locks of all names; acquired in sorted order, so that callers cannot deadlock."""
        async with contextlib.AsyncExitStack() as stack:
            for name in sorted(set(names)):
                lock = self._locks.setdefault(name, asyncio.Lock())
                self._users[name] = self._users.get(name, 0) + 1
                stack.callback(self._leave, name)
                await stack.enter_async_context(lock)
            yield

    def _leave(self, name: str) -> None:
        self._users[name] -= 1
        if not self._users[name]:
            del self._users[name], self._locks[name]
