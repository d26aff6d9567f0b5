"""When a repartition would be worth its while: the hit ratio has grown since the last one.

The share of (event, server) pairs that are forwarded is looked at once an interval, over the events of that
interval. The best that was seen since the last repartition, at the precision of now, is what the present one
is compared with: when it is worse by more than `threshold`, three times in a row, a repartition is proposed,
and stays so until one is done. Where a command is set it is started then, once a proposal, with the
dispatcher's address in `EDN_URL`: planning needs Spark, and no service does.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
from dataclasses import dataclass
from typing import Any

import structlog

from dispatcher.config import Settings
from dispatcher.servers.pipeline import Counts, PipelineCounters
from dispatcher.store import meta, repartitions
from dispatcher.store.event_log import Log
from edn.runtime.tasks import Tasks, periodic
from selftune.tuning import Tuning

logger = structlog.get_logger()

#: events that an interval must have had to count, and how often in a row it must be worse
ENOUGH = 200
IN_A_ROW = 3
_KEY = "hit_ratio"


@dataclass(frozen=True, slots=True)
class Proposal:
    #: microseconds: when it was made
    since: int
    #: hit ratios: the best since the last repartition, and that of then
    best: float
    then: float


@dataclass(slots=True)
class Watch:
    """The rule, without clocks and networks."""

    threshold: float
    #: precision in hundredths → the best hit ratio at it
    best: dict[int, float]
    now: float | None = None
    worse: int = 0

    def look(self, counts: Counts, precision: float) -> bool:
        """Count an interval, and return whether a repartition should be proposed."""
        if counts.events < ENOUGH or not counts.tested:
            return False
        self.now = counts.hits / counts.tested
        place = round(100 * precision)
        best = self.best.get(place)
        if best is None or self.now < best:
            self.best[place] = self.now
            self.worse = 0
            return False
        self.worse = self.worse + 1 if self.now > best * (1 + self.threshold) else 0
        return self.threshold > 0 and self.worse >= IN_A_ROW

    def begin_again(self) -> None:
        """There was a repartition: what is seen from now on counts."""
        self.best.clear()
        self.worse = 0


class RepartitionAdvisor:
    """Event loop only."""

    def __init__(
        self, settings: Settings, log: Log, counters: PipelineCounters, tuning: Tuning, tasks: Tasks
    ) -> None:
        self._settings = settings
        self._log = log
        self._counters = counters
        self._tuning = tuning
        self._tasks = tasks
        self._before = counters.snapshot()
        text = log.load(lambda connection: meta.read(connection, _KEY)).get(_KEY, "{}")
        kept = {int(place): best for place, best in json.loads(text).items()}
        self._watch = Watch(settings.repartition_threshold, kept)
        self._kept = dict(kept)
        self.proposal: Proposal | None = None

    def hit_ratio(self) -> float | None:
        """Of the last interval that had events."""
        return self._watch.now

    def describe(self) -> dict[str, Any]:
        best = self._watch.best.get(round(100 * self._tuning.precision))
        return {"now": self._watch.now, "best": best, "threshold": self._watch.threshold}

    def done(self) -> None:
        """A repartition has just ended."""
        self._watch.begin_again()
        self.proposal = None

    async def run(self) -> None:
        await periodic(self._settings.repartition_seconds, self._look, "proposing a repartition")

    async def _look(self) -> None:
        counts = self._counters.snapshot()
        worse = self._watch.look(counts.since(self._before), self._tuning.precision)
        self._before = counts
        if worse and self.proposal is None and await self._log.reading(repartitions.running) is None:
            await self._propose()
        if self._watch.best != self._kept:
            await self._keep()

    async def _propose(self) -> None:
        watch = self._watch
        best = watch.best[round(100 * self._tuning.precision)]
        self.proposal = Proposal(self._log.now(), best, watch.now or best)
        logger.warning("a repartition is proposed", best=round(best, 4), now=round(self.proposal.then, 4))
        command = self._settings.repartition_command
        if command:
            self._tasks.spawn(self._start(command), "repartition command")

    async def _start(self, command: str) -> None:
        environment = {**os.environ, "EDN_URL": self._settings.url or ""}
        process = await asyncio.create_subprocess_exec(*shlex.split(command), env=environment)
        try:
            code = await process.wait()
        except asyncio.CancelledError:
            process.terminate()
            raise
        logger.info("the repartition command has ended", code=code)

    async def _keep(self) -> None:
        best = dict(self._watch.best)
        values = {_KEY: json.dumps(best)}
        # If the disk is full, this is tried again after the next interval.
        await self._log.submit(lambda transaction: meta.write(transaction.connection, values))
        self._kept = best
