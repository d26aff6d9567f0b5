"""How many attempts are made at the same time: slots of two lanes, so that the slow hold up no others.

An attempt begins in the lane of its address. One that began in the fast lane and takes long goes over to the
slow one as soon as that has a slot: a crowd of addresses that never answer holds the fast slots for a second,
not until their timeouts.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal

from edn_server.breaker import SLOW_SECONDS


class Lane:
    """Slots, given in the order of asking."""

    def __init__(self, slots: int) -> None:
        self.free = slots
        self._waiting: deque[asyncio.Future[None]] = deque()

    def try_take(self) -> bool:
        if self.free and not self._waiting:
            self.free -= 1
            return True
        return False

    async def take(self) -> None:
        if self.try_take():
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.give()
            elif turn in self._waiting:  # else somebody who gave a slot has passed over it
                self._waiting.remove(turn)
            raise

    def give(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self.free += 1


class Lanes:
    def __init__(self, *, fast: int, slow: int) -> None:
        self.fast = Lane(fast)
        self.slow = Lane(slow)

    @asynccontextmanager
    async def slot(self, lane: Literal["fast", "slow"]) -> AsyncIterator[None]:
        taken = self.fast if lane == "fast" else self.slow
        await taken.take()

        def move() -> None:
            nonlocal taken
            if taken is self.fast and self.slow.try_take():
                taken = self.slow
                self.fast.give()

        moving = asyncio.get_running_loop().call_later(SLOW_SECONDS, move)
        try:
            yield
        finally:
            moving.cancel()
            taken.give()
