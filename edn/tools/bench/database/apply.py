"""Measures one server alone: frames of a log, matched and committed to its outbox, one after the other.

As in `edn bench hosting` this program plays the dispatcher. Frames have 300 events of 300 bytes.
"""

from __future__ import annotations

import tempfile
import time
from asyncio.subprocess import Process
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import httpx
import numpy as np
import psutil

from edn.tools.bench import hosting
from edn.tools.bench.database.engines import ENGINES, database_of
from edn.tools.bench.database.replicated import Replicated
from edn.tools.bench.network import cpu_seconds
from edn.tools.bench.plain import listen
from edn.tools.bench.report import Progress

DIMENSIONS = 4
FRAME = 300
BODY = b'{"note": "' + b"x" * 288 + b'"}'


@dataclass(frozen=True, slots=True)
class Applied:
    """One engine: medians of the rounds."""

    engine: str
    subscriptions: int
    matches_per_event: float
    events_per_second: float
    server_cpu_us: float
    database_cpu_us: float


@dataclass(slots=True)
class _Server:
    process: Process
    client: httpx.AsyncClient
    cursor: int


async def measure(
    database: Replicated, subscriptions: int, frames: int, rounds: int, seed: int, progress: Progress
) -> list[Applied]:
    found: dict[str, list[tuple[float, ...]]] = {engine: [] for engine in ENGINES}
    async with AsyncExitStack() as stack:
        dispatcher, url = await listen(hosting.play_dispatcher)
        stack.callback(dispatcher.close)
        servers = {}
        for engine in ENGINES:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="edn-bench-")))
            (folder / "secret").write_text(hosting.SECRET)
            process, at = await hosting.start_server(folder, url, database=database_of(engine, database))
            stack.push_async_callback(hosting.stop_server, process)
            client = await stack.enter_async_context(hosting.connect(at))
            rng = np.random.default_rng(seed)
            await hosting.store(client, subscriptions, DIMENSIONS, rng, progress)
            servers[engine] = _Server(process, client, await hosting.activate(client, subscriptions))
        for number in range(rounds + 1):
            for engine, server in servers.items():
                progress.say(f"apply: round {number} of {rounds}, {engine}")
                rng = np.random.default_rng(seed + number)
                figures = await _round(server, database, frames, rng)
                if number:  # the first one warms up
                    found[engine].append(figures)
    return [
        Applied(engine, subscriptions, *(float(median(column)) for column in zip(*figures, strict=True)))
        for engine, figures in found.items()
    ]


async def _round(
    server: _Server, database: Replicated, frames: int, rng: np.random.Generator
) -> tuple[float, ...]:
    def spent() -> tuple[float, float]:
        return cpu_seconds([psutil.Process(server.process.pid)]), sum(database.cpu_seconds().values())

    before, began = spent(), time.perf_counter()
    events = frames * FRAME
    server.cursor, matched = await hosting.match(
        server.client, server.cursor, events, DIMENSIONS, rng, frame=FRAME, body=BODY
    )
    seconds = time.perf_counter() - began
    own, others = (1e6 * (late - early) / events for late, early in zip(spent(), before, strict=True))
    return matched / events, events / seconds, own, others
