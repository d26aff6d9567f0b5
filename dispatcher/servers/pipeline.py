"""Routes committed events and wakes the forwarders: the hot path between log and servers.

`Pipeline.forward` gets the records of each commit in the order of the log:

1. coalesce   merge adjacent records of one topic
2. stack      concatenate the points of each topic
3. route      one kernel call per topic finds the servers of each event
4. count      events, pairs of event and server, CPU time
5. append     add the records to the log's tail in memory, where forwarders read
6. hold back  make publishers wait while a server is too far behind
7. wake       each forwarder sends its part
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import numpy as np
import structlog

from dispatcher.routing.table import RoutingTable
from dispatcher.routing.topic_routes import PointSample
from dispatcher.servers.client import ServerClient
from dispatcher.servers.forwarder import FRAME_EVENTS, Forwarder
from dispatcher.servers.log_tail import Tail
from dispatcher.servers.registry import Server, ServerRegistry
from dispatcher.store.event_log import Log
from dispatcher.store.records import EventsRecord, Record, coalesce
from edn import protocol
from edn.arrays import Bools, Floats
from edn.errors import Overloaded
from edn.model.rect import MISSING
from edn.runtime import tracing
from edn.runtime.ownership import owned

logger = structlog.get_logger()

#: bytes of committed events in memory for the forwarders; older ones are read from disk
TAIL_BYTES = 64 << 20
#: sample of recent events per topic, and how many of them one commit may replace
SAMPLE = 512
SAMPLE_OF_COMMIT = 64
#: lag in records beyond which commits are delayed: the slow server bounds the network, and fewer, larger
#: commits cost less
_BEHIND = 500
_COMMIT_DELAY_SECONDS = 0.003
#: longest wait of a publisher before it gets an error
_HOLD_SECONDS = 5.0


@dataclass(slots=True)
class Counts:
    """Totals since the start. Seconds are CPU time of the event loop's thread."""

    #: events routed
    events: int = 0
    #: pairs of event and server that were tested and that were routed, and the time of routing
    tested: int = 0
    hits: int = 0
    routing: float = 0.0
    #: events in frames, bytes of these frames, and the time to build them
    copies: int = 0
    sent_bytes: int = 0
    sending: float = 0.0

    def since(self, before: Counts) -> Counts:
        return Counts(*(getattr(self, one.name) - getattr(before, one.name) for one in fields(self)))


@owned("loop")
class PipelineCounters:
    """Counters of the throughput model, and a sample of recent events per topic.

    They cost a few additions per commit and per frame, none per event.
    """

    def __init__(self) -> None:
        self.counts = Counts()
        #: topic → recent events
        self.samples: dict[int, PointSample] = {}
        #: topic → events since the last `pop_shares`
        self._by_topic: dict[int, int] = {}

    def snapshot(self) -> Counts:
        return replace(self.counts)

    def count_routed(self, topic: int, points: Floats, routed: Bools, seconds: float) -> None:
        counts = self.counts
        counts.events += len(points)
        counts.tested += routed.size
        counts.hits += int(np.count_nonzero(routed))
        counts.routing += seconds
        self._by_topic[topic] = self._by_topic.get(topic, 0) + len(points)
        sample = self.samples.get(topic)
        if sample is None or sample.width != points.shape[1]:
            sample = PointSample(points.shape[1], size=SAMPLE, of_batch=SAMPLE_OF_COMMIT)
            self.samples[topic] = sample
        sample.add(points)

    def count_frame(self, copies: int, size: int, seconds: float) -> None:
        counts = self.counts
        counts.copies += copies
        counts.sent_bytes += size
        counts.sending += seconds

    def forget_topic(self, topic: int) -> None:
        self.samples.pop(topic, None)
        self._by_topic.pop(topic, None)

    def pop_shares(self) -> dict[int, float]:
        """Return each topic's share of the events since the last call."""
        total = sum(self._by_topic.values())
        shares = {topic: count / total for topic, count in self._by_topic.items()} if total else {}
        self._by_topic = {}
        return shares


@owned("loop")
class Backpressure:
    """Makes publishers wait while an online server is more than `limit` records behind.

    Without a limit the log grows instead.
    """

    def __init__(self, lag: Callable[[], int], limit: int | None = None) -> None:
        """`lag` returns how many records the slowest online server is behind."""
        self._lag = lag
        self._limit = limit
        self._room = asyncio.Event()
        self._room.set()
        #: publishers that had to wait, since the start
        self.held = 0

    @property
    def limit(self) -> int | None:
        return self._limit

    def set_limit(self, limit: int | None) -> None:
        self._limit = limit
        self.update()

    @property
    def full(self) -> bool:
        return not self._room.is_set()

    def update(self) -> None:
        """Compare lag and limit. Call it whenever the lag may have changed."""
        if self._limit is None or self._lag() <= self._limit:
            self._room.set()
        else:
            self._room.clear()

    async def wait(self) -> None:
        """Wait until no server is too far behind; raises `Overloaded` after a few seconds."""
        self.held += 1
        try:
            async with asyncio.timeout(_HOLD_SECONDS):
                await self._room.wait()
        except TimeoutError:
            raise Overloaded(
                f"a server is more than {self._limit} records behind; try again when it has caught up",
                retry_after=1,
            ) from None


@owned("loop")
class Pipeline:
    def __init__(
        self,
        log: Log,
        table: RoutingTable,
        registry: ServerRegistry,
        client: ServerClient,
        *,
        lag_limit: int | None = None,
    ) -> None:
        self._log = log
        self._table = table
        self._registry = registry
        self._client = client
        self.counters = PipelineCounters()
        self.tail = Tail(head=log.head, limit_bytes=TAIL_BYTES)
        self.backpressure = Backpressure(self.lag, lag_limit)
        #: events accepted since the start
        self.published = 0
        log.on_commit = self.forward

    def forward(self, committed: list[Record]) -> None:
        """Route the records of one commit, see above."""
        records = coalesce(committed, limit=FRAME_EVENTS // 2)
        by_topic: dict[int, list[EventsRecord]] = {}
        for record in records:
            if isinstance(record, EventsRecord):
                by_topic.setdefault(record.topic, []).append(record)
        for topic, together in by_topic.items():
            self._route(topic, together)
        self.tail.extend(records)
        self.backpressure.update()
        self._log.set_patience(_COMMIT_DELAY_SECONDS if self.lag() > _BEHIND else 0.0)
        for server in self._registry:
            if server.forwarder is not None:
                server.forwarder.wake()

    def _route(self, topic: int, records: list[EventsRecord]) -> None:
        points = stack([record.points for record in records])
        started = 0 if tracing.active is None else time.time_ns()
        began = time.thread_time()
        try:
            routed = self._table.route(topic, points)
        except Exception as error:
            # Sending too much costs traffic; not sending loses events.
            logger.error("routing_failed", topic=topic, routed_to="all servers", exc_info=error)
            routed = np.ones((len(points), len(self._table.servers)), dtype=np.bool_)
        self.counters.count_routed(topic, points, routed, time.thread_time() - began)
        ends = np.cumsum([record.count for record in records])
        for record, part in zip(records, np.split(routed, ends[:-1]), strict=True):
            record.routed, record.servers = part, self._table.servers
            if tracing.active is not None and record.traces:
                tracing.active.record(
                    "route", record.traces, started, {"edn.servers": int(part.any(axis=0).sum())}
                )
        self.published += int(ends[-1])

    def lag(self) -> int:
        """Return how many records the slowest online server is behind."""
        return self.tail.head - self.carried()

    def carried(self) -> int:
        """Return the offset up to which every online server has all records for it."""
        positions = [server.forwarder.position for server in self._registry.present() if server.forwarder]
        return min(positions, default=self.tail.head)

    def new_forwarder(
        self, server: Server, acked: int, on_ack: Callable[[protocol.FrameAck], None]
    ) -> Forwarder:
        """Create the stream of a server that has read up to `acked`; its counters continue."""
        made = Forwarder(
            server.id,
            log=self._log,
            tail=self.tail,
            table=self._table,
            send=functools.partial(self._client.send_frame, server.url),
            acked=acked,
            on_frame=self.counters.count_frame,
            on_progress=self.backpressure.update,
            on_ack=on_ack,
        )
        before = server.forwarder
        if before is not None:
            made.forwarded, made.matched, made.useful = before.forwarded, before.matched, before.useful
        return made


def stack(parts: list[Floats]) -> Floats:
    """Concatenate points of one topic; older, narrower ones are padded with missing values."""
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
