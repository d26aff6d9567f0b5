"""Registration of a server with a dispatcher, and its heartbeat. See `edn.protocol`."""

from __future__ import annotations

import msgspec

from edn.protocol.codec import Int64


class Register(msgspec.Struct, frozen=True):
    id: str
    url: str
    key: str
    epoch: Int64
    #: log id → offset
    cursors: dict[str, Int64]
    subscriptions: Int64
    #: coordinates that subscribers use, too; empty if unused
    location: list[float] = []
    #: network distance from the dispatcher, in the operator's unit
    distance: float = 1.0


class Registered(msgspec.Struct, frozen=True):
    log: str
    incarnation: Int64
    heartbeat_seconds: float
    #: whether other dispatchers have logs beside this one, which end with a *retire* record
    shared: bool = False
    #: URLs of all dispatchers; empty if there is one only
    dispatchers: list[str] = []


class Heartbeat(msgspec.Struct, frozen=True):
    key: str
    epoch: Int64
    #: notifications in the outbox
    backlog: Int64
    #: share of one core used since the last heartbeat, 0..1
    cpu: float
    #: notifications delivered since the server's start
    notified: Int64 = 0
    #: seconds by which the wall clock is suspect (`edn.runtime.clock`), or None
    suspect: float | None = None


class HeartbeatAck(msgspec.Struct, frozen=True):
    #: URLs of all dispatchers
    dispatchers: list[str]
