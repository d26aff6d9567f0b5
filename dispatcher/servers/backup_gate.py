"""Keeps a backup of the running network consistent.

Theory of operation ------------------- A backup copies the servers' data folders one after the other, then
the dispatcher's, each as of one moment. So the log contains everything that a server has read. The log is
not truncated meanwhile, so it still contains everything that the earliest copy has not read. Subscriptions
that were stored after a server's copy are restored when that server registers (see `subscriptions.restore`).

Work *beside* the log must not fall between two copies: migrations, hand-overs and replays. It runs in
*steps*, and no step begins during a backup.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

from edn.runtime.ownership import owned

#: seconds without a request after which a backup is considered abandoned
SECONDS = 600.0


@owned("loop")
class BackupGate:
    def __init__(self) -> None:
        self._until = 0.0
        self._steps = 0

    @property
    def active(self) -> bool:
        return time.monotonic() < self._until

    @contextlib.asynccontextmanager
    async def step(self) -> AsyncIterator[None]:
        """Wrap work that a backup must contain completely or not at all; waits during a backup."""
        while self.active:  # noqa: ASYNC110  as below
            await asyncio.sleep(0.1)
        self._steps += 1
        try:
            yield
        finally:
            self._steps -= 1

    async def begin(self) -> None:
        """Begin a backup, and wait until no step is running."""
        self._until = time.monotonic() + SECONDS
        while self._steps:  # noqa: ASYNC110  steps are short, and backups rare
            await asyncio.sleep(0.02)

    def extend(self) -> None:
        """Keep the backup from being considered abandoned."""
        if self.active:
            self._until = time.monotonic() + SECONDS

    def end(self) -> None:
        self._until = 0.0
