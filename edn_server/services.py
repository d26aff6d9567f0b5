"""All parts of a server together: opened from a data folder, started on an event loop, asked by the door."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import signal
import time
from pathlib import Path
from typing import Any

import structlog

from edn import protocol
from edn.errors import Unavailable
from edn.formats.consent import asked_of
from edn.runtime import clock, memory
from edn.runtime.disk import Disk, Space
from edn.runtime.process import copy_in
from edn.summary import Summary
from edn_server.api.proxy import Receiving
from edn_server.api.refusals import Refusals
from edn_server.config import Settings
from edn_server.delivery import attempts
from edn_server.delivery.dead_letters import Purge
from edn_server.delivery.notifier import Notifier
from edn_server.delivery.sender import Timings
from edn_server.dispatchers.client import Dispatchers
from edn_server.dispatchers.failed_sinks import end_failed
from edn_server.dispatchers.placement_hints import Exchange
from edn_server.dispatchers.registration import Refused, Registration
from edn_server.handover import departures as departing
from edn_server.handover.arrivals import Arrive, TakeKept, TakeTold
from edn_server.handover.departures import Depart
from edn_server.ingest import dedup
from edn_server.ingest.apply_frame import Applied, ApplyFrame
from edn_server.ingest.control_records import Follow, Leave
from edn_server.ingest.replay import ApplyReplay
from edn_server.ingest.undecided import Decider
from edn_server.observe.delivery_status import Evidence
from edn_server.observe.event_trace import Journeys
from edn_server.observe.explain import candidates, explain
from edn_server.outbox import cleanup
from edn_server.sinks import consent
from edn_server.sinks import sse as streams
from edn_server.sinks.base import Sinks
from edn_server.sinks.cloudevents import CloudEventsSink
from edn_server.sinks.consent import AskedSink, Consents
from edn_server.sinks.http import HttpSink
from edn_server.sinks.mail import MailSink
from edn_server.sinks.resolver import Resolver
from edn_server.sinks.soap import SoapSink
from edn_server.storage import outbox, usage
from edn_server.storage.addresses import url_of
from edn_server.storage.database import (
    Reclaim,
    SqliteStore,
    measure,
    save_clock,
    saved_clock,
    shrink_memory,
)
from edn_server.storage.dead_letters import STEP
from edn_server.storage.interface import Connection, Reader, StoreError
from edn_server.storage.outbox import Event
from edn_server.storage.writer import Call, Job, Result
from edn_server.subscriptions import counters as tally
from edn_server.subscriptions.load import load
from edn_server.subscriptions.store import StoreVersions, prepare

logger = structlog.get_logger()

#: exit codes of the process, besides 0 and 1 (it could not start)
EXIT_REFUSED = 3
EXIT_BROKEN = 4

#: batches that are so far behind the newest are trimmed to what waiting rows name
OLD_BATCHES = 256
#: bytes of the emergency reserve beside the database
RESERVE_BYTES = 4 << 20
#: seconds between two collections of rows that nothing needs
COLLECT_SECONDS = 5.0
#: seconds between two looks for dead letters that nobody wants
PURGE_SECONDS = 60.0
#: transactions of one such look; the others come with the next collection
PURGE_STEPS = 20


class Node:
    def __init__(self, settings: Settings) -> None:
        """Open the folder and rebuild what is hosted; raises `CannotStart`."""
        self.settings = settings
        self.exit_code = 0
        self._store = store = SqliteStore(settings.data, floor=settings.disk_floor)
        identity = store.open()
        self.key, self.epoch = identity.key, identity.epoch
        clock.resume(store.load(saved_clock), settings.clock)
        self.hosting = store.load(load)
        self.hosting.several = len(settings.dispatcher) > 1
        self.hosting.limits = settings.limits
        self._batch = store.load(outbox.newest_batch) + 1
        self._trimmed = self._batch - 1
        self._backlog_found = store.load(outbox.backlog)
        floor = settings.disk_floor
        self.disk = Disk(settings.data / "server.db", watermark=floor, reserve=min(RESERVE_BYTES, floor // 4))
        #: too little room: frames and subscriptions are refused
        self.shortage = self.disk.shortage(store.load(self._space))
        self._disk_reader: Reader | None = None
        store.start(self._on_fatal, self._on_full)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: list[asyncio.Task[None]] = []
        #: one for each dispatcher
        self.registrations: list[Registration] = []
        self.notifier: Notifier | None = None
        self.streams: streams.Streams | None = None
        self.timings = Timings()
        self.journeys = Journeys()
        self._receiving: Receiving | None = None
        self.refusals = Refusals(settings.secret)
        self.evidence: Evidence | None = None
        self._decider: Decider | None = None
        self._sinks: Sinks | None = None
        self._consents: Consents | None = None
        self._resolver: Resolver | None = None
        self._dispatchers: Dispatchers | None = None
        logger.info(
            "opened", subscriptions=len(self.hosting.numbers), epoch=self.epoch, backlog=self._backlog_found
        )

    # -- life -------------------------------------------------------------------------------------------

    async def start(self, url: str) -> None:
        """Deliver what waits, and register under this URL."""
        settings = self.settings
        self._loop = asyncio.get_running_loop()
        self._dispatchers = Dispatchers(settings.dispatcher, settings.secret)
        exchange = Exchange(self._dispatchers, settings.exchange_seconds)
        self._resolver = resolver = Resolver(settings.nameservers)
        self._consents = consents = Consents(
            settings,
            key=self.key,
            found=await self._submit(Call(consent.load)),
            submit=self._submit,
            servers=lambda: exchange.servers,
            on_granted=self._granted,
            resolver=resolver,
        )

        def http(settings: Settings) -> HttpSink:
            return HttpSink(settings, resolver)

        self._sinks = Sinks(
            settings,
            {
                "http": http,
                "https": http,
                "mailto": MailSink,
                "soap": lambda settings: SoapSink(settings, resolver),
                "cloudevents": lambda settings: CloudEventsSink(settings, consents, resolver),
                "consent": lambda settings: AskedSink(consents, http(settings)),
            },
        )
        self.notifier = Notifier(
            hosting=self.hosting,
            writer=self._store.writer,
            reader=self._store.reader("outbox"),
            sinks=self._sinks,
            key=self.key,
            settings=settings,
            timings=self.timings,
            on_attempt=self.journeys.sent,
        )
        self.notifier.counters.backlog = self._backlog_found
        self.streams = streams.Streams(self.hosting, self.notifier, self._later)
        self._decider = Decider(self._store.reader("undecided"), self.hosting, self._later, self._decided)
        self.evidence = Evidence(
            hosting=self.hosting,
            notifier=self.notifier,
            writer=self._store.writer,
            reader=self._store.reader("evidence"),
            settings=settings,
            consent_of=consents.state_of,
        )
        await self._submit(Leave(self.hosting, list(settings.dispatcher)))
        await self.notifier.start(again=self.epoch > 1)
        self.registrations = [
            Registration(
                client=self._dispatchers.client,
                url=address,
                id=settings.id,
                describe=lambda: self._describe(url),
                backlog=lambda: self.backlog,
                notified=lambda: self.notifier.counters.notified if self.notifier is not None else 0,
                on_registered=functools.partial(self._follow, address),
            )
            for address in self._dispatchers.urls
        ]
        self._receiving = Receiving(self._dispatchers, exchange, self.settings.secret)
        self._tasks = [
            *(asyncio.create_task(self._register(each), name="registration") for each in self.registrations),
            asyncio.create_task(exchange.run(), name="exchange"),
            asyncio.create_task(self._collect(), name="collection"),
            asyncio.create_task(self._watch_disk(), name="disk"),
            asyncio.create_task(clock.keep(self._save_clock, self._step_clock), name="clock"),
            asyncio.create_task(self._decider.run(), name="doubts"),
        ]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self.notifier is not None:
            await self.notifier.stop()
        if self._sinks is not None:
            await self._sinks.close()
        if self._consents is not None:
            await self._consents.close()
        if self._resolver is not None:
            await self._resolver.close()
        if self._decider is not None:
            self._decider.close()
        if self.evidence is not None:
            self.evidence.close()
            with contextlib.suppress(Exception):
                await self._write_evidence()
        if self._dispatchers is not None:
            await self._dispatchers.close()
        await asyncio.to_thread(self.close)

    def close(self) -> None:
        """What is queued is committed; the folder is free again."""
        self._store.close()

    # -- what the door asks -----------------------------------------------------------------------------

    def receiving(self) -> Receiving:
        if self._receiving is None:
            raise Unavailable("not started yet", retry_after=1)
        return self._receiving

    async def store(self, request: protocol.Store) -> protocol.Stored:
        await self._check_room()
        prepared = await asyncio.to_thread(prepare, request)
        if request.asking and self._consents is not None:
            await self._consents.ensure((item.tenant, item.url) for item in request.items)
        return await self._submit(StoreVersions(self.hosting, self.epoch, prepared))

    async def apply(self, frame: protocol.Frame) -> Applied:
        await self._check_room()
        self._batch += 1
        return await self._submit(ApplyFrame(self.hosting, self.epoch, self._batch, frame, self._on_applied))

    async def replay(self, page: protocol.ReplayPage) -> protocol.ReplayAck:
        await self._check_room()
        self._batch += 1
        return await self._submit(ApplyReplay(self.hosting, self._batch, page, self._on_applied))

    async def explain(self, question: protocol.Explain) -> protocol.Explained:
        found = await self._submit(Call(lambda _: candidates(self.hosting, question)))
        return await asyncio.to_thread(explain, found, question)

    async def departures(self, request: protocol.Departures) -> protocol.Departed:
        answer, dropped = await self._submit(Depart(self.hosting, request))
        if self.notifier is not None:
            self.notifier.counters.backlog -= dropped
        return answer

    async def kept(self, question: protocol.KeptAfter) -> protocol.Kept:
        return await self._submit(Call(lambda db: departing.kept(db, question)))

    async def told(self, question: protocol.ToldAfter) -> protocol.Told:
        return await self._submit(Call(lambda db: departing.told(db, question)))

    async def take_kept(self, page: protocol.Kept) -> protocol.Taken:
        await self._check_room()
        self._batch += 1
        return await self._submit(TakeKept(self.hosting, self._batch, page, self._on_applied))

    async def take_told(self, page: protocol.Told) -> protocol.Taken:
        return protocol.Taken(await self._submit(TakeTold(self.hosting, page, self._on_applied)))

    async def consented(self, message: protocol.Consented) -> protocol.Taken:
        if self._consents is None:
            raise Unavailable("not started yet", retry_after=1)
        return protocol.Taken(unknown=not await self._consents.consented(message.token, message.rate))

    async def arrivals(self, request: protocol.Arrivals) -> protocol.Taken:
        return await self._submit(Arrive(self.hosting, request, self._on_applied))

    def journey(self, question: protocol.AskJourney) -> protocol.Journey:
        return self.journeys.find(self.hosting, question.log, question.offset)

    async def summary(self) -> protocol.SummarySnapshot:
        """One moment's maximal rectangles, read where nothing can change them; built elsewhere."""

        def read(_: Connection) -> tuple[int, dict[int, Any]]:
            topics = {uid: topic.rects() for uid, topic in self.hosting.topics.items() if topic.rectangles}
            self.hosting.shrinkable = 0
            return self.hosting.seq, topics

        seq, rects = await self._submit(Call(read))

        def build() -> dict[int, bytes]:
            return {uid: Summary.build(lo, hi).to_bytes() for uid, (lo, hi) in rects.items()}

        return protocol.SummarySnapshot(epoch=self.epoch, seq=seq, topics=await asyncio.to_thread(build))

    async def backup(self) -> Path:
        """A copy of the data as of one moment; whoever asks for it takes it away."""
        target = copy_in(self._store.path)
        await self._store.copy(target)
        return target

    async def stats(self) -> dict[str, Any]:
        def read(_: Connection) -> dict[str, Any]:
            hosting = self.hosting
            versions: dict[int, int] = dict.fromkeys(hosting.topics, 0)
            for version in hosting.versions.values():
                versions[version.topic] += 1
            return {
                "subscriptions": len(hosting.numbers),
                "seq": hosting.seq,
                "cursors": self.cursors(),
                "topics": [
                    {
                        "uid": uid,
                        "name": topic.name,
                        "versions": versions[uid],
                        "rectangles": topic.rectangles,
                        "maximal": topic.maximal,
                    }
                    for uid, topic in hosting.topics.items()
                ],
            }

        found = await self._submit(Call(read))
        counters = self.notifier.counters if self.notifier is not None else None
        return {
            "id": self.settings.id,
            "epoch": self.epoch,
            **found,
            "backlog": self.backlog,
            "delivered": counters.delivered if counters else 0,
            "failed": counters.failed if counters else 0,
            "dropped": counters.dropped if counters else 0,
            "dead": counters.dead if counters else 0,
        }

    @property
    def backlog(self) -> int:
        return self.notifier.counters.backlog if self.notifier is not None else self._backlog_found

    def cursors(self) -> dict[str, int]:
        """Up to where each log is applied."""
        logs = list(self.hosting.logs.values())
        return {log.name: log.cursor for log in logs if log.cursor is not None}

    def not_ready(self) -> str | None:
        """Why this server is not ready, or None: it is registered and has passed every log's join."""
        if self.shortage is not None:
            return str(self.shortage)
        if not any(registration.registered for registration in self.registrations):
            return "not registered with the dispatcher"
        waiting = [
            log.name for log in list(self.hosting.logs.values()) if log.joined is None and not log.retired
        ]
        return f"the join record of log {waiting[0]} has not been read yet" if waiting else None

    # -- inside -----------------------------------------------------------------------------------------

    def _later(self, job: Job[Result]) -> asyncio.Future[Result]:
        return asyncio.wrap_future(self._store.commit(job))

    async def _submit(self, job: Job[Result]) -> Result:
        return await self._store.committed(job)

    def _describe(self, url: str) -> protocol.Register:
        return protocol.Register(
            id=self.settings.id,
            url=url,
            key=self.key,
            epoch=self.epoch,
            cursors=self.cursors(),
            subscriptions=len(self.hosting.numbers),
            location=list(self.settings.location),
            distance=self.settings.distance,
        )

    async def _follow(self, url: str, answer: protocol.Registered) -> None:
        await self._submit(Follow(self.hosting, url, answer.log, answer.incarnation))

    async def _register(self, registration: Registration) -> None:
        try:
            await registration.run()
        except Refused as refusal:
            logger.critical("the dispatcher refuses this server", reason=str(refusal))
            self._end(EXIT_REFUSED)

    async def _collect(self) -> None:
        """Now and then: write down what is counted, forget what nothing needs."""
        purged = trimmed = forgotten = 0.0
        loop = asyncio.get_running_loop()
        assert self.notifier is not None
        while True:
            await asyncio.sleep(COLLECT_SECONDS)
            try:
                await self._write_evidence()
                await self.notifier.drop_ended()
                if self._dispatchers is not None and (given_up := self.notifier.disabled):
                    await end_failed(self.hosting, given_up, self._dispatchers)
                if loop.time() - purged > PURGE_SECONDS:
                    oldest = int((clock.steady() - self.settings.dead_letters_kept) * 1e6)
                    purge = Purge(oldest, lambda id: not self.hosting.parts(id))
                    for _ in range(PURGE_STEPS):
                        if await self._submit(purge) < STEP:
                            purged = loop.time()
                            break
                    await self._submit(cleanup.ForgetDrops(lambda id: not self.hosting.parts(id)))
                if self._consents is not None and loop.time() - forgotten > consent.FORGET_SECONDS:
                    forgotten = loop.time()
                    if self._consents.any:
                        used = await self._submit(Call(lambda _: self.hosting.used_addresses()))
                        await self._consents.forget(used)
                if self.streams is not None and loop.time() - trimmed > streams.TRIM_SECONDS:
                    trimmed = loop.time()
                    await self.streams.trim()
                while await self._submit(cleanup.Collect(self.hosting)) == cleanup.Collect.LIMIT:
                    pass
                if self.hosting.idle:
                    forgotten_topics = await self._submit(cleanup.ForgetTopics(self.hosting))
                    if forgotten_topics:
                        # Pages that SQLite caches of their rows go first.
                        await self._submit(Call(shrink_memory))
                        await asyncio.to_thread(memory.release)
                oldest = int(clock.now() * 1e6) - dedup.KEPT
                while self.hosting.several and await self._submit(dedup.Forget(oldest)) == dedup.STEP:
                    pass
                while self._trimmed < self._batch - OLD_BATCHES:
                    self._trimmed += 1
                    await self._submit(cleanup.Trim(self._trimmed))
            except (StoreError, Unavailable) as error:
                logger.error("collection failed", exc_info=error)

    async def _check_room(self) -> None:
        """Raise if the database may not grow: the dispatcher keeps what is refused here."""
        if self._disk_reader is not None:
            # A second's frames can be larger than the floor.
            self._judge(await self._disk_reader.reading(self._space))
        if self.shortage is not None:
            raise Unavailable(f"server {self.settings.id}: {self.shortage}", retry_after=1)

    def _space(self, db: Connection) -> Space:
        """Measure the disk, in the thread of the connection."""
        return measure(db, self.disk)

    def _on_full(self) -> None:
        """In the writer's thread: what deletes next has the reserve to work with."""
        logger.warning("disk_full", reserve_freed=self.disk.free_reserve())

    async def _watch_disk(self) -> None:
        """Every second: measure the disk, and return free pages to it."""
        with contextlib.closing(self._store.reader("disk")) as reader:
            self._disk_reader = reader
            try:
                while True:
                    try:
                        await self._keep_room(reader)
                    except (OSError, StoreError) as error:
                        logger.error("disk_watch_failed", error=str(error))
                    await asyncio.sleep(1.0)
            finally:
                self._disk_reader = None

    def _judge(self, space: Space) -> None:
        before, self.shortage = self.shortage, self.disk.shortage(space)
        if (before is None) != (self.shortage is None):
            logger.warning(
                "disk_floor",
                refusing=self.shortage is not None,
                free=space.free,
                reusable=space.reusable,
                wal=space.wal,
                needed=self.disk.watermark,
            )

    async def _keep_room(self, reader: Reader) -> None:
        space = await reader.reading(self._space)
        self._judge(space)
        if self.shortage is None:
            self.disk.keep_reserve(space)
        short, slack = self.shortage is not None, self.disk.slack(space)
        until = time.monotonic() + (0.5 if short else 0.1)
        if space.reusable > slack or (short and space.wal):
            while await self._submit(Reclaim(slack)) and time.monotonic() < until:
                pass

    async def _save_clock(self, text: str) -> None:
        try:
            await self._submit(Call(lambda db: save_clock(db, text)))
        except (StoreError, Unavailable) as error:
            logger.warning("clock_not_saved", reason=str(error))

    async def _step_clock(self) -> None:
        clock.adopt()

    async def confirm_clock(self) -> float:
        """Make the wall clock network time, because an operator says so; return the seconds of the step."""
        clock.keeper.observe()
        step = clock.adopt(confirmed=True)
        await self._save_clock(clock.encode(clock.keeper.save()))
        return step

    async def _write_evidence(self) -> None:
        assert self.notifier is not None
        taken = self.notifier.attempts.take()
        if taken:
            await self._submit(attempts.Write(taken, attempts.oldest(self.settings.attempts_kept)))
        await self._submit(tally.Write(self.hosting.tally))

    def _on_applied(self, applied: Applied, events: dict[int, Event]) -> None:
        """In the writer's thread: tell the notifier."""
        if applied.matches is not None and len(applied.matches.offsets):
            now = int(clock.estimate() * 1e6)
            self.journeys.came(applied.log, applied.batch, now, applied.matches)
        told = applied.addresses or applied.entries or applied.drops.total
        if self._loop is None or self.notifier is None or not told:
            return
        if events:
            self.notifier.recent.put(applied.batch, events)
        self._loop.call_soon_threadsafe(self._announce, applied)

    def _decided(self, address: str, shorter: int) -> None:
        """On the event loop: a row is not in doubt any more."""
        assert self.notifier is not None
        self.notifier.counters.backlog -= shorter
        self.notifier.wake((address,))
        if self.streams is not None:
            self.streams.wake((address,))

    def _announce(self, applied: Applied) -> None:
        assert self.notifier is not None
        counters = self.notifier.counters
        counters.backlog += applied.entries
        counters.paused_dropped += applied.drops.events.get(usage.PAUSED, 0)
        counters.unread_dropped += applied.drops.events.get(usage.UNREAD, 0)
        if applied.doubtful and self._decider is not None:
            self._decider.wake()
        self.notifier.wake(applied.addresses)
        if self.streams is not None:
            self.streams.wake(applied.addresses)

    def _granted(self, url: str) -> None:
        """A sink has consented: what waits for it goes out."""
        if self.notifier is not None:
            for address in self.notifier.waiting:
                if asked_of(url_of(address)) == url:
                    self.notifier.hurry(address)

    def _on_fatal(self, error: BaseException) -> None:
        self._end(EXIT_BROKEN)

    def _end(self, code: int) -> None:
        self.exit_code = code
        os.kill(os.getpid(), signal.SIGTERM)
