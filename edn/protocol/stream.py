"""The stream of log records from a dispatcher to a server. See `edn.protocol`."""

from __future__ import annotations

from typing import Literal

import msgspec

from edn.formats.webhooks import KeyRing
from edn.protocol.codec import Int64, Width

Kind = Literal["activate", "deactivate", "change", "move", "renew", "pause", "resume", "rotate", "join"]


class Control(msgspec.Struct, frozen=True):
    """A record that changes subscriptions. Which fields are set depends on `kind`.

    activate    `versions`: each (id, version) matches from the next offset on; what is found of those in
                `replays` waits until the pages of their past have come (`ReplayPage`)
    pause       `ids`: what matches after this offset is kept and not sent
    resume      `ids`: what was kept goes out, to the sink of now, before what matches after this offset
    change      `versions`: the older version matches up to this offset, the named one after it
    move        the same where the older one is on another server: each of the two has this record, beside
                each other in the log, and does its part. What begins by it may have `replays`, too
    deactivate  `ids`: the active version ends here, or what is stored if none is active, so that a
                subscription made anew under an id whose end is yet to be read is not lost; `versions`: just
                these end
    renew       `expiries`: new expiry of each id in this log, None for never
    join        what a log that was left had active is active from here on if this log never activated it;
                what an earlier incarnation stored and no log has activated by now is dropped
    rotate      `rings`: the secrets that count from now on
    """

    offset: Int64
    time: Int64
    kind: Kind
    versions: list[tuple[str, Int64]] = []
    ids: list[str] = []
    expiries: list[tuple[str, Int64 | None]] = []
    incarnation: Int64 = 0
    rings: list[KeyRing] = []
    replays: list[tuple[str, Int64]] = []
    #: of pause and resume, where there are several dispatchers: which state of the subscription it is
    revision: Int64 = 0
    #: of deactivate: why, for sinks that want to be told (`edn.formats.soap`); empty if the subscriber asked
    #: for it
    end: str = ""


class Segment(msgspec.Struct, frozen=True):
    """The events of one topic in a frame, column by column, in the order of their offsets."""

    topic: Int64
    #: int64 each
    offsets: bytes
    #: int64 each: the log's time, which expiry is compared with
    times: bytes
    #: int64 each: the event's own time, which the subscriber is told
    stamps: bytes
    #: float64, row-major; rows have `width` columns
    points: bytes
    width: Width
    #: empty where no publisher chose one: the ids are then made from log and offset
    ids: list[str]
    #: the attributes as JSON, as they go into the notification: a line each
    lines: bytes
    #: the trace context of each (`edn.formats.trace_context`); empty where none has one
    traces: list[str] = []


class Frame(msgspec.Struct, frozen=True):
    log: str
    incarnation: Int64
    after: Int64
    upto: Int64
    controls: list[Control]
    segments: list[Segment]


class FrameAck(msgspec.Struct, frozen=True):
    epoch: Int64
    cursor: Int64
    #: rows that are stored but no longer needed by the summary: a hint to ask for a snapshot
    shrinkable: Int64 = 0
    #: (event, subscription) pairs and events with at least one pair, for the dispatcher's counters
    matched: Int64 = 0
    useful: Int64 = 0
