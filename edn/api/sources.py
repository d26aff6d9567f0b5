"""Sources: brokers whose messages become events of a topic."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from edn.api.fields import Always

State = Annotated[str, Literal["connecting", "running", "waiting", "refused", "elsewhere"]]


class Source(msgspec.Struct, frozen=True):
    id: str
    topic: str
    #: without its password
    url: str
    #: connecting; running; waiting for the broker; refused: this network accepts no events of it at the
    #: moment; elsewhere: another dispatcher runs it
    state: Always[State] = None
    #: name at the broker: MQTT client id, JetStream consumer
    consumer: Always[str] = None
    owner: Always[str] = None
    created: Always[str] = None
    #: messages since the dispatcher began to run it: received, committed as events, made dead letters
    received: int = 0
    published: int = 0
    rejected: int = 0
    #: messages without acknowledgements (MQTT's QoS 0) that did not fit
    dropped: int = 0
    #: stored dead letters, and those that were dropped for newer ones
    dead_letters: int = 0
    dead_letters_dropped: int = 0
    #: times that it connected
    connections: int = 0
    last_message: str | None = None
    #: why it does not run; of the past if it runs again
    last_error: str | None = None
    last_error_time: str | None = None


class SourceList(msgspec.Struct, frozen=True):
    sources: list[Source]


class SourceLetter(msgspec.Struct, frozen=True):
    """A message that was not accepted as an event."""

    id: int
    time: str
    reason: str
    #: id of the message at the broker
    message_id: str | None
    #: bytes of the whole body
    size: int
    #: beginning of the body as text; bytes that are not UTF-8 are replaced
    body: str
    #: the same in base64
    body_base64: str


class SourceLetters(msgspec.Struct, frozen=True):
    dead_letters: list[SourceLetter]


class SourceLettersDeleted(msgspec.Struct, frozen=True):
    deleted: int
