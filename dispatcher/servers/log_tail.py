"""The newest records of the log in memory, bounded in bytes.

Forwarders that keep up read from here; the others read from disk.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from dispatcher.store.records import EventsRecord, Record


class Tail:
    """Committed records in order; the oldest are evicted first. Event loop only."""

    def __init__(self, *, head: int, limit_bytes: int) -> None:
        #: last committed offset
        self.head = head
        #: offset after which no record is evicted
        self.floor = head
        self._limit = limit_bytes
        self._size = 0
        self._records: list[Record] = []
        self._lasts: list[int] = []

    def extend(self, records: Iterable[Record]) -> None:
        for record in records:
            self._records.append(record)
            self._lasts.append(record.last)
            self._size += record.size
        if self._lasts:
            self.head = self._lasts[-1]
        if self._size > self._limit:
            self._evict()

    def _evict(self) -> None:
        # Down to three quarters, because deleting the front of a list is slow. At least one record stays.
        goal = self._limit * 3 // 4
        drop = 0
        while self._size > goal and drop < len(self._records) - 1:
            self._size -= self._records[drop].size
            drop += 1
        if drop:
            self.floor = self._lasts[drop - 1]
            del self._records[:drop]
            del self._lasts[:drop]

    def recent(self, topic: int, events: int) -> list[EventsRecord]:
        """Return the newest records of a topic with at least `events` events in total, the newest first."""
        found: list[EventsRecord] = []
        for record in reversed(self._records):
            if events <= 0:
                break
            if isinstance(record, EventsRecord) and record.topic == topic:
                found.append(record)
                events -= record.count
        return found

    def after(self, offset: int) -> list[Record] | None:
        """Return the records after an offset; None if some of them are evicted."""
        if offset < self.floor:
            return None
        return self._records[bisect_right(self._lasts, offset) :]
