"""One run: a network of its own, load, faults, rest, judgement."""

from __future__ import annotations

import asyncio
import contextlib
import random
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import httpx

from edn.tools.checker import Recorder, RecordingError, check_recording
from tests.chaos import clients, schedule
from tests.chaos.faults import Faults, small_disk
from tests.chaos.fleet import Fleet
from tests.chaos.movers import Mover
from tests.chaos.sinks import Sink, open_sinks
from tests.chaos.spawning import Spawner
from tests.chaos.tally import FULL, FULL_MINUTES, QUICK, Requirements, Tally
from tests.faults import defects
from tests.workload import quotes

T = TypeVar("T", bound=clients.Client)

#: an operation whose answer got lost has no effect later than this: more than all timeouts and stops
_SETTLES_AFTER = 45.0
_UP_SECONDS = 90.0
#: the load goes on for a while after the last fault: what was cut off comes back to a log that moves
_CODA_SECONDS = 5.0
#: how long a network may take to come to rest, in a full and in a quick run
_QUIET_SECONDS, _QUIET_SECONDS_QUICK = 150.0, 90.0
#: the network is at rest when it was so at several looks in a row, over more than two heartbeats
_LOOKS = 6
_LOOK_SECONDS = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a run is made of; everything but the seed has a place in the replay command."""

    seed: int
    minutes: float
    servers: int
    dispatchers: int = 1
    defect: str | None
    quick: bool
    results: Path

    def schedule(self) -> list[schedule.Fault]:
        servers = [f"s{number}" for number in range(1, self.servers + 1)]
        every = 2.0 if self.quick else 2.8
        return schedule.draw(
            self.seed,
            seconds=self.minutes * 60,
            every=every,
            servers=servers,
            dispatchers=(schedule.DISPATCHER, schedule.SECOND)[: self.dispatchers],
            insistent=self.quick,
        )

    @property
    def replay(self) -> str:
        parts = [
            f"python -m tests.chaos --seed {self.seed} --minutes {self.minutes:g} --servers {self.servers}"
        ]
        parts += [f"--dispatchers {self.dispatchers}"] if self.dispatchers > 1 else []
        parts += [f"--defect {self.defect}"] if self.defect else []
        parts += ["--quick"] if self.quick else []
        return " ".join(parts)

    @property
    def required(self) -> Requirements:
        if self.quick:
            return QUICK
        share = self.minutes / FULL_MINUTES
        return Requirements(
            kills=round(FULL.kills * share),
            acknowledged_events=round(FULL.acknowledged_events * share),
            acknowledged_changes=round(FULL.acknowledged_changes * share),
            kinds={kind: round(least * share) for kind, least in FULL.kinds.items()},
        )


async def run(plan: Plan, say: Callable[[str], None]) -> Tally:
    """The tally; the recording stays in `plan.results` unless it holds, and so do logs that explain more."""
    plan.results.mkdir(parents=True, exist_ok=True)
    tally = Tally(plan.seed, plan.replay)
    began = time.monotonic()
    recording = plan.results / f"chaos-{plan.seed}.jsonl"
    folder = Path(tempfile.mkdtemp(prefix="edn-chaos-"))
    try:
        with small_disk(folder / "disk") as disk:
            if disk is None:
                say("left out: full disks, because mounting a small one needs root")
            with Recorder(
                recording,
                clock_tolerance=2 * schedule.FURTHEST_STEP + 0.5,
                settles_after=_SETTLES_AFTER,
            ) as recorder:
                await _drive(plan, tally, recorder, folder, disk, say)
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
        if tally.recording is not None or tally.clients.surprises or tally.deaths:
            keep_logs(folder, plan.results, plan.seed)
    except BaseException:
        keep_logs(folder, plan.results, plan.seed)
        raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return tally


def keep_logs(folder: Path, results: Path, seed: int) -> None:
    for log in folder.rglob("*.log"):
        shutil.copy(log, results / f"chaos-{seed}-{log.name}")


async def _drive(
    plan: Plan, tally: Tally, recorder: Recorder, folder: Path, disk: Path | None, say: Callable[[str], None]
) -> None:
    environment = {defects.VARIABLE: plan.defect or ""}
    async with contextlib.AsyncExitStack() as stack:
        spawner = await stack.enter_async_context(Spawner(environment, folder / "zygote.log"))
        fleet = Fleet(spawner, folder, disk, plan.servers, plan.dispatchers, plan.seed)
        await stack.enter_async_context(fleet.running())
        sinks = await open_sinks(recorder, plan.seed)
        http = await stack.enter_async_context(
            httpx.AsyncClient(base_url=fleet.url, timeout=10.0, trust_env=False)
        )
        try:
            if not await fleet.all_up(_UP_SECONDS):
                raise RuntimeError(f"the network did not start; its logs are in {plan.results}")
            await create_topics(http, recorder)
            await await_rest(fleet, http, sinks, _UP_SECONDS)
            faults = Faults(fleet, sinks, disk=disk, say=say)
            await _under_load(plan, tally, recorder, fleet, sinks, faults)
            say("no more faults, no more requests; waiting for the network to come to rest")
            waiting = time.monotonic()
            bound = _QUIET_SECONDS_QUICK if plan.quick else _QUIET_SECONDS
            still = await await_rest(fleet, http, sinks, bound)
            if still is None:
                tally.quiet_seconds = time.monotonic() - waiting
            else:
                say(f"not at rest after {bound:.0f} s, and what is missing counts as lost: {still}")
            recorder.quiet()
            tally.dead_letters = await count_dead_letters(http)
        finally:
            for sink in sinks:
                sink.close()
                for status, count in sink.posts.items():
                    tally.posts[sink.temper, status] += count
            tally.deaths = fleet.deaths()
            tally.disabled = fleet.disabled()
            for service in fleet.services.values():
                tally.largest_rss[service.role] = max(
                    service.largest_rss, tally.largest_rss.get(service.role, 0)
                )


async def count_dead_letters(http: httpx.AsyncClient) -> int | None:
    """Notifications that were given up: no sink fails for long enough. None if nobody answers."""
    try:
        answer = await http.get("/v1/dead-letters", params={"limit": 1000})
        return len(answer.raise_for_status().json()["dead_letters"])
    except (httpx.HTTPError, ValueError, KeyError):
        return None


async def create_topics(http: httpx.AsyncClient, recorder: Recorder) -> None:
    wanted: list[tuple[str, Any, float]] = [
        (name, quotes.ATTRIBUTES, kept) for name, kept in clients.TOPICS.items()
    ]
    for topic, attributes, availability in [*wanted, (clients.STEPS, clients.STEP_ATTRIBUTES, 0)]:
        recorder.topic(topic, attributes, availability=availability)
        body = {"attributes": attributes, "availability": availability}
        for left in reversed(range(10)):  # a door may just lead elsewhere
            try:
                (await http.put(f"/v1/topics/{topic}", json=body)).raise_for_status()
                break
            except httpx.HTTPError:
                if not left:
                    raise
                await asyncio.sleep(0.5)


async def _under_load(
    plan: Plan, tally: Tally, recorder: Recorder, fleet: Fleet, sinks: list[Sink], faults: Faults
) -> None:
    ending = asyncio.Event()
    addresses = [address for sink in sinks for address in sink.addresses]

    def chance(name: str) -> random.Random:
        return random.Random(f"{name} of {plan.seed}")

    doors = list(fleet.urls.items())

    def client(kind: type[T], letter: str, number: int) -> T:
        via, url = doors[number % len(doors)]
        name = f"{kind.__name__.lower()} {number}"
        return kind(f"{letter}{number}", url, recorder, chance(name), tally.clients, ending, via)

    publishers = [client(clients.Publisher, "p", number) for number in range(1, 6)]
    steps = [client(clients.StepPublisher, "t", number) for number in range(1, 3)]
    subscribers = [client(clients.Subscriber, "w", number) for number in range(1, 7)]
    async with asyncio.TaskGroup() as group:
        for publisher in publishers:
            group.create_task(publisher.run(rate=60.0))
        for stepper in steps:
            group.create_task(stepper.run(rate=12.0))
        for subscriber in subscribers:
            group.create_task(subscriber.run(addresses, most=40, rate=4.0))
        mover = Mover(doors[0][1], sorted(fleet.servers), chance("mover"), ending)
        group.create_task(mover.run())
        await faults.run(plan.schedule())
        await asyncio.sleep(_CODA_SECONDS)
        ending.set()
    tally.repartitions, tally.moved = mover.repartitions, mover.moved
    tally.clients.outcomes["move", "ok"] += mover.moved
    tally.faults, tally.left_out = faults.done, faults.left_out
    tally.connections_ended = faults.connections_ended


class Restful(Protocol):
    """A network that can say whether it is at rest."""

    async def all_up(self, seconds: float) -> bool: ...

    async def at_rest(self, client: httpx.AsyncClient) -> str | None: ...


async def await_rest(
    fleet: Restful, http: httpx.AsyncClient, sinks: list[Sink], seconds: float
) -> str | None:
    """None when the network is at rest; what is still under way when time runs out."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    still: str | None = "not all processes run"
    restful = 0
    while loop.time() < deadline:
        if not await fleet.all_up(max(0.1, deadline - loop.time())):
            continue
        still = await fleet.at_rest(http)
        if still is None and loop.time() - max(sink.last_post for sink in sinks) < 1.0:
            still = "notifications are still arriving"
        restful = 0 if still is not None else restful + 1
        if restful >= _LOOKS:
            return None
        await asyncio.sleep(_LOOK_SECONDS)
    return still or "it was at rest for a moment only"
