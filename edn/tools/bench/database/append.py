"""Measures the dispatcher's log alone: transactions of one record with 100 events, one after the other."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from edn.tools.bench.database.engines import ENGINES, POSTGRESQL
from edn.tools.bench.database.replicated import Replicated
from edn.tools.bench.delivery.program import program
from edn.tools.bench.report import Progress

EVENTS = 100


@dataclass(frozen=True, slots=True)
class Appended:
    """One engine and size of records: medians of the rounds."""

    engine: str
    #: bytes of events per commit
    size: int
    mb_per_second: float
    p50: float
    p99: float


def measure(
    database: Replicated, sizes: Sequence[int], commits: int, rounds: int, progress: Progress
) -> list[Appended]:
    found: dict[tuple[str, int], list[tuple[float, float, float]]] = {}
    with ExitStack() as stack:
        logs = {}
        for engine in ENGINES:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="edn-bench-"))
            place = database.new_database() if engine == POSTGRESQL else folder
            logs[engine], _ = stack.enter_context(program("dispatcher.append_rate", [place]))
        for number in range(rounds + 1):
            for size in sizes:
                for engine, log in logs.items():
                    progress.say(f"append: round {number} of {rounds}, {size:,} bytes, {engine}")
                    asked = {"commits": commits, "events": EVENTS, "bytes": size // EVENTS}
                    ran = _ask(log, asked)
                    if number:  # the first one warms up
                        p50, p99 = np.percentile(ran["seconds"], (50, 99)) * 1000
                        rate = ran["bytes"] / sum(ran["seconds"]) / 1e6
                        found.setdefault((engine, size), []).append((rate, p50, p99))
    return [
        Appended(engine, size, *(float(median(column)) for column in zip(*figures, strict=True)))
        for (engine, size), figures in found.items()
    ]


def _ask(log: Any, asked: dict[str, int]) -> dict[str, Any]:
    log.stdin.write(json.dumps(asked).encode() + b"\n")
    log.stdin.flush()
    answer: dict[str, Any] = json.loads(log.stdout.readline())
    return answer
