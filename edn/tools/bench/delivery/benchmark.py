"""Measures publish to arrival: the product, a floor and peers, against the same receivers in one run.

For each number of addresses all systems run side by side and are measured in turn, in rounds; medians of the
rounds count. 10,000 subscriptions are squares, and an event matches about 95 of them. Loads: *calm*, single
events at a rate; *flat out*, batches as fast as they are accepted. A phase ends when every match, computed
beforehand, has arrived.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import numpy as np
import uvloop

from edn.errors import InvalidInput
from edn.tools.bench.delivery import report
from edn.tools.bench.delivery.fairness import FEWEST_ADDRESSES, FairnessRounds
from edn.tools.bench.delivery.floor import VARIANTS, Floor, running_floor
from edn.tools.bench.delivery.load import Load, Phase, Receivers
from edn.tools.bench.delivery.network import SINKS, Network
from edn.tools.bench.delivery.peers.system import System
from edn.tools.bench.delivery.program import program
from edn.tools.bench.delivery.results import FLAT_OUT, Cost, FloorCost, Outcome, Timeline
from edn.tools.bench.delivery.systems import check_installed, check_names, new_system
from edn.tools.bench.delivery.usage import Meter, raise_descriptor_limit
from edn.tools.bench.delivery.workload import Workload, draw_points
from edn.tools.bench.report import Progress

MATCHES = 95.0
BATCH = 100
#: events that warm a system up before its first round
WARM_EVENTS = 40
#: events of a run of the floor
FLOOR_EVENTS = 400
#: descriptors of a receiver that are no connections of senders
SPARE_DESCRIPTORS = 500

show = report.show


def right(outcome: Outcome) -> bool:
    return outcome.is_complete


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    addresses: Sequence[int]
    systems: Sequence[str]
    rates: Sequence[float]
    subscriptions: int
    servers: int
    sink: str
    seconds: float
    idle_seconds: float
    flat_events: int
    rounds: int
    seed: int


def run(
    *,
    addresses: Sequence[int],
    systems: Sequence[str],
    rates: Sequence[float],
    sink: str,
    fairness: bool,
    idle_seconds: float = 5.0,
    progress: Progress,
    **sizes: Any,
) -> Outcome:
    check_names(systems)
    if sink not in SINKS:
        raise InvalidInput(f"--sink must be one of {', '.join(SINKS)}, got {sink}")
    if fairness and min(addresses) < FEWEST_ADDRESSES:
        raise InvalidInput(
            f"--addresses must be at least {FEWEST_ADDRESSES} with --fairness, got {min(addresses)}"
        )
    check_installed(systems)
    chosen = Sizes(
        addresses=addresses, systems=systems, rates=rates, sink=sink, idle_seconds=idle_seconds, **sizes
    )
    limit = raise_descriptor_limit()
    outcome = Outcome(sink=sink, rounds=chosen.rounds)
    for count in addresses:
        # Both servers or workers of each system, and the floor, may have a connection per address.
        connections = count * sum(1 if name == "floor" else 2 for name in systems)
        receivers = -(-connections // max(1, limit - SPARE_DESCRIPTORS))
        with ExitStack() as stack:
            programs = [
                stack.enter_context(program("edn.tools.bench.delivery.receiver"))[1] for _ in range(receivers)
            ]
            bench = _Bench(chosen, count, [one["port"] for one in programs], outcome, stack, progress)
            uvloop.run(bench.run_fairness() if fairness else bench.run())
    return outcome


@dataclass(frozen=True, slots=True)
class _Run:
    """A system in one of its modes."""

    mode: str
    system: System
    load: Load


def _load(rate: float) -> str:
    return f"calm {rate:g}/s" if rate else FLAT_OUT


def draw_workload(rng: np.random.Generator, subscriptions: int, addresses: int, sink: str) -> Workload:
    # A stream is an address of its own, so it has one subscription; and so has a single address.
    if sink == "sse" or addresses == 1:
        subscriptions = addresses
    return Workload.draw(rng, subscriptions, addresses, MATCHES)


class _Bench:
    """One number of addresses."""

    def __init__(
        self,
        sizes: Sizes,
        addresses: int,
        ports: Sequence[int],
        outcome: Outcome,
        stack: ExitStack,
        progress: Progress,
    ) -> None:
        self._sizes = sizes
        self._addresses = addresses
        self._outcome = outcome
        self._stack = stack
        self._progress = progress
        self._receivers = Receivers(ports)
        self._rng = np.random.default_rng(sizes.seed)
        self._workload = draw_workload(self._rng, sizes.subscriptions, addresses, sizes.sink)
        #: by mode and load, one per round
        self._phases: dict[tuple[str, str], list[Phase]] = {}
        #: CPU per POST and POSTs per second, by variant and rate
        self._floor: dict[tuple[str, float], list[tuple[float, float]]] = {}
        self._idle: dict[str, dict[str, float]] = {}
        #: steps of single events to one subscriber, by load
        self._timelines: dict[str, list[dict[str, float]]] = {}

    async def run(self) -> None:
        await self._receivers.connect()
        runs = [run for name in self._sizes.systems if name != "floor" for run in await self._start(name)]
        floor = self._start_floor() if "floor" in self._sizes.systems else None
        for number in range(1, self._sizes.rounds + 1):
            await self._round(number, runs, floor)
        self._receivers.close()
        self._conclude()

    async def run_fairness(self) -> None:
        await self._receivers.connect()
        sizes = self._sizes
        found = {
            name: FairnessRounds(name, self._workload, self._receivers, self._rng)
            for name in sizes.systems
            if name != "floor"
        }
        for number in range(1, sizes.rounds + 1):
            for name, rounds in found.items():
                self._say(f"round {number} of {sizes.rounds}: {name}, alone and beside bad addresses")
                system = new_system(name, servers=sizes.servers, sink=sizes.sink, stack=self._stack)
                await rounds.run_round(system, max(sizes.rates), sizes.seconds, sizes.flat_events, BATCH)
        self._receivers.close()
        self._outcome.fairness += [rounds.conclude() for rounds in found.values()]

    async def _start(self, name: str) -> list[_Run]:
        """Starts a system, warms it up and measures it without events."""
        self._say(f"starting {name}")
        sizes = self._sizes
        new = new_system(name, servers=sizes.servers, sink=sizes.sink, stack=self._stack)
        system = self._stack.enter_context(new)
        await system.subscribe(self._workload, self._receivers)
        load = Load(system, self._receivers, self._workload, lists_matches=system.lists_matches)
        await system.activate(system.modes[0])
        self._say(f"warming up {name}")
        for phase in (
            await load.flat_out(self._rng, WARM_EVENTS, WARM_EVENTS // 4),
            await load.calm(self._rng, 20, 1),
        ):
            if phase.missing or phase.surplus:
                raise RuntimeError(f"{name}: {phase.missing} matches are missing, {phase.surplus} surplus")
        self._say(f"{name}, idle")
        meter = Meter(system.roles())
        await asyncio.sleep(self._sizes.idle_seconds)
        usage = meter.stop()
        system.pause()
        idle = {role: cpu / usage.seconds for role, cpu in usage.cpu.items()}
        self._idle |= dict.fromkeys(system.modes, idle)
        return [_Run(mode, system, load) for mode in system.modes]

    def _start_floor(self) -> Floor:
        points = draw_points(self._rng, min(FLOOR_EVENTS, self._sizes.flat_events))
        return self._stack.enter_context(running_floor(self._workload, self._receivers, points))

    async def _round(self, number: int, runs: Sequence[_Run], floor: Floor | None) -> None:
        sizes = self._sizes
        steps: list[tuple[str, Callable[[Load], Awaitable[Phase]]]] = [
            (_load(rate), partial(Load.calm, rng=self._rng, rate=rate, seconds=sizes.seconds))
            for rate in sizes.rates
        ]
        steps.append((FLAT_OUT, partial(Load.flat_out, rng=self._rng, events=sizes.flat_events, batch=BATCH)))
        for what, step in steps:
            for one in runs:
                self._say(f"round {number} of {sizes.rounds}: {one.mode}, {what}")
                await one.system.activate(one.mode)
                phase = await step(one.load)
                self._phases.setdefault((one.mode, what), []).append(phase)
                if self._addresses == 1 and what != FLAT_OUT and isinstance(one.system, Network):
                    self._timelines.setdefault(what, []).extend(await one.system.timeline(phase.trail))
                one.system.pause()
        if floor is not None:
            runs_of_floor = [(name, 0.0) for name in VARIANTS] + [("both", rate) for rate in sizes.rates]
            for variant, rate in runs_of_floor:
                self._say(f"round {number} of {sizes.rounds}: floor, {variant}, {_load(rate)}")
                await self._receivers.take()
                ran = await asyncio.to_thread(floor.run, variant, rate, sizes.seconds)
                if (await self._receivers.counters()).posts != ran.posts:
                    raise RuntimeError("POSTs of the floor are missing or surplus")
                measured = (ran.cpu_seconds / ran.posts * 1e6, ran.posts / ran.seconds)
                self._floor.setdefault((variant, rate), []).append(measured)

    def _conclude(self) -> None:
        for (mode, load), phases in self._phases.items():
            self._outcome.costs.append(Cost.of(mode, load, self._addresses, phases, self._idle[mode]))
        self._outcome.timelines += [Timeline.of(load, steps) for load, steps in self._timelines.items()]
        for (variant, rate), runs in self._floor.items():
            cpu, posts = (median(column) for column in zip(*runs, strict=True))
            self._outcome.floor.append(FloorCost(self._addresses, variant, _load(rate), cpu, posts))

    def _say(self, what: str) -> None:
        self._progress.say(f"{self._addresses:,} addresses: {what}")
