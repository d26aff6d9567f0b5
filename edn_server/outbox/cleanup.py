"""Deletes unused data: settled rows, payloads, ended versions, topics without versions.

The payloads of a frame are deleted with its last row. Once a frame is old, its unused payloads are deleted
earlier, so that one dead address does not keep the payloads of all. An ended version is deleted with the last
row that can name it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from edn_server.storage import outbox, usage, versions
from edn_server.storage.interface import Connection
from edn_server.storage.sequences import rows as sequences
from edn_server.storage.writer import Job
from edn_server.subscriptions.registry import SubscriptionRegistry


class Settle(Job[int]):
    """Deletes delivered rows; returns the number of notifications."""

    def __init__(self, rows: Sequence[tuple[int, int | None]], batches: Sequence[int] = ()) -> None:
        """`rows` are (id, frame_id); `batches` are the ids of recorded delivery batches."""
        self._rows = rows
        self._batches = batches

    def work(self, db: Connection) -> int:
        return outbox.settle(db, self._rows, self._batches)


class Collect(Job[int]):
    """Deletes ended versions that no row can name, and frees their numbers."""

    fresh = True
    LIMIT = 1000

    def __init__(self, registry: SubscriptionRegistry) -> None:
        self._registry = registry
        self._numbers: list[int] = []

    def work(self, db: Connection) -> int:
        self._numbers = versions.collect(db, self.LIMIT)
        if self._numbers:
            sequences.delete_versions(db, self._numbers)
        return len(self._numbers)

    def done(self, result: int) -> None:
        for number in self._numbers:
            self._registry.free_number(number)


class ForgetTopics(Job[int]):
    """Deletes topics without versions, and their counters.

    A row may need the topic's name as long as a version is in the database, so this follows `Collect`. A
    later store request carries the topic again.
    """

    fresh = True

    def __init__(self, registry: SubscriptionRegistry) -> None:
        self._registry = registry
        self._topics: list[int] = []

    def work(self, db: Connection) -> int:
        self._topics = self._registry.unused_topics()
        versions.forget_topics(db, self._topics)
        return len(self._topics)

    def done(self, result: int) -> None:
        self._registry.forget_topics(self._topics)


class Trim(Job[int]):
    """Deletes the unused payloads of an old frame."""

    def __init__(self, frame_id: int) -> None:
        self._frame_id = frame_id

    def work(self, db: Connection) -> int:
        return outbox.trim_frame(db, self._frame_id)


class ForgetDrops(Job[None]):
    """Deletes the drop counters of ended subscriptions."""

    fresh = True

    def __init__(self, ended: Callable[[str], bool]) -> None:
        self._ended = ended

    def work(self, db: Connection) -> None:
        usage.forget(db, self._ended)
