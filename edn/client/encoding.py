"""Encodes requests: paths, headers and JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import quote

from edn.errors import InvalidEvent, InvalidInput

#: an RFC 3339 time, a duration such as "PT1H", or None: never
ExpiresLike = str | datetime | timedelta | None


def chunks(encoded: Iterable[bytes], most: int, most_bytes: int) -> Iterator[list[bytes]]:
    """Groups elements into JSON arrays of at most `most` elements and `most_bytes` bytes, commas included.

    An element above the limit is a chunk of its own, which the network refuses with a reason.
    """
    chunk: list[bytes] = []
    size = 2
    for element in encoded:
        if chunk and (len(chunk) == most or size + 1 + len(element) > most_bytes):
            yield chunk
            chunk, size = [], 2
        size += len(element) + (1 if chunk else 0)
        chunk.append(element)
    if chunk:
        yield chunk


def encode(value: Any) -> bytes:
    """Encodes JSON as the network accepts it: no NaN, no infinities, times as RFC 3339."""
    try:
        text = json.dumps(
            value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_jsonable
        )
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput(
            "a string must not contain a lone surrogate: it cannot be encoded as UTF-8"
        ) from error
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"the value cannot be encoded as JSON: {error}") from error


def drop_none(**fields: Any) -> dict[str, Any]:
    """Returns the fields that are not None."""
    return {name: value for name, value in fields.items() if value is not None}


def expiry(value: ExpiresLike) -> str | None:
    """Formats an expiry for JSON."""
    if isinstance(value, timedelta):
        return f"PT{value.total_seconds():.6f}".rstrip("0").rstrip(".") + "S"
    if isinstance(value, datetime):
        return instant(value)
    return value


def instant(value: datetime) -> str:
    if value.tzinfo is None:
        raise InvalidInput(f"a time must have a time zone, got {value.isoformat()}")
    return value.isoformat()


def _jsonable(value: object) -> object:
    if isinstance(value, datetime):
        return instant(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not a JSON type")


def event(event: Mapping[str, Any] | bytes, index: int) -> bytes:
    """Encodes one event of a batch, unless it is JSON text already; errors contain its index."""
    if isinstance(event, bytes):
        return event
    try:
        return encode(event)
    except InvalidInput as error:
        raise InvalidEvent(error.detail, index=index) from error


def topic_path(name: str) -> str:
    return f"/v1/topics/{quote(name, safe='')}"


def subscription_path(id: str) -> str:
    return f"/v1/subscriptions/{quote(id, safe='')}"


def key_header(key: str) -> dict[str, str]:
    # Headers are ASCII; the network decodes percent-encoding.
    return {"Idempotency-Key": quote(key, safe="/:~")}


def array(elements: list[bytes]) -> bytes:
    return b"[" + b",".join(elements) + b"]"
