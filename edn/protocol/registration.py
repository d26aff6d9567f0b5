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
    #: where it is, in coordinates that subscribers use too; empty where it does not matter
    location: list[float] = []
    #: network distance from the dispatcher, in a unit of the operator's own
    distance: float = 1.0


class Registered(msgspec.Struct, frozen=True):
    log: str
    incarnation: Int64
    heartbeat_seconds: float


class Heartbeat(msgspec.Struct, frozen=True):
    key: str
    epoch: Int64
    #: notifications waiting to be delivered
    backlog: Int64
    #: share of one core used since the last one, 0..1
    cpu: float
    #: notifications that sinks took, since the server's start
    notified: Int64 = 0
    #: seconds by which its wall clock is suspect (`edn.runtime.clock`); None: it is not
    suspect: float | None = None
