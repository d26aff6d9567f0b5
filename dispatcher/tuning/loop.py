"""Tunes the precision: makes a reading per interval, lets a policy decide, and rebuilds the routing table.

The parameters of the throughput model come from the counters of the interval (`servers.pipeline`) and from
the servers' heartbeats. The cost of other precisions comes from a probe (`probe`), which runs only while the
policy predicts and the network is busy. A new interval begins when a precision takes effect, so that no
reading mixes two precisions.
"""

from __future__ import annotations

import asyncio
import math
import time
from dataclasses import asdict, dataclass, replace
from typing import Any

import msgspec
import structlog

from dispatcher.routing.table import RoutingTable
from dispatcher.servers.client import Link
from dispatcher.servers.forwarder import FRAME_EVENTS
from dispatcher.servers.pipeline import Counts, Pipeline
from dispatcher.servers.registry import ServerRegistry
from dispatcher.store import meta
from dispatcher.store.event_log import Log
from dispatcher.tuning.probe import PrecisionProbe
from edn.errors import Conflict, Unavailable
from edn.runtime.ownership import owned
from edn.runtime.tasks import periodic
from selftune.cpu import CpuMonitor
from selftune.observed_curve import ObservedCurve
from selftune.reading import Reading
from selftune.throughput import Model, OperatingPoint, Parameters
from selftune.tuning import Tuning

logger = structlog.get_logger()

#: an interval with fewer events is ignored
LEAST_EVENTS = 50
#: CPU share below which an unsaturated network needs no tuning
IDLE = 0.5
#: CPU share of a server below which its time per event cannot be measured
BUSY = 0.2
#: weight of the newest interval in the parameters, and those that are smoothed
WEIGHT = 0.5
_SMOOTHED = ("fixed", "per_copy", "message_bytes", "serving", "core")


@dataclass(frozen=True, slots=True)
class _Mark:
    """The counters at the beginning of an interval."""

    at: float
    counts: Counts
    carried: int
    lag: int
    held: int
    cpu: float
    probed: float


@owned("loop")
class Tuner:
    def __init__(
        self,
        log: Log,
        table: RoutingTable,
        registry: ServerRegistry,
        pipeline: Pipeline,
        link: Link,
        tuning: Tuning,
        *,
        interval: float,
    ) -> None:
        self.tuning = tuning
        self.interval = interval
        self.reading: Reading | None = None
        self._log = log
        self._table = table
        self._registry = registry
        self._pipeline = pipeline
        self._counters = pipeline.counters
        self._link = link
        self._probe = PrecisionProbe(table, pipeline.counters)
        self._parameters: Parameters | None = None
        self._observed = ObservedCurve()
        self._bandwidth = math.inf
        self._monitor: CpuMonitor | None = None
        self._mark: _Mark | None = None
        self._changing = asyncio.Lock()

    async def run(self) -> None:
        # Made here, because it watches the thread that makes it.
        self._monitor = CpuMonitor()
        self._begin()
        # If a tick fails, the precision stays in force, and the next interval tries again.
        await periodic(self.interval, self.tick, "tuning")

    # -- operators --------------------------------------------------------------------------------------

    async def set(self, mode: str, precision: float | None) -> None:
        """Set mode and precision, durable and effective at once."""
        async with self._changing:
            wanted = self.tuning.precision if precision is None else precision
            self.tuning.set(mode=mode, precision=wanted, time=self._log.now(), reason="set by an operator")
            await self._store()
            await self._apply()

    async def survey(self) -> None:
        if not self._counters.samples:
            raise Conflict("no event was published since the dispatcher started; publish events first")
        if self._parameters is None and self._read() is not None:
            self._begin()
        await self._probe.measure_all()

    # -- intervals --------------------------------------------------------------------------------------

    async def tick(self) -> None:
        """End an interval: make a reading, decide, apply."""
        reading = self._read()
        if reading is None:
            self._begin()
            return
        busy = reading.saturated or reading.cpu >= IDLE
        if self.tuning.mode == "model" and busy:
            await self._probe.measure_near(self.tuning.precision, self.tuning.rule.step, self.interval)
            reading = replace(reading, model=self._model())
        self.reading = reading
        if self.tuning.mode != "fixed" and busy:
            async with self._changing:
                decision = self.tuning.read(reading, time=self._log.now())
                if decision is not None:
                    logger.info("precision_changed", precision=decision.precision, reason=decision.reason)
                    await self._apply()
                    try:
                        await self._store()
                    except Unavailable as error:
                        logger.warning("precision_not_stored", reason=str(error))
        self._begin()

    def _begin(self) -> None:
        if self._monitor is not None:
            self._monitor.look()
        self._mark = _Mark(
            at=time.monotonic(),
            counts=self._counters.snapshot(),
            carried=self._pipeline.carried(),
            lag=self._pipeline.lag(),
            held=self._pipeline.backpressure.held,
            cpu=time.process_time(),
            probed=self._probe.spent,
        )

    def _read(self) -> Reading | None:
        mark, monitor = self._mark, self._monitor
        if mark is None or monitor is None:
            return None
        elapsed = time.monotonic() - mark.at
        counted = self._counters.snapshot().since(mark.counts)
        if counted.events < LEAST_EVENTS or not counted.tested or elapsed <= 0:
            return None
        looked = monitor.look()
        cpu = looked.share
        behind = 2 * FRAME_EVENTS
        saturated = (
            cpu >= self.tuning.rule.threshold
            or self._pipeline.backpressure.held > mark.held
            or (mark.lag > behind and self._pipeline.lag() > behind)
        )
        spent = time.process_time() - mark.cpu - (self._probe.spent - mark.probed)
        downstream = saturated and cpu < self.tuning.rule.threshold
        self._estimate(counted, elapsed, spent, looked.core, downstream=downstream)
        width = self._link.bytes_per_second
        return Reading(
            cpu=cpu,
            throughput=max(0, self._pipeline.carried() - mark.carried) / elapsed,
            saturated=saturated,
            link=None if width is None else counted.sent_bytes / elapsed / width,
            server=max((server.cpu for server in self._registry.present()), default=None),
        )

    def _estimate(
        self, counted: Counts, elapsed: float, spent: float, core: float, *, downstream: bool
    ) -> None:
        """Estimate the model's parameters. `downstream`: link or servers are the bottleneck."""
        copies = max(1, counted.copies)
        present = [server.cpu for server in self._registry.present()]
        if self._link.bytes_per_second is not None:
            self._bandwidth = self._link.bytes_per_second
        elif not downstream:
            self._bandwidth = math.inf
        elif max(present, default=0.0) < IDLE:
            # Neither dispatcher nor servers are busy, so the link is full.
            self._bandwidth = counted.sent_bytes / elapsed
        fresh = Parameters(
            servers=len(self._table.servers),
            fixed=max(0.0, spent - counted.routing - counted.sending) / counted.events,
            per_copy=counted.sending / copies,
            message_bytes=counted.sent_bytes / copies,
            bandwidth=self._bandwidth,
            serving=sum(present) * elapsed / copies,
            core=core,
        )
        known = self._parameters
        if counted.copies < LEAST_EVENTS or max(present, default=0.0) < BUSY:
            # An idle server works mostly on other things, so this is only an upper bound.
            serving = 0.0 if known is None else min(known.serving, fresh.serving)
            fresh = replace(fresh, serving=serving)
        if known is not None and known.servers == fresh.servers:
            pairs = {name: (getattr(known, name), getattr(fresh, name)) for name in _SMOOTHED}
            fresh = replace(
                fresh, **{name: before + WEIGHT * (now - before) for name, (before, now) in pairs.items()}
            )
        self._parameters = fresh
        self._observed.add(
            self.tuning.precision,
            OperatingPoint(routing=counted.routing / counted.tested, hit_ratio=counted.hits / counted.tested),
        )

    def _model(self) -> Model | None:
        if self._parameters is None:
            return None
        return Model(self._parameters, self._observed.curve(self._probe.measured))

    async def _apply(self) -> None:
        self._table.apply(await self._probe.rebuild(self.tuning.precision))
        self._begin()

    async def _store(self) -> None:
        values = {"mode": self.tuning.mode, "precision": self.tuning.precision}
        await self._log.submit(lambda transaction: meta.write(transaction.connection, values), changes=False)

    def describe(self) -> dict[str, Any]:
        """Return mode, reading, parameters and curve as JSON; unlimited values are null."""
        reading, model = self.reading, self._model()
        return {
            **self.tuning.describe(),
            "interval_seconds": self.interval,
            "reading": None
            if reading is None
            else {"cpu": reading.cpu, "throughput": reading.throughput, "saturated": reading.saturated},
            "parameters": None if model is None else _finite(asdict(model.parameters)),
            "curve": [] if model is None else [_row(model, at) for at in model.curve],
        }


def stored_tuning(log: Log, mode: str) -> Tuning:
    """Return the stored mode and precision; without them, a mode at full precision."""
    return Tuning(**{"mode": mode, **log.load(lambda connection: meta.read(connection, "mode", "precision"))})


def _row(model: Model, precision: float) -> dict[str, Any]:
    parts = model.at(precision)
    return {
        "precision": precision,
        **msgspec.to_builtins(model.curve[precision]),
        **_finite(msgspec.to_builtins(parts)),
        **_finite({"throughput": parts.throughput}),
        "bottleneck": parts.bottleneck,
    }


def _finite(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value if math.isfinite(value) else None for name, value in values.items()}
