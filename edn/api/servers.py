"""Processes of the network: servers, dispatchers and their clocks."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from edn.api.fields import Always, Sometimes

State = Annotated[str, Literal["ready", "joining", "away"]]


class Server(msgspec.Struct, frozen=True):
    id: str
    url: Always[str] = None
    state: Always[State] = None
    #: it gets no new subscriptions: it is being drained, or will not come back
    leaving: Annotated[str, Literal["draining", "lost"]] | None = None
    subscriptions: int = 0
    #: the offset up to which it has acknowledged the log
    cursor: int | None = None
    #: records of the log between its end and the last one that this server has, or does not need
    lag: int | None = None
    #: rectangles in use ÷ maximal rectangles; 0 is "route everything"
    precision: Always[float] = None
    #: events that were sent to it, since the dispatcher started
    forwarded: Always[int] = None
    #: those of them that matched at least one of its subscriptions
    useful: Always[int] = None
    #: (event, subscription) pairs that it found
    matched: Always[int] = None
    #: notifications that sinks accepted, since the server's start
    notified: Always[int] = None
    #: share of the published events that were forwarded to it
    hit_ratio: float | None = None
    #: notifications waiting to be delivered
    backlog: Always[int] = None
    #: why it cannot be reached, if so
    failure: str | None = None


class FullServer(Server, frozen=True, kw_only=True):
    cpu: float
    #: seconds by which its wall clock is suspect
    clock_suspect: float | None
    last_seen_seconds: float | None


class ServerList(msgspec.Struct, frozen=True):
    servers: list[Annotated[Server, FullServer]]
    published: Always[int] = None
    #: forwarded ÷ (published × servers)
    hit_ratio: float | None = None


class Dispatcher(msgspec.Struct, frozen=True):
    #: of its log; None until it has answered the dispatcher that was asked
    log: str | None = None
    url: str | None = None
    #: it is the one that was asked
    asked: bool = msgspec.field(name="self", default=False)
    reachable: bool = True
    #: it accepts events
    ready: bool = True
    #: of others: it has every change of the dispatcher that was asked
    level: bool = True
    #: it carries out changes of topics and subscriptions
    leader: bool = False
    #: why it cannot be reached, if so
    failure: str | None = None


class DispatcherList(msgspec.Struct, frozen=True):
    dispatchers: list[Dispatcher]


class ServerClock(msgspec.Struct, frozen=True):
    id: str
    #: seconds by which its wall clock departs from its network time, where it is suspect
    suspect: float | None = None
    #: of a confirmation: the error
    failure: Sometimes[str] = None


class Clock(msgspec.Struct, frozen=True):
    """The time by which everything expires, and the wall clock that it follows."""

    time: str
    wall: str
    #: seconds by which the dispatcher's wall clock departs from network time, where it is suspect
    suspect: float | None = None
    #: seconds after which a suspect wall clock is trusted, if it goes on like this
    trusted_in: float | None = None
    #: corrections that were adopted since the start, and their sum in seconds
    adoptions: int = 0
    adopted: float = 0.0
    servers: list[ServerClock] = []

    @property
    def is_suspect(self) -> bool:
        return self.suspect is not None or any(one.suspect is not None for one in self.servers)
