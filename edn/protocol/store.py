"""Storing subscriptions on a server, and its summaries. See `edn.protocol`."""

from __future__ import annotations

from typing import Any

import msgspec

from edn.formats.webhooks import KeyRing
from edn.protocol.codec import Int64


class TopicInfo(msgspec.Struct, frozen=True, array_like=True):
    """A topic, as servers need it to bind filters."""

    #: never reused; a recreated topic gets another
    uid: Int64
    #: empty for the operator
    tenant: str
    name: str
    #: (name, type) in column order; append-only, so shorter points are older
    columns: list[tuple[str, str]]
    #: name or URI of the matcher
    engine: str


class StoreItem(msgspec.Struct, frozen=True, array_like=True):
    """One version of a subscription."""

    id: str
    #: rises with each change of filter, sink or host: the log's time, or the previous version + 1
    version: Int64
    #: empty for the operator; part of the address
    tenant: str
    owner: str
    #: JSON form; None is everything; a sequence in its stored form (`edn.model.sequence`)
    filter: Any
    url: str
    recipient: str | None
    #: microseconds; None is never
    expires: Int64 | None
    #: id of the key ring for signatures; empty is none
    ring: str = ""
    #: whether it migrates from another server: notifications wait until that server has drained its outbox
    arriving: bool = False
    #: settings of the sink (`edn.formats.sink_settings`) as JSON; empty: those of the server
    settings: str = ""


class Store(msgspec.Struct, frozen=True):
    log: str
    #: starts of the log's dispatcher; requests of an earlier incarnation are refused
    incarnation: Int64
    topic: TopicInfo
    items: list[StoreItem]
    #: key rings of the items
    rings: list[KeyRing] = []
    #: whether to request the consent of sinks first; without it nothing is stored
    asking: bool = False
    #: credentials of sinks, by the id of their settings
    credentials: dict[str, str] = {}
    #: further topics of sequences
    topics: list[TopicInfo] = []

    def __repr__(self) -> str:
        # Logs and failed assertions must not print secrets.
        return f"Store({self.log!r}, {self.incarnation!r}, {self.topic!r}, {self.items!r}, …)"


class Stored(msgspec.Struct, frozen=True):
    epoch: Int64
    #: number of stored changes, read in the transaction that stored the items
    seq: Int64


class SummarySnapshot(msgspec.Struct, frozen=True):
    epoch: Int64
    seq: Int64
    #: topic uid → encoded `edn.summary.Summary`
    topics: dict[Int64, bytes]
