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
    #: reason why it gets no new subscriptions: it is drained, or lost
    leaving: Annotated[str, Literal["draining", "lost"]] | None = None
    subscriptions: int = 0
    #: offset up to which it has acknowledged the log
    cursor: int | None = None
    #: records at the end of the log that the server does not have and may need
    lag: int | None = None
    #: rectangles in use ÷ maximal rectangles; 0: every event is routed there
    precision: Always[float] = None
    #: events routed to it since the start of the dispatcher
    forwarded: Always[int] = None
    #: routed events that matched at least one of its subscriptions
    useful: Always[int] = None
    #: matches
    matched: Always[int] = None
    #: delivered notifications since the start of the server
    notified: Always[int] = None
    #: share of the published events that were routed to it
    hit_ratio: float | None = None
    #: notifications in the outbox
    backlog: Always[int] = None
    #: error if it cannot be reached
    failure: str | None = None


class FullServer(Server, frozen=True, kw_only=True):
    cpu: float
    #: seconds by which its wall clock has jumped, if it is suspect
    clock_suspect: float | None
    last_seen_seconds: float | None


class ServerList(msgspec.Struct, frozen=True):
    servers: list[Annotated[Server, FullServer]]
    published: Always[int] = None
    #: forwarded ÷ (published × servers)
    hit_ratio: float | None = None


class Dispatcher(msgspec.Struct, frozen=True):
    #: id of its log
    log: str
    #: None without a database
    name: str | None = None
    url: str | None = None
    #: it is the dispatcher of this answer
    asked: bool = msgspec.field(name="self", default=False)
    #: it owns its log and accepts events
    ready: bool = True
    #: it has gone, and another dispatcher forwards the rest of its log
    draining: bool = False
    #: it moves subscriptions between servers
    leader: bool = False


class DispatcherList(msgspec.Struct, frozen=True):
    dispatchers: list[Dispatcher]


class ServerClock(msgspec.Struct, frozen=True):
    id: str
    #: seconds by which its wall clock differs from network time, if it is suspect
    suspect: float | None = None
    #: error of a confirmation
    failure: Sometimes[str] = None


class Clock(msgspec.Struct, frozen=True):
    """Network time, and the wall clock that it follows."""

    time: str
    wall: str
    #: seconds by which the dispatcher's wall clock differs from network time, if it is suspect
    suspect: float | None = None
    #: seconds until a suspect wall clock is trusted
    trusted_in: float | None = None
    #: adopted corrections since the start, and their sum in seconds
    adoptions: int = 0
    adopted: float = 0.0
    servers: list[ServerClock] = []

    @property
    def is_suspect(self) -> bool:
        return self.suspect is not None or any(one.suspect is not None for one in self.servers)
