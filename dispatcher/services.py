"""Constructs the parts of a dispatcher in dependency order, and starts and stops them."""

from __future__ import annotations

import structlog

from dispatcher.advertisements.documents import Documents
from dispatcher.advertisements.guard import BoundCache, PublicationGuard
from dispatcher.advertisements.reach import Reach
from dispatcher.advertisements.service import Advertisements
from dispatcher.advertisements.wanted import Wanted
from dispatcher.api.publish import PublishEndpoint
from dispatcher.auth.access import Guard
from dispatcher.auth.audit import Audit
from dispatcher.auth.keys import Keys
from dispatcher.config import Settings
from dispatcher.network.foreign_changes import ForeignChanges
from dispatcher.network.membership import Membership
from dispatcher.network.takeover import Parts, Takeover
from dispatcher.observe.event_trace import EventTrace
from dispatcher.observe.explain import Explainer
from dispatcher.observe.projection import Projector
from dispatcher.observe.routes import RoutingEntries
from dispatcher.observe.sampler import Sampler
from dispatcher.observe.servers import ServerDescriptions
from dispatcher.rebalance.advisor import RepartitionAdvisor
from dispatcher.rebalance.handover import Handover
from dispatcher.rebalance.mover import Mover
from dispatcher.rebalance.runner import RepartitionRunner
from dispatcher.routing.table import RoutingTable
from dispatcher.servers.admission import Admission
from dispatcher.servers.backup_gate import BackupGate
from dispatcher.servers.bindings import Bindings
from dispatcher.servers.client import ServerClient
from dispatcher.servers.pipeline import Pipeline
from dispatcher.servers.placement import Placer
from dispatcher.servers.registration import Registration
from dispatcher.servers.registry import ServerRegistry
from dispatcher.servers.summaries import Summaries
from dispatcher.servers.upkeep import Upkeep
from dispatcher.sources.service import Sources
from dispatcher.store.event_log import Log
from dispatcher.store.sqlite.log import SqliteLog
from dispatcher.subscriptions.installer import SubscriptionInstaller
from dispatcher.subscriptions.replay import Replayer
from dispatcher.subscriptions.requests import SubscriptionRequests
from dispatcher.subscriptions.restore import ServerRestore
from dispatcher.subscriptions.service import Subscriptions
from dispatcher.subscriptions.subtree_sync import SubtreeSync
from dispatcher.subscriptions.topics import Topics
from dispatcher.tuning.loop import Tuner, stored_tuning
from edn import __version__
from edn.errors import Unavailable
from edn.runtime import clock
from edn.runtime.process import report_wait
from edn.runtime.tasks import Tasks, lasting, periodic

logger = structlog.get_logger()

#: seconds between updates of the report of dead subscriptions, for metrics and the dashboard
REACH_SECONDS = 30.0


def open_log(settings: Settings) -> Log:
    """Opens the log in the data folder or in the network's database; raises `CannotStart`."""

    def resume(saved: object, least: float) -> None:
        clock.resume(saved, settings.clock, least=least)

    if settings.database is None:
        return SqliteLog(
            settings.folder,
            box=settings.open_box(),
            clock=clock.now,
            steady=clock.steady,
            estimate=clock.estimate,
            resume=resume,
            watermark=settings.disk_reserve,
        )
    # Imported here: a network on SQLite needs no driver of PostgreSQL.
    from dispatcher.store.postgres.log import PostgresLog
    from edn.runtime.postgres.database import Database

    return PostgresLog(
        Database.parse(
            settings.database, settings.database_schema, allow_single=settings.allow_single_database
        ),
        settings.name,
        box=settings.open_box(),
        url=settings.reachable_url,
        clock=clock.now,
        steady=clock.steady,
        estimate=clock.estimate,
        resume=resume,
        on_wait=lambda seconds: report_wait(
            f'another dispatcher named "{settings.name}" owns the log for {seconds:.1f} s more'
        ),
    )


class Services:
    """All parts of a dispatcher; only `create_app` and tests use it."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.tls = settings.open_tls()
        self.tasks = Tasks()
        self._make_core(settings)
        self._make_subscriptions(settings)
        self._make_advertisements()
        self._make_publishing(settings)
        self._make_servers()
        self._make_rebalance(settings)
        self._make_observers()
        self.log.on_gap = ForeignChanges(
            self.topics,
            self.members,
            self.registration,
            self.placing,
            self.summaries,
            self.keys,
            self.bindings,
            self.replayer.begin,
            self.runner.wake,
            self._on_advertised,
        ).apply
        self.takeover = Takeover(
            Parts(
                self.log,
                self.members,
                self.calls,
                self.table,
                self.topics,
                self.pipeline,
                self.backup_gate,
            ),
            self.membership,
        )

    def _make_core(self, settings: Settings) -> None:
        """Creates the store and the pipeline to the servers."""
        self.log = log = open_log(settings)
        self.membership = Membership(log, settings.url)
        self.table = RoutingTable(router=settings.router, cut=settings.cut, bloom=settings.bloom)
        self.members = ServerRegistry()
        self.calls = ServerClient(settings, self.members, self.tls.client)
        self.link = self.calls.link
        self.pipeline = Pipeline(log, self.table, self.members, self.calls, lag_limit=settings.lag_limit)
        self.counters = self.pipeline.counters
        self.placing = Placer(settings, self.members)
        self.summaries = Summaries(
            self.table,
            self.members,
            self.placing,
            self.counters,
            self.calls,
            self.tasks,
            settings.summary_attributes,
        )
        self.bindings = Bindings(log)
        self.backup_gate = BackupGate()
        self.upkeep = Upkeep(log, self.members, self.pipeline.backpressure, self.backup_gate)
        self.admission = Admission(log, self.upkeep, self.pipeline.backpressure)

    def _make_subscriptions(self, settings: Settings) -> None:
        self.keys = Keys(self.log)
        self.guard = Guard(
            self.keys,
            settings.secret,
            open=settings.open,
            admin_port=settings.admin_port,
            hosts=settings.allowed_hosts,
            limits=settings.tenant_limits,
        )
        self.audit = Audit(settings.data)
        self.topics = Topics(self.log)
        self.replayer = Replayer(
            self.log,
            self.topics,
            self.members,
            self.calls,
            self.pipeline,
            self.backup_gate,
            self.tasks,
        )
        self.installer = SubscriptionInstaller(
            self.log,
            self.placing,
            self.bindings,
            self.calls,
            self.summaries,
            self.tasks,
            self.replayer.begin,
        )
        self.subscriptions = Subscriptions(self.log, self.topics, self.placing, self.installer)
        self.requests = SubscriptionRequests(
            settings,
            self.log,
            self.topics,
            self.placing,
            self.subscriptions,
            self.guard.quotas,
        )
        self.subtree_sync = SubtreeSync(
            self.log, self.topics, self.subscriptions, self.installer, self.summaries
        )

    def _make_advertisements(self) -> None:
        self.bound_advertisements = cache = BoundCache()
        self.publication_guard = PublicationGuard(self.log, cache)
        self.reach = Reach(self.log, cache)
        self.wanted = Wanted(self.table, self.reach)
        self.advertisements = Advertisements(self.log, self.topics, self._on_advertised)
        self.documents = Documents(self.log, self.topics, self.subscriptions, cache, __version__)

    def _on_advertised(self, topic: int) -> None:
        """Forget what was compiled for a topic whose advertisements have changed, here or elsewhere."""
        self.publication_guard.forget(topic)
        self.wanted.wake()

    def _make_publishing(self, settings: Settings) -> None:
        self.publish = PublishEndpoint(
            self.log,
            self.admission,
            self.topics,
            self.guard,
            self.audit,
            self.publication_guard,
            retained_bytes=settings.retained_bytes,
        )
        self.sources = Sources(settings, self.log, self.topics, self.tasks, self.publish.publish_named)

    def _make_servers(self) -> None:
        self.registration = Registration(
            self.log,
            self.table,
            self.members,
            self.placing,
            self.pipeline,
            self.summaries,
            self.tasks,
            ServerRestore(self.log, self.topics, self.calls).store_missing,
            self.membership.urls,
        )

    def _make_rebalance(self, settings: Settings) -> None:
        tuning = stored_tuning(self.log, settings.tuning)
        self.table.set_precision(tuning.precision)
        self.tuner = Tuner(
            self.log,
            self.table,
            self.members,
            self.pipeline,
            self.link,
            tuning,
            interval=settings.tuning_seconds,
        )
        self.handover = Handover(self.log, self.members, self.calls, self.backup_gate, self.membership.leads)
        self.mover = Mover(
            self.log,
            self.topics,
            self.placing,
            self.bindings,
            self.subscriptions.lock,
            self.installer,
            on_moved=self.handover.wake,
            on_replay=self.replayer.begin,
        )
        self.advisor = RepartitionAdvisor(settings, self.log, self.counters, tuning, self.tasks)
        self.runner = RepartitionRunner(
            self.log,
            self.topics,
            self.members,
            self.registration,
            self.bindings,
            self.pipeline,
            self.summaries,
            self.backup_gate,
            self.mover,
            self.handover,
            self.advisor,
            leads=self.membership.leads,
            is_alone=lambda: self.membership.alone,
        )

    def _make_observers(self) -> None:
        tail = self.pipeline.tail
        self.descriptions = ServerDescriptions(self.members, self.table, tail)
        self.entries = RoutingEntries(self.log, self.table, self.members, self.bindings, self.topics)
        self.explainer = Explainer(
            self.log,
            tail,
            self.table,
            self.members,
            self.calls,
            self.subscriptions,
            self.bound_advertisements,
        )
        self.event_trace = EventTrace(self.log, tail, self.calls)
        self.projector = Projector(self.table, self.counters)
        self.sampler = Sampler(
            self.log, self.table, self.pipeline, self.descriptions, self.topics, self.tuner
        )

    async def start(self) -> None:
        self.log.start()
        self.replayer.start()
        await self.membership.poll()
        for name, work in (
            ("membership", periodic(1.0, self.membership.poll, "membership")),
            ("takeover", periodic(1.0, self.takeover.step, "takeover")),
            ("upkeep", periodic(1.0, self.upkeep.step, "upkeep")),
            ("summaries", periodic(1.0, self.summaries.refresh, "summaries")),
            ("expiry", periodic(1.0, self._end_expired, "expiry")),
            ("tls", lasting(self.tls.watch, "tls")),
            ("reach", periodic(REACH_SECONDS, self.reach.refresh, "reach")),
            ("clock", lasting(lambda: clock.keep(self._save_clock, self._step_clock), "clock")),
            ("tuning", lasting(self.tuner.run, "tuning")),
            ("sampler", self.sampler.run()),
            ("handover", lasting(self.handover.run, "handover")),
            ("repartitions", lasting(self.runner.run, "repartitions")),
            ("advisor", self.advisor.run()),
            ("subtree_sync", lasting(self.subtree_sync.run, "subtree_sync")),
            ("sources", lasting(self.sources.run, "sources")),
        ):
            self.tasks.spawn(work, name)

    async def stop(self) -> None:
        await self.tasks.stop()
        await self.takeover.stop()
        await self.log.stop()
        await self.calls.stop()
        self.replayer.stop()
        self.audit.close()

    async def _end_expired(self) -> None:
        while await self.subscriptions.end_expired():
            pass
        while self.membership.leads() and await self.advertisements.end_expired():
            pass

    async def _save_clock(self, text: str) -> None:
        try:
            await self.log.save_clock(text)
        except Unavailable as error:
            logger.warning("clock_not_saved", reason=str(error))

    async def _step_clock(self) -> None:
        try:
            await self.subscriptions.step_clock()
        except Unavailable as error:
            logger.warning("clock_not_adopted", reason=str(error))
