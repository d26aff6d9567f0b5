"""Records sizes and dead rows of the tables of a network that publishes and delivers for minutes.

Log and outbox delete as many rows as they insert. Their tables stay small if autovacuum keeps up; then the
space of deleted rows is used again, and a table is as large in the last third of the run as in the second.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field

import msgspec
import numpy as np
import psycopg
import uvloop

from edn.tools.bench.database.replicated import replicated
from edn.tools.bench.delivery.benchmark import draw_workload
from edn.tools.bench.delivery.load import Receivers
from edn.tools.bench.delivery.network import Network
from edn.tools.bench.delivery.program import program
from edn.tools.bench.delivery.workload import TOPIC, Workload, as_events, draw_points
from edn.tools.bench.plain import every, publish
from edn.tools.bench.report import Progress, print_table, to_json
from edn.tools.console import show_json

#: tables whose rows live for a moment; the sizes include indexes and large values
TABLES = (
    "log_records",
    "shard_events",
    "shard_outbox",
    "shard_batches",
    "leases",
    "shard_sequences",
    "shard_logs",
    "shard_tallies",
)
ADDRESSES, SUBSCRIPTIONS, SERVERS = 200, 2000, 2
BATCH = 10
#: growth that no table is blamed for, in bytes, and as a factor
SLACK_BYTES, SLACK = 8 << 20, 1.15


@dataclass(frozen=True, slots=True)
class Sample:
    seconds: float
    table: str
    bytes: int
    live: int
    dead: int
    vacuums: int


@dataclass(slots=True)
class Bloat:
    minutes: float
    events: int = 0
    notifications: int = 0
    samples: list[Sample] = field(default_factory=list)

    def of(self, table: str) -> list[Sample]:
        return [sample for sample in self.samples if sample.table == table]

    def growth(self, table: str) -> tuple[int, int]:
        """Returns the largest size in the second and in the last third of the run."""
        third = self.minutes * 60 / 3
        found = self.of(table)
        later = [one.bytes for one in found if one.seconds >= 2 * third]
        before = [one.bytes for one in found if third <= one.seconds < 2 * third]
        return max(before, default=0), max(later, default=0)

    def grown(self) -> list[str]:
        """Returns the tables that have grown."""
        pairs = {table: self.growth(table) for table in TABLES}
        return [table for table, (old, new) in pairs.items() if new > old * SLACK and new > old + SLACK_BYTES]


def right(bloat: Bloat) -> bool:
    return not bloat.grown()


def run(*, minutes: float, rate: float, interval: float, seed: int, progress: Progress) -> Bloat:
    bloat = Bloat(minutes)
    with ExitStack() as stack:
        _, receiver = stack.enter_context(program("edn.tools.bench.delivery.receiver"))
        database = stack.enter_context(replicated())
        network = stack.enter_context(Network(SERVERS, "webhook", replicated=database))
        rng = np.random.default_rng(seed)
        workload = draw_workload(rng, SUBSCRIPTIONS, ADDRESSES, "webhook")
        soak = _Soak(bloat, network, Receivers([receiver["port"]]), database.url(1), progress)
        uvloop.run(soak.run(workload, rng, rate, interval))
    return bloat


class _Soak:
    def __init__(
        self, bloat: Bloat, network: Network, receivers: Receivers, database: str, progress: Progress
    ) -> None:
        self._bloat = bloat
        self._network = network
        self._receivers = receivers
        self._database = database
        self._progress = progress

    async def run(self, workload: Workload, rng: np.random.Generator, rate: float, interval: float) -> None:
        await self._receivers.connect()
        await self._network.subscribe(workload, self._receivers)
        watch = asyncio.create_task(self._watch(interval))
        bodies = [msgspec.json.encode(as_events(draw_points(rng, BATCH))) for _ in range(100)]
        head = f"POST /v1/topics/{TOPIC}/events HTTP/1.1\r\nhost: localhost\r\n".encode()
        kind = b"content-type: application/json\r\n"
        requests = [b"%b%bcontent-length: %d\r\n\r\n%b" % (head, kind, len(body), body) for body in bodies]
        schedule = every(BATCH / rate, 60 * self._bloat.minutes)
        self._bloat.events = BATCH * await publish(self._network.url, requests, schedule, 1)
        watch.cancel()
        with suppress(asyncio.CancelledError):
            await watch
        self._receivers.close()

    async def _watch(self, interval: float) -> None:
        began = time.monotonic()
        while True:
            seconds = time.monotonic() - began
            self._bloat.samples += await asyncio.to_thread(self._sample, seconds)
            # Taken, so that the receiver does not keep them.
            self._bloat.notifications += sum(len(one.ids) for one in await self._receivers.take())
            self._progress.say(f"{seconds / 60:.1f} of {self._bloat.minutes:g} minutes")
            await asyncio.sleep(interval)

    def _sample(self, seconds: float) -> list[Sample]:
        with psycopg.connect(self._database) as session:
            rows = session.execute(
                "SELECT relname, pg_total_relation_size(relid), n_live_tup, n_dead_tup, autovacuum_count"
                " FROM pg_stat_user_tables WHERE schemaname = 'edn' AND relname = ANY(%s)",
                (list(TABLES),),
            ).fetchall()
        return [Sample(seconds, *row) for row in rows]


def show(bloat: Bloat, *, as_json: bool) -> None:
    if as_json:
        show_json({**to_json(bloat), "grown": bloat.grown()})
        return
    lines = []
    for table in TABLES:
        found, (old, new) = bloat.of(table), bloat.growth(table)
        lines.append(
            (
                table,
                f"{max(one.live for one in found):,}",
                f"{max(one.dead for one in found):,}",
                f"{found[-1].vacuums}",
                f"{old / 1e6:.1f}",
                f"{new / 1e6:.1f}",
                "grown" if table in bloat.grown() else "steady",
            )
        )
    title = (
        f"{bloat.minutes:g} minutes, {bloat.events:,} events, {bloat.notifications:,} notifications,"
        " greatest values"
    )
    columns = ("table", "rows", "dead rows", "vacuums", "MB, second third", "MB, last third", "")
    print_table(title, columns, lines)
