"""Samples the memory, descriptors, threads and database files of processes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil

FIGURES = ("rss", "descriptors", "threads", "files")


@dataclass(slots=True)
class Samples:
    """What one process used, sample by sample."""

    pid: int
    #: its data folder
    data: Path
    times: list[float] = field(default_factory=list)
    figures: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in FIGURES})

    def take(self, now: float) -> None:
        """Adds a sample; raises `psutil.NoSuchProcess` if the process has ended."""
        process = psutil.Process(self.pid)
        with process.oneshot():
            taken = {
                "rss": process.memory_info().rss,
                "descriptors": process.num_fds(),
                "threads": process.num_threads(),
                "files": database_bytes(self.data),
            }
        self.times.append(now)
        for name, value in taken.items():
            self.figures[name].append(float(value))


def database_bytes(folder: Path) -> int:
    """Bytes of the databases and their write-ahead logs; the audit, a log of bounded size, is left out."""
    found = 0
    for path in folder.rglob("*"):
        if ".db" in path.name:
            try:
                found += path.stat().st_size
            except FileNotFoundError:  # removed meanwhile
                pass
    return found


async def sample(samples: Mapping[str, Samples], ending: asyncio.Event, every: float) -> None:
    """Takes samples of all until the end."""
    began = time.monotonic()
    while not ending.is_set():
        for one in samples.values():
            one.take(time.monotonic() - began)
        try:
            async with asyncio.timeout(every):
                await ending.wait()
        except TimeoutError:
            pass
