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
    #: number of changes of its schema, from 1
    revision: Always[int] = None
    created: Always[str] = None


class TopicList(msgspec.Struct, frozen=True):
    topics: list[Topic]
