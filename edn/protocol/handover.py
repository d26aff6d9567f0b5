"""Hand-over of a migrated subscription from its old server to its new one. See `edn.protocol`."""

from __future__ import annotations

import msgspec

from edn.protocol.codec import Int64


class Departures(msgspec.Struct, frozen=True):
    """Subscriptions that have migrated, each with its version on the new server."""

    versions: list[tuple[str, Int64]]
    #: subscriptions whose buffered notifications are no longer needed
    forget: list[str] = []


class Departed(msgspec.Struct, frozen=True):
    #: subscriptions that have ended here in every log
    ended: list[str]
    #: ended subscriptions with buffered notifications or half matches
    keeping: list[str]
    #: ended subscriptions without notifications to deliver from here
    delivered: list[str]
    #: ended sequences
    monitored: list[str] = []


class BufferedQuery(msgspec.Struct, frozen=True):
    subscription: str
    #: number of rows that were transferred before
    after: Int64


class BufferedEvent(msgspec.Struct, frozen=True, array_like=True):
    topic: Int64
    id: str
    stamp: Int64
    #: attributes as JSON
    body: bytes
    #: trace context
    trace: str = ""


class BufferedPage(msgspec.Struct, frozen=True):
    """Buffered rows (after, upto] of a subscription that was paused during its migration."""

    subscription: str
    version: Int64
    after: Int64
    upto: Int64
    events: list[BufferedEvent]
    #: whether this is the last page
    final: bool


class ProgressQuery(msgspec.Struct, frozen=True):
    """Asks for the half matches of a migrated sequence; the answer is a `ProgressPage`."""

    subscription: str
    #: on the new server
    version: Int64
    #: number of rows that were transferred before
    after: Int64


class ProgressRow(msgspec.Struct, frozen=True, array_like=True):
    """An event of a half match, or a candidate that is not fed yet."""

    #: values of `by`
    key: bytes
    #: position in the half match; -1 for a candidate
    slot: int
    #: order of arrival of a candidate
    serial: Int64
    data: bytes


class ProgressPage(msgspec.Struct, frozen=True):
    """Rows (after, upto] of the monitor of a migrated sequence."""

    subscription: str
    version: Int64
    after: Int64
    upto: Int64
    rows: list[ProgressRow]
    #: whether this is the last page
    final: bool
    late: Int64 = 0
    dropped: Int64 = 0


class Arrivals(msgspec.Struct, frozen=True):
    """Subscriptions whose old server has drained its outbox."""

    versions: list[tuple[str, Int64]]


class Accepted(msgspec.Struct, frozen=True):
    #: number of accepted buffered rows; 0 for other messages
    position: Int64 = 0
    #: whether the server does not expect the message (any more)
    unknown: bool = False
