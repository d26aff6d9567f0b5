"""The dispatcher's way out: how many bytes a second may leave, and how far servers may fall behind.

`Link` is a token bucket that all streams share, first come first served: for an operator with a metered
line, and to make a link the bottleneck on purpose. `Backpressure` holds publishers back while an online
server is too far behind, so that the network carries what is accepted; without a limit the log grows instead.
Both are changed while events flow. Event loop only.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from edn.errors import Overloaded

#: seconds of the rate that may leave at once after a quiet time
BURST_SECONDS = 0.1
#: how long a publisher is held before it is told to come again
PATIENCE_SECONDS = 5.0


class Link:
    """Bytes a second, or None for as many as the system sends."""

    def __init__(
        self, bytes_per_second: float | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rate = bytes_per_second
        self._clock = clock
        self._tokens = 0.0
        self._at = clock()
        self._turn = asyncio.Lock()
        self._changed = asyncio.Event()

    @property
    def bytes_per_second(self) -> float | None:
        return self._rate

    def limit(self, bytes_per_second: float | None) -> None:
        """Another rate, for those who wait already, too."""
        self._refill()
        self._rate = bytes_per_second
        self._tokens = min(0.0, self._tokens)
        self._changed.set()

    def _refill(self) -> None:
        now = self._clock()
        if self._rate is not None:
            earned = (now - self._at) * self._rate
            self._tokens = min(self._tokens + earned, BURST_SECONDS * self._rate)
        self._at = now

    async def take(self, size: int) -> None:
        """Wait until `size` bytes may leave.

        They may as soon as nothing is owed, and are owed from then on: a message larger than the bucket
        passes too, and the mean rate holds.
        """
        if self._rate is None:
            return
        async with self._turn:
            while self._rate is not None:
                self._refill()
                if self._tokens >= 0:
                    self._tokens -= size
                    return
                self._changed.clear()
                try:
                    # A floor, so that no debt is too small for a clock to pay.
                    async with asyncio.timeout(max(0.001, -self._tokens / self._rate)):
                        await self._changed.wait()
                except TimeoutError:
                    pass


class Backpressure:
    """`lag` tells how many records the slowest server that is present is behind."""

    def __init__(self, lag: Callable[[], int], limit: int | None = None) -> None:
        self._lag = lag
        self._limit = limit
        self._room = asyncio.Event()
        self._room.set()
        #: publishers that had to wait, since the start
        self.held = 0

    @property
    def limit(self) -> int | None:
        return self._limit

    def set_limit(self, limit: int | None) -> None:
        self._limit = limit
        self.update()

    @property
    def full(self) -> bool:
        return not self._room.is_set()

    def update(self) -> None:
        """To be called whenever a lag may have changed."""
        if self._limit is None or self._lag() <= self._limit:
            self._room.set()
        else:
            self._room.clear()

    async def wait(self, patience: float = PATIENCE_SECONDS) -> None:
        """Until there is room; `Overloaded` when there is none in time."""
        self.held += 1
        try:
            async with asyncio.timeout(patience):
                await self._room.wait()
        except TimeoutError:
            raise Overloaded(
                f"a server is more than {self._limit} records behind: publishers wait until it has caught up",
                retry_after=1,
            ) from None
