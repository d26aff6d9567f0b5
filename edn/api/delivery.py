"""Delivery: the state of an address, attempts, dead letters and secrets."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from edn.api.fields import Always, Sometimes

Limit = Annotated[str, Literal["paused_bytes", "stream_bytes", "dead_letter_bytes"]]
Outcome = Annotated[str, Literal["delivered", "again", "dead", "gone", "example"]]


class SequenceState(msgspec.Struct, frozen=True):
    """The monitor of a sequence."""

    #: step that the oldest half match waits for, from 1; 1 without a half match
    waiting_for: int
    #: time of the first event of the oldest half match
    since: str | None = None
    #: half matches; more than one only with `by`
    half_matches: int = 0
    #: events that wait to be put in order
    settling: int = 0
    #: events that came later than `settle`
    late: int = 0
    #: half matches that were dropped at the limit
    dropped: int = 0


class Delivery(msgspec.Struct, frozen=True):
    """The state of a subscription's address, and the counters of its notifications."""

    state: Annotated[str, Literal["healthy", "failing", "disabled"]]
    #: failed attempts in a row
    failures: int = 0
    failing_since: str | None = None
    next_attempt: str | None = None
    #: time of the warning that the address will be disabled
    warned: str | None = None
    disabled: Annotated[str, Literal["gone", "failing"]] | None = None
    disabled_since: str | None = None
    #: the last error
    reason: str | None = None
    #: whether notifications carry a signature
    signed: bool = False
    #: consent of the sink, if it is required
    consent: Annotated[str, Literal["granted", "awaiting"]] | None = None
    #: events of its topic on its server while it was active
    evaluated: int = 0
    matched: int = 0
    #: notifications that were delivered, and that became dead letters
    delivered: int = 0
    failed: int = 0
    #: dead letters of the subscription; counted up to 1,000
    dead_letters: int = 0
    #: notifications that are retried alone, if the sink's settings say `ordered: false`
    retrying: int = 0
    #: bytes buffered while it is paused, or while its stream is not read
    buffered_bytes: int = 0
    #: notifications dropped at a quota of bytes, the quota, and the time of the last one
    dropped: int = 0
    dropped_limit: Limit | None = None
    dropped_last: str | None = None
    #: of a sequence
    sequence: Sometimes[SequenceState] = None


class Attempt(msgspec.Struct, frozen=True):
    time: str
    webhook_id: str
    #: None: no answer
    status: int | None = None
    reason: str | None = None
    seconds: float = 0.0
    #: beginning of the sink's answer
    answer: str = ""
    #: number of notifications in it
    notifications: int = 0
    outcome: Outcome = ""
    next_attempt: str | None = None
    #: body of the request, while the server has it in memory
    request: str | None = None


class AttemptList(msgspec.Struct, frozen=True):
    #: newest first
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
    subscriptions: Always[list[str]] = None


class DeadLetter(ListedDeadLetter, frozen=True):
    """A delivery batch that is no longer retried; lists omit `body`."""

    #: body of the POST
    body: Always[dict[str, Any]] = None


class DeadLetterPage(msgspec.Struct, frozen=True):
    dead_letters: list[Annotated[DeadLetter, ListedDeadLetter]]
    #: cursor of the next page; None after the last
    next: str | None = None


class Queued(msgspec.Struct, frozen=True):
    """Dead letters that were requeued."""

    letters: int
    notifications: int
    #: more dead letters are left: call again
    more: bool = False


class Rotation(msgspec.Struct, frozen=True):
    #: generated secret; null if the request contained one
    secret: str | None
    #: end of the previous secret
    previous_until: str
    #: subscriptions with this address and secret
    subscriptions: int = 0

    def __repr__(self) -> str:
        return f"Rotation(previous_until={self.previous_until!r}, subscriptions={self.subscriptions})"
