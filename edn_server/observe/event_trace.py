"""Traces recent events: arrival, matching subscriptions, delivery attempts.

Nothing is noted an event: of a frame its arrays are kept, which are there anyway, and of a POST its rows.
Both are forgotten beyond a number of bytes, the oldest first, and with the process. The writer's thread adds
frames, the event loop POSTs; a look goes over what is kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edn import protocol
from edn.runtime.ownership import owned
from edn_server.delivery.attempts import Attempt
from edn_server.ingest.apply_frame import Matches
from edn_server.storage.outbox import Row
from edn_server.subscriptions.view import RegistryView

#: bytes of frames, and of rows, that are kept
FRAME_BYTES = 16 << 20
ROW_BYTES = 16 << 20
#: what an entry costs besides, about
_OVERHEAD = 256


@dataclass(frozen=True, slots=True)
class _Frame:
    log: str
    batch: int
    #: microseconds: when its transaction was committed
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

    def came(self, log: str, batch: int, committed: int, matches: Matches) -> None:
        """In the writer's thread."""
        self._frames.append(_Frame(log, batch, committed, matches))
        self._frame_bytes += matches.nbytes + _OVERHEAD
        while self._frame_bytes > FRAME_BYTES and len(self._frames) > 1:
            self._frame_bytes -= self._frames.popleft().matches.nbytes + _OVERHEAD

    def sent(self, rows: Sequence[Row], attempt: Attempt) -> None:
        """On the event loop."""
        self._posts.append(_Post(rows, attempt))
        self._row_bytes += _size(rows)
        while self._row_bytes > ROW_BYTES and len(self._posts) > 1:
            self._row_bytes -= _size(self._posts.popleft().rows)

    def find(self, view: RegistryView, log: str, offset: int) -> protocol.EventTrace:
        """Return the trace of one event; empty if it is not recent."""
        # A copy at once: the writer's thread may be adding.
        for frame in reversed(tuple(self._frames)):
            offsets = frame.matches.offsets
            if frame.log != log or not len(offsets) or not offsets[0] <= offset <= offsets[-1]:
                continue
            place = int(np.searchsorted(offsets, offset))
            if offsets[place] == offset:
                numbers = frame.matches.numbers[frame.matches.places == place].tolist()
                return protocol.EventTrace(
                    committed=frame.committed,
                    recipients=[self._recipient(view, frame.batch, place, number) for number in numbers],
                )
        return protocol.EventTrace(committed=None, recipients=[])

    def _recipient(self, view: RegistryView, batch: int, place: int, number: int) -> protocol.TracedRecipient:
        version = view.version(number)
        attempts = [
            protocol.TracedAttempt(one.time, one.webhook_id, one.status, one.reason, one.seconds, one.outcome)
            for one in self._attempts(batch, place, number)
        ]
        return protocol.TracedRecipient(version.id if version is not None else "", attempts)

    def _attempts(self, batch: int, place: int, number: int) -> list[Attempt]:
        found = []
        for post in tuple(self._posts):
            for row in post.rows:
                if row.batch == batch and number in dict(row.matches()).get(place, ()):
                    found.append(post.attempt)
        return found


def _size(rows: Sequence[Row]) -> int:
    return sum(len(row.composition) + _OVERHEAD for row in rows)
