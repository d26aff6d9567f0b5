"""A subscription that has moved to another server: what is left of it here, until nothing is.

From its *move* record on nothing is found for it here. What was found before goes out from here, because it
may share its rows with others, and may have been tried already under a webhook-id of ours; what was kept,
because it is paused or a stream, goes after it (`BufferedQuery`), and so does whom it was told of, as far as
another log may bring it again. The server where it is now waits for all of that (see `arrivals`).

Rows to an address that does not answer are given up by the rules of every delivery; until then what follows
them waits elsewhere, as it would have waited here.
"""

from __future__ import annotations

import numpy as np

from edn import protocol
from edn_server.ingest.dedup import label
from edn_server.storage import addresses, delivered_ids, outbox, replays, versions
from edn_server.storage.interface import Connection
from edn_server.storage.writer import Job
from edn_server.subscriptions.registry import SubscriptionRegistry

#: bytes of payloads after which a page of what is kept ends, and noted events that one page looks at
PAGE_BYTES = 1 << 20
TOLD_ROWS = 5000


class Depart(Job[tuple[protocol.Departed, int]]):
    """Report the remaining work of departed subscriptions; purge buffers of those already handed over."""

    fresh = True

    def __init__(self, registry: SubscriptionRegistry, request: protocol.Departures) -> None:
        self._registry = registry
        self._request = request

    def work(self, db: Connection) -> tuple[protocol.Departed, int]:
        registry = self._registry
        ended = [
            (id, version)
            for id, version in self._request.versions
            if not self._here(id, version) and not outbox.has_holdings(db, id, undecided=True)
        ]
        keeping = [
            id
            for id, _ in ended
            # Not one that began under this id meanwhile.
            if id not in registry.numbers and (id in registry.paused or outbox.has_holdings(db, id))
        ]
        delivered = [
            id for id, version in ended if not versions.has_waiting(db, id, version, addresses.stream_of(id))
        ]
        dropped = 0
        for id in self._request.forget:
            if id not in registry.numbers:
                dropped += outbox.purge(db, id)
                replays.unpause(db, id)
        return protocol.Departed([id for id, _ in ended], keeping, delivered), dropped

    def done(self, result: tuple[protocol.Departed, int]) -> None:
        for id in self._request.forget:
            if id not in self._registry.numbers:
                self._registry.paused.pop(id, None)

    def _here(self, id: str, version: int) -> bool:
        """Whether a log may still find something for it, or its past is still coming."""
        registry = self._registry
        return any(registry.versions[number].version < version for number in registry.numbers.get(id, ()))


def kept(db: Connection, question: protocol.BufferedQuery) -> protocol.BufferedPage:
    """The next of what is kept for a subscription."""
    id = question.subscription
    rows = outbox.holdings(db, id)
    upto, size = question.after, 0
    events: list[protocol.BufferedEvent] = []
    for row in rows[question.after :]:
        assert row.batch is not None
        found = outbox.read_events(db, row.batch, row.places)
        events += [protocol.BufferedEvent(*found[place]) for place in row.places]
        size += sum(len(found[place].body) for place in row.places)
        upto += 1
        if size > PAGE_BYTES:
            break
    return protocol.BufferedPage(id, 0, question.after, upto, events, final=upto >= len(rows))


def told(db: Connection, question: protocol.DeliveredIdsQuery) -> protocol.DeliveredIds:
    """Of the next noted events those that some of these subscriptions were told of."""
    labels = np.array([label(id) for id in question.subscriptions], dtype="<u4")
    order = np.argsort(labels, kind="stable")
    rows = delivered_ids.page(db, question.after, TOLD_ROWS)
    events = []
    for topic, id, delivered in rows:
        places = order[np.isin(labels[order], delivered.recipients)]
        if len(places):
            events.append((topic, id, delivered.time, sorted(places.tolist())))
    following = rows[-1][:2] if len(rows) == TOLD_ROWS else None
    return protocol.DeliveredIds(events, question.subscriptions, following)
