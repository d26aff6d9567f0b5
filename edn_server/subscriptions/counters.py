"""How many events each subscription was compared with, and what became of its notifications.

Counters lie in columns by version number, one row of `KINDS` a number:

    evaluated   events of its topic that came to this server while it was active: derived, as the difference
                between the topic's count and what that was when the version began (kept as `since`)
    matched     events that its filter matched
    delivered   notifications that its sink took
    failed      notifications that were given up: dead letters

A frame costs one `bincount`, not a write; pages that changed are written as blobs now and then. A crash
forgets the last seconds of counting, never a notification.

The writer's thread counts matches, the event loop deliveries; a lock keeps a page whole while it is copied.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import numpy.typing as npt

from edn.runtime.ownership import owned
from edn_server.storage import counters
from edn_server.storage.interface import Connection
from edn_server.storage.writer import Job

KINDS = ("since", "matched", "delivered", "failed")
_SINCE, _MATCHED, _DELIVERED, _FAILED = range(len(KINDS))
#: numbers of one page
PAGE = 4096

Numbers = npt.NDArray[np.integer]


@dataclass(frozen=True, slots=True)
class Counts:
    evaluated: int
    matched: int
    delivered: int
    failed: int


@owned("any")
class VersionCounters:
    def __init__(self) -> None:
        self._counts = np.zeros((PAGE, len(KINDS)), dtype=np.int64)
        #: events of each topic that came to this server, by the topic's uid
        self._topics: dict[int, int] = {}
        self._dirty: set[int] = set()
        self._lock = threading.Lock()

    # -- counting ---------------------------------------------------------------------------------------

    def matched(self, numbers: Numbers) -> None:
        """One for each time that a number stands there; in the writer's thread."""
        if not len(numbers):
            return
        found = np.bincount(numbers)
        with self._lock:
            self._room(len(found))
            self._counts[: len(found), _MATCHED] += found
            pages = np.add.reduceat(found, np.arange(0, len(found), PAGE))
            self._dirty.update(np.flatnonzero(pages).tolist())

    def came(self, topic: int, events: int) -> None:
        """So many events of a topic came; in the writer's thread."""
        self._topics[topic] = self._topics.get(topic, 0) + events

    def began(self, number: int, topic: int, later: int) -> None:
        """A version is active before the last `later` of the topic's events that came."""
        with self._lock:
            self._room(number + 1)
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
            self._room(int(given.max()) + 1)
            np.add.at(self._counts[:, kind], given, 1)
            self._dirty.update(np.unique(given // PAGE).tolist())

    # -- numbers are used again -------------------------------------------------------------------------

    def follow(self, old: int, new: int) -> None:
        """A subscription goes on as another version: what was counted for the old counts for the new."""
        with self._lock:
            self._room(max(old, new) + 1)
            self._counts[new, _MATCHED:] += self._counts[old, _MATCHED:]
            self._counts[old, _MATCHED:] = 0
            self._counts[new, _SINCE] = min(self._counts[new, _SINCE], self._counts[old, _SINCE])
            self._dirty.update((old // PAGE, new // PAGE))

    def forget(self, number: int) -> None:
        with self._lock:
            self._room(number + 1)
            self._counts[number] = 0
            self._dirty.add(number // PAGE)

    def forget_topic(self, topic: int) -> None:
        """Forget how many events of a topic came; in the writer's thread."""
        self._topics.pop(topic, None)

    # -- asking -----------------------------------------------------------------------------------------

    def of(self, numbers: Sequence[int], topic: int) -> Counts:
        """Return the totals of all versions of one subscription."""
        with self._lock:
            self._room(max(numbers) + 1)
            since = int(self._counts[numbers, _SINCE].min())
            matched, delivered, failed = self._counts[numbers, _MATCHED:].sum(axis=0).tolist()
        return Counts(self._topics.get(topic, 0) - since, matched, delivered, failed)

    def topics(self) -> dict[int, int]:
        """How many events of each topic came, by its uid."""
        return dict(self._topics)

    # -- on disk ----------------------------------------------------------------------------------------

    def load(self, db: Connection) -> None:
        evaluated = counters.evaluated(db)
        if evaluated is not None:
            self._topics = msgspec.json.decode(evaluated, type=dict[int, int])
        for page, data in counters.pages(db):
            self._room((page + 1) * PAGE)
            self._counts[page * PAGE : (page + 1) * PAGE] = np.frombuffer(data, "<i8").reshape(PAGE, -1)

    def take(self) -> tuple[list[tuple[int, bytes]], str]:
        """Pages that changed, and the topics' counts; in the writer's thread."""
        with self._lock:
            taken = [
                (page, self._counts[page * PAGE : (page + 1) * PAGE].astype("<i8").tobytes())
                for page in sorted(self._dirty)
            ]
            self._dirty.clear()
        return taken, msgspec.json.encode(self._topics).decode()

    def _room(self, numbers: int) -> None:
        if numbers > len(self._counts):
            pages = max(len(self._counts) * 2, numbers + PAGE - 1) // PAGE
            grown = np.zeros((pages * PAGE, len(KINDS)), dtype=np.int64)
            grown[: len(self._counts)] = self._counts
            self._counts = grown


class Write(Job[None]):
    """Writes changed counters to disk."""

    fresh = True

    def __init__(self, tally: VersionCounters) -> None:
        self._tally = tally

    def work(self, db: Connection) -> None:
        pages, topics = self._tally.take()
        if pages:
            counters.store(db, pages, topics)
