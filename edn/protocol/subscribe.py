"""Subscribing at a server, placement hints, and the consent of sinks. See `edn.protocol`."""

from __future__ import annotations

import msgspec

from edn.protocol.codec import Int64, Width
from edn.protocol.store import TopicInfo


class Consented(msgspec.Struct, frozen=True):
    """A sink's delayed consent; the response is `Accepted`."""

    #: token of the consent request
    token: str
    #: value of WebHook-Allowed-Rate, or empty
    rate: str = ""


class PlacementRule(msgspec.Struct, frozen=True, array_like=True):
    """Settings of the placement of new subscriptions; see `partitioning.placement.Settings`."""

    policy: str
    threshold: Int64 | None
    factor: float | None
    bound: Int64
    spread: Int64


class Host(msgspec.Struct, frozen=True, array_like=True):
    """A server that can host subscriptions."""

    id: str
    subscriptions: Int64
    location: list[float]
    distance: float


class ServerRects(msgspec.Struct, frozen=True, array_like=True):
    """Rectangles that approximate one server's subscriptions to one topic."""

    topic: Int64
    server: str
    #: float64, row-major; rows have `width` columns
    lo: bytes
    hi: bytes
    width: Width


class RoutingSummaries(msgspec.Struct, frozen=True):
    """The data from which a server chooses the host of a subscription."""

    incarnation: Int64
    #: `since` of the next request
    version: Int64
    rule: PlacementRule
    topics: list[TopicInfo]
    #: servers that are ready
    peers: list[Host]
    #: changes since `since`; everything if `since` is of another incarnation
    boxes: list[ServerRects]


class Client(msgspec.Struct, frozen=True):
    """The client of a server's request: its address and identifying headers."""

    address: str = ""
    authorization: str = ""
    host: str = ""
    origin: str = ""
    #: Sec-Fetch-Site
    site: str = ""


class Subscribe(msgspec.Struct, frozen=True):
    #: unchanged body of the client's request: one subscription or an array
    body: bytes
    #: suggested host per subscription, or None; empty without suggestions
    suggested: list[str | None]
    client: Client = Client()
