"""The loop that tunes: counters and CPU become a reading, a policy decides, summaries are cut anew.

Once an interval. What the throughput model needs is taken from the counters of the interval
(`servers.counters`), the servers' own figures and, for other precisions than the present one, from a survey
(`probe`), which is made only while the policy predicts and the network has something to do. An interval
begins anew when a precision has come into force, so that no reading mixes two.
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
from dispatcher.servers.counters import Counts, PipelineCounters
from dispatcher.servers.forwarder import FRAME_EVENTS
from dispatcher.servers.limits import Link
from dispatcher.servers.pipeline import Pipeline
from dispatcher.servers.registry import ServerRegistry
from dispatcher.store import meta
from dispatcher.store.event_log import Log
from dispatcher.tuning.observed_curve import Lived
from dispatcher.tuning.probe import Survey
from edn.errors import Conflict, Unavailable
from edn.runtime.tasks import periodic
from selftune.cpu import CpuMonitor
from selftune.reading import Reading
from selftune.throughput import Model, Operating, Parameters
from selftune.tuning import Tuning

logger = structlog.get_logger()

#: an interval with fewer events says nothing
LEAST_EVENTS = 50
#: a CPU share below which an unsaturated network needs no tuning
IDLE = 0.5
#: a server's CPU share below which it tells nothing about what an event costs it
BUSY = 0.2
#: weight of the newest interval in the parameters
WEIGHT = 0.5


@dataclass(frozen=True, slots=True)
class _Mark:
    """Where everything stood when an interval began."""

    at: float
    counts: Counts
    carried: int
    lag: int
    held: int
    cpu: float
    surveyed: float


class Tuner:
    """Owns the precision of the network's table. Event loop only."""

    def __init__(
        self,
        log: Log,
        table: RoutingTable,
        members: ServerRegistry,
        pipeline: Pipeline,
        counters: PipelineCounters,
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
        self._members = members
        self._pipeline = pipeline
        self._counters = counters
        self._link = link
        self._survey = Survey(table, counters)
        self._parameters: Parameters | None = None
        self._lived = Lived()
        self._bandwidth = math.inf
        self._monitor: CpuMonitor | None = None
        self._mark: _Mark | None = None
        self._changing = asyncio.Lock()

    async def run(self) -> None:
        # Here and not before: the monitor watches the thread that makes it.
        self._monitor = CpuMonitor()
        self._begin()
        # If a tick fails, events flow at the precision in force, and the next interval tries again.
        await periodic(self.interval, self.tick, "tuning")

    # -- an operator's word -----------------------------------------------------------------------------

    async def set(self, mode: str, precision: float | None) -> None:
        """Another mode or precision, at once and durably."""
        async with self._changing:
            wanted = self.tuning.precision if precision is None else precision
            self.tuning.set(mode=mode, precision=wanted, time=self._log.now(), reason="set by an operator")
            await self._keep()
            await self._cut()

    async def survey(self) -> None:
        """Measure every precision now."""
        if not self._counters.samples:
            raise Conflict("no event has come since the dispatcher started: there is nothing to measure with")
        if self._parameters is None and self._read() is not None:
            self._begin()
        await self._survey.all()

    # -- an interval ------------------------------------------------------------------------------------

    async def tick(self) -> None:
        """An interval is over: read, decide, apply."""
        reading = self._read()
        if reading is None:
            self._begin()
            return
        busy = reading.saturated or reading.cpu >= IDLE
        if self.tuning.mode == "model" and busy:
            await self._survey.near(self.tuning.precision, self.tuning.rule.step, self.interval)
            reading = replace(reading, model=self._model())
        self.reading = reading
        if self.tuning.mode != "fixed" and busy:
            async with self._changing:
                decision = self.tuning.read(reading, time=self._log.now())
                if decision is not None:
                    logger.info("precision", precision=decision.precision, reason=decision.reason)
                    await self._cut()
                    try:
                        await self._keep()
                    except Unavailable as error:
                        logger.warning("the precision could not be stored", reason=str(error))
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
            surveyed=self._survey.spent,
        )

    def _read(self) -> Reading | None:
        mark, monitor = self._mark, self._monitor
        if mark is None or monitor is None:
            return None
        elapsed = time.monotonic() - mark.at
        counted = self._counters.snapshot().since(mark.counts)
        if counted.events < LEAST_EVENTS or not counted.asked or elapsed <= 0:
            return None
        looked = monitor.look()
        cpu = looked.share
        behind = 2 * FRAME_EVENTS
        saturated = (
            cpu >= self.tuning.rule.threshold
            or self._pipeline.backpressure.held > mark.held
            or (mark.lag > behind and self._pipeline.lag() > behind)
        )
        spent = time.process_time() - mark.cpu - (self._survey.spent - mark.surveyed)
        downstream = saturated and cpu < self.tuning.rule.threshold
        self._take(counted, elapsed, spent, looked.core, downstream=downstream)
        width = self._link.bytes_per_second
        return Reading(
            cpu=cpu,
            throughput=max(0, self._pipeline.carried() - mark.carried) / elapsed,
            saturated=saturated,
            link=None if width is None else counted.sent_bytes / elapsed / width,
            server=max((member.cpu for member in self._members.present()), default=None),
        )

    def _take(self, counted: Counts, elapsed: float, spent: float, core: float, *, downstream: bool) -> None:
        """The model's parameters, from one interval. `downstream`: link or servers are the bottleneck."""
        copies = max(1, counted.copies)
        present = [member.cpu for member in self._members.present()]
        if self._link.bytes_per_second is not None:
            self._bandwidth = self._link.bytes_per_second
        elif not downstream:
            self._bandwidth = math.inf
        elif max(present, default=0.0) < IDLE:
            # Neither the dispatcher nor a server is busy: what leaves is what the line takes.
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
            # Most of what an idle server does is not done for events; but no event costs it more than that.
            serving = 0.0 if known is None else min(known.serving, fresh.serving)
            fresh = replace(fresh, serving=serving)
        if known is not None and known.servers == fresh.servers:

            def mixed(before: float, now: float) -> float:
                return before + WEIGHT * (now - before)

            fresh = Parameters(
                servers=fresh.servers,
                fixed=mixed(known.fixed, fresh.fixed),
                per_copy=mixed(known.per_copy, fresh.per_copy),
                message_bytes=mixed(known.message_bytes, fresh.message_bytes),
                bandwidth=fresh.bandwidth,
                serving=mixed(known.serving, fresh.serving),
                core=mixed(known.core, fresh.core),
            )
        self._parameters = fresh
        self._lived.add(
            self.tuning.precision,
            Operating(routing=counted.routing / counted.asked, hit_ratio=counted.hits / counted.asked),
        )

    def _model(self) -> Model | None:
        """Return the points of all observed and probed precisions."""
        if self._parameters is None:
            return None
        return Model(self._parameters, self._lived.curve(self._survey.measured))

    # -- into force -------------------------------------------------------------------------------------

    async def _cut(self) -> None:
        recut = await self._survey.cut(self.tuning.precision)
        self._table.apply(recut)
        self._begin()

    async def _keep(self) -> None:
        mode, precision = self.tuning.mode, self.tuning.precision
        values = {"mode": mode, "precision": precision}
        await self._log.submit(lambda transaction: meta.write(transaction.connection, values))

    # -- for people -------------------------------------------------------------------------------------

    def describe(self) -> dict[str, Any]:
        """Everything in the words of the interface; what is unlimited is null."""
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
    """Return the tuning as an operator, or the tuner, left it; else in a mode."""
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
