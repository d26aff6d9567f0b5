"""Traces recent events: arrival, matching subscriptions, delivery attempts.

Tracing costs nothing per event: it keeps the arrays of a frame and the rows of a POST, which exist anyway.
The oldest are forgotten beyond a number of bytes, and all at a restart. The writer's thread adds frames, the
event loop POSTs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from edn import protocol
from edn.runtime.ownership import owned
from edn_server.delivery.attempts import Attempt
from edn_server.ingest.apply_frame import Matches
from edn_server.storage.outbox import Row
from edn_server.subscriptions.view import RegistryView

#: bytes of remembered frames and rows
FRAME_BYTES = 16 << 20
ROW_BYTES = 16 << 20
#: further bytes per entry, roughly
_OVERHEAD = 256


@dataclass(frozen=True, slots=True)
class _Frame:
    log: str
    frame_id: int
    #: time of the commit, microseconds
    committed: int
    matches: Matches


@dataclass(frozen=True, slots=True)
class _Post:
    rows: Sequence[Row]
    attempt: Attempt


@owned("any")
class EventTraces:
    def __init__(self) -> None:
        self._frames: deque[_Frame] = deque()
        self._posts: deque[_Post] = deque()
        self._frame_bytes = 0
        self._row_bytes = 0

    def add_frame(self, log: str, frame_id: int, committed: int, matches: Matches) -> None:
        """Remembers a frame; in the writer's thread."""
        self._frames.append(_Frame(log, frame_id, committed, matches))
        self._frame_bytes += matches.nbytes + _OVERHEAD
        while self._frame_bytes > FRAME_BYTES and len(self._frames) > 1:
            self._frame_bytes -= self._frames.popleft().matches.nbytes + _OVERHEAD

    def add_post(self, rows: Sequence[Row], attempt: Attempt) -> None:
        """Remembers a POST; on the event loop."""
        self._posts.append(_Post(rows, attempt))
        self._row_bytes += _size(rows)
        while self._row_bytes > ROW_BYTES and len(self._posts) > 1:
            self._row_bytes -= _size(self._posts.popleft().rows)

    def find(self, view: RegistryView, log: str, offset: int) -> protocol.EventTrace:
        """Returns the trace of an event; empty if it is not recent."""
        # A copy, because the writer's thread may append.
        for frame in reversed(tuple(self._frames)):
            offsets = frame.matches.offsets
            if frame.log != log or not len(offsets) or not offsets[0] <= offset <= offsets[-1]:
                continue
            place = int(np.searchsorted(offsets, offset))
            if offsets[place] == offset:
                numbers = frame.matches.numbers[frame.matches.places == place].tolist()
                return protocol.EventTrace(
                    committed=frame.committed,
                    recipients=[self._recipient(view, frame.frame_id, place, number) for number in numbers],
                )
        return protocol.EventTrace(committed=None, recipients=[])

    def _recipient(
        self, view: RegistryView, frame_id: int, place: int, number: int
    ) -> protocol.TracedRecipient:
        version = view.version(number)
        attempts = [
            msgspec.convert(post.attempt, protocol.TracedAttempt, from_attributes=True)
            for post in tuple(self._posts)
            for row in post.rows
            if row.frame_id == frame_id and number in dict(row.matches()).get(place, ())
        ]
        return protocol.TracedRecipient(version.id if version is not None else "", attempts)


def _size(rows: Sequence[Row]) -> int:
    return sum(len(row.composition) + _OVERHEAD for row in rows)
