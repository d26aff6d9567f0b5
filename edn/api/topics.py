"""Topics."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from edn.api.fields import Always, Sometimes


class Topic(msgspec.Struct, frozen=True):
    name: str
    #: name → "number", "integer", "string", "boolean", "time" or "bytes"; an array: a list with one of them
    attributes: dict[str, str | list[str]]
    engine: Always[str] = None
    #: how long events are replayed to later subscriptions: 0, seconds, or "forever"
    availability: Always[float | Annotated[str, Literal["forever"]]] = None
    #: whether events have no fields but the attributes
    closed: Always[bool] = None
    #: what happens to an event that its publisher has not advertised: accepted, dropped or refused
    advertising: Always[Annotated[str, Literal["off", "deliver", "guard"]]] = None
    #: number of changes of its schema, from 1
    revision: Always[int] = None
    created: Always[str] = None
    #: of a change that adds attributes: advertisements that do not cover events with them
    narrowed_advertisements: Sometimes[int] = None


class TopicList(msgspec.Struct, frozen=True):
    topics: list[Topic]
