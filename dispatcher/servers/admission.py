"""Decides whether this dispatcher accepts events at the moment.

Events are refused while the database does not answer, while too many bytes wait for their commit, and while
disk space is short. Publishers wait while a server is too far behind.
"""

from __future__ import annotations

from dataclasses import dataclass

from dispatcher.servers.pipeline import Backpressure
from dispatcher.servers.upkeep import Upkeep
from dispatcher.store.event_log import Log
from edn.errors import Overloaded, Unavailable
from edn.runtime.ownership import owned

#: limit of bytes that wait for their commit
PENDING_BYTES = 64 << 20


@owned("loop")
@dataclass(frozen=True, eq=False)
class Admission:
    _log: Log
    _upkeep: Upkeep
    _backpressure: Backpressure

    def accepting(self) -> bool:
        """Return whether events are accepted, at once or after a wait."""
        return self._upkeep.shortage is None and self._log.unavailable is None

    def check(self) -> None:
        """Raise `Unavailable` unless events are accepted."""
        if self._log.unavailable is not None:
            raise Unavailable(self._log.unavailable, retry_after=1)
        if self._upkeep.shortage is not None:
            raise Unavailable(
                f"{self._upkeep.shortage}; no events are accepted until space is freed", retry_after=5
            )

    async def admit(self, size: int) -> None:
        """Wait until a request of `size` bytes may be accepted; raises `Unavailable` or `Overloaded`."""
        if self._log.pending > PENDING_BYTES:
            raise Overloaded(f"more than {PENDING_BYTES >> 20} MiB wait for their commit", retry_after=1)
        self._upkeep.count(size)
        self.check()
        if self._backpressure.full:
            await self._backpressure.wait()
