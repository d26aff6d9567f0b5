"""Hands over the rest of migrated subscriptions, on their old server.

After its *move* record a subscription matches nothing here. Its earlier notifications are delivered from
here, because they may share rows with other subscriptions and may have been tried under a webhook-id of this
server. Buffered notifications, of a paused subscription or a stream, are handed over (`buffered_page`), and
so are the half matches of a sequence (`progress`). The new server waits for all of that (see `arrivals`).

Rows of an address that does not answer follow the usual retry policy; later notifications wait on the new
server meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass

from edn import protocol
from edn_server.storage import addresses, outbox, payloads, replays, versions
from edn_server.storage.interface import Connection
from edn_server.storage.sequences import rows as sequences
from edn_server.storage.writer import Job
from edn_server.subscriptions.registry import SubscriptionRegistry

#: payload bytes after which a page of buffered notifications ends
PAGE_BYTES = 1 << 20


@dataclass(slots=True)
class ReportDepartures(Job[tuple[protocol.Departed, int]]):
    """Reports the remaining work of departed subscriptions; purges buffers of those already handed over."""

    fresh = True

    registry: SubscriptionRegistry
    request: protocol.Departures

    def work(self, db: Connection) -> tuple[protocol.Departed, int]:
        registry = self.registry
        ended = [
            (id, version)
            for id, version in self.request.versions
            if not self._is_active(id, version) and not outbox.has_holdings(db, id, undecided=True)
        ]
        buffering = [
            id
            for id, _ in ended
            # A new subscription may use the id by now.
            if id not in registry.numbers and (id in registry.paused or outbox.has_holdings(db, id))
        ]
        monitored = [
            id for id, version in ended if id not in registry.numbers and sequences.departing(db, id, version)
        ]
        delivered = [
            id for id, version in ended if not versions.has_waiting(db, id, version, addresses.stream_of(id))
        ]
        dropped = 0
        for id in self.request.forget:
            if id not in registry.numbers:
                dropped += outbox.purge(db, id)
                replays.unpause(db, id)
                sequences.forget(db, id)
        keeping = list(dict.fromkeys([*buffering, *monitored]))
        return protocol.Departed([id for id, _ in ended], keeping, delivered, monitored), dropped

    def done(self, result: tuple[protocol.Departed, int]) -> None:
        for id in self.request.forget:
            if id not in self.registry.numbers:
                self.registry.paused.pop(id, None)

    def _is_active(self, id: str, version: int) -> bool:
        """Returns whether an older version may still match, or its replay is not finished."""
        registry = self.registry
        return any(registry.versions[number].version < version for number in registry.numbers.get(id, ()))


def buffered_page(db: Connection, question: protocol.BufferedQuery) -> protocol.BufferedPage:
    """Returns the next buffered notifications of a subscription."""
    id = question.subscription
    rows = outbox.holdings(db, id)
    upto, size = question.after, 0
    events: list[protocol.BufferedEvent] = []
    for row in rows[question.after :]:
        assert row.frame_id is not None
        found = payloads.read(db, row.frame_id, row.places)
        events += [protocol.BufferedEvent(*found[place]) for place in row.places]
        size += sum(len(found[place].body) for place in row.places)
        upto += 1
        if size > PAGE_BYTES:
            break
    return protocol.BufferedPage(id, 0, question.after, upto, events, final=upto >= len(rows))
