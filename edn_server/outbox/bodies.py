"""Composes the bodies of POSTs and the entries of streams from rows of the outbox."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from edn.formats import trace_context
from edn.model.coordinates import rfc3339
from edn.runtime.ownership import owned
from edn_server.outbox.payload_cache import PayloadCache
from edn_server.storage import payloads
from edn_server.storage.interface import Connection
from edn_server.storage.outbox import Row
from edn_server.storage.payloads import Event
from edn_server.subscriptions.view import RegistryView


def event_fragment(event: Event, topic: str) -> bytes:
    """Compose an entry up to its matches; the payload has the publisher's bytes.

    The payload of a complete sequence is an array of its events (`sequences.feed`).
    """
    if event.body.startswith(b"["):
        traced = _traced(event.trace) if event.trace else b""
        return b'{%b"topic":%b,"events":%b,"matches":[' % (traced, msgspec.json.encode(topic), event.body)
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
    """Compose the first members of an entry whose event has a trace context."""
    fields = trace_context.headers(trace)
    return b"".join(b'"%b":%b,' % (name.encode(), msgspec.json.encode(value)) for name, value in fields)


def trace_of(fragment: bytes) -> str:
    """Return the trace context of a fragment; empty if it has none."""
    if not fragment.startswith(_TRACED):
        return ""
    begin = len(_TRACED)
    parent, rest = fragment[begin : begin + 55], fragment[begin + 56 :]
    if not rest.startswith(_STATE):
        return parent.decode()
    state: str = msgspec.json.decode(rest[len(_STATE) : rest.index(b',"topic":')])
    return f"{parent.decode()} {state}"


def entry_of(event: bytes, numbers: Sequence[int], fragments: Sequence[bytes | None]) -> bytes:
    """Compose the entry of an event: its fragment with its matches."""
    matches = [match for number in numbers if (match := fragments[number]) is not None]
    return event + b",".join(matches) + b"]}"


def enclose(entries: Sequence[bytes]) -> bytes:
    return b'{"notifications":[' + b",".join(entries) + b"]}"


class End(msgspec.Struct, frozen=True):
    """The end of a subscription that its subscriber did not request."""

    subscription: str
    #: as WS-Eventing names it: DeliveryFailure or SourceCancelling
    status: str
    reason: str


def body_of(end: End) -> bytes:
    """Compose the body that reports an end; it has no notifications."""
    return msgspec.json.encode({"notifications": [], "end": end})


class Part(NamedTuple):
    """The share of one row in the body of a POST."""

    entries: bytes
    #: the trace context that all events share; empty if they share none
    trace: str


@owned("any")
class Composer:
    """Composes the shares of rows, from memory where possible."""

    def __init__(self, view: RegistryView, recent: PayloadCache) -> None:
        self._view = view
        self._recent = recent

    def part(self, row: Row) -> Part | None:
        """Compose the share of a row; None if its payloads are no longer in memory."""
        assert row.frame_id is not None
        events = self._recent.get(row.frame_id)
        return None if events is None else self._part(row, events)

    def read_part(self, db: Connection, row: Row) -> Part:
        """Compose the share of a row, reading its payloads if they are not in memory."""
        return self._part(row, self._events(db, row))

    def read_entries(self, db: Connection, row: Row) -> list[bytes]:
        """Compose the entry of each event of a row: for streams."""
        if row.frame_id is None:
            body = msgspec.json.decode(row.body, type=dict[str, list[msgspec.Raw]])
            return [bytes(entry) for entry in body["notifications"]]
        return [entry for entry, _ in self._entries(row, self._events(db, row))]

    def _part(self, row: Row, events: dict[int, Event | bytes]) -> Part:
        entries = self._entries(row, events)
        if len(entries) == 1:
            return Part(*entries[0])
        traces = {trace for _, trace in entries}
        shared = traces.pop() if len(traces) == 1 else ""
        return Part(b",".join([entry for entry, _ in entries]), shared)

    def _events(self, db: Connection, row: Row) -> dict[int, Event | bytes]:
        assert row.frame_id is not None
        return self._recent.get(row.frame_id) or {**payloads.read(db, row.frame_id, row.places)}

    def _entries(self, row: Row, events: dict[int, Event | bytes]) -> list[tuple[bytes, str]]:
        """Compose the entry of each event, with its trace context.

        The fragment of an event replaces it in memory, so it is composed once for all rows.
        """
        fragments, entries = self._view.fragments, []
        for place, numbers in row.matches():
            event = events[place]
            if not isinstance(event, bytes):
                # A topic outlives its rows; only a row that was dropped in this moment may miss it.
                topic = self._view.topic(event.topic)
                event = events[place] = event_fragment(event, "" if topic is None else topic.name)
            entries.append((entry_of(event, numbers, fragments), trace_of(event)))
        return entries
