"""One run: a database cluster, a network on it, load, faults, rest, judgement."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import httpx

from edn.tools.checker import Recorder, RecordingError, check_recording
from tests.chaos import clients
from tests.chaos.cluster import schedule
from tests.chaos.cluster.database import DatabaseCluster
from tests.chaos.cluster.faults import Faults
from tests.chaos.cluster.fleet import ClusterFleet
from tests.chaos.cluster.schedule import Kind
from tests.chaos.cluster.watchdog import FOLDERS, watching
from tests.chaos.movers import Mover
from tests.chaos.run import await_rest, count_dead_letters, create_topics, keep_logs
from tests.chaos.sinks import Sink, open_sinks
from tests.chaos.spawning import Spawner
from tests.chaos.tally import Requirements, Tally
from tests.faults import defects

T = TypeVar("T", bound=clients.Client)

FULL_MINUTES, QUICK_MINUTES = 30.0, 3.5
#: an operation whose answer got lost has no effect later than this: a failover, and all timeouts
_SETTLES_AFTER = 120.0
_UP_SECONDS = 120.0
_QUIET_SECONDS = 240.0
_CODA_SECONDS = 5.0
#: what a run must have done per minute for its verdict to count
_PER_MINUTE = {
    "publish": 15,
    "subscribe": 10,
    "unsubscribe": 3,
    "change": 3,
    "renew": 1,
    "pause": 1,
    "resume": 1,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    seed: int
    minutes: float
    quick: bool
    kinds: tuple[Kind, ...]
    defect: str | None
    results: Path
    servers: int = 4
    dispatchers: int = 2
    spares: int = 1

    def schedule(self) -> list[schedule.Fault]:
        return schedule.draw(self.seed, self.minutes * 60, self.kinds)

    @property
    def replay(self) -> str:
        parts = [f"python -m tests.chaos.cluster --seed {self.seed} --minutes {self.minutes:g}"]
        parts += ["--quick"] if self.quick else []
        every = schedule.QUICK if self.quick else tuple(schedule.PACES)
        parts += [f"--kinds {','.join(self.kinds)!r}"] if self.kinds != every else []
        parts += [f"--defect {self.defect}"] if self.defect else []
        return " ".join(parts)

    @property
    def required(self) -> Requirements:
        minutes = self.minutes * 0.5  # failovers take their share
        kinds = {kind: int(least * minutes) for kind, least in _PER_MINUTE.items()}
        if self.quick:
            return Requirements(0, int(500 * minutes), int(15 * minutes), kinds)
        share = self.minutes / FULL_MINUTES
        return Requirements(
            kills=0,
            acknowledged_events=int(100_000 * share),
            acknowledged_changes=int(5_000 * share),
            kinds=kinds,
            faults=int(60 * share),
            fault_kinds=dict.fromkeys(self.kinds, int(3 * share)),
        )


async def run(plan: Plan, say: Callable[[str], None]) -> Tally:
    """The tally; the recording stays in `plan.results` unless it holds, and so do logs that explain more."""
    plan.results.mkdir(parents=True, exist_ok=True)
    tally = Tally(plan.seed, plan.replay)
    began = time.monotonic()
    recording = plan.results / f"cluster-{plan.seed}.jsonl"
    folder = Path(tempfile.mkdtemp(prefix=FOLDERS))
    os.chmod(folder, 0o755)  # noqa: PTH101  at once; the database runs as another user
    with watching(folder):
        try:
            with Recorder(recording, clock_tolerance=3.5, settles_after=_SETTLES_AFTER) as recorder:
                await _drive(plan, tally, recorder, folder, say)
            tally.seconds = time.monotonic() - began
            say("checking the recording")
            checking = time.monotonic()
            try:
                tally.report = await asyncio.to_thread(check_recording, recording)
            except RecordingError as error:
                say(f"the recording cannot be checked: {error.detail}")
            tally.check_seconds = time.monotonic() - checking
            if tally.exit_code(plan.required) == 0:
                recording.unlink()
            else:
                tally.recording = recording
            if tally.recording is not None or tally.clients.surprises:
                keep_logs(folder, plan.results, plan.seed)
        except BaseException:
            keep_logs(folder, plan.results, plan.seed)
            raise
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    return tally


async def _drive(
    plan: Plan, tally: Tally, recorder: Recorder, folder: Path, say: Callable[[str], None]
) -> None:
    async with contextlib.AsyncExitStack() as stack:
        database = DatabaseCluster(folder)
        await stack.enter_async_context(database.running())
        say("the database is up")
        if not database.has_disks:
            say("left out: full disks, because mounting a small one needs root")
        if not database.has_clocks:
            say("left out: wrong clocks of the database, because libfaketime is not installed")
        environment = {defects.VARIABLE: plan.defect or ""}
        spawner = await stack.enter_async_context(Spawner(environment, folder / "zygote.log"))
        fleet = ClusterFleet(
            spawner,
            folder,
            database,
            servers=plan.servers,
            dispatchers=plan.dispatchers,
            spares=plan.spares,
            seed=plan.seed,
        )
        await stack.enter_async_context(fleet.running())
        sinks = await open_sinks(recorder, plan.seed)
        try:
            is_up = await fleet.all_up(_UP_SECONDS)
            fleet.check_starts()
            if not is_up:
                raise RuntimeError(f"the network did not start; its logs are in {plan.results}")
            say("the network is up")
            http = await stack.enter_async_context(
                httpx.AsyncClient(base_url=fleet.url, timeout=10.0, trust_env=False)
            )
            # Until all dispatchers are ready, the doors lead to one after another.
            still = await await_rest(fleet, http, sinks, _UP_SECONDS)
            if still is not None:
                raise RuntimeError(f"the network did not come to rest before the faults: {still}")
            await create_topics(http, recorder)
            await await_rest(fleet, http, sinks, _UP_SECONDS)
            faults = Faults(fleet, database, sinks, say)
            await _under_load(plan, tally, recorder, fleet, sinks, faults)
            say("no more faults, no more requests; waiting for the network to come to rest")
            waiting = time.monotonic()
            still = await await_rest(fleet, http, sinks, _QUIET_SECONDS)
            if still is None:
                tally.quiet_seconds = time.monotonic() - waiting
            else:
                say(f"not at rest after {_QUIET_SECONDS:.0f} s, and what is missing counts as lost: {still}")
            recorder.quiet()
            tally.dead_letters = await count_dead_letters(http)
        finally:
            for sink in sinks:
                sink.close()
                for status, count in sink.posts.items():
                    tally.posts[sink.temper, status] += count
            _observe(tally, fleet)


def _observe(tally: Tally, fleet: ClusterFleet) -> None:
    tally.deaths = fleet.deaths
    tally.unexplained = fleet.unexplained
    tally.disabled = fleet.said('"sink_disabled"')
    tally.observed["doors led to another dispatcher"] = str(fleet.switches)
    tally.observed["logs taken over by dispatchers"] = str(fleet.said('"log_taken_over"'))
    tally.observed["shards taken over by spares"] = str(fleet.said('"shard_taken_over"'))
    stored = fleet.said('"stored": true, "event": "doubt_resolved"')
    resolved = fleet.said('"doubt_resolved"')
    tally.observed["commits in doubt"] = (
        f"{fleet.said('commit_in_doubt')}; {resolved} resolved, {stored} of them stored"
    )
    tally.observed["connections to the database lost"] = str(fleet.said('"database_lost"'))
    for one in fleet.members:
        tally.largest_rss[one.role] = max(one.largest_rss, tally.largest_rss.get(one.role, 0))


async def _under_load(
    plan: Plan,
    tally: Tally,
    recorder: Recorder,
    fleet: ClusterFleet,
    sinks: list[Sink],
    faults: Faults,
) -> None:
    ending = asyncio.Event()
    addresses = [address for sink in sinks for address in sink.addresses]

    def chance(name: str) -> random.Random:
        return random.Random(f"{name} of {plan.seed}")

    def client(kind: type[T], letter: str, number: int) -> T:
        name = f"{kind.__name__.lower()} {number}"
        place = number % len(fleet.doors)
        url = fleet.doors[place].url
        # A door leads to one log after another: the recording does not say to which.
        return kind(f"{letter}{number}", url, recorder, chance(name), tally.clients, ending, None)

    publishers = [client(clients.Publisher, "p", number) for number in range(1, 4)]
    subscribers = [client(clients.Subscriber, "w", number) for number in range(1, 5)]
    async with asyncio.TaskGroup() as group:
        for publisher in publishers:
            # Of a full run, about half of the time nothing can be published.
            group.create_task(publisher.run(rate=30.0 if plan.quick else 45.0))
        for subscriber in subscribers:
            group.create_task(subscriber.run(addresses, most=30, rate=3.0))
        mover = Mover(fleet.url, fleet.servers, chance("mover"), ending)
        group.create_task(mover.run())
        await asyncio.sleep(_CODA_SECONDS)
        await faults.run(plan.schedule())
        await asyncio.sleep(_CODA_SECONDS)
        ending.set()
    tally.repartitions, tally.moved = mover.repartitions, mover.moved
    tally.faults, tally.left_out = faults.done, faults.left_out
    tally.fault_kinds = faults.kinds
    fewest = min(faults.kinds.values(), default=0)
    tally.observed["faults, and of the rarest kind"] = f"{faults.kinds.total()}, {fewest}"
    tally.connections_ended = faults.connections_ended
    if faults.takeovers:
        longest = max(faults.takeovers)
        middle = sorted(faults.takeovers)[len(faults.takeovers) // 2]
        tally.observed["seconds from a server's death to its spare, median and longest"] = (
            f"{middle:.1f}, {longest:.1f}"
        )
