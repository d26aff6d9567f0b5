"""Payloads of the newest frames, so that a prompt delivery does not read them from the database.

`bodies.Composer` replaces an event here by its encoded JSON, so an event is encoded once for all addresses.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

from edn.runtime.ownership import owned
from edn_server.storage.payloads import Event


@owned("any")
class PayloadCache:
    def __init__(self, most_bytes: int = 32 << 20) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._batches: OrderedDict[int, tuple[dict[int, Event | bytes], int]] = OrderedDict()
        self._lock = threading.Lock()

    def put(self, frame_id: int, events: dict[int, Event]) -> None:
        size = sum(len(event.body) + 200 for event in events.values())
        with self._lock:
            self._batches[frame_id] = (dict(events), size)
            self._bytes += size
            while self._bytes > self._most_bytes and self._batches:
                _, (_, gone) = self._batches.popitem(last=False)
                self._bytes -= gone

    def get(self, frame_id: int) -> dict[int, Event | bytes] | None:
        found = self._batches.get(frame_id)  # one operation: no lock
        return None if found is None else found[0]
