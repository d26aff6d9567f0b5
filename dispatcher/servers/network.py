"""The running network as the dispatcher holds it: log, tail, routing table, members and their streams.

Everything here happens on the event loop, but for the log's writer thread. What is committed enters through
`_committed`, is routed in one kernel call a topic, and wakes the forwarders.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import numpy as np
import structlog

from dispatcher.config import Settings
from dispatcher.routing.table import RoutingTable
from dispatcher.servers.backup_gate import Backing
from dispatcher.servers.bindings import Bindings
from dispatcher.servers.client import Calls
from dispatcher.servers.counters import Meter
from dispatcher.servers.forwarder import FRAME_EVENTS, Forwarder
from dispatcher.servers.frames import stack
from dispatcher.servers.limits import Link, Pressure
from dispatcher.servers.placement import Placing
from dispatcher.servers.registry import Member, Members, check_registration, hashed
from dispatcher.store import change_feed, directory, servers
from dispatcher.store.change_feed import Kind
from dispatcher.store.event_log import Log, LogFull
from dispatcher.store.interface import Transaction
from dispatcher.store.log_tail import Tail
from dispatcher.store.records import EventsRecord, Record, merge
from edn import defects, protocol
from edn.arrays import Floats
from edn.errors import Conflict, NotFound, Unavailable
from edn.runtime import clock, memory
from edn.runtime.disk import Space
from edn.summary import Summary
from edn.summary.selection import selected

logger = structlog.get_logger()

#: interval of a server's heartbeats, and how many it may miss before it is offline
HEARTBEAT_SECONDS = 1.0
MISSED_HEARTBEATS = 5
#: bytes of committed events in memory for the forwarders; older ones are read from disk
TAIL_BYTES = 64 << 20
#: a server without new subscriptions for so long is asked for a summary of the last ones
SETTLE_SECONDS = 2.0
#: interval between two truncations of the log
TRUNCATE_SECONDS = 5.0
#: how long an event id that a publisher chose is known
IDEMPOTENCE_SECONDS = 86_400.0
#: A server that is more records behind than this bounds the network, and nobody hears sooner of what is
#: committed at once: then publishers wait a little for each other, and fewer, larger commits cost less.
_BEHIND = 500
_PATIENCE_SECONDS = 0.003
#: seconds after which the summaries lack a deleted topic
_RELEASE_SECONDS = 15.0


class Network:
    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.log = Log(
            settings.data,
            on_commit=self._committed,
            clock=clock.now,
            steady=clock.steady,
            estimate=clock.estimate,
            resume=lambda saved, least: clock.resume(saved, settings.clock, least=least),
            watermark=settings.disk_reserve,
        )
        self.tail = Tail(head=self.log.head, limit_bytes=TAIL_BYTES)
        self.table = RoutingTable(router=settings.router, cut=settings.cut, bloom=settings.bloom)
        self.members = Members(HEARTBEAT_SECONDS * MISSED_HEARTBEATS)
        self.calls = Calls(settings, self.members)
        self.link = Link(settings.link_bytes)
        self.pressure = Pressure(self.lag, settings.lag_limit)
        self.meter = Meter()
        self.placing = Placing(settings, self.members)
        self.bindings = Bindings(self.log)
        #: events accepted in this life
        self.published = 0
        #: a backup of the network, if one is being made
        self.backing = Backing()
        #: what a server is given before its stream goes on: (id, address, how far it has read)
        self.on_return: Callable[[str, str, int], Awaitable[None]] | None = None
        #: server → what was last noted of how far it has read
        self._noted: dict[str, int] = {}
        #: when the last topic was deleted; 0 once its memory was given back
        self._forgotten = 0.0
        #: too little room for the log: no events are accepted
        self.shortage = self.log.disk.shortage(self.log.measure_space())
        # Readiness says so at once, not a second later.
        self.log.on_full = self._measure
        #: bytes accepted since the disk was last measured
        self._unmeasured = 0
        self._truncated, self._next_truncation = 0, 0.0
        self._tasks: set[asyncio.Task[Any]] = set()
        counts = self.log.load(directory.count_by_server)
        for name, url, key, epoch, registered in self.log.load(servers.all_servers):
            self.members.add(Member(name, url, key, epoch, registered, subscriptions=counts.get(name, 0)))
            self.table.add(name)

    # -- life -------------------------------------------------------------------------------------------

    async def start(self) -> None:
        self.log.start()
        self.spawn(self._housekeeping(), "housekeeping")

    async def stop(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.log.stop()
        await self.calls.stop()

    def spawn(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """A background task that is kept, and whose death is heard."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.error("task died", task=task.get_name(), exc_info=task.exception())

    # -- from the log to the streams --------------------------------------------------------------------

    def _committed(self, committed: list[Record]) -> None:
        records = merge(committed, limit=FRAME_EVENTS // 2)
        by_topic: dict[int, list[EventsRecord]] = {}
        for record in records:
            if isinstance(record, EventsRecord):
                by_topic.setdefault(record.topic, []).append(record)
        for topic, together in by_topic.items():
            points = stack([record.points for record in together])
            began = time.thread_time()
            try:
                routed = self.table.route(topic, points)
            except Exception as error:
                # Too wide costs traffic; an event that never leaves costs more.
                logger.error("routing failed, everything goes everywhere", topic=topic, exc_info=error)
                routed = np.ones((len(points), len(self.table.servers)), dtype=np.bool_)
            self.meter.routed(topic, points, routed, time.thread_time() - began)
            ends = np.cumsum([record.count for record in together])
            for record, part in zip(together, np.split(routed, ends[:-1]), strict=True):
                record.routed, record.servers = part, self.table.servers
            self.published += int(ends[-1])
        self.tail.extend(records)
        self.pressure.update()
        self.log.patience = _PATIENCE_SECONDS if self.lag() > _BEHIND else 0.0
        for member in self.members:
            if member.forwarder is not None:
                member.forwarder.wake()

    async def _housekeeping(self) -> None:
        """Every second: measure the disk, truncate the log, return free pages, settle summaries."""
        while True:
            try:
                self._settle()
                await self._release()
                self.pressure.update()  # a server may have gone away meanwhile
                await self._keep_room()
            except Exception as error:
                # A log that is never truncated again is worse than one that is truncated late.
                logger.error("housekeeping_failed", exc_info=error)
            await asyncio.sleep(1.0)

    def check_room(self, size: int) -> None:
        """Raise if the log may not grow by so many bytes; called for every request, so mostly one addition.

        A second's traffic can be larger than the watermark, so the disk is measured by traffic, too.
        """
        self._unmeasured += size
        if self._unmeasured > self.log.disk.watermark // 16:
            self._measure()
        if self.shortage is not None:
            raise Unavailable(f"{self.shortage}; no events are accepted until there is room", retry_after=5)

    def _measure(self) -> Space:
        disk = self.log.disk
        space = self.log.measure_space()
        self._unmeasured = self.log.pending
        before, self.shortage = self.shortage, disk.shortage(space, self.log.pending)
        if (before is None) != (self.shortage is None):
            logger.warning(
                "disk_watermark",
                refusing=self.shortage is not None,
                free=space.free,
                reusable=space.reusable,
                wal=space.wal,
                needed=disk.watermark,
            )
        return space

    async def _keep_room(self) -> None:
        disk = self.log.disk
        space = self._measure()
        if self.shortage is None:
            disk.keep_reserve(space)
        # What is short is sought every second, not every few.
        if self.shortage is not None or time.monotonic() >= self._next_truncation:
            self._next_truncation = time.monotonic() + TRUNCATE_SECONDS
            for step in (self._note_cursors, self._truncate, self._reclaim):
                try:
                    await step()
                except LogFull as error:
                    # The next step, or the next second, has the reserve to work with.
                    freed = disk.free_reserve()
                    logger.warning("disk_full", step=step.__name__, error=str(error), reserve_freed=freed)
                except Unavailable as error:
                    logger.warning("housekeeping_failed", step=step.__name__, error=str(error))

    async def _truncate(self) -> None:
        """Take off the log what every server has."""
        upto = min([member.forwarder.acked if member.forwarder else 0 for member in self.members], default=0)
        if not self.backing.active and (upto > self._truncated or await self.log.has_expired()):
            ids_before = self.log.steady() - int(IDEMPOTENCE_SECONDS * 1e6)
            await self.log.truncate(upto, ids_before)
            self._truncated = upto

    async def _reclaim(self) -> None:
        """Return free pages to the disk, all of them when it is short."""
        disk, short = self.log.disk, self.shortage is not None
        space = self.log.measure_space()
        slack = disk.slack(space)
        if space.reusable > slack or (short and space.wal > 0):
            await self.log.reclaim(slack, 0.5 if short else 0.1)

    async def _release(self) -> None:
        """Give memory back some time after the last topic went, when its rectangles have gone, too."""
        if self._forgotten and time.monotonic() - self._forgotten > _RELEASE_SECONDS:
            self._forgotten = 0.0
            await asyncio.to_thread(memory.release)

    async def _note_cursors(self) -> None:
        """For the case that a server is lost while this dispatcher does not run."""
        known = {member.id: member.forwarder.acked for member in self.members if member.forwarder}
        fresh = [(server, cursor) for server, cursor in known.items() if self._noted.get(server) != cursor]

        if fresh:
            await self.log.submit(lambda transaction: servers.put_cursors(transaction, fresh))
            self._noted.update(fresh)

    async def cursor(self, server: str) -> int:
        """Up to where a server has read the log, as far as is known."""
        member = self.members.get(server)
        if member is not None and member.forwarder is not None:
            return member.forwarder.acked
        noted = await self.log.reading(lambda connection: servers.cursor(connection, server))
        return max(noted, self.log.floor)

    # -- servers come, live and go ----------------------------------------------------------------------

    async def register(self, request: protocol.Register) -> protocol.Registered:
        """A server starts its stream: at its cursor if this log knows it, else at its join."""
        check_registration(request)
        self.placing.check_registration(request)
        self._check_known(request)
        cursor = request.cursors.get(self.log.id)
        self._check_cursor(request.id, cursor)
        # From here on everything is routed to it, until its summary is known.
        self.table.add(request.id)
        joined, now, first = await self.log.submit(
            functools.partial(
                _join, request=request, known=self.members.get(request.id) is not None, cursor=cursor
            )
        )
        if cursor is not None and self.on_return is not None:
            await self.on_return(request.id, request.url, cursor)
        # Not before: one that asks twice, because the first answer was late, is one server all the same.
        member = self.members.get(request.id)
        if member is None:
            member = Member(request.id, request.url, hashed(request.key), request.epoch, now)
            self.members.add(member)
        member.check_key(request.key)
        if member.task is not None:
            member.task.cancel()
        member.url, member.epoch, member.joined = request.url, request.epoch, joined
        self.placing.registered(member, request.location, request.distance)
        self.members.touch(member)
        if defects.planted("forget-the-join"):  # for tests only
            cursor, member.joined = None, joined - 1
        member.forwarder = self._forwarder(member, first - 1 if cursor is None else cursor)
        member.task = self.spawn(member.forwarder.run(), f"forward to {member.id}")
        self.ask_summary(member)
        logger.info("server registered", server=member.id, url=member.url, cursor=cursor, join=joined)
        return protocol.Registered(self.log.id, self.log.incarnation, HEARTBEAT_SECONDS)

    def _check_known(self, request: protocol.Register) -> None:
        """Raise if the id is another server's, or was given up."""
        member = self.members.get(request.id)
        if member is None:
            return
        member.check_key(request.key)
        if member.leaving == "lost":
            raise Conflict(
                f"server {request.id} was given up for lost, and replaced: forget it, and start it with "
                "an empty data folder"
            )

    def _check_cursor(self, server: str, cursor: int | None) -> None:
        """Raise if the log does not hold what comes after it."""
        if cursor is not None and cursor > self.log.head:
            raise Unavailable(
                f"server {server} has read this log up to {cursor}, but it ends at {self.log.head}: "
                "the dispatcher's data folder is older than the network; restore the newer one"
            )
        if cursor is not None and cursor < self.log.floor:
            raise Conflict(
                f"server {server} has read up to {cursor}, the log begins after {self.log.floor}: the "
                "server's data folder is older than the network; restore the newer one"
            )

    def _forwarder(self, member: Member, acked: int) -> Forwarder:
        def on_ack(ack: protocol.FrameAck) -> None:
            self.members.touch(member)
            if ack.shrinkable > 100 + member.subscriptions // 20:
                self.ask_summary(member)

        before = member.forwarder
        forwarder = Forwarder(
            member.id,
            log=self.log,
            tail=self.tail,
            table=self.table,
            send=functools.partial(self.calls.send_frame, member.url),
            link=self.link,
            pressure=self.pressure,
            meter=self.meter,
            acked=acked,
            on_ack=on_ack,
        )
        if before is not None:  # the counters are the server's, not the stream's
            forwarder.forwarded, forwarder.matched, forwarder.useful = (
                before.forwarded,
                before.matched,
                before.useful,
            )
        return forwarder

    def heartbeat(self, server: str, beat: protocol.Heartbeat) -> None:
        member = self.members.get(server)
        if member is None or member.forwarder is None or member.epoch != beat.epoch:
            raise NotFound(f'server "{server}" has not registered since this dispatcher started: register')
        member.check_key(beat.key)
        self.members.touch(member)
        member.backlog, member.cpu, member.notified = beat.backlog, beat.cpu, beat.notified
        member.suspect = beat.suspect

    def introduce(self, transaction: Transaction, state: protocol.ServerState) -> bool:
        """Another dispatcher knows a server: from here on there may be records for it. Whether it is new."""
        if servers.is_known(transaction.connection, state.id):
            return False
        servers.put(transaction, state.id, state.url, state.key, state.epoch)
        transaction.append_control(state.id, "join", incarnation=transaction.incarnation)
        change_feed.note(transaction, Kind.SERVER, state.id)
        return True

    def introduced(self, state: protocol.ServerState, now: int) -> None:
        """It is known; it gets everything from here on, once it registers."""
        if self.members.get(state.id) is None:
            self.members.add(Member(state.id, state.url, state.key, state.epoch, now))
            self.table.add(state.id)

    async def forget(self, server: str) -> None:
        """A server that hosts nothing is no part of the network any more; if it returns, it is a new one."""
        await self.log.submit(lambda transaction: servers.delete(transaction, server))
        member = self.members.get(server)
        if member is not None and member.task is not None:
            member.task.cancel()
        self.members.remove(server)
        self.table.remove(server)
        self.placing.forget_server(server)

    # -- what the table holds of them -------------------------------------------------------------------

    def widen(self, server: str, topic: int, lo: Floats, hi: Floats, stored: protocol.Stored) -> None:
        """Route what a server has just stored to it, from now on."""
        self.table.widen(server, topic, lo, hi, epoch=stored.epoch, seq=stored.seq)
        member = self.members.get(server)
        if member is not None:
            member.widened += len(lo)
            member.widened_at = time.monotonic()

    def forget_topic(self, topic: int) -> None:
        """Forget what is known of a deleted topic, but its rectangles: these go with the next summaries."""
        self.placing.forget_topic(topic)
        self.table.forget_topic(topic)
        self.meter.forget_topic(topic)
        self._forgotten = time.monotonic()

    def doubt(self, server: str) -> None:
        """Its summary may lack something that it hosts: route everything to it until a new one is there."""
        member = self.members.get(server)
        self.table.remove(server)
        self.table.add(server)
        if member is not None:
            member.asked += 1
            member.summary = None
            if member.forwarder is not None:
                self.ask_summary(member)

    def _settle(self) -> None:
        """Have summaries take the place of single rectangles, which no precision makes fewer.

        A server is asked when subscriptions have stopped coming for a while, or have doubled what it has. A
        million that come one by one thus cost some twenty summaries.
        """
        now = time.monotonic()
        for member in self.members:
            if not member.widened or self.members.state(member) == "away":
                continue
            quiet = now - member.widened_at > SETTLE_SECONDS
            if quiet or member.widened > max(2000, member.subscriptions // 2):
                self.ask_summary(member)

    def ask_summary(self, member: Member) -> None:
        """Fetch a snapshot in the background; at most one at a time a server, and not in a busy loop."""
        if not member.asking:
            member.asking = True
            self.spawn(self._ask_summary(member), f"summary of {member.id}")

    async def _ask_summary(self, member: Member) -> None:
        try:
            for pause in (0.0, 0.2, 0.5, 1.0, 2.0, 5.0, 5.0, 5.0):
                await asyncio.sleep(pause)
                member.widened = 0  # what comes from here on may not be in it
                asked = member.asked
                try:
                    snapshot = await self.calls.summary(member.url)
                    summaries = await asyncio.to_thread(_summaries, snapshot)
                    routed = await self._selected(summaries)
                except Exception as error:  # not only the client's own: see `calling`
                    logger.warning("no summary", server=member.id, reason=str(error) or type(error).__name__)
                    member.widened += 1
                    continue
                if defects.planted("accept-an-old-snapshot"):  # for tests only
                    await asyncio.sleep(10 * defects.WINDOW)
                if member.asked != asked:
                    continue  # what it was asked for counts no more
                if await self.table.accept_in_slices(member.id, snapshot.epoch, snapshot.seq, routed):
                    if member.asked != asked:
                        continue
                    member.summary = (snapshot.epoch, snapshot.seq)
                    await self.placing.summarised_in_slices(member.id, summaries)
                    break
            await asyncio.sleep(HEARTBEAT_SECONDS)
        finally:
            member.asking = False

    async def _selected(self, summaries: dict[int, Summary]) -> dict[int, Summary]:
        """What routing uses of them: all, or only some attributes."""
        count = self.settings.summary_attributes
        if not count:
            return summaries
        # Another hierarchy is built, which takes too long for the event loop.
        fresh = await asyncio.to_thread(lambda: [selected(summary, count) for summary in summaries.values()])
        return dict(zip(summaries, fresh, strict=True))

    # -- what it can say of itself ----------------------------------------------------------------------

    def present(self) -> list[Member]:
        """The servers that are there, joining ones too."""
        return [member for member in self.members if self.members.state(member) != "away"]

    def lag(self) -> int:
        """How many records the slowest of them is behind."""
        return self.tail.head - self.carried()

    def carried(self) -> int:
        """Up to here every server that is there has what concerns it."""
        places = [member.forwarder.position for member in self.present() if member.forwarder is not None]
        return min(places, default=self.tail.head)

    def describe_servers(self) -> list[dict[str, Any]]:
        now = clock.monotonic()
        described = []
        for member in self.members:
            forwarder = member.forwarder
            routed = self.table.describe(member.id)
            described.append(
                {
                    "id": member.id,
                    "url": member.url,
                    "state": self.members.state(member),
                    "leaving": member.leaving,
                    "subscriptions": member.subscriptions,
                    "backlog": member.backlog,
                    "cpu": member.cpu,
                    "cursor": forwarder.acked if forwarder else None,
                    "lag": max(0, self.tail.head - forwarder.position) if forwarder else None,
                    "forwarded": forwarder.forwarded if forwarder else 0,
                    "useful": forwarder.useful if forwarder else 0,
                    "matched": forwarder.matched if forwarder else 0,
                    "notified": member.notified,
                    "clock_suspect": member.suspect,
                    "failure": forwarder.failure if forwarder else None,
                    "hit_ratio": routed.routed / routed.asked if routed.asked else None,
                    "precision": routed.precision,
                    "last_seen_seconds": round(now - member.seen, 3) if member.seen else None,
                }
            )
        return described


def _join(
    transaction: Transaction, request: protocol.Register, known: bool, cursor: int | None
) -> tuple[int, int, int]:
    """Note a server that starts its stream: offset and time of its *join*, and its first record's offset."""
    first = None
    if not known:
        change_feed.note(transaction, Kind.SERVER, request.id)
    elif cursor is None:
        # Another dispatcher may have told of it; from there on there are records for it.
        first = servers.first_record(transaction.connection, request.id)
    servers.put(transaction, request.id, request.url, hashed(request.key), request.epoch)
    if defects.planted("forget-the-join") and cursor is not None:  # for tests only
        return transaction.head + 1, transaction.time, transaction.head + 1
    offset = transaction.append_control(request.id, "join", incarnation=transaction.incarnation)
    return offset, transaction.time, offset if first is None else first


def _summaries(snapshot: protocol.SummarySnapshot) -> dict[int, Summary]:
    return {topic: Summary.from_bytes(data) for topic, data in snapshot.topics.items()}
