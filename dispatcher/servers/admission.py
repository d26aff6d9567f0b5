"""Decides whether this dispatcher accepts events at the moment.

Events are refused while this dispatcher is not in sync with the others, while too many bytes wait for their
commit, and while disk space is short. Publishers wait while a server is too far behind.
"""

from __future__ import annotations

import contextlib
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from dispatcher.servers.pipeline import Backpressure
from dispatcher.servers.upkeep import Upkeep
from dispatcher.store.event_log import Log
from edn import protocol
from edn.errors import Conflict, Overloaded, Unavailable
from edn.runtime.ownership import owned

#: limit of bytes that wait for their commit
PENDING_BYTES = 64 << 20


class Leadership(Protocol):
    """The role of this dispatcher among the others."""

    #: whether this is the only dispatcher
    alone: bool

    def accepting(self) -> bool:
        """Return whether this dispatcher knows every acknowledged change, so that it may accept events."""
        ...

    def leads(self) -> bool:
        """Return whether this dispatcher, and no other, carries out changes."""
        ...

    def changing(self, *, complete: bool = False) -> AbstractAsyncContextManager[object]:
        """Wrap a change, and wait until the others have it; raises `Unavailable` if another leads.

        `complete`: only if all dispatchers are online.
        """
        ...

    async def level(self) -> None:
        """Wait until this dispatcher is in sync with the others."""
        ...

    async def answer(self, poll: protocol.PeerPoll) -> protocol.PeerPage: ...

    def describe(self) -> list[dict[str, Any]]: ...


@dataclass(frozen=True)
class Alone:
    """The only dispatcher."""

    alone = True
    _log: str
    _url: str | None

    def accepting(self) -> bool:
        return True

    def leads(self) -> bool:
        return True

    def changing(self, *, complete: bool = False) -> AbstractAsyncContextManager[object]:
        return contextlib.nullcontext()

    async def level(self) -> None:
        pass

    async def answer(self, poll: protocol.PeerPoll) -> protocol.PeerPage:
        raise Conflict("this dispatcher has no peers: it was started without --peer")

    def describe(self) -> list[dict[str, Any]]:
        own = {"log": self._log, "url": self._url, "self": True, "reachable": True}
        return [{**own, "ready": True, "level": True, "leader": True, "failure": None}]


@owned("loop")
@dataclass(frozen=True, eq=False)
class Admission:
    _log: Log
    _upkeep: Upkeep
    _backpressure: Backpressure
    _leadership: Leadership

    def accepting(self) -> bool:
        """Return whether events are accepted, at once or after a wait."""
        return (
            self._upkeep.shortage is None and self._log.unavailable is None and self._leadership.accepting()
        )

    def check(self) -> None:
        """Raise `Unavailable` unless events are accepted."""
        if self._log.unavailable is not None:
            raise Unavailable(self._log.unavailable, retry_after=1)
        if not self._leadership.accepting():
            raise Unavailable(
                "this dispatcher is not in sync with the others yet; try again, or use another one",
                retry_after=1,
            )
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
