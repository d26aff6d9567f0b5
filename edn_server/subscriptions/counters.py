"""Counts events and notifications per version.

Counters are columns by version number, one row of `KINDS` per number:

    evaluated   events of the topic that reached this server while the version was active: the topic's count
                minus its value when the version was activated (stored as `since`)
    matched     events that the filter matched
    delivered   notifications that the sink accepted
    failed      notifications that became dead letters

A frame costs one `bincount` and no write; changed pages are written as blobs every few seconds. A crash loses
the last seconds of counting, never a notification.

The writer's thread counts matches, the event loop deliveries; a lock keeps a page whole while it is copied.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from edn.runtime.ownership import owned
from edn_server.storage import versions
from edn_server.storage.interface import Connection

KINDS = ("since", "matched", "delivered", "failed")
_SINCE, _MATCHED, _DELIVERED, _FAILED = range(len(KINDS))
#: numbers per page
PAGE = 4096

Numbers = npt.NDArray[np.integer]


class Counts(NamedTuple):
    evaluated: int
    matched: int
    delivered: int
    failed: int


@owned("any")
class VersionCounters:
    def __init__(self) -> None:
        self._counts = np.zeros((PAGE, len(KINDS)), dtype=np.int64)
        #: topic uid → events that reached this server
        self._topics: dict[int, int] = {}
        self._dirty: set[int] = set()
        self._lock = threading.Lock()

    # -- counting ---------------------------------------------------------------------------------------

    def matched(self, numbers: Numbers) -> None:
        """Counts one match per occurrence of a number; in the writer's thread."""
        if not len(numbers):
            return
        found = np.bincount(numbers)
        with self._lock:
            self._reserve(len(found))
            self._counts[: len(found), _MATCHED] += found
            pages = np.add.reduceat(found, np.arange(0, len(found), PAGE))
            self._dirty.update(np.flatnonzero(pages).tolist())

    def count_events(self, topic: int, events: int) -> None:
        """Counts events of a topic; in the writer's thread."""
        self._topics[topic] = self._topics.get(topic, 0) + events

    def activate(self, number: int, topic: int, later: int) -> None:
        """Starts counting for a version; the last `later` events of its topic came after its activation."""
        with self._lock:
            self._reserve(number + 1)
            self._counts[number, _SINCE] = self._topics.get(topic, 0) - later
            self._dirty.add(number // PAGE)

    def delivered(self, numbers: Numbers | Sequence[int]) -> None:
        self._add(numbers, _DELIVERED)

    def failed(self, numbers: Numbers | Sequence[int]) -> None:
        self._add(numbers, _FAILED)

    def _add(self, numbers: Numbers | Sequence[int], kind: int) -> None:
        if not len(numbers):
            return
        given = np.asarray(numbers)
        with self._lock:
            self._reserve(int(given.max()) + 1)
            np.add.at(self._counts[:, kind], given, 1)
            self._dirty.update(np.unique(given // PAGE).tolist())

    # -- reuse of numbers -------------------------------------------------------------------------------

    def transfer(self, old: int, new: int) -> None:
        """Adds the counters of an ended version to those of its successor."""
        with self._lock:
            self._reserve(max(old, new) + 1)
            self._counts[new, _MATCHED:] += self._counts[old, _MATCHED:]
            self._counts[old, _MATCHED:] = 0
            self._counts[new, _SINCE] = min(self._counts[new, _SINCE], self._counts[old, _SINCE])
            self._dirty.update((old // PAGE, new // PAGE))

    def forget(self, number: int) -> None:
        with self._lock:
            self._reserve(number + 1)
            self._counts[number] = 0
            self._dirty.add(number // PAGE)

    def forget_topic(self, topic: int) -> None:
        """Drops the event count of a topic; in the writer's thread."""
        self._topics.pop(topic, None)

    # -- reading ----------------------------------------------------------------------------------------

    def totals(self, numbers: Sequence[int], topic: int) -> Counts:
        """Returns the sums over the versions of one subscription."""
        with self._lock:
            self._reserve(max(numbers) + 1)
            since = int(self._counts[numbers, _SINCE].min())
            matched, delivered, failed = self._counts[numbers, _MATCHED:].sum(axis=0).tolist()
        return Counts(self._topics.get(topic, 0) - since, matched, delivered, failed)

    def topics(self) -> dict[int, int]:
        """Returns the number of events per topic uid."""
        return dict(self._topics)

    # -- on disk ----------------------------------------------------------------------------------------

    def load(self, db: Connection) -> None:
        evaluated = versions.topic_counters(db)
        if evaluated is not None:
            self._topics = msgspec.json.decode(evaluated, type=dict[int, int])
        for page, data in versions.counter_pages(db):
            self._reserve((page + 1) * PAGE)
            self._counts[page * PAGE : (page + 1) * PAGE] = np.frombuffer(data, "<i8").reshape(PAGE, -1)

    def save(self, db: Connection) -> None:
        """Writes changed pages, and the topics' counts; in the writer's thread."""
        with self._lock:
            pages = [
                (page, self._counts[page * PAGE : (page + 1) * PAGE].astype("<i8").tobytes())
                for page in sorted(self._dirty)
            ]
            self._dirty.clear()
        if pages:
            versions.store_counters(db, pages, msgspec.json.encode(self._topics).decode())

    def _reserve(self, numbers: int) -> None:
        if numbers > len(self._counts):
            pages = max(len(self._counts) * 2, numbers + PAGE - 1) // PAGE
            grown = np.zeros((pages * PAGE, len(KINDS)), dtype=np.int64)
            grown[: len(self._counts)] = self._counts
            self._counts = grown
