"""Replication of the directory between dispatchers. See `edn.protocol`."""

from __future__ import annotations

from typing import Any

import msgspec

from edn.protocol.codec import Int64


class PeerPoll(msgspec.Struct, frozen=True):
    """Requests the changes of another dispatcher."""

    log: str
    incarnation: Int64
    #: position in the other's change feed up to which changes are applied
    after: Int64
    #: log of the leader as this dispatcher observes it; empty is none
    sees: str


class ServerState(msgspec.Struct, frozen=True, array_like=True):
    id: str
    url: str
    #: hash of the server's key
    key: str
    epoch: Int64


class TopicState(msgspec.Struct, frozen=True, array_like=True):
    uid: Int64
    name: str
    #: revision of the schema
    revision: Int64
    #: JSON, like `attributes`
    columns: str
    attributes: str
    engine: str
    created: Int64
    availability: float
    #: revision of the topic
    changed: Int64
    #: whether the engine was set for this topic, not inherited
    chosen: bool = False
    #: whether its events have no fields but the attributes
    closed: bool = False


class RingState(msgspec.Struct, frozen=True, array_like=True):
    id: str
    tenant: str
    owner: str
    url: str
    #: fingerprint of a signing key given by the subscriber
    given: str
    current: str
    previous: str | None
    until: Int64
    version: Int64

    def __repr__(self) -> str:
        return f"RingState({self.id!r}, …)"


class SubscriptionState(msgspec.Struct, frozen=True, array_like=True):
    """A row of the directory, with the server's response to its store request."""

    id: str
    #: rises with every change of any field
    revision: Int64
    version: Int64
    owner: str
    topic: Int64
    filter: Any
    #: attributes used by the filter
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
    #: the server's response to the store request of this version, if known
    epoch: Int64 | None
    seq: Int64 | None
    #: start of the requested replay; None is no replay
    since: Int64 | None
    #: whether the expiry differs from the one in the store request
    renewed: bool
    #: previous server, if it has migrated
    former: str | None = None
    #: path of the subtree; a subtree subscription has topic 0 and no server, its members have both
    subtree: str | None = None


class BindingState(msgspec.Struct, frozen=True, array_like=True):
    """Servers and engine that an operator has bound to a topic or subtree."""

    #: path of a topic or a subtree
    name: str
    #: servers that may host its subscriptions; None is any
    servers: list[str] | None
    #: engine that topics inherit, or None
    engine: str | None
    created: Int64
    revision: Int64


class KeyState(msgspec.Struct, frozen=True, array_like=True):
    id: str
    #: SHA-256 of the whole key
    digest: bytes
    name: str
    tenant: str
    #: JSON, like `quota`
    scopes: str
    quota: str
    created: Int64
    expires: Int64 | None
    revision: Int64


class Tombstone(msgspec.Struct, frozen=True, array_like=True):
    """The end of a topic, subscription, key or binding (`dispatcher.store.change_feed.Kind`)."""

    kind: Int64
    name: str
    revision: Int64
    time: Int64
    version: Int64 | None
    server: str | None
    #: start, topic and filter of the replay that a subscription requested: if it was created and ended while
    #: a dispatcher was offline, it still gets that dispatcher's part
    since: Int64 | None = None
    topic: Int64 | None = None
    filter: Any = None


class PeerPage(msgspec.Struct, frozen=True):
    """The changes at the positions (after, upto] of the change feed, in their current state."""

    log: str
    incarnation: Int64
    after: Int64
    upto: Int64
    #: whether the sender waits for the receiver before it confirms changes, for some seconds (a lease)
    granted: bool
    ready: bool
    sees: str
    servers: list[ServerState] = []
    topics: list[TopicState] = []
    rings: list[RingState] = []
    subscriptions: list[SubscriptionState] = []
    keys: list[KeyState] = []
    gone: list[Tombstone] = []
    bindings: list[BindingState] = []
