"""Sends one server its part of the log, as a stream of frames.

A forwarder sends everything that is due as one frame over a contiguous range of offsets, waits for the
acknowledgement and continues with the records that were committed meanwhile. That makes large batches under
load, and slows down with the server. After a failure it starts again at the cursor that the server reports.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Sequence

import msgspec
import numpy as np
import structlog

from dispatcher.routing.table import RoutingTable
from dispatcher.servers.log_tail import Tail
from dispatcher.store.event_log import Log
from dispatcher.store.records import ControlRecord, EventsRecord, Record
from edn import protocol
from edn.arrays import Bools
from edn.http.exchange import ExchangeFailed, HttpAnswer
from edn.protocol.gather import Picked, extent
from edn.runtime.ownership import owned

logger = structlog.get_logger()

_ack = protocol.Decoder(protocol.FrameAck)

#: limits of one frame: events, and bytes of event bodies
FRAME_EVENTS = 2000
FRAME_BYTES = 4 << 20
#: interval at which an idle server gets the log's position
IDLE_FRAME_SECONDS = 1.0
#: offsets without a record for the server after which it gets the log's position
_QUIET_OFFSETS = 4096


class BadAnswer(Exception):
    """A server's answer that violates the protocol."""


class FrameBuilder:
    """Builds a frame from records, added in the order of the log. No I/O, and used by one thread."""

    def __init__(self) -> None:
        self.events = 0
        self.size = 0
        self._controls: list[protocol.Control] = []
        #: topic → (record, marks of the events in the frame, their number, bytes of their bodies)
        self._topics: dict[int, list[tuple[EventsRecord, Bools, int, int]]] = {}

    @property
    def empty(self) -> bool:
        return not self._controls and not self._topics

    def add_control(self, control: protocol.Control) -> None:
        self._controls.append(control)

    def add_events(self, record: EventsRecord, chosen: Bools) -> None:
        """Add the events of `record` that `chosen` marks."""
        count, size = extent(chosen, record.ends)
        if count:
            self._topics.setdefault(record.topic, []).append((record, chosen, count, size))
            self.events += count
            self.size += size

    def frame(self, log: str, incarnation: int, after: int, upto: int) -> protocol.Frame:
        segments = [self._segment(log, topic) for topic in self._topics]
        return protocol.Frame(log, incarnation, after, upto, self._controls, segments)

    def _segment(self, log: str, topic: int) -> protocol.Segment:
        parts = self._topics[topic]
        width = max(record.points.shape[1] for record, *_ in parts)
        picked = Picked(sum(count for *_, count, _ in parts), width, sum(size for *_, size in parts))
        for record, chosen, *_ in parts:
            picked.take(
                chosen, record.first, record.time, record.stamps, record.points, record.lines, record.ends
            )
        ids: list[str] = []
        if any(record.ids for record, *_ in parts):
            # Ids of all events, because publishers chose some of them.
            ids = [
                record.ids[place] if record.ids else protocol.generated_id(log, record.first + place)
                for record, chosen, *_ in parts
                for place in np.flatnonzero(chosen).tolist()
            ]
        traces: list[str] = []
        if any(record.traces for record, *_ in parts):
            traces = [
                record.traces[place] if record.traces else ""
                for record, chosen, *_ in parts
                for place in np.flatnonzero(chosen).tolist()
            ]
        return protocol.Segment(
            topic=topic,
            offsets=protocol.view(picked.offsets),
            times=protocol.view(picked.times),
            stamps=protocol.view(picked.stamps),
            points=protocol.view(picked.points),
            width=width,
            ids=ids,
            lines=protocol.view(picked.lines),
            traces=traces,
        )


@owned("loop")
class Forwarder:
    """The stream to one server, from one registration to the next. Call `run` once."""

    def __init__(
        self,
        server: str,
        *,
        log: Log,
        tail: Tail,
        table: RoutingTable,
        send: Callable[[bytes], Awaitable[HttpAnswer]],
        acked: int,
        on_frame: Callable[[int, int, float], None],
        on_progress: Callable[[], None],
        on_ack: Callable[[protocol.FrameAck], None],
    ) -> None:
        """`send` posts an encoded frame, `on_frame` gets its events, bytes and CPU seconds.

        `on_progress` is called when `position` may have changed.
        """
        self.server = server
        #: cursor that the server reported last
        self.acked = acked
        #: error of the last attempt, or None
        self.failure: str | None = None
        #: events sent
        self.forwarded = 0
        #: matches that the server found, and events with at least one match
        self.matched = 0
        self.useful = 0
        self._log = log
        self._tail = tail
        self._table = table
        self._post = send
        self._on_frame = on_frame
        self._on_progress = on_progress
        self._on_ack = on_ack
        self._scanned = acked
        self._acked_at = time.monotonic()
        self._sending = False
        self._wake = asyncio.Event()

    @property
    def position(self) -> int:
        """Offset up to which the server has every record for it, acknowledged or not."""
        return self.acked if self._sending else self._scanned

    def wake(self) -> None:
        """Check for records to send."""
        self._wake.set()

    async def run(self) -> None:
        pause = 0.05
        while True:
            try:
                await self._wait_until_due()
                began = time.thread_time()
                records = self._tail.after(self._scanned)
                if records is None:
                    records = await self._log.read(self._scanned, FRAME_BYTES)
                frame, events = self._gather(records)
                if frame is None:
                    self._on_progress()
                    continue
                self._sending = True
                body = protocol.encode(frame)
                self._on_frame(events, len(body), time.thread_time() - began)
                await self._send(frame, body, events)
            except Exception as error:
                # Retry after any error: a stream that stops for good is worse.
                expected = isinstance(error, (ExchangeFailed, BadAnswer, msgspec.MsgspecError))
                reason = str(error) or type(error).__name__
                if self.failure is None:
                    logger.warning(
                        "stream_to_server_failed",
                        server=self.server,
                        reason=reason,
                        exc_info=None if expected else error,
                    )
                self.failure = reason
                self._scanned = self.acked
                self._sending = False
                await asyncio.sleep(pause)
                pause = min(pause * 2, 1.0)
            else:
                if self.failure is not None:
                    logger.info("stream_to_server_resumed", server=self.server)
                self.failure = None
                pause = 0.05
            self._sending = False

    async def _wait_until_due(self) -> None:
        self._wake.clear()
        while self._scanned >= self._tail.head:
            left = None
            if self._scanned > self.acked:
                left = IDLE_FRAME_SECONDS - (time.monotonic() - self._acked_at)
                if left <= 0:
                    return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._wake.wait()
            self._wake.clear()

    def _gather(self, records: Sequence[Record]) -> tuple[protocol.Frame | None, int]:
        """Return the next frame, if one is due, and the number of its events."""
        builder = FrameBuilder()
        for record in records:
            if isinstance(record, ControlRecord):
                if record.server == self.server:
                    builder.add_control(record.control)
            else:
                self._choose(builder, record)
            self._scanned = record.last
            if builder.events >= FRAME_EVENTS or builder.size >= FRAME_BYTES:
                break
        if builder.empty:
            quiet = self._scanned - self.acked
            idle = time.monotonic() - self._acked_at >= IDLE_FRAME_SECONDS
            if quiet == 0 or (quiet < _QUIET_OFFSETS and not idle):
                return None, 0
        frame = builder.frame(self._log.id, self._log.incarnation, self.acked, self._scanned)
        return frame, builder.events

    def _choose(self, builder: FrameBuilder, record: EventsRecord) -> None:
        if self.server not in record.servers:
            # The record was read from disk, or committed before the server registered. The present summary
            # covers every subscription whose end the server has not read. Events are counted only once, at
            # their commit.
            record.add_server(self.server, self._table.route_to(self.server, record.topic, record.points))
        chosen = record.routed_to(self.server)
        if record.first <= self._scanned:
            # In memory several requests share a record; some of them were already sent from disk.
            chosen = chosen.copy()
            chosen[: self._scanned - record.first + 1] = False
        builder.add_events(record, chosen)

    async def _send(self, frame: protocol.Frame, body: bytes, events: int) -> None:
        status, _, answer = await self._post(body)
        if status not in (200, 409):
            raise BadAnswer(f"server answered {status} to a frame: {answer[:200].decode(errors='replace')}")
        ack = _ack.decode(answer)
        if status == 200 and ack.cursor < frame.upto:
            raise BadAnswer(f"server acknowledged a frame up to {frame.upto} with cursor {ack.cursor}")
        self.acked = self._scanned = ack.cursor
        self._acked_at = time.monotonic()
        if status == 200:
            self.forwarded += events
            self.matched += ack.matched
            self.useful += ack.useful
        self._on_progress()
        self._on_ack(ack)
