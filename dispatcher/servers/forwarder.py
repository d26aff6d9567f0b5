"""One ordered stream to one server.

A forwarder sends what is due as one frame over a contiguous range of offsets, waits for the answer, and
sends what has come meanwhile as the next: that is the batching, and the back-pressure. After any failure it
begins again from the cursor that the server names.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

import msgspec
import structlog

from dispatcher.routing.table import RoutingTable
from dispatcher.servers.counters import PipelineCounters
from dispatcher.servers.frames import FrameBuilder
from dispatcher.servers.limits import Backpressure, Link
from dispatcher.store.event_log import Log
from dispatcher.store.log_tail import Tail
from dispatcher.store.records import ControlRecord, EventsRecord, Record
from edn import protocol
from edn.http.client import ExchangeFailed, HttpAnswer

logger = structlog.get_logger()

_ack = protocol.Decoder(protocol.FrameAck)

#: events, and bytes of event bodies, in one frame to a server
FRAME_EVENTS = 2000
FRAME_BYTES = 4 << 20
#: a server that needs no events still gets the log's position this often
IDLE_FRAME_SECONDS = 1.0
#: offsets that may pass a server which needs none of them before it is told
_QUIET_OFFSETS = 4096


class BadAnswer(Exception):
    """The server answered something that no server of ours answers."""


class Forwarder:
    """The stream of one server, in one life of that server. `run` until cancelled."""

    def __init__(
        self,
        server: str,
        *,
        log: Log,
        tail: Tail,
        table: RoutingTable,
        send: Callable[[bytes], Awaitable[HttpAnswer]],
        link: Link,
        backpressure: Backpressure,
        counters: PipelineCounters,
        acked: int,
        on_ack: Callable[[protocol.FrameAck], None],
    ) -> None:
        """`send` posts an encoded frame to the server and returns its answer."""
        self.server = server
        #: the server's cursor, as it last said
        self.acked = acked
        #: why the last attempt failed, or None
        self.failure: str | None = None
        #: events sent
        self.forwarded = 0
        #: (event, subscription) pairs that the server found, and events with at least one
        self.matched = 0
        self.useful = 0
        self._log = log
        self._tail = tail
        self._table = table
        self._send_frame = send
        self._link = link
        self._backpressure = backpressure
        self._counters = counters
        self._on_ack = on_ack
        self._scanned = acked
        self._told = time.monotonic()
        self._sending = False
        self._wake = asyncio.Event()

    @property
    def position(self) -> int:
        """Up to here this server has everything that concerns it, told or not."""
        return self.acked if self._sending else self._scanned

    def wake(self) -> None:
        """There may be something to send."""
        self._wake.set()

    async def run(self) -> None:
        pause = 0.05
        while True:
            try:
                await self._until_due()
                began = time.thread_time()
                records = self._tail.after(self._scanned)
                if records is None:
                    records = await self._log.read(self._scanned, FRAME_BYTES)
                frame, events = self._gather(records)
                if frame is None:
                    self._backpressure.update()
                    continue
                self._sending = True
                body = protocol.encode(frame)
                self._counters.sent(events, len(body), time.thread_time() - began)
                await self._send(frame, body, events)
            except Exception as error:
                # Whatever it was, a stream that stands still for good is worse than one that tries again.
                expected = isinstance(error, (ExchangeFailed, BadAnswer, msgspec.MsgspecError))
                if self.failure is None:
                    logger.warning(
                        "server does not take its stream",
                        server=self.server,
                        reason=str(error) or type(error).__name__,
                        exc_info=None if expected else error,
                    )
                self.failure = str(error) or type(error).__name__
                self._scanned = self.acked
                self._sending = False
                await asyncio.sleep(pause)  # whatever is committed meanwhile
                pause = min(pause * 2, 1.0)
            else:
                if self.failure is not None:
                    logger.info("server takes its stream again", server=self.server)
                self.failure = None
                pause = 0.05
            self._sending = False

    async def _until_due(self) -> None:
        self._wake.clear()
        while self._scanned >= self._tail.head:
            if self._scanned > self.acked:
                left = IDLE_FRAME_SECONDS - (time.monotonic() - self._told)
                if left <= 0:
                    return
                await self._rest(left)
            else:
                await self._wake.wait()
            self._wake.clear()

    async def _rest(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            pass

    def _gather(self, records: Sequence[Record]) -> tuple[protocol.Frame | None, int]:
        """The next frame, if one is due, and how many events it holds."""
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
            idle = time.monotonic() - self._told >= IDLE_FRAME_SECONDS
            if quiet == 0 or (quiet < _QUIET_OFFSETS and not idle):
                return None, 0
        frame = builder.frame(self._log.id, self._log.incarnation, self.acked, self._scanned)
        return frame, builder.events

    def _choose(self, builder: FrameBuilder, record: EventsRecord) -> None:
        if self.server not in record.servers:
            # Read back from disk, or committed before this server was known: today's summary covers every
            # subscription whose end this server has not read yet. The event was counted when it was
            # committed, and other servers' columns are not this forwarder's business.
            record.add_server(self.server, self._table.route_to(self.server, record.topic, record.points))
        chosen = record.routed_to(self.server)
        if record.first <= self._scanned:
            # It came from disk up to here, request by request; in memory it lies in one with others.
            chosen = chosen.copy()
            chosen[: self._scanned - record.first + 1] = False
        builder.add_events(record, chosen)

    async def _send(self, frame: protocol.Frame, body: bytes, events: int) -> None:
        await self._link.take(len(body))
        status, _, answer = await self._send_frame(body)
        if status not in (200, 409):
            raise BadAnswer(f"{status} to a frame: {answer[:200].decode(errors='replace')}")
        ack = _ack.decode(answer)
        if status == 200 and ack.cursor < frame.upto:
            raise BadAnswer(f"took a frame up to {frame.upto} but stands at {ack.cursor}")
        self.acked = self._scanned = ack.cursor
        self._told = time.monotonic()
        if status == 200:
            self.forwarded += events
            self.matched += ack.matched
            self.useful += ack.useful
        self._backpressure.update()
        self._on_ack(ack)
