"""Published events, and advertisements: what publishers will send."""

from __future__ import annotations

from typing import Any

import msgspec

from edn.api.fields import Always, Sometimes


class Published(msgspec.Struct, frozen=True, omit_defaults=True):
    accepted: int
    #: ids of the accepted events, in the order of the request
    ids: list[str]
    #: places of events that were dropped because their publisher has not advertised them
    unadvertised: list[int] = []


class Advertisement(msgspec.Struct, frozen=True):
    id: str
    topic: str
    #: name of the key that publishes
    publisher: str
    #: attribute → list of alternatives, or "any"
    advertisement: dict[str, Any]
    #: RFC 3339 time; None: never
    expires: str | None = None
    created: Always[str] = None
    #: false: no subscription can match an event of this advertisement
    wanted: Always[bool] = None
    #: subscriptions that may match an event of this advertisement; only in the answer to a GET of it
    subscriptions: Sometimes[int] = None


class AdvertisementPage(msgspec.Struct, frozen=True):
    advertisements: list[Advertisement]
    #: cursor of the next page; None after the last
    next: str | None = None
