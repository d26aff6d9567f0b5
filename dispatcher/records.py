"""Records of the log, as the forwarders see them: in order, already committed."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
import numpy as np
import numpy.typing as npt

from edn import wire


@dataclass(frozen=True, slots=True)
class ControlRecord:
    """A change of subscriptions; it concerns one server."""

    offset: int
    server: str
    control: wire.Control

    @property
    def first(self) -> int:
        return self.offset

    @property
    def last(self) -> int:
        return self.offset

    @property
    def size(self) -> int:
        return 64 + 32 * (len(self.control.versions) + len(self.control.ids) + len(self.control.expiries))


@dataclass(slots=True)
class EventsRecord:
    """The events of one accepted request: they share a topic and the log's time, and lie side by side."""

    #: offset of the first of them
    first: int
    #: the log's time, microseconds
    time: int
    #: uid of the topic
    topic: int
    ids: list[str]
    #: the events' own times, microseconds
    stamps: list[int]
    #: attributes as JSON, serialised once for all copies
    bodies: list[bytes]
    points: npt.NDArray[np.float64]
    #: which of `servers` needs which event; filled once, right after the commit
    routed: npt.NDArray[np.bool_] | None = None
    servers: tuple[str, ...] = ()
    size: int = field(init=False)

    def __post_init__(self) -> None:
        self.size = sum(map(len, self.bodies)) + self.points.nbytes + 100 * len(self.bodies)

    @property
    def last(self) -> int:
        return self.first + len(self.bodies) - 1


Record = ControlRecord | EventsRecord


class _StoredEvents(msgspec.Struct, frozen=True, array_like=True):
    """What the log keeps of an `EventsRecord` on disk."""

    ids: list[str]
    stamps: list[int]
    bodies: list[bytes]
    width: int
    points: bytes


_events_decoder = msgspec.msgpack.Decoder(_StoredEvents)
_control_decoder = msgspec.msgpack.Decoder(wire.Control)


def events_payload(record: EventsRecord) -> bytes:
    return msgspec.msgpack.encode(
        _StoredEvents(
            record.ids, record.stamps, record.bodies, record.points.shape[1], wire.points_bytes(record.points)
        )
    )


def load_events(first: int, time: int, topic: int, payload: bytes) -> EventsRecord:
    stored = _events_decoder.decode(payload)
    points = wire.points_array(stored.points, stored.width)
    return EventsRecord(first, time, topic, stored.ids, stored.stamps, stored.bodies, points)


def load_control(server: str, payload: bytes) -> ControlRecord:
    control = _control_decoder.decode(payload)
    return ControlRecord(control.offset, server, control)
