"""The lines of a recording: one JSON object each, the first a header. `docs/checking.md` describes them."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import msgspec

from edn.errors import InvalidInput

VERSION = 1

Kind = Literal["subscribe", "change", "renew", "pause", "resume", "unsubscribe", "publish"]


class RecordingError(InvalidInput):
    """A recording that cannot be read."""

    title: ClassVar[str] = "Unreadable recording"


class Header(msgspec.Struct, tag_field="record", tag="header"):
    version: int
    #: nanoseconds of the monotone clock that all records carry
    time: int
    #: nanoseconds since 1970 at that time
    wall: int
    #: seconds by which the network's clocks may differ from this wall clock
    clock_tolerance: float = 0.5
    #: seconds after which an operation that was recorded as unknown takes effect no more; None: it always can
    settles_after: float | None = None


class Topic(msgspec.Struct, tag_field="record", tag="topic"):
    time: int
    topic: str
    attributes: dict[str, str]
    availability: float | Literal["forever"] = 0


class Listening(msgspec.Struct, tag_field="record", tag="listening"):
    """From now on all that this address accepts is recorded."""

    time: int
    address: str


class Stopped(msgspec.Struct, tag_field="record", tag="stopped"):
    """What this address accepts is recorded no more."""

    time: int
    address: str


class Excused(msgspec.Struct, tag_field="record", tag="excused"):
    """This address fails on purpose: what it misses is nobody's fault."""

    time: int
    address: str


class Invoke(msgspec.Struct, tag_field="record", tag="invoke"):
    """A request is about to be sent."""

    time: int
    op: int | str
    kind: Kind
    subscription: str | None = None
    topic: str | None = None
    filter: dict[str, Any] | str | None = None
    address: str | None = None
    recipient: str | None = None
    expires: str | None = None
    events: list[dict[str, Any]] = []
    #: the idempotency key, which gives ids to events that have none
    key: str | None = None
    #: the dispatcher that it was sent to; events of one are in one order
    via: str | None = None
    publisher: str | None = None


class Ok(msgspec.Struct, tag_field="record", tag="ok"):
    """It was done."""

    time: int
    op: int | str
    subscription: str | None = None
    filter: dict[str, Any] | None = None
    expires: str | None = None
    ids: list[str] | None = None


class Fail(msgspec.Struct, tag_field="record", tag="fail"):
    """It was refused, and had and will have no effect."""

    time: int
    op: int | str
    status: int | None = None
    reason: str | None = None


class Unknown(msgspec.Struct, tag_field="record", tag="unknown"):
    """Nobody knows whether it was, or will be, done."""

    time: int
    op: int | str
    status: int | None = None
    reason: str | None = None


class Match(msgspec.Struct):
    subscription: str
    recipient: str | None = None


class NotifiedEvent(msgspec.Struct):
    id: str
    attributes: msgspec.Raw
    time: str | None = None


class Entry(msgspec.Struct):
    topic: str
    event: NotifiedEvent
    matches: list[Match]


class Body(msgspec.Struct):
    notifications: list[Entry]


class Notification(msgspec.Struct, tag_field="record", tag="notification"):
    """A POST as it arrived, and the status that it was answered."""

    time: int
    address: str
    webhook: str
    #: a body that is no notification is kept elsewhere, in `malformed`
    body: Body | None = None
    malformed: str | None = None
    status: int = 204


class Quiet(msgspec.Struct, tag_field="record", tag="quiet"):
    """The network is at rest: all that is due has arrived."""

    time: int


class End(msgspec.Struct, tag_field="record", tag="end"):
    """The recording is whole."""

    time: int


Record = (
    Header | Topic | Listening | Stopped | Excused | Invoke | Ok | Fail | Unknown | Notification | Quiet | End
)
