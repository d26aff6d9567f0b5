"""Replays retained events to a new subscription, once and in order, before its live ones.

Theory of operation
-------------------
If the topic has retained events, the transaction that activates a subscription also inserts a *replay*. From
*activate* on, the server holds back live notifications of that subscription. The dispatcher reads the log
again, up to that offset, and sends the events inside the filter's rectangles that had not expired at that
time. It sends pages; each continues at the server's committed position. After the last page the server
releases the live notifications.

Both sides store their position, so a crash repeats at most one page, and the server drops the events that it
has. The log keeps expired events as long as an earlier replay may need them.

A subscription that replaces one on a lost server gets a replay of the events that the lost server had not
read, and of the rest of its own replay.

With several dispatchers, each replays the retained events of its own log.

A separate thread with its own connection reads and selects, so that publishers do not wait. The interpreter
runs one thread at a time; so while events are published, this thread works in short slices with rests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from time import sleep, thread_time

import msgspec
import numpy as np
import numpy.typing as npt
import structlog

from dispatcher.servers.backup_gate import BackupGate
from dispatcher.servers.client import ServerClient
from dispatcher.servers.forwarder import FrameBuilder
from dispatcher.servers.pipeline import Pipeline
from dispatcher.servers.registry import ServerRegistry
from dispatcher.store import replays
from dispatcher.store.event_log import Log
from dispatcher.store.interface import Connection
from dispatcher.store.records import EventsRecord
from dispatcher.store.replays import Replay as Replay
from dispatcher.subscriptions.topics import Topics
from edn import protocol
from edn.errors import EdnError, InvalidFilter
from edn.model.filter import Filter
from edn.model.rect import MISSING, Rects
from edn.runtime.tasks import Tasks

logger = structlog.get_logger()

#: limits of a page; it ends with the record that reaches one of them
PAGE_EVENTS = 500
PAGE_RECORDS = 400
#: records per slice; while events are published, a rest follows: a multiple of the slice's CPU time, and the
#: minimum in seconds
FETCH, RESTS, REST = 16, 12.0, 0.004
CONCURRENCY = 4

_ack = protocol.Decoder(protocol.ReplayAck)


def choose(record: EventsRecord, replay: Replay, rects: Rects) -> npt.NDArray[np.bool_]:
    """Return which events of a record belong to a replay: available at its time, inside a rectangle."""
    offsets = record.first + np.arange(record.count)
    chosen = offsets <= replay.upto
    wanted = np.zeros(record.count, dtype=np.bool_)
    if replay.after is not None:
        wanted |= offsets > replay.after
    begun = replay.after is None or record.time <= replay.time
    if replay.has_retained and begun and record.expiries is not None and record.time >= (replay.since or 0):
        wanted |= record.expiries > replay.time
    chosen &= wanted
    if not chosen.any():
        return chosen
    width = max(record.points.shape[1], rects.lo.shape[1])
    points = np.full((record.count, width), MISSING)
    points[:, : record.points.shape[1]] = record.points
    inside = np.zeros(record.count, dtype=np.bool_)
    own = points[:, : rects.lo.shape[1]]
    for lo, hi in zip(rects.lo, rects.hi, strict=True):
        inside |= np.all((lo <= own) & (own <= hi), axis=1)
    return chosen & inside


class Replayer:
    """Runs replays, including the unfinished ones of an earlier process. Event loop only."""

    def __init__(
        self,
        log: Log,
        topics: Topics,
        members: ServerRegistry,
        calls: ServerClient,
        pipeline: Pipeline,
        backup_gate: BackupGate,
        tasks: Tasks,
        position: Callable[[str], int | None] | None = None,
    ) -> None:
        """`position` returns up to which offset a server has the log; by default, the pipeline's."""
        self._log = log
        self._topics = topics
        self._members = members
        self._calls = calls
        self._pipeline = pipeline
        self._backup_gate = backup_gate
        self._tasks = tasks
        self._position = position or self._forwarded
        self._slots = asyncio.Semaphore(CONCURRENCY)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="replay")
        self._reader: Connection | None = None
        self.running = 0

    def start(self) -> None:
        self._reader = self._log.connect_reader()
        for replay in self._log.load(replays.unfinished):
            self.begin(replay)

    def stop(self) -> None:
        self._thread.shutdown()
        if self._reader is not None:
            self._reader.close()

    def begin(self, replay: Replay) -> None:
        self.running += 1
        self._tasks.spawn(self._run(replay), f"replay for {replay.subscription}")

    async def _run(self, replay: Replay) -> None:
        # The activation is at this offset or before.
        activated = self._log.head
        try:
            await self._send_all(replay, activated)
        finally:
            self.running -= 1

    async def _send_all(self, replay: Replay, activated: int) -> None:
        topic = self._topics.by_uid(replay.topic)
        rects = None
        if topic is not None:
            try:
                rects = Filter.parse(replay.filter).bind(topic.schema).rects()
            except InvalidFilter as error:
                # The subscription has ended, and the topic has lost an attribute of its filter.
                logger.warning("replay_skipped", subscription=replay.subscription, reason=str(error))
        position: int | None = 0
        pause = 0.05
        while True:
            try:
                # Without a slot, so that replays on other servers can run.
                if not await self._wait_until_applied(replay, activated):
                    return
                async with self._slots:
                    while position is not None:
                        position = await self._send_page(replay, rects, position)
                        pause = 0.05
                    return
            except (EdnError, msgspec.MsgspecError) as error:
                logger.warning("replay_failed", subscription=replay.subscription, reason=str(error))
            await asyncio.sleep(pause)
            pause = min(2 * pause, 2.0)

    async def _send_page(self, replay: Replay, rects: Rects | None, position: int) -> int | None:
        """Send the next page; return the position of the server, None after the last page."""
        loop = asyncio.get_running_loop()
        page = await loop.run_in_executor(self._thread, self._page, replay, rects, position)
        async with self._backup_gate.step():
            ack = _ack.decode(await self._calls.send(replay.server, "/internal/replay", page))
            if not ack.done:
                return ack.position
            await self._delete(replay)
            return None

    async def _wait_until_applied(self, replay: Replay, activated: int) -> bool:
        """Wait until the server has applied the activation; return False if the server was replaced."""
        while True:
            position = self._position(replay.server)
            if position is not None and position >= activated:
                return True
            member = self._members.get(replay.server)
            if (member is None or member.leaving == "lost") and await self._reload(replay) is None:
                return False
            await asyncio.sleep(0.02)

    def _forwarded(self, server: str) -> int | None:
        member = self._members.get(server)
        return None if member is None or member.forwarder is None else member.forwarder.position

    async def _reload(self, replay: Replay) -> Replay | None:
        return await self._log.reading(replays.find, replay.subscription, replay.version)

    async def _delete(self, replay: Replay) -> None:
        while True:
            try:
                await self._log.submit(lambda transaction: replays.delete(transaction, replay), changes=False)
                return
            except EdnError:
                await asyncio.sleep(1.0)  # the disk is full; until then the row stays

    def _page(self, replay: Replay, rects: Rects | None, after: int) -> protocol.ReplayPage:
        assert self._reader is not None
        builder = FrameBuilder()
        upto, read = after, 0
        final = rects is None
        while rects is not None and builder.events < PAGE_EVENTS and read < PAGE_RECORDS:
            published, began = self._pipeline.published, thread_time()
            # Few at a time, because an open query prevents the checkpoint of the file.
            records = replays.read_records(self._reader, replay, upto, FETCH)
            for record in records:
                builder.add_events(record, choose(record, replay, rects))
                upto = record.last
            read += len(records)
            if len(records) < FETCH:
                final = True
                break
            if self._pipeline.published != published:
                sleep(max(REST, RESTS * (thread_time() - began)))
        log = self._log
        segments = builder.frame(log.id, log.incarnation, after, upto).segments
        return protocol.ReplayPage(
            log=log.id,
            subscription=replay.subscription,
            version=replay.version,
            after=after,
            upto=upto,
            segment=segments[0] if segments else None,
            final=final,
        )
