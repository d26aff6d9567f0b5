"""Samples the counters once per second for all open dashboards.

A sample is made and encoded once for all dashboards. Samples are also made without one, so that a dashboard
shows the last minutes when it opens. The cost does not grow with the events: rates are differences of
existing counters, and only a few events are shown.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import asdict
from typing import Any

import msgspec
import numpy as np

from dispatcher.observe.servers import ServerDescriptions
from dispatcher.routing.table import RoutingTable
from dispatcher.servers.pipeline import Pipeline
from dispatcher.store.event_log import Log
from dispatcher.store.records import EventsRecord
from dispatcher.subscriptions.topics import Topics
from dispatcher.tuning.loop import Tuner
from edn.formats.ndjson import cut
from edn.protocol import generated_id
from edn.runtime.ownership import owned
from edn.runtime.tasks import periodic

SECONDS = 1.0
#: samples in the history: ten minutes
KEPT = 600
#: limits of events per sample, and of decisions in the history
EVENTS = 16
DECISIONS = 200
#: counters whose rates are shown
COUNTED = ("published", "forwarded", "useful", "matched", "notified")
#: columns of the history
HISTORY = ("time", "published", "forwarded", "useful", "matched", "notified", "hit_ratio", "cpu", "precision")

_encode = msgspec.json.Encoder().encode


@owned("loop")
class Sampler:
    def __init__(
        self,
        log: Log,
        table: RoutingTable,
        pipeline: Pipeline,
        descriptions: ServerDescriptions,
        topics: Topics,
        tuner: Tuner,
    ) -> None:
        self._log = log
        self._table = table
        self._pipeline = pipeline
        self._descriptions = descriptions
        self._topics = topics
        self._tuner = tuner
        self._rows: deque[tuple[float | None, ...]] = deque(maxlen=KEPT)
        self._totals: dict[str, int] = {}
        self._servers: dict[str, dict[str, int]] = {}
        self._tested = (0, 0)
        self._at = time.monotonic()
        self._cpu = time.process_time()
        self._decided = tuner.tuning.decided
        self._seen = pipeline.tail.head
        self._latest = b"{}"
        self._number = 0
        self._next = asyncio.Event()
        self._closed = False
        #: open streams
        self.watching = 0

    async def run(self) -> None:
        await periodic(SECONDS, self._sample, "sampling for the dashboards")

    async def _sample(self) -> None:
        try:
            sample = self._new_sample()
            if self.watching:
                sample["events"] = self._events()
                self._latest = _encode(sample)
            self._seen = self._pipeline.tail.head
        finally:
            self._number += 1
            self._next.set()
            self._next = asyncio.Event()

    def close(self) -> None:
        """End all streams, because the dispatcher stops."""
        self._closed = True
        self._next.set()

    async def stream(self) -> AsyncIterator[bytes]:
        """Yield server-sent events: the history, then every sample."""
        self.watching += 1
        try:
            yield b"event: history\ndata: " + _encode(self._history()) + b"\n\n"
            while not self._closed:
                await self._next.wait()
                if not self._closed:
                    yield b"id: %d\nevent: sample\ndata: %b\n\n" % (self._number, self._latest)
        finally:
            self.watching -= 1

    def _history(self) -> dict[str, Any]:
        columns = zip(*self._rows, strict=True) if self._rows else ((),) * len(HISTORY)
        decisions = self._tuner.tuning.describe()["history"]
        return {
            "seconds": SECONDS,
            "columns": dict(zip(HISTORY, map(list, columns), strict=True)),
            "decisions": decisions[-DECISIONS:],
        }

    def _new_sample(self) -> dict[str, Any]:
        tuning = self._tuner.tuning
        now, cpu = time.monotonic(), time.process_time()
        elapsed = max(1e-3, now - self._at)
        servers = self._descriptions.all()
        totals = {"published": self._pipeline.published}
        totals |= {name: sum(server[name] for server in servers) for name in COUNTED[1:]}
        # Counters of a restarted server begin at 0 again; a rate is never negative.
        rates = {name: max(0, totals[name] - self._totals.get(name, 0)) / elapsed for name in COUNTED}
        counts = self._pipeline.counters.counts
        tested, hits = counts.tested - self._tested[0], counts.hits - self._tested[1]
        share = (cpu - self._cpu) / elapsed
        milliseconds = round(time.time() * 1000)
        hit_ratio = hits / tested if tested else None
        fresh = tuning.decided - self._decided
        sample = {
            "time": milliseconds,
            "totals": totals,
            "rates": rates,
            "hit_ratio": hit_ratio,
            "cpu": share,
            "mode": tuning.mode,
            "precision": tuning.precision,
            "topics": len(self._topics.all("")),
            "head": self._pipeline.tail.head,
            "servers": [self._server(server, elapsed) for server in servers],
            "decisions": [asdict(one) for one in tuning.latest(fresh)] if fresh else [],
            "events": [],
        }
        self._rows.append(
            (milliseconds, *(rates[name] for name in COUNTED), hit_ratio, share, tuning.precision)
        )
        self._at, self._cpu, self._totals, self._decided = now, cpu, totals, tuning.decided
        self._tested = (counts.tested, counts.hits)
        return sample

    def _server(self, server: dict[str, Any], elapsed: float) -> dict[str, Any]:
        before = self._servers.get(server["id"], {})
        counted = {name: server[name] for name in COUNTED[1:]}
        self._servers[server["id"]] = counted
        routed = self._table.describe(server["id"])
        topics = routed.topics.values()
        return {
            **server,
            "rates": {
                name: max(0, counted[name] - before.get(name, counted[name])) / elapsed for name in counted
            },
            "everything": routed.everything,
            "rectangles": sum(topic.rectangles + topic.widenings for topic in topics),
            "maximal": sum(topic.maximal for topic in topics),
            "summary_bytes": sum(topic.bytes for topic in topics),
        }

    def _events(self) -> list[dict[str, Any]]:
        """Return some of the events since the last sample, evenly spread."""
        records = self._pipeline.tail.after(self._seen) or []
        fresh = [record for record in records if isinstance(record, EventsRecord)]
        shown: list[dict[str, Any]] = []
        for record in fresh[:: max(1, -(-len(fresh) // EVENTS))]:
            most = max(1, EVENTS // len(fresh))
            topic = self._topics.by_uid(record.topic)
            if topic is not None:
                places = np.linspace(0, record.count - 1, min(record.count, most)).astype(int)
                shown += [self._event(record, topic.path, place) for place in places.tolist()]
        return shown[:EVENTS]

    def _event(self, record: EventsRecord, topic: str, place: int) -> dict[str, Any]:
        offset = record.first + place
        routed = record.routed[place] if record.routed is not None else ()
        return {
            "topic": topic,
            "id": record.ids[place] if record.ids else generated_id(self._log.id, offset),
            "attributes": msgspec.Raw(cut(record.lines, record.ends, place)),
            "to": [server for server, goes in zip(record.servers, routed, strict=False) if goes],
        }
