"""Puts together what one server needs of a range of the log. No I/O."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from dispatcher.store.records import EventsRecord
from edn import protocol
from edn.arrays import Bools
from edn.protocol.gather import Picked, extent


@dataclass(slots=True)
class _Rows:
    """The chosen events of one topic, so far."""

    parts: list[tuple[EventsRecord, Bools]] = field(default_factory=list)
    events: int = 0
    size: int = 0


class FrameBuilder:
    """Collects records in order, then gives the frame."""

    def __init__(self) -> None:
        self.events = 0
        self.size = 0
        self._controls: list[protocol.Control] = []
        self._topics: dict[int, _Rows] = {}

    @property
    def empty(self) -> bool:
        return not self._controls and not self._topics

    def add_control(self, control: protocol.Control) -> None:
        self._controls.append(control)

    def add_events(self, record: EventsRecord, chosen: Bools) -> None:
        """The events of `record` that `chosen` marks."""
        count, size = extent(chosen, record.ends)
        if not count:
            return
        rows = self._topics.get(record.topic)
        if rows is None:
            rows = self._topics[record.topic] = _Rows()
        rows.parts.append((record, chosen))
        rows.events += count
        rows.size += size
        self.events += count
        self.size += size

    def frame(self, log: str, incarnation: int, after: int, upto: int) -> protocol.Frame:
        segments = [_segment(log, topic, rows) for topic, rows in self._topics.items()]
        return protocol.Frame(log, incarnation, after, upto, self._controls, segments)


def _segment(log: str, topic: int, rows: _Rows) -> protocol.Segment:
    width = max(record.points.shape[1] for record, _ in rows.parts)
    picked = Picked(rows.events, width, rows.size)
    for record, chosen in rows.parts:
        picked.take(
            chosen, record.first, record.time, record.stamps, record.points, record.lines, record.ends
        )
    named = any(record.ids for record, _ in rows.parts)
    traced = any(record.traces for record, _ in rows.parts)
    return protocol.Segment(
        topic=topic,
        offsets=protocol.view(picked.offsets),
        times=protocol.view(picked.times),
        stamps=protocol.view(picked.stamps),
        points=protocol.view(picked.points),
        width=width,
        ids=_ids(log, rows) if named else [],
        lines=protocol.view(picked.lines),
        traces=_traces(rows) if traced else [],
    )


def _ids(log: str, rows: _Rows) -> list[str]:
    """All ids spelt out, where some are chosen."""
    return [
        record.ids[place] if record.ids else protocol.generated_id(log, record.first + place)
        for record, chosen in rows.parts
        for place in np.flatnonzero(chosen).tolist()
    ]


def _traces(rows: _Rows) -> list[str]:
    """One for each event, where some have one."""
    return [
        record.traces[place] if record.traces else ""
        for record, chosen in rows.parts
        for place in np.flatnonzero(chosen).tolist()
    ]
