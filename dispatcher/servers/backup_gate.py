"""A backup of the whole network while it runs: what must not happen between its parts, and the parts.

Theory of operation
-------------------
The servers' data folders are copied one after the other, then the dispatcher's, each as of one moment. So the
log is never behind what a server has read; and it is not truncated meanwhile, so that it still holds what the
earliest copy has yet to read. What the log brings a server that it did not have when it was copied,
subscriptions that came in between, it is given again when it registers (see `subscriptions.restore`).

Only what dispatcher and servers do *beside* the log must not fall between two copies: settling moves, moving,
telling a past. These are done in *steps*, and no step begins while a backup is made.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

#: seconds after which a backup that nobody goes on with is forgotten
SECONDS = 600.0


class BackupGate:
    """Event loop only."""

    def __init__(self) -> None:
        self._until = 0.0
        self._steps = 0

    @property
    def active(self) -> bool:
        return time.monotonic() < self._until

    @contextlib.asynccontextmanager
    async def step(self) -> AsyncIterator[None]:
        """Something that a backup has wholly or not at all; waits while one is made."""
        while self.active:  # noqa: ASYNC110  as below
            await asyncio.sleep(0.1)
        self._steps += 1
        try:
            yield
        finally:
            self._steps -= 1

    async def begin(self) -> None:
        """No step is under way when this returns, and none begins for a while."""
        self._until = time.monotonic() + SECONDS
        while self._steps:  # noqa: ASYNC110  steps are short, and backups seldom
            await asyncio.sleep(0.02)

    def go_on(self) -> None:
        """It is still being made."""
        if self.active:
            self._until = time.monotonic() + SECONDS

    def end(self) -> None:
        self._until = 0.0
