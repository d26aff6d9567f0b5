"""Subscribing at a server, choosing a host, and the consent of a sink. See `edn.protocol`."""

from __future__ import annotations

import msgspec

from edn.protocol.codec import Int64, Width
from edn.protocol.store import TopicInfo


class Consented(msgspec.Struct, frozen=True):
    """A sink has consented later; answered `Taken`."""

    #: proof that it was asked
    token: str
    #: value of WebHook-Allowed-Rate; empty if there was none
    rate: str = ""


class PlacementRule(msgspec.Struct, frozen=True, array_like=True):
    """How the network chooses the host of a new subscription; see `partitioning.placement.Settings`."""

    policy: str
    threshold: Int64 | None
    factor: float | None
    bound: Int64
    spread: Int64


class Peer(msgspec.Struct, frozen=True, array_like=True):
    """A server that can host subscriptions."""

    id: str
    subscriptions: Int64
    location: list[float]
    distance: float


class Boxes(msgspec.Struct, frozen=True, array_like=True):
    """The rectangles that stand for one server's subscriptions of one topic; none if it has none."""

    topic: Int64
    server: str
    #: float64, row-major; rows have `width` columns
    lo: bytes
    hi: bytes
    width: Width


class RoutingSummaries(msgspec.Struct, frozen=True):
    """The facts from which a server chooses the host of a subscription."""

    incarnation: Int64
    #: what `since` of the next question is
    version: Int64
    rule: PlacementRule
    topics: list[TopicInfo]
    #: those that are ready
    peers: list[Peer]
    #: what has changed since; all there is if `since` was of another incarnation
    boxes: list[Boxes]


class Client(msgspec.Struct, frozen=True):
    """A client that called a server: where it is, and the fields of its request that say who it is."""

    address: str = ""
    authorization: str = ""
    host: str = ""
    origin: str = ""
    #: Sec-Fetch-Site
    site: str = ""


class Subscribe(msgspec.Struct, frozen=True):
    #: as the client sent it: one subscription or an array of them
    body: bytes
    #: a host for each of them, in their order, or none; empty if there is nothing to say of any
    suggested: list[str | None]
    client: Client = Client()
