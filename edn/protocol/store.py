"""Storing subscriptions on a server, and the summary of its stored subscriptions. See `edn.protocol`."""

from __future__ import annotations

from typing import Any

import msgspec

from edn.formats.webhooks import KeyRing
from edn.protocol.codec import Int64


class TopicInfo(msgspec.Struct, frozen=True, array_like=True):
    """The facts about a topic that a server needs to bind filters."""

    #: unique for ever; a topic that is deleted and made again gets another
    uid: Int64
    #: empty is the operator
    tenant: str
    name: str
    #: (name, type) in column order; append-only, so a shorter point is an older one
    columns: list[tuple[str, str]]
    #: name or URI of the matcher
    engine: str


class StoreItem(msgspec.Struct, frozen=True, array_like=True):
    """One version of one subscription."""

    id: str
    #: grows with each change of filter, sink or host: the log's time then, or one more than before
    version: Int64
    #: whose it is; empty is the operator. Part of the address that it is delivered to
    tenant: str
    owner: str
    #: the filter in its JSON form; None is everything
    filter: Any
    url: str
    recipient: str | None
    #: microseconds; None is never
    expires: Int64 | None
    #: id of the key ring that its notifications are signed with; empty is none
    ring: str = ""
    #: it comes from another server: what is found here waits until that one has delivered its own
    arriving: bool = False


class Store(msgspec.Struct, frozen=True):
    log: str
    #: how often this log's dispatcher has started; a store from an earlier life is refused
    incarnation: Int64
    topic: TopicInfo
    items: list[StoreItem]
    #: those that the items name
    rings: list[KeyRing] = []
    #: sinks that must consent are asked first, and nothing is stored if one does not
    asking: bool = False


class Stored(msgspec.Struct, frozen=True):
    epoch: Int64
    #: the server's store counter, taken in the transaction that stored the items
    seq: Int64


class SummarySnapshot(msgspec.Struct, frozen=True):
    epoch: Int64
    seq: Int64
    #: topic uid → the bytes of its `edn.summary.Summary`
    topics: dict[Int64, bytes]
