"""Replays retained events to a new subscription, once and in order, before its live ones.

Theory of operation
-------------------
Events that outlive their moment stay in the log until they expire. The transaction that activates a
subscription notes a *replay* beside it, if its topic has any. From *activate* on the server holds back what
it finds live for that subscription; the dispatcher reads the log once more, up to that offset, and sends the
events inside the filter's rectangles that were unexpired at that time, page by page, each continuing where
the server's committed position ends. After the last page the server lets the live ones follow.

Both sides keep their place durably, so a crash of either repeats at most a page, and the server drops what it
has. The log keeps expired events as long as a replay that began before may need them.

A subscription that takes the place of one on a lost server is told the same way what that one had not read,
and the rest of its past if it was still being told that.

Where there are several dispatchers, a replay begins when all of them know of its subscription, and, after a
return, when this one knows what they know. A subscription that nobody else had heard of when its dispatcher
died may have been made anew meanwhile, under the same id and on another server. Then that one *displaces*
the first: it is told the past of before the first began, and the first only what has come since. One that
came and went while a dispatcher was away begins in that one's log all the same, and ends at once: what was
available there belongs to it.

Reading and choosing happen in a thread of its own, with a connection of its own: publishers do not wait. But
the interpreter runs one thread at a time, so while events come in this one works in short slices and rests
between them: the past can wait a little, and a publisher cannot.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
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

#: a page ends with the record that makes it so many events, or after so many records
PAGE_EVENTS = 500
PAGE_RECORDS = 400
#: records that are read before others get the processor, if events come meanwhile; then a replay rests for
#: so many times what the step has cost, and for so many seconds at least
FETCH, RESTS, REST = 16, 12.0, 0.004
#: subscriptions that are told the past at the same time
TOGETHER = 4

_ack = protocol.Decoder(protocol.ReplayAck)


def choose(record: EventsRecord, replay: Replay, rects: Rects) -> npt.NDArray[np.bool_]:
    """Which events of a record the subscription may want: available at its beginning, inside a rectangle."""
    offsets = record.first + np.arange(record.count)
    chosen = offsets <= replay.upto
    wanted = np.zeros(record.count, dtype=np.bool_)
    if replay.after is not None:
        wanted |= offsets > replay.after
    begun = replay.after is None or record.time <= replay.time
    if replay.past and begun and record.expiries is not None and record.time >= (replay.since or 0):
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
    """Carries out replays, those that an earlier life left as well. Event loop only."""

    def __init__(
        self,
        log: Log,
        topics: Topics,
        members: ServerRegistry,
        calls: ServerClient,
        pipeline: Pipeline,
        backup_gate: BackupGate,
        tasks: Tasks,
        level: Callable[[], Awaitable[None]],
    ) -> None:
        """`level` waits until this dispatcher and the others know the same."""
        self._log = log
        self._topics = topics
        self._members = members
        self._calls = calls
        self._pipeline = pipeline
        self._backup_gate = backup_gate
        self._tasks = tasks
        self._level = level
        self._slots = asyncio.Semaphore(TOGETHER)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="replay")
        self._reader: Connection | None = None
        #: replays that are not finished
        self.running = 0

    def start(self) -> None:
        self._reader = self._log.connect_reader()
        for replay in self._log.load(replays.unfinished):
            self.begin(replay)

    def stop(self) -> None:
        self._thread.shutdown()
        if self._reader is not None:
            self._reader.close()

    async def reaches(self, topic: int, since: int) -> bool:
        """Whether an event of that time or before is still available."""
        log = self._log
        now = log.now()
        return await log.reading(lambda connection: replays.reaches(connection, topic, now, since))

    def begin(self, replay: Replay) -> None:
        self.running += 1
        self._tasks.spawn(self._run(replay), f"replay for {replay.subscription}")

    async def _run(self, replay: Replay) -> None:
        # Whatever it is, the activation is not beyond this.
        activated = self._log.head
        try:
            await self._level()
            noted = await self._noted(replay)
            if noted is not None:
                await self._carry_out(noted, activated)
        finally:
            self.running -= 1

    async def _carry_out(self, replay: Replay, activated: int) -> None:
        topic = self._topics.by_uid(replay.topic)
        rects = None
        if topic is not None and replay.since != replays.NOTHING:
            try:
                rects = Filter.parse(replay.filter).bind(topic.schema).rects()
            except InvalidFilter as error:
                # It has ended, and an attribute that it named has been taken away since.
                logger.warning("a past is not told", subscription=replay.subscription, reason=str(error))
        position: int | None = 0
        pause = 0.05
        while True:
            # Whoever waits for a server holds no slot: those of other servers need not wait for that one.
            if not await self._applied(replay, activated):
                return
            async with self._slots:
                try:
                    while position is not None:
                        position = await self._tell_page(replay, rects, position)
                        pause = 0.05
                    return
                except (EdnError, msgspec.MsgspecError) as error:
                    logger.warning("a replay waits", subscription=replay.subscription, reason=str(error))
            await asyncio.sleep(pause)
            pause = min(2 * pause, 2.0)

    async def _tell_page(self, replay: Replay, rects: Rects | None, position: int) -> int | None:
        """Where the server is after one more page; None if that was all."""
        loop = asyncio.get_running_loop()
        page = await loop.run_in_executor(self._thread, self._page, replay, rects, position)
        async with self._backup_gate.step():
            ack = _ack.decode(await self._calls.send(replay.server, "/internal/replay", page))
            if not ack.done:
                return ack.position
            await self._forget(replay)
            return None

    async def _applied(self, replay: Replay, activated: int) -> bool:
        """When the server has read the activation, for it needs to be told its past only then; False if that
        is not to be: another server has taken its place."""
        while True:
            member = self._members.get(replay.server)
            if member is not None and member.forwarder is not None and member.forwarder.position >= activated:
                return True
            if (member is None or member.leaving == "lost") and await self._noted(replay) is None:
                return False
            await asyncio.sleep(0.02)  # a frame with the activation is on its way

    async def _noted(self, replay: Replay) -> Replay | None:
        """As it is by now."""
        return await self._log.reading(
            lambda connection: replays.find(connection, replay.subscription, replay.version)
        )

    async def _forget(self, replay: Replay) -> None:
        while True:
            try:
                await self._log.submit(lambda transaction: replays.delete(transaction, replay))
                return
            except EdnError:
                await asyncio.sleep(1.0)  # the disk is full; until it is not, the replay is only noted

    def _page(self, replay: Replay, rects: Rects | None, after: int) -> protocol.ReplayPage:
        """The next page; in the thread."""
        assert self._reader is not None
        builder = FrameBuilder()
        upto, read = after, 0
        final = rects is None
        while rects is not None and builder.events < PAGE_EVENTS and read < PAGE_RECORDS:
            published, began = self._pipeline.published, thread_time()
            # Few at a time: as long as a query is open the log's file cannot be put in order.
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
