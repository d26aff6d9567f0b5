"""What rows of the outbox tell: the bytes that bodies and streams are made of.

In the thread that owns the connection; what was written just now is found in memory instead.
"""

from __future__ import annotations

import sqlite3

import msgspec

from edn_server.outbox import rows as outbox
from edn_server.outbox.payload_cache import RecentEvents
from edn_server.outbox.rows import Row
from edn_server.subscriptions.registry import Hosting


class End(msgspec.Struct, frozen=True):
    """The end of a subscription by somebody else than its subscriber."""

    subscription: str
    #: as WS-Eventing names it: DeliveryFailure or SourceCancelling
    status: str
    reason: str


def body_of(end: End) -> bytes:
    """Compose the body of such an end: one without notifications."""
    return msgspec.json.encode({"notifications": [], "end": end})


class Composer:
    def __init__(self, reader: sqlite3.Connection, hosting: Hosting, recent: RecentEvents) -> None:
        self._reader = reader
        self._hosting = hosting
        self._recent = recent

    def entries(self, row: Row) -> tuple[bytes, str]:
        """What a row adds to a body, and the trace context that its events share."""
        fragments = self._event_fragments(row)
        traces = {outbox.trace_of(fragment) for fragment in fragments}
        shared = traces.pop() if len(traces) == 1 else ""
        return outbox.entries_of(row, fragments, self._hosting.fragments), shared

    def each_entry(self, row: Row) -> list[bytes]:
        """The same event by event: for streams."""
        if row.batch == outbox.READY:
            told = msgspec.json.decode(row.composition, type=dict[str, list[msgspec.Raw]])
            return [bytes(entry) for entry in told["notifications"]]
        return outbox.each_entry(row, self._event_fragments(row), self._hosting.fragments)

    def _event_fragments(self, row: Row) -> list[bytes]:
        places = row.places
        events = self._recent.get(row.batch)
        if events is None:
            events = dict(outbox.read_events(self._reader, row.batch, places))
        topics = self._hosting.topics
        fragments = []
        for place in places:
            event = events[place]
            if not isinstance(event, bytes):
                # A topic outlives all waiting rows; only a row that was dropped just now may miss it.
                topic = topics.get(event.topic)
                name = "" if topic is None else topic.name
                event = events[place] = outbox.event_fragment(event, name)
            fragments.append(event)
        return fragments
