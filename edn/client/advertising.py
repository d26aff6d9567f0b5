"""Calls of advertisements, and of the documents that describe topics."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import msgspec

from edn.api.events import Advertisement, AdvertisementPage
from edn.api.subscriptions import Ended
from edn.client.conversation import Call, delete, request
from edn.client.encoding import ExpiresLike, drop_none, expiry, topic_path
from edn.client.problems import UnexpectedAnswerError

#: attribute → a list of alternatives, or "any"
AdvertisementLike = Mapping[str, Any]


def advertisement_path(id: str) -> str:
    return f"/v1/advertisements/{quote(id, safe='')}"


def advertise(
    topic: str,
    advertisement: AdvertisementLike,
    *,
    publisher: str | None = None,
    expires: ExpiresLike = None,
    id: str | None = None,
) -> Call[Advertisement]:
    """Declares which events a publisher will send: `{"what": ["alarm"], "level": [{"gt": 3}]}`.

    Each attribute has a list of alternatives or "any". An attribute that is not named must be missing, unless
    `"$others": "any"` leaves the others free. A `publisher` other than the key's name needs the scope admin.
    """
    body = drop_none(
        topic=topic,
        advertisement=dict(advertisement),
        publisher=publisher,
        expires=expiry(expires),
        id=id or str(uuid.uuid4()),
    )
    return request("POST", "/v1/advertisements", Advertisement, body)


def advertisement(id: str) -> Call[Advertisement]:
    """Returns one advertisement, and whether anybody listens to what it covers."""
    return request("GET", advertisement_path(id), Advertisement)


def advertisement_page(
    *,
    topic: str | None = None,
    publisher: str | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Call[AdvertisementPage]:
    """Returns one page of advertisements; `advertisements` iterates over all of them."""
    query = drop_none(
        topic=topic, publisher=publisher, limit=None if limit is None else str(limit), cursor=cursor
    )
    return request("GET", "/v1/advertisements", AdvertisementPage, query=query)


def change_advertisement(
    id: str, advertisement: AdvertisementLike, *, expires: ExpiresLike = None
) -> Call[Advertisement]:
    """Replaces what is advertised, and the expiry; None is never."""
    body = drop_none(advertisement=dict(advertisement), expires=expiry(expires))
    return request("PUT", advertisement_path(id), Advertisement, body)


def unadvertise(id: str) -> Call[None]:
    """Ends an advertisement; events accepted after this returns are checked without it."""
    return delete(advertisement_path(id))


def unadvertise_covered(
    topic: str, advertisement: AdvertisementLike, *, publisher: str | None = None
) -> Call[list[str]]:
    """Ends all advertisements of a publisher that this one covers; returns their ids."""
    text = msgspec.json.encode(dict(advertisement)).decode()
    query = drop_none(topic=topic, advertisement=text, publisher=publisher)
    return request("DELETE", "/v1/advertisements", Ended, query=query).then(lambda ended: ended.ids)


class _State(msgspec.Struct, frozen=True):
    wanted: bool


def read_wanted(data: str) -> bool:
    """Decodes a message of the stream of `wanted`."""
    try:
        return msgspec.json.decode(data, type=_State).wanted
    except msgspec.DecodeError as error:
        raise UnexpectedAnswerError(f"the stream of an advertisement sent {data[:80]!r}: {error}") from error


def topic_schema(name: str, *, publisher: str | None = None) -> Call[dict[str, Any]]:
    """Returns the JSON Schema of a topic's events, with the advertisements as alternatives.

    `publisher`: only with its advertisements.
    """
    query = drop_none(publisher=publisher)
    return request("GET", f"{topic_path(name)}/schema", dict[str, Any], query=query)


def asyncapi() -> Call[dict[str, Any]]:
    """Returns an AsyncAPI 3 document of all topics, advertisements and sinks that the key may see."""
    return request("GET", "/v1/asyncapi", dict[str, Any])
