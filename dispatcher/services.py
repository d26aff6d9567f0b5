"""The parts of a dispatcher, made once in the order of their needs, started and stopped together."""

from __future__ import annotations

import structlog

from dispatcher.auth.access import Guard
from dispatcher.auth.audit import Audit
from dispatcher.auth.keys import Keys
from dispatcher.config import Settings
from dispatcher.observe.event_trace import Follower
from dispatcher.observe.explain import Explainer
from dispatcher.observe.projection import Projector
from dispatcher.observe.routes import RoutingEntries
from dispatcher.observe.sampler import Sampler
from dispatcher.observe.servers import ServerDescriptions
from dispatcher.rebalance.advisor import Proposing
from dispatcher.rebalance.handover import Settling
from dispatcher.rebalance.mover import Moving
from dispatcher.rebalance.runner import Repartitioning
from dispatcher.replication.lease import Peers
from dispatcher.replication.reconcile import Merger
from dispatcher.routing.table import RoutingTable
from dispatcher.servers.admission import Admission, Alone, Leadership
from dispatcher.servers.backup_gate import Backing
from dispatcher.servers.bindings import Bindings
from dispatcher.servers.client import Calls
from dispatcher.servers.counters import Meter
from dispatcher.servers.limits import Link
from dispatcher.servers.pipeline import Pipeline
from dispatcher.servers.placement import Placing
from dispatcher.servers.registration import Registration
from dispatcher.servers.registry import Members
from dispatcher.servers.summaries import Summaries
from dispatcher.servers.upkeep import Upkeep
from dispatcher.store import change_feed
from dispatcher.store.event_log import Log
from dispatcher.subscriptions.bulk_unsubscribe import Covering
from dispatcher.subscriptions.installer import Storing
from dispatcher.subscriptions.replay import Replayer
from dispatcher.subscriptions.requests import Subscribing
from dispatcher.subscriptions.restore import Restoring
from dispatcher.subscriptions.service import Subscriptions
from dispatcher.subscriptions.subtree_sync import Joining
from dispatcher.subscriptions.topics import Topics
from dispatcher.tuning.loop import Tuner, stored_tuning
from edn.errors import Unavailable
from edn.runtime import clock
from edn.runtime.tasks import Tasks, periodic

logger = structlog.get_logger()


class Services:
    """Wires the parts; nothing but `create_app` and tests knows it."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.tasks = Tasks()
        self._make_core(settings)
        self._make_subscriptions(settings)
        self._make_servers()
        self._make_rebalance(settings)
        self._make_observers()

    def _make_core(self, settings: Settings) -> None:
        """Make the store, the pipeline to the servers, and the place among other dispatchers."""
        self.log = log = Log(
            settings.data,
            clock=clock.now,
            steady=clock.steady,
            estimate=clock.estimate,
            resume=lambda saved, least: clock.resume(saved, settings.clock, least=least),
            watermark=settings.disk_reserve,
        )
        change_feed.prepare(log, shared=bool(settings.peers))
        self.table = RoutingTable(router=settings.router, cut=settings.cut, bloom=settings.bloom)
        self.members = Members()
        self.calls = Calls(settings, self.members)
        self.meter = Meter()
        self.link = Link(settings.link_bytes)
        self.pipeline = Pipeline(
            log, self.table, self.members, self.calls, self.meter, self.link, lag_limit=settings.lag_limit
        )
        self.placing = Placing(settings, self.members)
        self.summaries = Summaries(
            self.table,
            self.members,
            self.placing,
            self.meter,
            self.calls,
            self.tasks,
            settings.summary_attributes,
        )
        self.bindings = Bindings(log)
        self.backing = Backing()
        #: the other dispatchers, if there are any
        self.peers = (
            Peers(log, self.calls, self.tasks, settings.peers, settings.url) if settings.peers else None
        )
        self.leadership: Leadership = self.peers or Alone(log.id, settings.url)
        self.upkeep = Upkeep(log, self.members, self.pipeline.pressure, self.backing)
        self.admission = Admission(log, self.upkeep, self.pipeline.pressure, self.leadership)

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
            self.backing,
            self.tasks,
            self.leadership.level,
        )
        self.storing = Storing(
            self.log,
            self.placing,
            self.bindings,
            self.calls,
            self.summaries,
            self.tasks,
            self.replayer.begin,
        )
        self.subscriptions = Subscriptions(self.log, self.topics, self.placing, self.storing)
        self.covering = Covering(self.log, self.topics, self.subscriptions, self.storing)
        self.subscribing = Subscribing(
            settings,
            self.log,
            self.topics,
            self.placing,
            self.subscriptions,
            self.replayer,
            self.guard.quotas,
        )
        self.joining = Joining(
            self.log, self.topics, self.subscriptions, self.storing, self.summaries, self.leadership
        )

    def _make_servers(self) -> None:
        """Make the ways in which servers, and changes of other dispatchers, enter."""
        self.registration = Registration(
            self.log,
            self.table,
            self.members,
            self.placing,
            self.pipeline,
            self.summaries,
            self.tasks,
            Restoring(self.log, self.topics, self.calls).store_again,
        )
        self.merger = Merger(
            self.log,
            self.table,
            self.topics,
            self.registration,
            self.placing,
            self.bindings,
            self.summaries,
            self.replayer.begin,
            on_keys=self.keys.reload,
            on_names=self.joining.doubt,
        )

    def _make_rebalance(self, settings: Settings) -> None:
        """Make the parts that tune the precision and move subscriptions."""
        tuning = stored_tuning(self.log, settings.tuning)
        self.table.set_precision(tuning.precision)
        self.tuner = Tuner(
            self.log,
            self.table,
            self.members,
            self.pipeline,
            self.meter,
            self.link,
            tuning,
            interval=settings.tuning_seconds,
        )
        self.settling = Settling(self.log, self.members, self.calls, self.backing)
        self.moving = Moving(
            self.log,
            self.topics,
            self.placing,
            self.subscriptions.exclusion,
            self.storing,
            on_moved=self.settling.wake,
            on_replay=self.replayer.begin,
        )
        self.proposing = Proposing(settings, self.log, self.meter, tuning, self.tasks)
        self.repartitioning = Repartitioning(
            self.log,
            self.topics,
            self.members,
            self.registration,
            self.bindings,
            self.placing,
            self.pipeline,
            self.summaries,
            self.backing,
            self.moving,
            self.settling,
            self.proposing,
            self.leadership,
        )

    def _make_observers(self) -> None:
        tail = self.pipeline.tail
        self.descriptions = ServerDescriptions(self.members, self.table, tail)
        self.entries = RoutingEntries(self.log, self.table, self.members, self.bindings, self.topics)
        self.explainer = Explainer(self.log, tail, self.table, self.members, self.calls, self.subscriptions)
        self.follower = Follower(self.log, tail, self.calls)
        self.projector = Projector(self.table, self.meter)
        self.sampler = Sampler(
            self.log, self.table, self.pipeline, self.meter, self.descriptions, self.topics, self.tuner
        )

    async def start(self) -> None:
        self.log.start()
        self.replayer.start()
        if self.peers is not None:
            self.peers.start(self.merger)
        for name, work in (
            ("housekeeping", periodic(1.0, self.upkeep.step, "housekeeping")),
            ("summaries", periodic(1.0, self.summaries.settle, "settling summaries")),
            ("expiry", periodic(1.0, self._end_expired, "ending expired subscriptions")),
            ("clock", clock.keep(self._save_clock, self._step_clock)),
            ("tuning", self.tuner.run()),
            ("sampling", self.sampler.run()),
            ("settling", self.settling.run()),
            ("repartitioning", self.repartitioning.run()),
            ("proposing", self.proposing.run()),
            ("joining", self.joining.run()),
        ):
            self.tasks.spawn(work, name)

    async def stop(self) -> None:
        await self.tasks.stop()
        await self.log.stop()
        await self.calls.stop()
        self.replayer.stop()
        self.audit.close()

    async def _end_expired(self) -> None:
        while self.leadership.leads() and await self.subscriptions.sweep():
            pass

    async def _save_clock(self, text: str) -> None:
        try:
            await self.log.save_clock(text)
        except Unavailable as error:
            logger.warning("clock_not_saved", reason=str(error))

    async def _step_clock(self) -> None:
        try:
            await self.subscriptions.step_clock(sweep=self.leadership.leads())
        except Unavailable as error:
            logger.warning("clock_not_adopted", reason=str(error))
