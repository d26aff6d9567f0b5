"""Measures one, two and four dispatchers on one database: CPU per event of each process.

All networks get the same events at the same rate in requests of 100 events, one request at a time per
dispatcher: so a transaction of a log has 100 events, however many dispatchers there are. The cost of a
network without events, which grows with its processes, is measured before and reported beside.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

import numpy as np
import psycopg

from edn.client import Client
from edn.tools.bench.database.replicated import Replicated
from edn.tools.bench.network import Running, cpu_seconds, fill, network, requests_of, summarised
from edn.tools.bench.plain import publish
from edn.tools.bench.publish import wait_for_servers
from edn.tools.bench.report import Progress
from edn.tools.bench.workloads import uniform_rectangles

BATCH = 100
DIMENSIONS = 4


class Spent(NamedTuple):
    """CPU by role; of all dispatchers and of all servers together."""

    dispatchers: float
    servers: float
    primary: float
    standby: float

    def per(self, amount: float) -> Spent:
        return Spent(*(one / amount for one in self))

    def since(self, before: Spent) -> Spent:
        return Spent(*(late - early for late, early in zip(self, before, strict=True)))


@dataclass(frozen=True, slots=True)
class Several:
    """One number of dispatchers: medians of the rounds."""

    dispatchers: int
    servers: int
    events_per_second: float
    #: events per transaction of a log, and transactions of the database per 100 events
    batch: float
    transactions: float
    #: bytes per event that the primary writes ahead, and sends to the standby
    wal_bytes: float
    #: microseconds per event
    cpu_us: Spent
    #: cores without events
    idle: Spent

    @property
    def total_us(self) -> float:
        return sum(self.cpu_us)

    @property
    def net_us(self) -> float:
        """CPU per event without the part that the network costs without events."""
        return self.total_us - 1e6 * sum(self.idle) / self.events_per_second


def measure(
    database: Replicated,
    counts: Sequence[int],
    *,
    servers: int,
    subscriptions: int,
    rate: float,
    seconds: float,
    rounds: int,
    seed: int,
    progress: Progress,
) -> list[Several]:
    """`rate`: events per second of the whole network."""
    found = []
    for count in counts:
        progress.say(f"starting {count} dispatchers")
        url = database.new_database()
        flags = ["--dispatchers", str(count)]
        with network(servers, flags, database=url, EDN_TUNING="fixed") as running:
            rng = np.random.default_rng(seed)
            with Client(running.url.split(",")) as client:
                fill(client, *uniform_rectangles(rng, servers * subscriptions, DIMENSIONS), progress)
            for one in running.url.split(","):
                summarised(one)
            meter = _Meter(running, database, url)
            asyncio.run(_publish(running, rng, rate, min(2.0, seconds)))  # warms up
            progress.say(f"{count} dispatchers, idle")
            idle = meter.idle(seconds)
            figures = []
            for number in range(1, rounds + 1):
                progress.say(f"{count} dispatchers, round {number} of {rounds}")
                figures.append(meter.round(rng, rate, seconds))
            reached, batch, transactions, wal, *spent = (
                float(median(column)) for column in zip(*figures, strict=True)
            )
            found.append(Several(count, servers, reached, batch, transactions, wal, Spent(*spent), idle))
    return found


class _Meter:
    def __init__(self, running: Running, database: Replicated, url: str) -> None:
        self._running = running
        self._database = database
        self._url = url
        self._dispatchers = running.processes("dispatcher")
        self._servers = running.processes("edn_server")

    def spent(self) -> Spent:
        return Spent(
            cpu_seconds(self._dispatchers),
            cpu_seconds(self._servers),
            *self._database.cpu_seconds().values(),
        )

    def idle(self, seconds: float) -> Spent:
        """Returns the cores that the network uses without events."""
        before = self.spent()
        time.sleep(seconds)
        return self.spent().since(before).per(seconds)

    def round(self, rng: np.random.Generator, rate: float, seconds: float) -> tuple[float, ...]:
        before_all, before_logs, before_wal = self._counters()
        before, began = self.spent(), time.perf_counter()
        events = asyncio.run(_publish(self._running, rng, rate, seconds))
        took = time.perf_counter() - began
        spent = self.spent().since(before).per(events / 1e6)
        commits, logs, wal = self._counters()
        return (
            events / took,
            events / max(1, logs - before_logs),
            100 * (commits - before_all) / events,
            (wal - before_wal) / events,
            *spent,
        )

    def _counters(self) -> tuple[int, int, int]:
        """Returns the commits of all owners, those of the logs, and the position of the write-ahead log."""
        with psycopg.connect(self._url) as session:
            rows = session.execute(b"SELECT name, commits FROM edn.leases").fetchall()
            [(wal,)] = session.execute(b"SELECT (pg_current_wal_lsn() - '0/0')::bigint").fetchall()
        logs = sum(int(commits) for name, commits in rows if name.startswith("log:"))
        return sum(int(commits) for _, commits in rows), logs, int(wal)


async def _publish(running: Running, rng: np.random.Generator, rate: float, seconds: float) -> int:
    """Publishes at a rate, in turn to all dispatchers, until the servers have all; returns the events."""
    urls = running.url.split(",")
    requests = requests_of(rng, DIMENSIONS, BATCH)
    each = max(1, round(rate * seconds / BATCH / len(urls)))
    interval = BATCH * len(urls) / rate

    def due(place: int) -> Iterator[float]:
        began = time.perf_counter() + place * interval / len(urls)
        return itertools.islice((began + number * interval for number in itertools.count()), each)

    counts = await asyncio.gather(*(publish(url, requests, due(place), 1) for place, url in enumerate(urls)))
    for url in urls:
        await asyncio.to_thread(wait_for_servers, url)
    return sum(counts) * BATCH
