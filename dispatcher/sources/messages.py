"""Decides which messages of a broker are events of a topic, without I/O.

A message is one event: a JSON object that the topic accepts. Messages are published together, as the array of
one request. Each is checked by itself first: what two broken messages make together could be valid JSON.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from dispatcher.store.sources import Letter
from edn.brokers.messages import Incoming
from edn.errors import EdnError
from edn.model.event_check import MAX_ID
from edn.model.schema import Schema
from edn.protocol.documents import cut_events

#: bytes of a dead letter's body that are stored
LETTER_BYTES = 64 << 10

_object = msgspec.json.Decoder(dict)


@dataclass(slots=True)
class Sorted:
    """The messages of a batch that may be events, and the dead letters of the others."""

    good: list[Incoming] = field(default_factory=list)
    bad: list[Letter] = field(default_factory=list)


def sort(messages: Sequence[Incoming], most_bytes: int) -> Sorted:
    """Separates the messages that are JSON objects of at most so many bytes."""
    found = Sorted()
    for message in messages:
        reason = _refusal(message.body, most_bytes)
        if reason is None:
            found.good.append(message)
        else:
            found.bad.append(letter(message, reason))
    return found


def sort_by_schema(messages: Sequence[Incoming], schema: Schema) -> Sorted:
    """Separates the messages that a topic accepts, each by itself."""
    found = Sorted()
    for message in messages:
        try:
            schema.decode_events(message.body, cut_events)
            found.good.append(message)
        except EdnError as error:
            found.bad.append(letter(message, error.detail))
    return found


def _refusal(body: bytes, most_bytes: int) -> str | None:
    if len(body) > most_bytes:
        return f"the message must have at most {most_bytes} bytes, got {len(body)}"
    try:
        _object.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return f"the message must be a JSON object: {error}"
    return None


def letter(message: Incoming, reason: str) -> Letter:
    return Letter(
        None if message.id is None else message.id[:512],
        reason[:1000],
        message.body[:LETTER_BYTES],
        len(message.body),
    )


def event_id(message: Incoming) -> str | None:
    """Returns the event's id: that of the message, or a hash of one that is too long for an event."""
    if message.id is None or len(message.id) <= MAX_ID:
        return message.id
    return f"blake2b:{hashlib.blake2b(message.id.encode(errors='replace'), digest_size=32).hexdigest()}"


def chunks(messages: Sequence[Incoming], most_bytes: int) -> Iterator[list[Incoming]]:
    """Splits messages, in order, into parts whose bodies are one request."""
    part: list[Incoming] = []
    size = 2
    for message in messages:
        if part and size + len(message.body) + 1 > most_bytes:
            yield part
            part, size = [], 2
        part.append(message)
        size += len(message.body) + 1
    if part:
        yield part


def body_of(messages: Sequence[Incoming]) -> bytes:
    return b"[" + b",".join([message.body for message in messages]) + b"]"
