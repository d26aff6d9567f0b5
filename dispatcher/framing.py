"""Puts together what one server needs of a range of the log. No I/O."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from dispatcher.records import EventsRecord
from edn import wire
from edn.picking import pick
from edn.rect import MISSING

Ints = npt.NDArray[np.int64]


@dataclass(slots=True)
class _Rows:
    """The chosen events of one topic, so far: a part of each column for every record."""

    offsets: list[Ints] = field(default_factory=list)
    #: a record's one time, and for how many events it stands
    times: list[tuple[int, int]] = field(default_factory=list)
    stamps: list[Ints] = field(default_factory=list)
    points: list[npt.NDArray[np.float64]] = field(default_factory=list)
    lines: list[npt.NDArray[np.uint8]] = field(default_factory=list)
    #: empty for a record whose ids follow from the offsets
    ids: list[list[str]] = field(default_factory=list)
    #: empty for a record without trace contexts
    traces: list[list[str]] = field(default_factory=list)


class FrameBuilder:
    """Collects records in order, then gives the frame."""

    def __init__(self) -> None:
        self.events = 0
        self.size = 0
        self._controls: list[wire.Control] = []
        self._topics: dict[int, _Rows] = {}

    @property
    def empty(self) -> bool:
        return not self._controls and not self._topics

    def add_control(self, control: wire.Control) -> None:
        self._controls.append(control)

    def add_events(self, record: EventsRecord, chosen: npt.NDArray[np.bool_]) -> None:
        """The events of `record` that `chosen` marks."""
        places, stamps, points, lines = pick(chosen, record.stamps, record.points, record.lines, record.ends)
        count = len(places)
        if not count:
            return
        places += record.first
        rows = self._topics.get(record.topic)
        if rows is None:
            rows = self._topics[record.topic] = _Rows()
        rows.offsets.append(places)
        rows.times.append((record.time, count))
        rows.stamps.append(stamps)
        rows.points.append(points)
        rows.lines.append(lines)
        rows.ids.append(
            [record.ids[offset - record.first] for offset in places.tolist()] if record.ids else []
        )
        rows.traces.append(
            [record.traces[offset - record.first] for offset in places.tolist()] if record.traces else []
        )
        self.events += count
        self.size += len(lines)

    def frame(self, log: str, incarnation: int, after: int, upto: int) -> wire.Frame:
        segments = [_segment(log, topic, rows) for topic, rows in self._topics.items()]
        return wire.Frame(log, incarnation, after, upto, self._controls, segments)


def stack(parts: list[npt.NDArray[np.float64]]) -> npt.NDArray[np.float64]:
    """Points of one topic under each other; older ones are narrower, and miss what they lack."""
    if len(parts) == 1:
        return parts[0]
    width = max(part.shape[1] for part in parts)
    return np.concatenate(
        [
            part
            if part.shape[1] == width
            else np.pad(part, ((0, 0), (0, width - part.shape[1])), constant_values=MISSING)
            for part in parts
        ]
    )


def _segment(log: str, topic: int, rows: _Rows) -> wire.Segment:
    points = stack(rows.points)
    return wire.Segment(
        topic=topic,
        offsets=wire.view(_joined(rows.offsets)),
        times=wire.view(np.repeat(*np.array(rows.times, dtype=np.int64).T)),
        stamps=wire.view(_joined(rows.stamps)),
        points=wire.view(points),
        width=points.shape[1],
        ids=_ids(log, rows) if any(rows.ids) else [],
        lines=wire.view(_joined(rows.lines)),
        traces=_traces(rows) if any(rows.traces) else [],
    )


def _joined(parts: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _ids(log: str, rows: _Rows) -> list[str]:
    """All ids spelt out, where some are chosen."""
    return [
        name
        for own, offsets in zip(rows.ids, rows.offsets, strict=True)
        for name in (own or [wire.made_id(log, offset) for offset in offsets.tolist()])
    ]


def _traces(rows: _Rows) -> list[str]:
    """One for each event, where some have one."""
    return [
        trace
        for own, offsets in zip(rows.traces, rows.offsets, strict=True)
        for trace in (own or [""] * len(offsets))
    ]
