"""Replication of the directory between dispatchers. See `edn.protocol`."""

from __future__ import annotations

from typing import Any

import msgspec

from edn.protocol.codec import Int64


class PeerPoll(msgspec.Struct, frozen=True):
    """A dispatcher asks another one what has changed."""

    log: str
    incarnation: Int64
    #: everything up to this place of the other's changes is in this log
    after: Int64
    #: log of the dispatcher that it takes for the one that carries out changes; empty is none
    sees: str


class ServerState(msgspec.Struct, frozen=True, array_like=True):
    id: str
    url: str
    #: hash of its key
    key: str
    epoch: Int64


class TopicState(msgspec.Struct, frozen=True, array_like=True):
    uid: Int64
    name: str
    #: of the schema
    revision: Int64
    #: both as JSON
    columns: str
    attributes: str
    engine: str
    created: Int64
    availability: float
    #: of the topic as a whole
    changed: Int64
    #: its engine was chosen for this very name
    chosen: bool = False


class RingState(msgspec.Struct, frozen=True, array_like=True):
    id: str
    tenant: str
    owner: str
    url: str
    #: fingerprint of a secret that the subscriber gave
    given: str
    current: str
    previous: str | None
    until: Int64
    version: Int64

    def __repr__(self) -> str:
        return f"RingState({self.id!r}, …)"


class SubscriptionState(msgspec.Struct, frozen=True, array_like=True):
    """A row of the directory, and what its dispatcher knows of how it was stored."""

    id: str
    #: grows with every change of any field
    revision: Int64
    version: Int64
    owner: str
    topic: Int64
    filter: Any
    #: those that the filter names
    attributes: list[str]
    url: str
    recipient: str | None
    expires: Int64 | None
    server: str
    created: Int64
    serial: Int64
    location: list[float] | None
    ring: str
    paused: bool
    #: the server's answer to the store of this version, if it is known
    epoch: Int64 | None
    seq: Int64 | None
    #: from when on it wants to hear what is available; None is from now
    since: Int64 | None
    #: its expiry is another than that which the server was given with this version
    renewed: bool
    #: the server that it was on before, if it has moved
    former: str | None = None
    #: path of the subtree that it is to; it has no topic (0) and no server then: these are its members'
    subtree: str | None = None


class BindingState(msgspec.Struct, frozen=True, array_like=True):
    """What an operator has bound to a name."""

    #: path of a topic or a subtree
    name: str
    #: that may host its subscriptions; None: any
    servers: list[str] | None
    #: that topics inherit; None: none
    engine: str | None
    created: Int64
    revision: Int64


class KeyState(msgspec.Struct, frozen=True, array_like=True):
    """An API key as the dispatchers keep it."""

    id: str
    #: SHA-256 of the whole key
    digest: bytes
    name: str
    tenant: str
    #: JSON
    scopes: str
    quota: str
    created: Int64
    expires: Int64 | None
    revision: Int64


class Gone(msgspec.Struct, frozen=True, array_like=True):
    """The end of a topic, subscription, key or binding (`dispatcher.store.change_feed.Kind`)."""

    kind: Int64
    name: str
    revision: Int64
    time: Int64
    version: Int64 | None
    server: str | None
    #: of a subscription that wanted to hear what was available, from when on, of which topic and inside
    #: which filter: one that came and went while a dispatcher was away is told that one's part of it
    since: Int64 | None = None
    topic: Int64 | None = None
    filter: Any = None


class PeerPage(msgspec.Struct, frozen=True):
    """What has changed in the places (after, upto], as it is now."""

    log: str
    incarnation: Int64
    after: Int64
    upto: Int64
    #: no change is answered before the asking one has it, for some seconds from this answer on
    granted: bool
    ready: bool
    sees: str
    servers: list[ServerState] = []
    topics: list[TopicState] = []
    rings: list[RingState] = []
    subscriptions: list[SubscriptionState] = []
    keys: list[KeyState] = []
    gone: list[Gone] = []
    bindings: list[BindingState] = []
