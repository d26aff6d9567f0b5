"""Encodes calls: paths, and JSON that the network accepts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import quote

from edn.errors import InvalidEvent, InvalidInput

#: an instant (RFC 3339), a duration such as "PT1H", or None: never
ExpiresLike = str | datetime | timedelta | None


def chunks(encoded: Iterable[bytes], most: int, most_bytes: int) -> Iterator[list[bytes]]:
    """Groups that fit one JSON array of at most `most` elements and `most_bytes` bytes, commas included.

    An element that is too large even alone goes alone: the network says so better than a guess here would.
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
    """JSON as the network reads it: no NaN, no infinities, instants as RFC 3339."""
    try:
        text = json.dumps(
            value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_jsonable
        )
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput("a string holds a lone surrogate, which no UTF-8 can carry") from error
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"this cannot be written as JSON: {error}") from error


def given(**fields: Any) -> dict[str, Any]:
    """Return the fields that have a value."""
    return {name: value for name, value in fields.items() if value is not None}


def expiry(value: ExpiresLike) -> str | None:
    """The wire form of an expiry."""
    if isinstance(value, timedelta):
        return f"PT{value.total_seconds():.6f}".rstrip("0").rstrip(".") + "S"
    if isinstance(value, datetime):
        return instant(value)
    return value


def instant(value: datetime) -> str:
    if value.tzinfo is None:
        raise InvalidInput(f"{value.isoformat()} has no time zone: an instant needs an offset")
    return value.isoformat()


def _jsonable(value: object) -> object:
    if isinstance(value, datetime):
        return instant(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"a {type(value).__name__} is no JSON value")


def event(event: Mapping[str, Any], index: int) -> bytes:
    """One event of a batch; an error says which."""
    try:
        return encode(event)
    except InvalidInput as error:
        raise InvalidEvent(error.detail, index=index) from error


def topic_path(name: str) -> str:
    return f"/v1/topics/{quote(name, safe='')}"


def subscription_path(id: str) -> str:
    return f"/v1/subscriptions/{quote(id, safe='')}"


def key_header(key: str) -> dict[str, str]:
    # Headers carry ASCII only; the network takes percent-encoding off again.
    return {"Idempotency-Key": quote(key, safe="/:~")}


def array(elements: list[bytes]) -> bytes:
    return b"[" + b",".join(elements) + b"]"
