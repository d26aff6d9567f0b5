"""Delivery: the state of an address, attempts, dead letters and secrets."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from edn.api.fields import Always

Limit = Annotated[str, Literal["paused_bytes", "stream_bytes", "dead_letter_bytes"]]
Outcome = Annotated[str, Literal["delivered", "again", "dead", "gone", "example"]]


class Delivery(msgspec.Struct, frozen=True):
    """The state of a subscription's address, and the counters of its notifications."""

    state: Annotated[str, Literal["healthy", "failing", "disabled"]]
    #: failed attempts in a row
    failures: int = 0
    failing_since: str | None = None
    next_attempt: str | None = None
    #: since when it is known that the address will be disabled
    warned: str | None = None
    disabled: Annotated[str, Literal["gone", "failing"]] | None = None
    disabled_since: str | None = None
    #: the last error
    reason: str | None = None
    #: whether notifications carry a signature
    signed: bool = False
    #: of the sink, where it is asked for its consent
    consent: Annotated[str, Literal["granted", "awaiting"]] | None = None
    #: events of its topic that reached its server while it was active
    evaluated: int = 0
    matched: int = 0
    #: notifications that its sink accepted, and those that became dead letters
    delivered: int = 0
    failed: int = 0
    #: dead letters that name it; counted up to 1,000
    dead_letters: int = 0
    #: bytes buffered because it is paused, or because nobody reads its stream
    buffered_bytes: int = 0
    #: notifications dropped because its tenant was at a limit of bytes, the limit, and when last
    dropped: int = 0
    dropped_limit: Limit | None = None
    dropped_last: str | None = None


class Attempt(msgspec.Struct, frozen=True):
    time: str
    webhook_id: str
    #: None when there was no answer
    status: int | None = None
    reason: str | None = None
    seconds: float = 0.0
    #: the beginning of the sink's answer
    answer: str = ""
    #: how many it contained
    notifications: int = 0
    outcome: Outcome = ""
    next_attempt: str | None = None


class AttemptList(msgspec.Struct, frozen=True):
    #: the newest first
    attempts: list[Attempt]


class ListedDeadLetter(msgspec.Struct, frozen=True):
    id: str
    webhook_id: str
    url: str
    died: str
    created: str
    attempts: int = 0
    status: int | None = None
    reason: str = ""
    notifications: int = 0


class DeadLetter(ListedDeadLetter, frozen=True):
    """A POST that was given up; lists leave `subscriptions` and `body` out."""

    subscriptions: Always[list[str]] = None
    #: the body that would have been posted
    body: Always[dict[str, Any]] = None


class DeadLetterPage(msgspec.Struct, frozen=True):
    dead_letters: list[Annotated[DeadLetter, ListedDeadLetter]]
    #: the cursor of the next page; None after the last
    next: str | None = None


class Queued(msgspec.Struct, frozen=True):
    """Dead letters that wait to be delivered again."""

    letters: int
    notifications: int
    #: there are more than one call handles: call again
    more: bool = False


class Rotation(msgspec.Struct, frozen=True):
    #: the secret that was generated; the network sends null when it was given
    secret: str | None
    #: until when the previous secret signs, too
    previous_until: str
    #: how many have this address, and its secret
    subscriptions: int = 0

    def __repr__(self) -> str:
        return f"Rotation(previous_until={self.previous_until!r}, subscriptions={self.subscriptions})"
