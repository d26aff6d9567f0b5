"""Decides whether this dispatcher accepts events, and whether it carries out changes.

Events are refused while this dispatcher is not level with the others, while too much waits for the disk, and
while the disk is short of room. Publishers wait while a server is too far behind. Event loop only.
"""

from __future__ import annotations

import contextlib
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from dispatcher.servers.limits import Backpressure
from dispatcher.servers.upkeep import Upkeep
from dispatcher.store.event_log import Log
from edn import protocol
from edn.errors import Conflict, Overloaded, Unavailable

#: bytes waiting for their commit beyond which publishers are refused
PENDING_BYTES = 64 << 20


class Leadership(Protocol):
    """The place of this dispatcher among the others."""

    #: there are no others
    alone: bool

    def accepting(self) -> bool:
        """Whether events may be accepted here: no acknowledged change of another is unknown here."""
        ...

    def leads(self) -> bool:
        """Whether changes are carried out here, and not by another dispatcher."""
        ...

    def changing(self, *, complete: bool = False) -> AbstractAsyncContextManager[object]:
        """Carry out a change, and wait until the others have it; raises `Unavailable` if another leads.

        `complete`: only if all dispatchers are there.
        """
        ...

    async def level(self) -> None:
        """Wait until this dispatcher and the others know the same."""
        ...

    async def answer(self, poll: protocol.PeerPoll) -> protocol.PeerPage: ...

    def describe(self) -> list[dict[str, Any]]: ...


class Alone:
    """The only dispatcher."""

    alone = True

    def __init__(self, log: str, url: str | None) -> None:
        self._log = log
        self._url = url

    def accepting(self) -> bool:
        return True

    def leads(self) -> bool:
        return True

    def changing(self, *, complete: bool = False) -> AbstractAsyncContextManager[object]:
        return contextlib.nullcontext()

    async def level(self) -> None:
        pass

    async def answer(self, poll: protocol.PeerPoll) -> protocol.PeerPage:
        raise Conflict("this dispatcher was started without --peer: it is alone")

    def describe(self) -> list[dict[str, Any]]:
        own = {"log": self._log, "url": self._url, "self": True, "reachable": True}
        return [{**own, "ready": True, "level": True, "leader": True, "failure": None}]


class Admission:
    def __init__(self, log: Log, upkeep: Upkeep, backpressure: Backpressure, leadership: Leadership) -> None:
        self._log = log
        self._upkeep = upkeep
        self._backpressure = backpressure
        self._leadership = leadership

    def accepting(self) -> bool:
        """Whether events are accepted, sooner or later."""
        return self._upkeep.shortage is None and self._leadership.accepting()

    def check(self) -> None:
        """Raise `Unavailable` unless events are accepted."""
        if not self._leadership.accepting():
            raise Unavailable(
                "this dispatcher is not level with the others yet: try again, or another one", retry_after=1
            )
        if self._upkeep.shortage is not None:
            raise Unavailable(
                f"{self._upkeep.shortage}; no events are accepted until there is room", retry_after=5
            )

    async def admit(self, size: int) -> None:
        """Wait until a request of so many bytes may be accepted, or raise `Unavailable` or `Overloaded`."""
        if self._log.pending > PENDING_BYTES:
            raise Overloaded("more is waiting for the disk than the dispatcher holds", retry_after=1)
        self._upkeep.count(size)
        self.check()
        if self._backpressure.full:
            await self._backpressure.wait()
