"""The servers that this dispatcher knows, and what it can say of each."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from dispatcher.servers.forwarder import Forwarder
from dispatcher.store.servers import Leaving as Leaving
from edn import protocol
from edn.errors import Conflict, InvalidInput
from edn.http.client import parse_url
from edn.runtime import clock

#: interval of a server's heartbeats, and how many it may miss before it is offline
HEARTBEAT_SECONDS = 1.0
MISSED_HEARTBEATS = 5

_SERVER_ID = re.compile(r"[A-Za-z0-9_.-]{1,64}")


def hashed(key: str) -> str:
    """Hash a server's key, to recognise the server later."""
    return hashlib.sha256(key.encode()).hexdigest()


def check_registration(request: protocol.Register) -> None:
    if not _SERVER_ID.fullmatch(request.id):
        raise InvalidInput(
            f"server id {request.id!r}: 1 to 64 letters, digits, dots, dashes, underscores", pointer="/id"
        )
    try:
        parse_url(request.url)
    except ValueError:
        raise InvalidInput(
            f"server url {request.url!r}: an http(s) address is needed", pointer="/url"
        ) from None
    if len(request.key) < 16:
        raise InvalidInput("server key: at least 16 characters", pointer="/key")
    if request.epoch < 1:
        raise InvalidInput("server epoch: 1 or more", pointer="/epoch")


@dataclass(slots=True)
class Server:
    """One server. `forwarder` is None until it has registered in this life of the dispatcher."""

    id: str
    url: str
    key: str
    epoch: int
    registered: int
    #: in the directory, or being stored
    subscriptions: int = 0
    #: it takes no new subscriptions: it is being emptied, or will not come back
    leaving: Leaving | None = None
    #: where it is, and how far from here; see `dispatcher.servers.placement`
    location: tuple[float, ...] = ()
    distance: float = 1.0
    backlog: int = 0
    cpu: float = 0.0
    #: notifications that sinks took, since the server's start
    notified: int = 0
    #: seconds by which its wall clock is suspect; None: it is not
    suspect: float | None = None
    #: monotonic time of the last sign of life
    seen: float = 0.0
    #: offset of its last join record; behind it the server is still joining
    joined: int = 0
    forwarder: Forwarder | None = None
    task: asyncio.Task[None] | None = None
    #: (epoch, seq) of the summary in use, None while everything is routed to it
    summary: tuple[int, int] | None = None
    asking: bool = False
    #: counts the times at which a summary that was asked for before ceased to be good enough
    asked: int = 0
    #: rectangles that were added to the table since the last summary was asked for, and when the last was
    widened: int = 0
    widened_at: float = 0.0

    def check_key(self, key: str) -> None:
        if not hmac.compare_digest(self.key, hashed(key)):
            raise Conflict(
                f'server id "{self.id}" belongs to another server, last seen at {self.url}: '
                "choose another id, or start with that server's data folder"
            )

    def state(self, now: float, silence: float) -> str:
        """`away`, `joining` or `ready`; only a ready server is given new subscriptions."""
        if self.forwarder is None or now - self.seen > silence or self.forwarder.failure is not None:
            return "away"
        return "joining" if self.forwarder.acked < self.joined else "ready"


class ServerRegistry:
    """All servers by id. Event loop only."""

    def __init__(
        self,
        silence: float = HEARTBEAT_SECONDS * MISSED_HEARTBEATS,
        clock: Callable[[], float] = clock.monotonic,
    ) -> None:
        self._silence = silence
        self._clock = clock
        self._members: dict[str, Server] = {}

    def __iter__(self) -> Iterator[Server]:
        return iter(self._members.values())

    def get(self, server: str) -> Server | None:
        return self._members.get(server)

    def add(self, member: Server) -> None:
        self._members[member.id] = member
        self._members = dict(sorted(self._members.items()))

    def state(self, member: Server) -> str:
        return member.state(self._clock(), self._silence)

    def touch(self, member: Server) -> None:
        member.seen = self._clock()

    def remove(self, server: str) -> None:
        self._members.pop(server, None)

    def set_leaving(self, server: str, leaving: Leaving | None) -> None:
        member = self._members.get(server)
        if member is not None:
            member.leaving = leaving

    def present(self) -> list[Server]:
        """The servers that are online, joining ones too."""
        return [member for member in self._members.values() if self.state(member) != "away"]

    def ready(self) -> list[Server]:
        return [member for member in self._members.values() if self.state(member) == "ready"]

    def hosts(self) -> list[Server]:
        """The ready ones that take new subscriptions."""
        return [member for member in self.ready() if member.leaving is None]
