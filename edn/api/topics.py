"""Topics."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from edn.api.fields import Always


class Topic(msgspec.Struct, frozen=True):
    name: str
    #: name → "number", "integer", "string", "boolean" or "time"; an array has a list with one of them
    attributes: dict[str, str | list[str]]
    engine: Always[str] = None
    #: how long events are replayed to later subscriptions: 0, seconds, or "forever"
    availability: Always[float | Annotated[str, Literal["forever"]]] = None
    #: whether events have no fields but the attributes
    closed: Always[bool] = None


class FullTopic(Topic, frozen=True, kw_only=True):
    revision: int
    created: str


class TopicList(msgspec.Struct, frozen=True):
    topics: list[Annotated[Topic, FullTopic]]
