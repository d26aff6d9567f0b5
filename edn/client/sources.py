"""Calls of sources: brokers whose messages become events of a topic."""

from __future__ import annotations

import uuid
from urllib.parse import quote

from edn.api.sources import Source, SourceLetter, SourceLetters, SourceLettersDeleted, SourceList
from edn.client.conversation import Call, delete, request
from edn.client.encoding import drop_none


def create_source(topic: str, url: str, *, id: str | None = None) -> Call[Source]:
    """Creates a source: messages of the broker at `url` become events of a topic.

    `url`: amqp://host/vhost?queue=NAME, mqtt://host/filter or nats://host/STREAM. No answer contains its
    password.
    """
    return request("POST", "/v1/sources", Source, {"topic": topic, "url": url, "id": id or str(uuid.uuid4())})


def sources(*, tenant: str | None = None) -> Call[list[Source]]:
    """Returns the sources with their state; an operator may name a tenant, or "*" for those of all."""
    call = request("GET", "/v1/sources", SourceList, query=drop_none(tenant=tenant))
    return call.then(lambda found: found.sources)


def source(id: str) -> Call[Source]:
    """Returns one source with its state and counters."""
    return request("GET", _path(id), Source)


def delete_source(id: str) -> Call[None]:
    """Deletes a source, its dead letters, and its session or consumer at the broker."""
    return delete(_path(id))


def source_dead_letters(id: str, *, limit: int = 100, before: int | None = None) -> Call[list[SourceLetter]]:
    """Returns messages that were not accepted as events, the newest first; `before`: with smaller ids."""
    query = drop_none(limit=str(limit), before=None if before is None else str(before))
    call = request("GET", f"{_path(id)}/dead-letters", SourceLetters, query=query)
    return call.then(lambda found: found.dead_letters)


def delete_source_dead_letters(id: str) -> Call[int]:
    """Deletes the dead letters of a source; returns their number."""
    call = request("DELETE", f"{_path(id)}/dead-letters", SourceLettersDeleted)
    return call.then(lambda found: found.deleted)


def _path(id: str) -> str:
    return f"/v1/sources/{quote(id, safe='')}"
