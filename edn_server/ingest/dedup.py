"""An event that came by two logs is told once: for events whose ids their publishers chose.

A publisher that got no answer from one dispatcher sends the same event, under the same id, to another. Each
dispatcher knows only its own log, but a server reads all of them. So it notes, in the transaction of the
outbox rows, whom an event of a chosen id was told to, and leaves those out when another log brings it again:
the others among its matches, who subscribed in between, still hear of it.

Only a server that follows several logs does so. Inside one log the dispatcher keeps ids apart, and ids that
no publisher chose name their log. What is noted is forgotten after a day, as the dispatchers do.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping, Sequence

import numpy as np

from edn_server.storage import delivered_ids
from edn_server.storage.delivered_ids import Delivered
from edn_server.storage.interface import Connection
from edn_server.storage.outbox import Event
from edn_server.storage.writer import Job
from edn_server.subscriptions.registry import SubscriptionRegistry
from edn_server.subscriptions.topic_index import Flags, Int32s, Int64s

#: microseconds for which the same id is the same event
KEPT = 86_400 * 1_000_000
#: rows that one job forgets
STEP = 5000


@functools.lru_cache(maxsize=1 << 17)
def label(subscription: str) -> int:
    """Hash a subscription id: short, because a day of matches is stored."""
    return int.from_bytes(hashlib.blake2b(subscription.encode(), digest_size=4).digest(), "little")


def fresh(
    db: Connection,
    registry: SubscriptionRegistry,
    events: Mapping[int, Event],
    times: Mapping[int, int],
    places: Int64s,
    numbers: Int32s,
) -> Flags:
    """Which of the matches (place, number) were not told before; they are noted as told.

    The matches are in the order of places. `times`: the log's time of each event, by place, whose id was
    chosen; others pass.
    """
    wanted = np.ones(len(places), dtype=np.bool_)
    for place, time in times.items():
        event = events[place]
        rows = slice(*np.searchsorted(places, [place, place + 1]).tolist())
        labels = np.array([label(registry.versions[n].id) for n in numbers[rows].tolist()], dtype="<u4")
        found = delivered_ids.find(db, event.topic, event.id)
        if found is not None and abs(found.time - time) < KEPT:
            wanted[rows] = ~np.isin(labels, found.recipients)
            labels, time = np.union1d(found.recipients, labels), found.time
        delivered_ids.store(db, event.topic, event.id, Delivered(time, labels))
    return wanted


def note(db: Connection, topic: int, event: str, time: int, subscriptions: Sequence[str]) -> list[str]:
    """Another server told these subscriptions of an event; those of them that were told here, too."""
    labels = np.array([label(name) for name in subscriptions], dtype="<u4")
    found = delivered_ids.find(db, topic, event)
    repeated: list[str] = []
    if found is not None and abs(found.time - time) < KEPT:
        known = np.flatnonzero(np.isin(labels, found.recipients))
        repeated = [subscriptions[place] for place in known.tolist()]
        labels, time = np.union1d(found.recipients, labels), found.time
    delivered_ids.store(db, topic, event, Delivered(time, labels))
    return repeated


class Forget(Job[int]):
    """Events of before a time come no more; how many were forgotten, at most `STEP`."""

    def __init__(self, before: int) -> None:
        self._before = before

    def work(self, db: Connection) -> int:
        return delivered_ids.forget(db, self._before, STEP)
