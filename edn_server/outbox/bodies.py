"""Composes the bodies of POSTs and streams from rows of the outbox.

In the thread that owns the connection; what was written just now is found in memory instead.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from edn.formats import trace_context
from edn.model.coordinates import rfc3339
from edn.runtime.ownership import owned
from edn_server.outbox.payload_cache import PayloadCache
from edn_server.storage import outbox
from edn_server.storage.interface import Connection
from edn_server.storage.outbox import Event, Row
from edn_server.subscriptions.view import RegistryView


def event_fragment(event: Event, topic: str) -> bytes:
    """An entry of a notification up to its matches; the payload goes in as the bytes that it came in."""
    return b'{%b"topic":%b,"event":{"id":%b,"time":"%b","attributes":%b},"matches":[' % (
        _traced(event.trace) if event.trace else b"",
        msgspec.json.encode(topic),
        msgspec.json.encode(event.id),
        rfc3339(event.stamp).encode(),
        event.body,
    )


_TRACED = b'{"traceparent":"'
_STATE = b',"tracestate":'


def _traced(trace: str) -> bytes:
    """The first members of an entry whose event has a trace context."""
    fields = trace_context.headers(trace)
    return b"".join(b'"%b":%b,' % (name.encode(), msgspec.json.encode(value)) for name, value in fields)


def trace_of(fragment: bytes) -> str:
    """The trace context that `event_fragment` wrote into an entry, if any."""
    if not fragment.startswith(_TRACED):
        return ""
    begin = len(_TRACED)
    parent, rest = fragment[begin : begin + 55], fragment[begin + 56 :]
    if not rest.startswith(_STATE):
        return parent.decode()
    state: str = msgspec.json.decode(rest[len(_STATE) : rest.index(b',"topic":')])
    return f"{parent.decode()} {state}"


def each_entry(row: Row, events: Sequence[bytes], fragments: Sequence[bytes | None]) -> list[bytes]:
    """The event fragments of a row, in its order, each with its matches."""
    entries = []
    for event, numbers in zip(events, row.recipients(), strict=True):
        matches = [fragments[number] for number in numbers]
        entries.append(event + b",".join([match for match in matches if match is not None]) + b"]}")
    return entries


def entries_of(row: Row, events: Sequence[bytes], fragments: Sequence[bytes | None]) -> bytes:
    """The part of a body that one row contributes."""
    return b",".join(each_entry(row, events, fragments))


def enclose(entries: Sequence[bytes]) -> bytes:
    return b'{"notifications":[' + b",".join(entries) + b"]}"


class End(msgspec.Struct, frozen=True):
    """The end of a subscription by somebody else than its subscriber."""

    subscription: str
    #: as WS-Eventing names it: DeliveryFailure or SourceCancelling
    status: str
    reason: str


def body_of(end: End) -> bytes:
    """Compose the body of such an end: one without notifications."""
    return msgspec.json.encode({"notifications": [], "end": end})


@owned("reader")
class Composer:
    """Composes entries from rows; in the thread of the connection that its methods get."""

    def __init__(self, view: RegistryView, recent: PayloadCache) -> None:
        self._view = view
        self._recent = recent

    def entries(self, db: Connection, row: Row) -> tuple[bytes, str]:
        """Return the part of a body that a row contributes, and the trace context of its events."""
        fragments = self._event_fragments(db, row)
        traces = {trace_of(fragment) for fragment in fragments}
        shared = traces.pop() if len(traces) == 1 else ""
        return entries_of(row, fragments, self._view.fragments), shared

    def each_entry(self, db: Connection, row: Row) -> list[bytes]:
        """The same event by event: for streams."""
        if row.batch is None:
            told = msgspec.json.decode(row.body, type=dict[str, list[msgspec.Raw]])
            return [bytes(entry) for entry in told["notifications"]]
        return each_entry(row, self._event_fragments(db, row), self._view.fragments)

    def _event_fragments(self, db: Connection, row: Row) -> list[bytes]:
        assert row.batch is not None
        places = row.places
        events = self._recent.get(row.batch)
        if events is None:
            events = dict(outbox.read_events(db, row.batch, places))
        fragments = []
        for place in places:
            event = events[place]
            if not isinstance(event, bytes):
                # A topic outlives all waiting rows; only a row that was dropped just now may miss it.
                topic = self._view.topic(event.topic)
                name = "" if topic is None else topic.name
                event = events[place] = event_fragment(event, name)
            fragments.append(event)
        return fragments
