"""The servers that this dispatcher knows, with their state."""

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
from edn.runtime.ownership import owned

#: interval of heartbeats, and how many a server may miss before it is offline
HEARTBEAT_SECONDS = 1.0
MISSED_HEARTBEATS = 5

_SERVER_ID = re.compile(r"[A-Za-z0-9_.-]{1,64}")


def hashed(key: str) -> str:
    """Hash a server's key, which identifies the server later."""
    return hashlib.sha256(key.encode()).hexdigest()


def check_registration(request: protocol.Register) -> None:
    if not _SERVER_ID.fullmatch(request.id):
        raise InvalidInput(
            f"server id must be 1 to 64 letters, digits, dots, dashes or underscores, got {request.id!r}",
            pointer="/id",
        )
    try:
        parse_url(request.url)
    except ValueError:
        raise InvalidInput(
            f"server url must be an http or https URL, got {request.url!r}", pointer="/url"
        ) from None
    if len(request.key) < 16:
        raise InvalidInput("server key must have at least 16 characters", pointer="/key")
    if request.epoch < 1:
        raise InvalidInput(f"server epoch must be 1 or more, got {request.epoch}", pointer="/epoch")


@dataclass(slots=True)
class Server:
    """A server. `forwarder` is None until it registers after the dispatcher's start."""

    id: str
    url: str
    key: str
    epoch: int
    registered: int
    #: subscriptions in the directory or being stored
    subscriptions: int = 0
    #: why it gets no new subscriptions: it is drained, or lost
    leaving: Leaving | None = None
    #: its location and network distance; see `dispatcher.servers.placement`
    location: tuple[float, ...] = ()
    distance: float = 1.0
    backlog: int = 0
    cpu: float = 0.0
    #: notifications delivered since the server's start
    notified: int = 0
    #: seconds by which its wall clock is off; None: it is right
    suspect: float | None = None
    #: monotonic time of the last heartbeat or acknowledgement
    seen: float = 0.0
    #: offset of its last *join* record; it is joining until it has read that
    joined: int = 0
    forwarder: Forwarder | None = None
    task: asyncio.Task[None] | None = None
    #: (epoch, seq) of the summary in use, None while everything is routed to it
    summary: tuple[int, int] | None = None
    #: monotonic time at which that summary came into use
    summary_at: float = 0.0
    #: whether its summary is being fetched
    fetching: bool = False
    #: how often summaries requested earlier became invalid
    distrusted: int = 0
    #: rectangles added to the table since the last summary was requested, and when the last was added
    widened: int = 0
    widened_at: float = 0.0

    def summary_age(self) -> float | None:
        """Return the seconds since its summary came into use; None while everything is routed to it."""
        return None if self.summary is None else round(clock.monotonic() - self.summary_at, 1)

    def check_key(self, key: str) -> None:
        if not hmac.compare_digest(self.key, hashed(key)):
            raise Conflict(
                f'server id "{self.id}" belongs to another server, last seen at {self.url}; '
                "choose another id, or start with that server's data folder"
            )

    def state(self, now: float, silence: float) -> str:
        """Return `away`, `joining` or `ready`; only a ready server gets new subscriptions."""
        if self.forwarder is None or now - self.seen > silence or self.forwarder.failure is not None:
            return "away"
        return "joining" if self.forwarder.acked < self.joined else "ready"


@owned("loop")
class ServerRegistry:
    def __init__(
        self,
        silence: float = HEARTBEAT_SECONDS * MISSED_HEARTBEATS,
        clock: Callable[[], float] = clock.monotonic,
    ) -> None:
        self._silence = silence
        self._clock = clock
        self._servers: dict[str, Server] = {}

    def __iter__(self) -> Iterator[Server]:
        return iter(self._servers.values())

    def get(self, server: str) -> Server | None:
        return self._servers.get(server)

    def add(self, server: Server) -> None:
        self._servers[server.id] = server
        self._servers = dict(sorted(self._servers.items()))

    def state(self, server: Server) -> str:
        return server.state(self._clock(), self._silence)

    def touch(self, server: Server) -> None:
        server.seen = self._clock()

    def remove(self, server: str) -> None:
        self._servers.pop(server, None)

    def set_leaving(self, server: str, leaving: Leaving | None) -> None:
        found = self._servers.get(server)
        if found is not None:
            found.leaving = leaving

    def present(self) -> list[Server]:
        """Return the servers that are online, also while they join."""
        return [server for server in self._servers.values() if self.state(server) != "away"]

    def ready(self) -> list[Server]:
        return [server for server in self._servers.values() if self.state(server) == "ready"]

    def hosts(self) -> list[Server]:
        """Return the ready servers that may get new subscriptions."""
        return [server for server in self.ready() if server.leaving is None]
