"""Answers about the server itself: health and figures."""

from __future__ import annotations

from pydantic import BaseModel


class Health(BaseModel):
    status: str


class TopicFigures(BaseModel):
    uid: int
    name: str
    #: hosted versions of subscriptions
    versions: int
    rectangles: int
    maximal: int


class Figures(BaseModel):
    id: str
    epoch: int
    seq: int
    subscriptions: int
    cursors: dict[str, int]
    topics: list[TopicFigures]
    backlog: int
    delivered: int
    failed: int
    dropped: int
    dead: int
