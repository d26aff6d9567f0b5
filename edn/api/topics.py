"""Topics."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from edn.api.fields import Always


class Topic(msgspec.Struct, frozen=True):
    name: str
    #: name → "number", "integer", "string", "boolean" or "time"
    attributes: dict[str, str]
    engine: Always[str] = None
    #: how long events are replayed to later subscriptions: 0, seconds, or "forever"
    availability: Always[float | Annotated[str, Literal["forever"]]] = None


class FullTopic(Topic, frozen=True, kw_only=True):
    revision: int
    created: str


class TopicList(msgspec.Struct, frozen=True):
    topics: list[Annotated[Topic, FullTopic]]
