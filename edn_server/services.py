"""Wires the parts of a server together, starts them on an event loop and stops them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from edn import protocol
from edn.errors import Unavailable
from edn.formats import broker_url
from edn.formats.consent import consent_url
from edn.runtime import clock, tracing
from edn.runtime.ownership import any_thread, owned, share
from edn.runtime.process import CannotStart, report_wait
from edn.runtime.tasks import lasting
from edn_server.api.proxy import DispatcherProxy
from edn_server.api.refusals import Refusals
from edn_server.config import Settings
from edn_server.delivery.notifier import Notifier
from edn_server.delivery.sender import Timings
from edn_server.dispatchers.client import Dispatchers
from edn_server.dispatchers.placement_hints import PlacementHints
from edn_server.dispatchers.registration import Refused, Registration
from edn_server.handover.exchange import Handover
from edn_server.housekeeping import Housekeeping
from edn_server.ingest.apply_frame import Applied
from edn_server.ingest.intake import Intake
from edn_server.ingest.undecided import Decider
from edn_server.observe.delivery_status import DeliveryStatus
from edn_server.observe.event_trace import EventTraces
from edn_server.observe.server_status import ServerStatus
from edn_server.sequences.settling import FedRows, Settling
from edn_server.sinks import consent
from edn_server.sinks.base import Sinks
from edn_server.sinks.broker import BrokerSink
from edn_server.sinks.cloudevents import CloudEventsSink
from edn_server.sinks.consent import ConsentingSink, Consents
from edn_server.sinks.http import HttpSink
from edn_server.sinks.mail import MailSink
from edn_server.sinks.resolver import Resolver
from edn_server.sinks.soap import SoapSink
from edn_server.sinks.sse import Streams
from edn_server.storage import outbox, payloads, secret_rows, usage
from edn_server.storage.addresses import url_of
from edn_server.storage.database import SqliteStore, save_clock, saved_clock
from edn_server.storage.disk import DatabaseWatch, DiskWatch
from edn_server.storage.interface import StoreError
from edn_server.storage.payloads import Event
from edn_server.storage.store import Store
from edn_server.storage.writer import Call, Job, Result
from edn_server.subscriptions.load import load
from edn_server.subscriptions.view import RegistryView

if TYPE_CHECKING:
    from edn.runtime.postgres.database import Database

logger = structlog.get_logger()

#: exit codes of the process, besides 0 and 1 (it could not start)
EXIT_REFUSED = 3
EXIT_BROKEN = 4


def open_store(settings: Settings) -> tuple[Settings, Store]:
    """Opens the data folder, or a shard of the network's database; raises `CannotStart`.

    A spare waits here for a server that died. Returns the settings with the id of the server.
    """
    if settings.database is None:
        return settings, SqliteStore(settings.folder, floor=settings.disk_floor, open_box=settings.open_box)
    # Imported here: a network on SQLite needs no driver of PostgreSQL.
    from edn.runtime.postgres.database import Database
    from edn_server.storage.postgres.store import PostgresStore

    database = Database.parse(
        settings.database, settings.database_schema, allow_single=settings.allow_single_database
    )
    if settings.spare:
        return _open_as_spare(settings, database)
    store = PostgresStore(
        database,
        settings.id,
        box=settings.open_box(),
        on_wait=lambda seconds: report_wait(f"another process owns the shard for {seconds:.1f} s more"),
    )
    return settings, store


def _open_as_spare(settings: Settings, database: Database) -> tuple[Settings, Store]:
    """Takes the own shard if it has no living owner, otherwise that of the next server that dies."""
    from edn.runtime.postgres.writer import NotTaken
    from edn_server.storage.postgres.spares import Spares
    from edn_server.storage.postgres.store import PostgresStore, ServerRuns

    database.check()
    spares = Spares(database, only=settings.spare_for, stopped_seconds=settings.spare_after_stop)
    spares.check()
    if settings.id:
        try:
            return settings, PostgresStore(database, settings.id, box=settings.open_box())
        except ServerRuns as error:
            logger.info("waiting_as_spare", reason=str(error))
    report_wait("this process is a spare; every server of the network has an owner")
    try:
        while True:
            dead = spares.wait()
            try:
                store = PostgresStore(database, dead.name, box=settings.open_box(), seen=dead.seen)
            except NotTaken:
                continue  # another spare was faster, or the server lives
            except (CannotStart, Unavailable) as error:
                logger.warning("takeover_failed", server=dead.name, reason=str(error))
                continue
            logger.warning("shard_taken_over", server=dead.name, epoch=store.identity.epoch)
            return settings.model_copy(update={"id": dead.name}), store
    finally:
        spares.close()


def _watch(store: Store, settings: Settings) -> DiskWatch | DatabaseWatch:
    if isinstance(store, SqliteStore):
        return DiskWatch(store, server=settings.id, floor=settings.disk_floor)
    return DatabaseWatch(store, server=settings.id)


@owned("loop")
class Services:
    """All parts of a server; parts get what they need through their constructors."""

    def __init__(self, settings: Settings) -> None:
        """Open the store and rebuild the registry; raises `CannotStart`. A spare waits for a dead server."""
        settings, store = open_store(settings)
        self.settings, self._store = settings, store
        self.exit_code = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: list[asyncio.Task[None]] = []
        #: by URL of the dispatcher
        self._registrations: dict[str, tuple[Registration, asyncio.Task[None]]] = {}
        self._own_url = ""

        self.tls = settings.open_tls()
        self._key, self._epoch = store.identity.key, store.identity.epoch
        clock.resume(store.load(saved_clock), settings.clock)
        self.registry = store.load(load)
        self.registry.limits = settings.limits
        self.view = RegistryView(self.registry)
        frame_id = store.load(payloads.newest_frame_id) + 1
        backlog = store.load(outbox.backlog)
        consents = store.load(consent.load)
        self.disk = _watch(store, settings)
        store.start(self._on_fatal, self.disk.on_full)
        share(self.registry)

        self._dispatchers = Dispatchers(settings.dispatcher, settings.secret, tls=self.tls.client)
        self._hints = PlacementHints(self._dispatchers, settings.exchange_seconds)
        self.proxy = DispatcherProxy(self._dispatchers, self._hints, settings.secret)
        self.refusals = Refusals(settings.secret)

        self._resolver = Resolver(settings.nameservers)
        self.consents = Consents(
            settings,
            key=self._key,
            found=consents,
            submit=store.committed,
            servers=lambda: self._hints.servers,
            on_granted=self._on_granted,
            resolver=self._resolver,
        )
        self._sinks = self._make_sinks()
        self.timings = Timings()
        self.traces = EventTraces()
        self.notifier = Notifier(
            view=self.view,
            writer=store.writer,
            reader=store.reader("outbox"),
            sinks=self._sinks,
            key=self._key,
            settings=settings,
            timings=self.timings,
            on_attempt=self.traces.add_post,
            may_send=self._may_send,
        )
        self.notifier.counters.backlog = backlog
        self.streams = Streams(self.view, self.notifier, self._later)
        self._decider = Decider(store.reader("undecided"), self.registry, self._later, self._on_decided)

        self.intake = Intake(
            store,
            self.registry,
            epoch=self._epoch,
            frame_id=frame_id,
            check_room=self.disk.check,
            ask_consent=self.consents.ensure,
            on_applied=self._on_applied,
        )
        self.handover = Handover(
            store,
            self.registry,
            take_frame_id=self.intake.take_frame_id,
            check_room=self.disk.check,
            subtract=self.notifier.subtract,
            on_applied=self._on_applied,
            on_fed=self._on_fed,
        )
        self._settling = Settling(store, self.registry, self.intake.take_frame_id, self._on_fed)
        self.delivery_status = DeliveryStatus(
            view=self.view,
            notifier=self.notifier,
            writer=store.writer,
            reader=store.reader("evidence"),
            settings=settings,
            consent_of=self.consents.state_of,
        )
        self.status = ServerStatus(
            store,
            self.registry,
            self.view,
            self.notifier.counters,
            id=settings.id,
            epoch=self._epoch,
            shortage=lambda: self.disk.shortage,
            is_registered=lambda: any(each.registered for each, _ in self._registrations.values()),
        )
        self._housekeeping = Housekeeping(
            settings,
            store,
            self.registry,
            self.view,
            self.notifier,
            self.streams,
            self.consents,
            self._dispatchers,
            newest_frame_id=lambda: self.intake.frame_id,
            trimmed=frame_id - 1,
        )
        logger.info("opened", subscriptions=self.view.subscriptions(), epoch=self._epoch, backlog=backlog)

    def _make_sinks(self) -> Sinks:
        consents, resolver = self.consents, self._resolver

        def http(settings: Settings) -> HttpSink:
            return HttpSink(settings, resolver, self._may_send)

        self._brokers = brokers = BrokerSink(self.settings, resolver)
        return Sinks(
            self.settings,
            {
                **dict.fromkeys(broker_url.SCHEMES, lambda settings: brokers),
                "http": http,
                "https": http,
                "mailto": MailSink,
                "soap": lambda settings: SoapSink(settings, resolver),
                "cloudevents": lambda settings: CloudEventsSink(settings, consents, resolver, brokers),
                "consent": lambda settings: ConsentingSink(consents, http(settings)),
            },
        )

    # -- life -------------------------------------------------------------------------------------------

    async def start(self, url: str) -> None:
        """Deliver waiting rows, and register under this URL."""
        self._loop = asyncio.get_running_loop()
        await self.notifier.start(again=self._epoch > 1)
        self._own_url = url
        self._register_with(self._dispatchers.urls)
        self._tasks = [
            asyncio.create_task(lasting(work, name), name=name)
            for name, work in (
                ("exchange", self._hints.run),
                ("collection", self._housekeeping.run),
                ("disk", self.disk.run),
                ("tls", self.tls.watch),
                ("clock", lambda: clock.keep(self._save_clock, self._step_clock)),
                ("undecided", self._decider.run),
                ("settling", self._settling.run),
            )
        ]

    async def stop(self) -> None:
        """Stop everything; queued jobs are committed."""
        tasks = [*self._tasks, *(task for _, task in self._registrations.values())]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.notifier.stop()
        await self._sinks.close()
        await self._brokers.close()  # sinks of CloudEvents use it, too
        await self.consents.close()
        await self._resolver.close()
        with contextlib.suppress(Exception):
            await self._housekeeping.write_counters()
        await self._dispatchers.close()
        await asyncio.to_thread(self.close)

    @any_thread
    def close(self) -> None:
        """Commit queued jobs and unlock the data folder."""
        self._decider.close()
        self.delivery_status.close()
        self._store.close()

    async def backup(self) -> Path:
        """Copy the database consistently; the caller deletes the file."""
        return await self._store.backup()

    async def reseal(self, message: protocol.Reseal) -> protocol.SealedSecrets:
        """Seal stored secrets again with the first key, for a while, and count them."""
        return await secret_rows.reseal(self._store, message.seconds)

    # -- registration and the clock ---------------------------------------------------------------------

    def _on_dispatchers(self, urls: list[str]) -> None:
        """Register with dispatchers that have come, and leave those that have gone."""
        if set(urls) != self._dispatchers.urls:
            logger.info("dispatchers_changed", dispatchers=urls)
            self._dispatchers.replace(urls)
            self._register_with(set(urls))

    def _on_silence(self) -> None:
        """Ask at the addresses in the settings if no known dispatcher answers: all may have been replaced."""
        if all(registration.is_silent for registration, _ in self._registrations.values()):
            urls = self._dispatchers.urls | set(self.settings.dispatcher)
            if urls != self._dispatchers.urls:
                logger.warning("dispatchers_silent", asking=list(self.settings.dispatcher))
                self._dispatchers.replace(sorted(urls))
                self._register_with(urls)

    def _register_with(self, urls: set[str]) -> None:
        for address in self._registrations.keys() - urls:
            self._registrations.pop(address)[1].cancel()
        for address in sorted(urls - self._registrations.keys()):
            registration = Registration(
                client=self._dispatchers.client,
                url=address,
                id=self.settings.id,
                describe=self._describe,
                backlog=lambda: self.notifier.counters.backlog,
                notified=lambda: self.notifier.counters.notified,
                on_registered=self.intake.follow,
                on_dispatchers=self._on_dispatchers,
                on_silence=self._on_silence,
            )
            task = asyncio.create_task(self._register(registration), name="registration")
            self._registrations[address] = registration, task

    def _describe(self) -> protocol.Register:
        return protocol.Register(
            id=self.settings.id,
            url=self._own_url,
            key=self._key,
            epoch=self._epoch,
            cursors=self.view.cursors(),
            subscriptions=self.view.subscriptions(),
            location=list(self.settings.location),
            distance=self.settings.distance,
        )

    async def _register(self, registration: Registration) -> None:
        try:
            await registration.run()
        except Refused as refusal:
            logger.critical("registration_refused", reason=str(refusal))
            self._end(EXIT_REFUSED)

    async def _save_clock(self, text: str) -> None:
        try:
            await self._store.committed(Call(lambda db: save_clock(db, text)))
        except (*StoreError, Unavailable) as error:
            logger.warning("clock_not_saved", reason=str(error))

    async def _step_clock(self) -> None:
        clock.adopt()

    async def confirm_clock(self) -> float:
        """Set network time to the wall clock on an operator's request; returns the seconds of the step."""
        clock.keeper.observe()
        step = clock.adopt(confirmed=True)
        await self._save_clock(clock.encode(clock.keeper.save()))
        return step

    def _may_send(self) -> bool:
        """Whether no other process can deliver the rows of this server."""
        return self._store.is_owned

    # -- between the parts ------------------------------------------------------------------------------

    def _later(self, job: Job[Result]) -> asyncio.Future[Result]:
        return asyncio.wrap_future(self._store.commit(job))

    def _on_applied(self, applied: Applied, events: dict[int, Event]) -> None:
        """Pass committed rows and payloads to delivery; called in the writer's thread."""
        if applied.matches is not None and len(applied.matches.offsets):
            now = int(clock.estimate() * 1e6)
            self.traces.add_frame(applied.log, applied.frame_id, now, applied.matches)
            if tracing.active is not None:
                traces = [event.trace for event in events.values()]
                tracing.active.record("match", traces, applied.began, {"edn.server": self.settings.id})
        if self._loop is None or not (
            applied.rows or applied.addresses or applied.entries or applied.drops.total
        ):
            return
        if events:
            self.notifier.recent.put(applied.frame_id, events)
        self._loop.call_soon_threadsafe(self._announce, applied)

    def _on_fed(self, fed: FedRows) -> None:
        """Pass sequences that were completed outside of a frame to delivery; in the writer's thread."""
        if fed.events:
            drops = fed.written.drops
            applied = Applied(
                protocol.FrameAck(0, 0),
                rows=fed.written.ready,
                addresses=fed.addresses,
                frame_id=fed.frame_id,
                entries=len(fed.events) - drops.total,
                drops=drops,
            )
            self._on_applied(applied, fed.events)

    def _announce(self, applied: Applied) -> None:
        counters = self.notifier.counters
        counters.backlog += applied.entries
        counters.paused_dropped += applied.drops.events.get(usage.PAUSED, 0)
        counters.unread_dropped += applied.drops.events.get(usage.UNREAD, 0)
        if applied.doubtful:
            self._decider.wake()
        self.notifier.announce(applied.rows, applied.addresses)
        self.streams.wake(applied.addresses)

    def _on_decided(self, address: str, shorter: int) -> None:
        """Count and deliver a row that was undecided; the address is empty unless the row is ready."""
        self.notifier.subtract(shorter)
        if address:
            self.notifier.wake((address,))
            self.streams.wake((address,))

    def _on_granted(self, url: str) -> None:
        """Deliver the rows of a sink that has consented."""
        for address in self.notifier.waiting:
            if consent_url(url_of(address)) == url:
                self.notifier.hurry(address)

    def _on_fatal(self, error: BaseException) -> None:
        self._end(EXIT_BROKEN)

    def _end(self, code: int) -> None:
        self.exit_code = code
        os.kill(os.getpid(), signal.SIGTERM)
