"""The way of committed events to the servers, in one place.

`Pipeline.forward` gets the records of each commit, on the event loop, in the order of the log:

1. coalesce   neighbouring records of one topic become one
2. stack      the points of each topic become one array
3. route      one kernel call per topic says which servers each event goes to
4. count      events, pairs of events and servers, and the time that routing took
5. append     the records join the log's tail in memory, where the forwarders read them
6. hold back  publishers wait while a server is too far behind
7. wake       the forwarder of each server sends its part

Event loop only.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable

import numpy as np
import structlog

from dispatcher.routing.table import RoutingTable
from dispatcher.servers.client import ServerClient
from dispatcher.servers.counters import PipelineCounters
from dispatcher.servers.forwarder import FRAME_EVENTS, Forwarder
from dispatcher.servers.limits import Backpressure, Link
from dispatcher.servers.registry import Server, ServerRegistry
from dispatcher.store.event_log import Log
from dispatcher.store.log_tail import Tail
from dispatcher.store.records import EventsRecord, Record, coalesce
from edn import protocol
from edn.arrays import Floats
from edn.model.rect import MISSING

logger = structlog.get_logger()

#: bytes of committed events in memory for the forwarders; older ones are read from disk
TAIL_BYTES = 64 << 20
#: A server that is more records behind than this bounds the network, and an earlier commit reaches nobody
#: earlier: then publishers wait a little for each other, and fewer, larger commits cost less.
_BEHIND = 500
_PATIENCE_SECONDS = 0.003


class Pipeline:
    def __init__(
        self,
        log: Log,
        table: RoutingTable,
        members: ServerRegistry,
        calls: ServerClient,
        counters: PipelineCounters,
        link: Link,
        *,
        lag_limit: int | None = None,
    ) -> None:
        self._log = log
        self._table = table
        self._members = members
        self._calls = calls
        self._counters = counters
        self._link = link
        self.tail = Tail(head=log.head, limit_bytes=TAIL_BYTES)
        self.backpressure = Backpressure(self.lag, lag_limit)
        #: events accepted since the start
        self.published = 0
        log.on_commit = self.forward

    def forward(self, committed: list[Record]) -> None:
        records = coalesce(committed, limit=FRAME_EVENTS // 2)
        by_topic: dict[int, list[EventsRecord]] = {}
        for record in records:
            if isinstance(record, EventsRecord):
                by_topic.setdefault(record.topic, []).append(record)
        for topic, together in by_topic.items():
            self._route(topic, together)
        self.tail.extend(records)
        self.backpressure.update()
        self._log.set_patience(_PATIENCE_SECONDS if self.lag() > _BEHIND else 0.0)
        for member in self._members:
            if member.forwarder is not None:
                member.forwarder.wake()

    def _route(self, topic: int, records: list[EventsRecord]) -> None:
        points = stack([record.points for record in records])
        began = time.thread_time()
        try:
            routed = self._table.route(topic, points)
        except Exception as error:
            # Too wide costs traffic; an event that never leaves costs more.
            logger.error("routing_failed", topic=topic, routed_to="all servers", exc_info=error)
            routed = np.ones((len(points), len(self._table.servers)), dtype=np.bool_)
        self._counters.routed(topic, points, routed, time.thread_time() - began)
        ends = np.cumsum([record.count for record in records])
        for record, part in zip(records, np.split(routed, ends[:-1]), strict=True):
            record.routed, record.servers = part, self._table.servers
        self.published += int(ends[-1])

    def lag(self) -> int:
        """How many records the slowest online server is behind."""
        return self.tail.head - self.carried()

    def carried(self) -> int:
        """The offset up to which every online server has all records that concern it."""
        places = [member.forwarder.position for member in self._members.present() if member.forwarder]
        return min(places, default=self.tail.head)

    def forwarder(self, member: Server, acked: int, on_ack: Callable[[protocol.FrameAck], None]) -> Forwarder:
        """Make the stream of a server that has read up to `acked`; it goes on with the server's counters."""
        made = Forwarder(
            member.id,
            log=self._log,
            tail=self.tail,
            table=self._table,
            send=functools.partial(self._calls.send_frame, member.url),
            link=self._link,
            backpressure=self.backpressure,
            counters=self._counters,
            acked=acked,
            on_ack=on_ack,
        )
        before = member.forwarder
        if before is not None:
            made.forwarded, made.matched, made.useful = before.forwarded, before.matched, before.useful
        return made


def stack(parts: list[Floats]) -> Floats:
    """Put the points of one topic under each other; older ones are narrower, and get missing values."""
    if len(parts) == 1:
        return parts[0]
    width = max(part.shape[1] for part in parts)
    return np.concatenate(
        [
            part
            if part.shape[1] == width
            else np.pad(part, ((0, 0), (0, width - part.shape[1])), constant_values=MISSING)
            for part in parts
        ]
    )
