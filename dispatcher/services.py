"""Everything behind the dispatcher's doors, made once, started and stopped together."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import structlog
from fastapi import FastAPI

from dispatcher.auth.access import Guard
from dispatcher.auth.audit import Audit
from dispatcher.auth.keys import Keys
from dispatcher.config import Settings
from dispatcher.observe.event_trace import Follower
from dispatcher.observe.explain import Explainer
from dispatcher.observe.sampler import Sampler
from dispatcher.rebalance.advisor import Proposing
from dispatcher.rebalance.handover import Settling
from dispatcher.rebalance.mover import Moving
from dispatcher.rebalance.runner import Repartitioning
from dispatcher.replication.lease import Peers
from dispatcher.replication.reconcile import Merger
from dispatcher.servers.network import Network
from dispatcher.store import change_feed, meta
from dispatcher.subscriptions.bulk_unsubscribe import Covering
from dispatcher.subscriptions.installer import Storing
from dispatcher.subscriptions.replay import Replayer
from dispatcher.subscriptions.requests import Subscribing
from dispatcher.subscriptions.restore import Restoring
from dispatcher.subscriptions.service import Subscriptions
from dispatcher.subscriptions.subtree_sync import Joining
from dispatcher.subscriptions.topics import Topics
from dispatcher.tuning.loop import Tuner
from edn.errors import Unavailable
from edn.runtime import clock
from selftune.tuning import Tuning

logger = structlog.get_logger()


class Door:
    """Everything that the routes need, made once."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.network = Network(settings)
        self.topics = Topics(self.network.log)
        self.keys = Keys(self.network.log)
        self.guard = Guard(
            self.keys,
            settings.secret,
            open=settings.open,
            admin_port=settings.admin_port,
            hosts=settings.allowed_hosts,
            limits=settings.tenant_limits,
        )
        self.audit = Audit(settings.data)
        level = self._level if settings.peers else None
        self.replayer = Replayer(self.network, self.topics, level)
        storing = Storing(self.network, self.replayer.begin)
        self.subscriptions = Subscriptions(self.network, self.topics, storing)
        self.covering = Covering(self.network.log, self.topics, self.subscriptions, storing)
        self.explainer = Explainer(self.network, self.subscriptions)
        self.follower = Follower(self.network)
        self.subscribing = Subscribing(
            self.network, self.topics, self.subscriptions, self.replayer, self.guard.quotas
        )
        tuning = _stored_tuning(self.network)
        self.network.table.set_precision(tuning.precision)
        self.tuner = Tuner(self.network, tuning, interval=settings.tuning_seconds)
        self.sampler = Sampler(self.network, self.topics, self.tuner)
        #: the other dispatchers, if there are any
        self.peers: Peers | None = None
        change_feed.prepare(self.network.log, shared=bool(settings.peers))
        if settings.peers:
            merger = Merger(
                self.network,
                self.topics,
                self.replayer.begin,
                on_keys=self.keys.reload,
                on_names=lambda: self.joining.doubt(),
            )
            self.peers = Peers(self.network, merger)
        self.joining = Joining(self.network, self.topics, self.subscriptions, storing, self.peers)
        self.network.on_return = Restoring(self.network, self.topics).store_again
        self.settling = Settling(self.network)
        moving = Moving(
            self.network,
            self.topics,
            self.subscriptions.exclusion,
            storing,
            on_moved=self.settling.wake,
            on_replay=self.replayer.begin,
        )
        self.proposing = Proposing(
            self.network,
            precision=lambda: self.tuner.tuning.precision,
            may_start=self._may_propose,
        )
        self.repartitioning = Repartitioning(
            self.network,
            self.topics,
            moving,
            self.peers,
            unsettled=self.settling.unsettled,
            hit_ratio=self.proposing.hit_ratio,
            on_done=self.proposing.done,
        )

    @contextlib.asynccontextmanager
    async def life(self, _: FastAPI) -> AsyncIterator[None]:
        await self.network.start()
        self.replayer.start()
        self.network.spawn(self._sweep(), "expiry")
        self.network.spawn(clock.keep(self._save_clock, self._step_clock), "clock")
        if self.peers is not None:
            self.peers.start()
        self.network.spawn(self.tuner.run(), "tuning")
        self.network.spawn(self.sampler.run(), "sampling")
        self.network.spawn(self.settling.run(), "settling")
        self.network.spawn(self.repartitioning.run(), "repartitioning")
        self.network.spawn(self.proposing.run(), "proposing")
        self.network.spawn(self.joining.run(), "joining")
        yield
        await self.network.stop()
        self.replayer.stop()
        self.audit.close()

    async def _sweep(self) -> None:
        while True:
            try:
                ended = await self.subscriptions.sweep() if self.leads() else 0
            except Unavailable:
                ended = 0
            if not ended:
                await asyncio.sleep(1.0)

    def leads(self) -> bool:
        """Whether expired subscriptions are ended here, and not by another dispatcher."""
        return self.peers is None or self.peers.leads()

    async def _save_clock(self, text: str) -> None:
        try:
            await self.network.log.save_clock(text)
        except Unavailable as error:
            logger.warning("clock_not_saved", reason=str(error))

    async def _step_clock(self) -> None:
        try:
            await self.subscriptions.step_clock(sweep=self.leads())
        except Unavailable as error:
            logger.warning("clock_not_adopted", reason=str(error))

    async def _level(self) -> None:
        assert self.peers is not None
        await self.peers.level()

    def accepting(self) -> bool:
        """Whether events are taken."""
        return self.network.shortage is None and (self.peers is None or self.peers.accepting())

    async def _may_propose(self) -> bool:
        return await self.repartitioning.running() is None

    async def partition(self) -> dict[str, float]:
        """How good the partition of subscriptions is, and what is being moved: for metrics."""
        running, ratio = await self.repartitioning.running(), self.proposing.describe()
        seen = {"hit_ratio": ratio["now"], "best_hit_ratio": ratio["best"]}
        return {
            **{name: value for name, value in seen.items() if value is not None},
            "repartition_proposed": float(self.proposing.proposal is not None),
            "repartition_left_subscriptions": running.left if running else 0,
            "unsettled_subscriptions": await self.settling.unsettled(),
        }


def _stored_tuning(network: Network) -> Tuning:
    """As an operator, or the tuner, left it; else as the settings have it."""
    stored = network.log.load(lambda connection: meta.read(connection, "mode", "precision"))
    return Tuning(**{"mode": network.settings.tuning, **stored})
