"""The stream of log records from a dispatcher to a server, and replay. See `edn.protocol`."""

from __future__ import annotations

from typing import Literal

import msgspec

from edn.formats.webhooks import KeyRing
from edn.protocol.codec import Int64, Width

Kind = Literal[
    "activate",
    "deactivate",
    "change",
    "move",
    "renew",
    "pause",
    "resume",
    "rotate",
    "join",
    "follow",
    "retire",
]


class Control(msgspec.Struct, frozen=True):
    """A control record. The fields depend on `kind`.

    activate    `versions`: each (id, version) matches from the next offset on; matches of versions in
                `replays` wait for their replay (`ReplayPage`)
    pause       `ids`: matches after this offset are buffered
    resume      `ids`: buffered notifications are sent to the current sink, before matches after this offset
    change      `versions`: the older version matches up to this offset, the named one after it
    move        like change, with the older version on another server. Both servers get this record, at
                adjacent offsets. The new version may have `replays`, too
    deactivate  `ids`: the active version ends here, or the stored one if none is active, so that a
                subscription recreated under the same id is not lost; `versions`: only these end
    renew       `expiries`: new expiry of each id in this log, None for never
    join        versions stored by an earlier incarnation that no log has activated are dropped. `shared`: the
                first join ends all versions in this log, which then activates the current ones. Otherwise
                versions active in a log that was left become active here, unless this log activated them
    follow      another dispatcher has opened `log`: no version ends before it has ended there, too
    retire      `log` has ended, and this server has read all of it
    rotate      `rings`: the current key rings
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
    #: pause and resume in a shared directory: number of the change
    revision: Int64 = 0
    shared: bool = False
    log: str = ""
    #: deactivate: reason for sinks that are notified of it (`edn.formats.soap`); empty if the subscriber
    #: requested it
    end: str = ""


class Segment(msgspec.Struct, frozen=True):
    """The events of one topic in a frame as columns, in the order of their offsets."""

    topic: Int64
    #: int64 each
    offsets: bytes
    #: int64 each: time of the log, compared with expiries
    times: bytes
    #: int64 each: time of the event, as subscribers see it
    stamps: bytes
    #: float64, row-major; rows have `width` columns
    points: bytes
    width: Width
    #: empty if no publisher chose one: the ids are generated from log and offset
    ids: list[str]
    #: attributes as JSON, as in notifications, one line per event
    lines: bytes
    #: trace context per event (`edn.formats.trace_context`); empty if none has one
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
    #: stored rows that the summary no longer needs: a hint to request a snapshot
    shrinkable: Int64 = 0
    #: number of (event, subscription) pairs, and of events with at least one pair
    matched: Int64 = 0
    useful: Int64 = 0


class ReplayPage(msgspec.Struct, frozen=True):
    """Retained events for one new subscription.

    Pages are independent of the stream and its cursor. A page starts at the position that the server has
    committed for (subscription, version, log); otherwise it is a repeat and is dropped.
    """

    log: str
    subscription: str
    version: Int64
    #: the page covers the offsets (after, upto]
    after: Int64
    upto: Int64
    segment: Segment | None
    final: bool


class ReplayAck(msgspec.Struct, frozen=True):
    #: start of the next page
    position: Int64
    done: bool
