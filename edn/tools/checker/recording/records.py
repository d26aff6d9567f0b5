"""The lines of a recording: one JSON object each, the first a header. `docs/checking.md` describes them."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import msgspec

from edn.errors import InvalidInput

VERSION = 1

Kind = Literal[
    "subscribe",
    "change",
    "renew",
    "pause",
    "resume",
    "unsubscribe",
    "publish",
    "advertise",
    "unadvertise",
]


class RecordingError(InvalidInput):
    """A recording that cannot be read."""

    title: ClassVar[str] = "Unreadable recording"


class Line(msgspec.Struct, tag_field="record", tag=str.lower, omit_defaults=True):
    #: nanoseconds of the monotonic clock
    time: int


class Header(Line):
    version: int
    #: nanoseconds since 1970 at `time`
    wall: int
    #: seconds by which the network's clocks may differ from this wall clock
    clock_tolerance: float = 0.5
    #: seconds after which an operation of unknown outcome takes no effect; None for no limit
    settles_after: float | None = None


class Topic(Line):
    topic: str
    attributes: dict[str, str | list[str]]
    availability: float | Literal["forever"] = 0
    #: whether events have no fields but the attributes
    closed: bool = False
    #: what happens to events that their publishers have not advertised
    advertising: Literal["off", "deliver", "guard"] = "off"


class Listening(Line):
    """All notifications that this address accepts from now on are recorded."""

    address: str


class Stopped(Line):
    """Notifications that this address accepts are no longer recorded."""

    address: str


class Excused(Line):
    """This address fails on purpose: its missing notifications are no violation."""

    address: str


class Invoke(Line):
    """A request is about to be sent."""

    op: int | str
    kind: Kind
    subscription: str | None = None
    topic: str | None = None
    filter: dict[str, Any] | str | None = None
    #: in place of a filter: "sequence" (steps, each with its topic), "by" and "within", as in the request
    sequence: dict[str, Any] | None = None
    address: str | None = None
    recipient: str | None = None
    expires: str | None = None
    events: list[dict[str, Any]] = []
    #: idempotency key, from which events without an id get one
    key: str | None = None
    #: dispatcher; events of one dispatcher are in one order
    via: str | None = None
    publisher: str | None = None
    #: id of an advertisement, and the events that it covers
    advertisement: str | None = None
    declares: dict[str, Any] | None = None


class Ok(Line):
    """The operation took effect."""

    op: int | str
    subscription: str | None = None
    filter: dict[str, Any] | None = None
    expires: str | None = None
    ids: list[str] | None = None
    #: places of events that were dropped because nothing covered them; `ids` has none for them
    unadvertised: list[int] | None = None


class Fail(Line):
    """The operation was refused, and never takes effect."""

    op: int | str
    status: int | None = None
    reason: str | None = None


class Unknown(Line):
    """The operation may have taken effect, or may do so later."""

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


class SequenceEvent(NotifiedEvent, kw_only=True):
    topic: str


class Entry(msgspec.Struct, omit_defaults=True):
    topic: str
    matches: list[Match]
    event: NotifiedEvent | None = None
    #: of a sequence
    events: list[SequenceEvent] = []


class Body(msgspec.Struct):
    notifications: list[Entry]


class Notification(Line):
    """A POST, and the status of its answer."""

    address: str
    webhook: str
    #: None if the body is not a notification; `malformed` has it then, in base64
    body: Body | None = None
    malformed: str | None = None
    status: int = 204


class Quiet(Line):
    """The network is at rest: all due notifications have arrived."""


class End(Line):
    """The recording is complete."""


Record = (
    Header | Topic | Listening | Stopped | Excused | Invoke | Ok | Fail | Unknown | Notification | Quiet | End
)
