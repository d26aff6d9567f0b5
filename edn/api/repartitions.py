"""Repartitions: migrations of subscriptions between servers."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec


class Repartition(msgspec.Struct, frozen=True):
    id: int
    kind: Annotated[str, Literal["apply", "drain", "replace", "fill"]]
    state: Annotated[str, Literal["open", "running", "done", "cancelled"]]
    #: the server that is drained, replaced or filled
    server: str | None = None
    began: str | None = None
    ended: str | None = None
    #: subscriptions per second
    rate: float = 0.0
    #: subscriptions that are assigned
    total: int = 0
    moved: int = 0
    #: subscriptions that have ended, or are already there
    skipped: int = 0
    left: int = 0
    #: migrated subscriptions of all repartitions that are not handed over yet
    unsettled: int = 0
    #: reason why it is waiting
    waiting: str | None = None
    hit_ratio: float | None = None
    expected_hit_ratio: float | None = None

    @property
    def over(self) -> bool:
        return self.state in ("done", "cancelled")


class FullRepartition(Repartition, frozen=True, kw_only=True):
    created: str


class Preview(msgspec.Struct, frozen=True):
    """The effect that a repartition would have."""

    moves: int
    stay: int
    #: assignments without a subscription
    unknown: int
    #: subscriptions without an assignment
    unassigned: int
    before: dict[str, int]
    after: dict[str, int]
    hit_ratio: float | None = None
    expected_hit_ratio: float | None = None


class Proposal(msgspec.Struct, frozen=True):
    since: str
    best: float
    then: float


class HitRatio(msgspec.Struct, frozen=True):
    now: float | None = None
    #: best value since the last repartition, at the current precision
    best: float | None = None
    #: a repartition is proposed if `now` exceeds `best` by more than this share of it
    threshold: float = 0.0


class Repartitions(msgspec.Struct, frozen=True):
    #: newest first
    repartitions: list[Annotated[Repartition, FullRepartition]]
    unsettled: int
    hit_ratio: HitRatio
    proposal: Proposal | None = None
