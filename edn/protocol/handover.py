"""Hand-over of a migrated subscription from its old server to its new one. See `edn.protocol`."""

from __future__ import annotations

import msgspec

from edn.protocol.codec import Int64


class Departures(msgspec.Struct, frozen=True):
    """Which subscriptions have moved away, each with the version that it goes on as elsewhere."""

    versions: list[tuple[str, Int64]]
    #: those of which nothing that was kept is needed any more
    forget: list[str] = []


class Departed(msgspec.Struct, frozen=True):
    #: every log has ended them here: nothing is found for them any more
    ended: list[str]
    #: of these, those that notifications are kept for
    keeping: list[str]
    #: of these, those that nothing waits for that is to be delivered from here
    delivered: list[str]


class KeptAfter(msgspec.Struct, frozen=True):
    subscription: str
    #: how many rows of what is kept were taken before
    after: Int64


class KeptEvent(msgspec.Struct, frozen=True, array_like=True):
    topic: Int64
    id: str
    stamp: Int64
    #: the attributes as JSON
    body: bytes
    #: the trace context that it came with
    trace: str = ""


class Kept(msgspec.Struct, frozen=True):
    """Buffered rows (after, upto] of a subscription that was paused when it moved, in order."""

    subscription: str
    version: Int64
    after: Int64
    upto: Int64
    events: list[KeptEvent]
    #: nothing follows
    final: bool


class ToldAfter(msgspec.Struct, frozen=True):
    subscriptions: list[str]
    #: topic and id of the last event of the page before
    after: tuple[Int64, str]


class Told(msgspec.Struct, frozen=True):
    """Which events, whose ids their publishers chose, were told to whom: another log may bring them again."""

    #: topic, id, the log's time, places in `subscriptions` of the question
    events: list[tuple[Int64, str, Int64, list[Int64]]]
    subscriptions: list[str]
    #: where the next page begins; None: there is none
    following: tuple[Int64, str] | None


class Arrivals(msgspec.Struct, frozen=True):
    """Subscriptions of which the server that they come from has nothing to deliver any more."""

    versions: list[tuple[str, Int64]]


class Taken(msgspec.Struct, frozen=True):
    #: how many rows were taken of what was kept elsewhere; of no meaning elsewhere
    position: Int64 = 0
    #: what it is about is not awaited here (any more)
    unknown: bool = False
