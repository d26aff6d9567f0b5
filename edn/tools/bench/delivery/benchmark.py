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
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import Any

import numpy as np
import uvloop

from edn.errors import InvalidInput
from edn.tools.bench.delivery import report
from edn.tools.bench.delivery.floor import VARIANTS, Floor, running_floor
from edn.tools.bench.delivery.load import Load, Phase, Receivers, Target
from edn.tools.bench.delivery.network import SINKS, Network
from edn.tools.bench.delivery.program import program
from edn.tools.bench.delivery.results import Cost, FloorCost, Outcome
from edn.tools.bench.delivery.usage import Meter, raise_descriptor_limit
from edn.tools.bench.delivery.workload import Workload, draw_points
from edn.tools.bench.report import Progress

SYSTEMS = ("edn", "floor")
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
    idle_seconds: float = 5.0,
    progress: Progress,
    **sizes: Any,
) -> Outcome:
    for one in systems:
        if one not in SYSTEMS:
            raise InvalidInput(f"--systems must be some of {', '.join(SYSTEMS)}, got {one}")
    if sink not in SINKS:
        raise InvalidInput(f"--sink must be one of {', '.join(SINKS)}, got {sink}")
    chosen = Sizes(
        addresses=addresses, systems=systems, rates=rates, sink=sink, idle_seconds=idle_seconds, **sizes
    )
    limit = raise_descriptor_limit()
    outcome = Outcome(sink=sink, rounds=chosen.rounds)
    for count in addresses:
        # Each server and worker may have a connection per address.
        receivers = -(-2 * count // max(1, limit - SPARE_DESCRIPTORS))
        with ExitStack() as stack:
            programs = [
                stack.enter_context(program("edn.tools.bench.delivery.receiver"))[1] for _ in range(receivers)
            ]
            bench = _Bench(chosen, count, [one["port"] for one in programs], outcome, stack, progress)
            uvloop.run(bench.run())
    return outcome


@dataclass(slots=True)
class _Turns:
    """The measurements of one system with one load, round by round."""

    phases: list[Phase] = field(default_factory=list)


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
        # A stream is an address of its own, so it has one subscription.
        subscriptions = addresses if sizes.sink == "sse" else sizes.subscriptions
        self._workload = Workload.draw(self._rng, subscriptions, addresses, MATCHES)
        self._turns: dict[tuple[str, str], _Turns] = {}
        self._floor: dict[str, list[tuple[float, float]]] = {variant: [] for variant in VARIANTS}
        self._idle: dict[str, dict[str, float]] = {}

    async def run(self) -> None:
        await self._receivers.connect()
        loads: dict[str, Load] = {}
        targets: dict[str, Target] = {}
        if "edn" in self._sizes.systems:
            self._say("starting the network")
            network = self._stack.enter_context(Network(self._sizes.servers, self._sizes.sink))
            await network.subscribe(self._workload, self._receivers)
            targets["edn"] = network
            loads["edn"] = Load(network, self._receivers, self._workload, lists_matches=network.lists_matches)
        floor = self._start_floor() if "floor" in self._sizes.systems else None
        for name, load in loads.items():
            self._say(f"warming up {name}")
            await load.flat_out(self._rng, WARM_EVENTS, WARM_EVENTS // 4)
            await load.calm(self._rng, 20, 1)
        for name, target in targets.items():
            self._say(f"{name}, idle")
            meter = Meter(target.roles())
            await asyncio.sleep(self._sizes.idle_seconds)
            usage = meter.stop()
            self._idle[name] = {role: cpu / usage.seconds for role, cpu in usage.cpu.items()}
        for number in range(1, self._sizes.rounds + 1):
            await self._round(number, loads, floor)
        self._receivers.close()
        self._conclude()

    def _start_floor(self) -> Floor:
        points = draw_points(self._rng, min(FLOOR_EVENTS, self._sizes.flat_events))
        return self._stack.enter_context(running_floor(self._workload, self._receivers, points))

    async def _round(self, number: int, loads: dict[str, Load], floor: Floor | None) -> None:
        sizes = self._sizes
        steps: list[tuple[str, Callable[[Load], Awaitable[Phase]]]] = [
            (f"calm {rate:g}/s", partial(Load.calm, rng=self._rng, rate=rate, seconds=sizes.seconds))
            for rate in sizes.rates
        ]
        steps.append(
            ("flat out", partial(Load.flat_out, rng=self._rng, events=sizes.flat_events, batch=BATCH))
        )
        for what, step in steps:
            for name, load in loads.items():
                self._say(f"round {number} of {sizes.rounds}: {name}, {what}")
                phase = await step(load)
                self._turns.setdefault((name, what), _Turns()).phases.append(phase)
        for variant in VARIANTS if floor is not None else ():
            assert floor is not None
            self._say(f"round {number} of {sizes.rounds}: floor, {variant}")
            ran = await asyncio.to_thread(floor.run, variant)
            self._floor[variant].append((ran.cpu_seconds / ran.posts * 1e6, ran.posts / ran.seconds))

    def _conclude(self) -> None:
        for (system, load), turns in self._turns.items():
            self._outcome.costs.append(
                Cost.of(system, load, self._addresses, turns.phases, self._idle[system])
            )
        for variant, runs in self._floor.items():
            if runs:
                cpu, rate = (median(column) for column in zip(*runs, strict=True))
                self._outcome.floor.append(FloorCost(self._addresses, variant, cpu, rate))

    def _say(self, what: str) -> None:
        self._progress.say(f"{self._addresses:,} addresses: {what}")
