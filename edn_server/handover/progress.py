"""Hands over the monitor of a migrated sequence: half matches, and candidates that are not fed yet.

The old server reads them in pages once every log has ended the version there. The new server stores the
candidates that arrive meanwhile; the last page makes it feed them, in the same transaction. Every request is
idempotent: a page that does not begin at the stored position changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from edn import protocol
from edn.errors import CorruptMessage
from edn.runtime import clock
from edn_server.sequences.feed import Feed
from edn_server.sequences.settling import FedRows, write_complete
from edn_server.storage.interface import Connection
from edn_server.storage.sequences import rows
from edn_server.storage.writer import Job
from edn_server.subscriptions.registry import SubscriptionRegistry

#: bytes after which a page ends
PAGE_BYTES = 1 << 20
#: candidates of the former server are before all others
EARLIER = 1 << 62


def progress_page(db: Connection, question: protocol.ProgressQuery) -> protocol.ProgressPage:
    """Returns the next rows of the monitor of a migrated sequence."""
    numbers = rows.departing(db, question.subscription, question.version)
    found = rows.handed_rows(db, numbers[-1]) if numbers else []
    late, dropped = rows.counts_of(db, numbers[-1]) if numbers else (0, 0)
    page, size = [], 0
    for row in found[question.after :]:
        page.append(protocol.ProgressRow(*row))
        size += len(row.data)
        if size > PAGE_BYTES:
            break
    upto = question.after + len(page)
    return protocol.ProgressPage(
        question.subscription,
        question.version,
        question.after,
        upto,
        page,
        upto >= len(found),
        late,
        dropped,
    )


@dataclass(slots=True)
class StoreProgress(Job[protocol.Accepted]):
    """Stores a page of the former server's monitor; the last one starts this server's."""

    fresh = True

    registry: SubscriptionRegistry
    #: an unused frame id
    frame_id: int
    page: protocol.ProgressPage
    on_fed: Callable[[FedRows], None]
    _feed: Feed | None = field(default=None, init=False)
    _fed: FedRows | None = field(default=None, init=False)

    def work(self, db: Connection) -> protocol.Accepted:
        page, registry = self.page, self.registry
        if not 0 <= page.after <= page.upto or page.upto - page.after != len(page.rows):
            raise CorruptMessage(f"rows of a page must rise, got ({page.after}, {page.upto}]")
        number = registry.find(page.subscription, page.version)
        live = None if number is None else registry.sequences.get(number)
        if number is None or live is None or not registry.is_arriving(number):
            return protocol.Accepted(unknown=True)
        if not live.awaiting or page.after != live.position:
            return protocol.Accepted(live.position)
        self._feed = feed = Feed(registry, int(clock.estimate() * 1e6))
        for row in page.rows:
            if row.slot < 0:
                feed.store(number, rows.unpack_waiting(row.data, row.serial - EARLIER))
            else:
                feed.load(number, row.key, rows.unpack_taken(row.data))
        feed.arrive(number, page.upto, awaiting=not page.final)
        if page.final:
            feed.count(number, page.late, page.dropped)
            feed.feed_all(number)
        feed.write(db)
        self._fed = write_complete(db, registry, self.frame_id, feed.complete)
        return protocol.Accepted(page.upto)

    def done(self, result: protocol.Accepted) -> None:
        if self._feed is None or self._fed is None:
            return
        self._feed.apply()
        self.registry.counters.matched(np.array(self._fed.numbers, dtype=np.int64))
        self.on_fed(self._fed)
