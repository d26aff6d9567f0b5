"""Proposes a repartition when too many events are routed to too many servers.

Once per interval, the advisor computes the share of (event, server) pairs that were routed. It compares it
with the lowest share since the last repartition at the same precision. If it is worse by more than
`threshold` three times in a row, it proposes a repartition; the proposal stays until one is done. If a
command is set, it is started once per proposal, with the dispatcher's URL in `EDN_URL`: planning needs Spark,
which no service does.
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

#: events below which an interval does not count
ENOUGH = 200
#: consecutive worse intervals before a proposal
IN_A_ROW = 3
_KEY = "hit_ratio"


@dataclass(frozen=True, slots=True)
class Proposal:
    since: int
    best: float
    then: float


@dataclass(slots=True)
class Watch:
    """The rule of proposals, without I/O."""

    threshold: float
    #: precision in hundredths → best hit ratio
    best: dict[int, float]
    #: hit ratio of the last interval with enough events
    now: float | None = None
    worse: int = 0

    def update(self, counts: Counts, precision: float) -> bool:
        """Add the counts of an interval; return whether to propose a repartition."""
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

    def reset(self) -> None:
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
        text = log.load(meta.read, _KEY).get(_KEY, "{}")
        self._saved: dict[int, float] = {int(place): best for place, best in json.loads(text).items()}
        self._watch = Watch(settings.repartition_threshold, dict(self._saved))
        self.proposal: Proposal | None = None

    def hit_ratio(self) -> float | None:
        return self._watch.now

    def describe(self) -> dict[str, Any]:
        best = self._watch.best.get(round(100 * self._tuning.precision))
        return {"now": self._watch.now, "best": best, "threshold": self._watch.threshold}

    def reset(self) -> None:
        """Withdraw the proposal after a repartition."""
        self._watch.reset()
        self.proposal = None

    async def run(self) -> None:
        await periodic(self._settings.repartition_seconds, self._check, "proposing a repartition")

    async def _check(self) -> None:
        counts = self._counters.snapshot()
        worse = self._watch.update(counts.since(self._before), self._tuning.precision)
        self._before = counts
        if worse and self.proposal is None and await self._log.reading(repartitions.running) is None:
            self._propose()
        if self._watch.best != self._saved:
            await self._save()

    def _propose(self) -> None:
        watch = self._watch
        best = watch.best[round(100 * self._tuning.precision)]
        self.proposal = Proposal(self._log.now(), best, watch.now or best)
        logger.warning("repartition_proposed", best=round(best, 4), now=round(self.proposal.then, 4))
        command = self._settings.repartition_command
        if command:
            self._tasks.spawn(self._run_command(command), "repartition command")

    async def _run_command(self, command: str) -> None:
        settings = self._settings
        files = {"CA": settings.tls_ca, "CERT": settings.tls_cert, "KEY": settings.tls_key}
        tls = {f"EDN_TLS_{name}": str(file) for name, file in files.items() if file is not None}
        environment = {**os.environ, "EDN_URL": settings.url or "", **tls}
        process = await asyncio.create_subprocess_exec(*shlex.split(command), env=environment)
        try:
            code = await process.wait()
        except asyncio.CancelledError:
            process.terminate()
            raise
        logger.info("repartition_command_ended", code=code)

    async def _save(self) -> None:
        best = dict(self._watch.best)
        values = {_KEY: json.dumps(best)}
        # On a full disk it fails, and is retried after the next interval.
        await self._log.submit(lambda transaction: meta.write(transaction.connection, values), changes=False)
        self._saved = best
