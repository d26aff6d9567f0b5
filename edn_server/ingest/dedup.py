"""Delivers an event once although two logs contain it, if its publisher chose its id.

A publisher that got no answer from one dispatcher sends the event, with the same id, to another. Each
dispatcher knows only its own log; a server reads all of them. So it stores the recipients of such an event in
the transaction of the outbox rows, and skips them when another log contains the event again. Subscriptions
that began in between still receive it.

Only a server that follows several logs does so. Within one log the dispatcher rejects repeated ids, and
generated ids contain their log. Recipients are forgotten after a day, like ids on the dispatchers.
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
from edn_server.subscriptions.registry import SubscriptionRegistry
from edn_server.subscriptions.topic_index import Flags, Int32s, Int64s

#: microseconds during which the same id is the same event
KEPT = 86_400 * 1_000_000
#: rows that one job deletes
STEP = 5000


@functools.lru_cache(maxsize=1 << 17)
def label(subscription: str) -> int:
    """Hashes a subscription id; short, because a day of matches is stored."""
    return int.from_bytes(hashlib.blake2b(subscription.encode(), digest_size=4).digest(), "little")


def fresh(
    db: Connection,
    registry: SubscriptionRegistry,
    events: Mapping[int, Event],
    times: Mapping[int, int],
    places: Int64s,
    numbers: Int32s,
) -> Flags:
    """Returns which matches (place, number) are new, and stores them as delivered.

    The matches are in the order of places. `times`: log time by place of the events with client-chosen ids;
    matches of other events are new.
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
    """Stores that another server delivered an event; returns the subscriptions that also got it here."""
    labels = np.array([label(name) for name in subscriptions], dtype="<u4")
    found = delivered_ids.find(db, topic, event)
    repeated: list[str] = []
    if found is not None and abs(found.time - time) < KEPT:
        known = np.flatnonzero(np.isin(labels, found.recipients))
        repeated = [subscriptions[place] for place in known.tolist()]
        labels, time = np.union1d(found.recipients, labels), found.time
    delivered_ids.store(db, topic, event, Delivered(time, labels))
    return repeated
