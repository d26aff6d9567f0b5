"""Measures networks on both engines, in turn: publish to committed outboxes, and single events to the answer.

Both networks run all the time; each has the machine to itself in its turn, but for the other's heartbeats.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import median

import msgspec
import numpy as np
import psutil

from edn.tools.bench.database.engines import ENGINES, POSTGRESQL, database_of
from edn.tools.bench.database.replicated import Replicated
from edn.tools.bench.network import Running, cpu_seconds, filled, names_of, request_of, requests_of
from edn.tools.bench.plain import ask, connect, expect_accepted
from edn.tools.bench.publish import publish_all
from edn.tools.bench.report import Progress

BATCH = 100


@dataclass(frozen=True, slots=True)
class Published:
    """One engine: medians of the rounds; CPU in microseconds per event."""

    engine: str
    servers: int
    subscriptions: int
    dimensions: int
    events_per_second: float
    dispatcher_cpu_us: float
    servers_cpu_us: float
    primary_cpu_us: float
    standby_cpu_us: float
    #: milliseconds from a request with one event to its answer, one request at a time
    single_p50: float
    single_p99: float


def measure(
    database: Replicated,
    *,
    servers: int,
    subscriptions: int,
    dimensions: int,
    events: int,
    singles: int,
    rounds: int,
    seed: int,
    progress: Progress,
) -> list[Published]:
    """Runs `edn bench publish` on both engines; `events` and `singles` are per round."""
    found: dict[str, list[tuple[float, ...]]] = {engine: [] for engine in ENGINES}
    requests = requests_of(np.random.default_rng(seed), dimensions, BATCH)
    single = request_of(msgspec.json.encode(dict.fromkeys(names_of(dimensions), 0.5)))
    with ExitStack() as stack:
        networks = {
            engine: stack.enter_context(
                filled(
                    servers,
                    subscriptions,
                    dimensions,
                    np.random.default_rng(seed),
                    progress,
                    database=database_of(engine, database),
                    EDN_TUNING="fixed",
                )
            )
            for engine in ENGINES
        }
        for number in range(rounds + 1):
            for engine, running in networks.items():
                progress.say(f"publish: round {number} of {rounds}, {engine}")
                figures = _round(running, database if engine == POSTGRESQL else None, requests, events)
                latencies = asyncio.run(_publish_singles(running.url, single, singles))
                if number:  # the first one warms up
                    found[engine].append((*figures, *latencies))
    return [
        Published(
            engine,
            servers,
            subscriptions,
            dimensions,
            *(float(median(column)) for column in zip(*figures, strict=True)),
        )
        for engine, figures in found.items()
    ]


def _round(
    running: Running, database: Replicated | None, requests: list[bytes], events: int
) -> tuple[float, ...]:
    """Returns events per second, and the CPU of dispatcher, servers, primary and standby per event."""
    dispatcher, servers = running.roles()

    def spent() -> np.ndarray:
        return np.array([*_cpu([dispatcher], servers), *(_database_cpu(database))])

    before = spent()
    seconds = asyncio.run(publish_all(running.url, requests, events // BATCH, drain=True))
    return events / seconds, *(1e6 * (spent() - before) / events).tolist()


def _cpu(*roles: list[psutil.Process]) -> list[float]:
    return [cpu_seconds(processes) for processes in roles]


def _database_cpu(database: Replicated | None) -> list[float]:
    return [0.0, 0.0] if database is None else list(database.cpu_seconds().values())


async def _publish_singles(url: str, request: bytes, count: int) -> tuple[float, float]:
    """Publishes single events, one after the other; returns p50 and p99 in milliseconds."""
    reader, writer = await connect(url)
    durations = []
    for _ in range(count):
        began = time.perf_counter()
        expect_accepted(await ask(reader, writer, request))
        durations.append(time.perf_counter() - began)
    writer.close()
    p50, p99 = np.percentile(durations, (50, 99)) * 1000
    return float(p50), float(p99)
