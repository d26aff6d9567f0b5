"""What the services say about delivery, as pydantic models: server and dispatcher say it alike."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class Delivery(BaseModel):
    """How it is with a subscription's address, and what became of its notifications."""

    state: Literal["healthy", "failing", "disabled"]
    #: attempts in a row that were not taken
    failures: int
    failing_since: str | None
    next_attempt: str | None
    #: since when it is known that the address will be disabled
    warned: str | None
    disabled: Literal["gone", "failing"] | None
    disabled_since: str | None
    #: what went wrong last
    reason: str | None
    #: whether notifications carry a signature
    signed: bool
    #: the sink's, where it is asked for it
    consent: Literal["granted", "awaiting"] | None
    #: events of its topic that came to its server while it was active
    evaluated: int
    matched: int
    #: notifications that its sink took, and those that became dead letters
    delivered: int
    failed: int
    #: dead letters that name it; counted up to 1,000
    dead_letters: int
    #: bytes that wait for it because it is paused, or because nobody reads its stream
    buffered_bytes: int
    #: notifications that were dropped because its tenant was at a limit of bytes, the limit, and when last
    dropped: int
    dropped_limit: Literal["paused_bytes", "stream_bytes", "dead_letter_bytes"] | None
    dropped_last: str | None


class Attempt(BaseModel):
    time: str
    webhook_id: str
    status: int | None
    reason: str | None
    seconds: float
    #: the beginning of what the sink answered
    answer: str
    #: how many it held
    notifications: int
    outcome: Literal["delivered", "again", "dead", "gone", "example"]
    next_attempt: str | None


class AttemptList(BaseModel):
    #: the newest first
    attempts: list[Attempt]


class DeadLetter(BaseModel):
    id: str
    webhook_id: str
    url: str
    died: str
    created: str
    attempts: int
    status: int | None
    reason: str
    notifications: int


class DeadLetterPage(BaseModel):
    dead_letters: list[DeadLetter]
    #: cursor of the following page
    next: str | None


class WholeDeadLetter(DeadLetter):
    subscriptions: list[str]
    #: what would have been posted
    body: dict[str, Any]


class Queued(BaseModel):
    """What waits to be delivered again."""

    letters: int
    notifications: int
    #: there are more than one call takes: call again
    more: bool


class SinceBody(BaseModel):
    """Internal: a time in microseconds."""

    model_config = ConfigDict(extra="forbid", strict=True)

    since: int = Field(ge=0, lt=1 << 62)
