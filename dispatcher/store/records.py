"""Records of the log, and their format on disk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import numpy.typing as npt

from edn import protocol
from edn.formats.ndjson import ends_of


@dataclass(frozen=True, slots=True)
class ControlRecord:
    """A control record; it concerns one server."""

    offset: int
    server: str
    control: protocol.Control

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
    """Contiguous events of one topic and one commit.

    On disk, the events of one request; in memory also those of several requests (`coalesce`).
    """

    #: offset of the first event
    first: int
    time: int
    #: uid of the topic
    topic: int
    #: event ids; empty if all are generated, which means derived from the offsets
    ids: list[str]
    stamps: npt.NDArray[np.int64]
    #: attributes as JSON, one line per event
    lines: bytes
    points: npt.NDArray[np.float64]
    #: ends of availability, network time in microseconds; None if no event is retained
    expiries: npt.NDArray[np.int64] | None = None
    #: event × server: is the event routed to the server; set right after the commit
    routed: npt.NDArray[np.bool_] | None = None
    servers: tuple[str, ...] = ()
    #: trace contexts (`edn.formats.trace_context`); empty if no publisher sent one
    traces: Sequence[str] = ()
    _ends: npt.NDArray[np.int64] | None = None

    @property
    def count(self) -> int:
        return len(self.stamps)

    @property
    def last(self) -> int:
        return self.first + len(self.stamps) - 1

    def add_server(self, server: str, chosen: npt.NDArray[np.bool_]) -> None:
        """Add the events that are routed to another server; the array is replaced, not changed."""
        routed = np.empty((self.count, 0), dtype=np.bool_) if self.routed is None else self.routed
        self.routed = np.column_stack([routed, chosen])
        self.servers = (*self.servers, server)

    def routed_to(self, server: str) -> npt.NDArray[np.bool_]:
        assert self.routed is not None
        return self.routed[:, self.servers.index(server)]

    @property
    def size(self) -> int:
        return len(self.lines) + self.points.nbytes + 32 * len(self.stamps) + 96 * len(self.ids)

    @property
    def ends(self) -> npt.NDArray[np.int64]:
        if self._ends is None:
            self._ends = ends_of(self.lines)
        return self._ends


Record = ControlRecord | EventsRecord

#: end of an availability without end
FOREVER = 2**62


class _StoredEvents(msgspec.Struct, frozen=True, array_like=True):
    """The format of an `EventsRecord` on disk."""

    ids: list[str]
    stamps: bytes
    lines: bytes
    width: int
    points: bytes
    expiries: bytes = b""
    traces: Sequence[str] = ()


_events_decoder = msgspec.msgpack.Decoder(_StoredEvents)
_control_decoder = msgspec.msgpack.Decoder(protocol.Control)


def events_payload(record: EventsRecord) -> bytes:
    return msgspec.msgpack.encode(
        _StoredEvents(
            record.ids,
            protocol.view(record.stamps),
            record.lines,
            record.points.shape[1],
            protocol.view(record.points),
            b"" if record.expiries is None else protocol.view(record.expiries),
            record.traces,
        )
    )


def load_events(first: int, time: int, topic: int, payload: bytes) -> EventsRecord:
    stored = _events_decoder.decode(payload)
    points = protocol.points_array(stored.points, stored.width)
    stamps = protocol.int64_array(stored.stamps)
    expiries = protocol.int64_array(stored.expiries) if stored.expiries else None
    return EventsRecord(
        first, time, topic, stored.ids, stamps, stored.lines, points, expiries, traces=stored.traces
    )


def expiries_of(time: int, availability: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Return the ends of the availability of events of a time."""
    until = time + np.minimum(availability * 1e6, float(FOREVER - time - 1024))
    return np.where(np.isinf(availability), FOREVER, until.astype(np.int64))


def coalesce(records: Sequence[Record], limit: int) -> list[Record]:
    """Merge neighbouring records of a topic, up to `limit` events: routing costs are per record.

    Merged records have no expiries; only replays need these, and they read from disk.
    """
    out: list[Record | list[EventsRecord]] = []
    for record in records:
        if isinstance(record, ControlRecord):
            out.append(record)
            continue
        run = out[-1] if out else None
        if isinstance(run, list) and _alike(run[0], record) and record.last - run[0].first < limit:
            run.append(record)
        else:
            out.append([record])
    return [_merged(one) if isinstance(one, list) else one for one in out]


def _alike(one: EventsRecord, other: EventsRecord) -> bool:
    return (
        one.topic == other.topic
        and one.time == other.time
        and bool(one.ids) == bool(other.ids)
        and bool(one.traces) == bool(other.traces)
        and one.points.shape[1] == other.points.shape[1]
    )


def _merged(run: list[EventsRecord]) -> EventsRecord:
    first = run[0]
    if len(run) == 1:
        return first
    return EventsRecord(
        first.first,
        first.time,
        first.topic,
        [name for record in run for name in record.ids],
        np.concatenate([record.stamps for record in run]),
        b"".join([record.lines for record in run]),
        np.concatenate([record.points for record in run]),
        traces=[trace for record in run for trace in record.traces],
    )


def load_control(server: str, payload: bytes) -> ControlRecord:
    control = _control_decoder.decode(payload)
    return ControlRecord(control.offset, server, control)
