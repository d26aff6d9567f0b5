"""`python -m load`: a network, a receiver and Locust, headless; results as CSV, HTML and JSON."""

from __future__ import annotations

import argparse
import asyncio
import csv
import json
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

import httpx
import numpy as np

from edn import AsyncClient, NewSubscription
from edn.client import Server
from edn.receiver import Notification, Receiver
from edn.tools.bench.report import fill, machine
from load import report
from load.market import ATTRIBUTES, BATCH, TOPIC, filters
from load.plan import SHAPES, Phase, phases
from load.plan import write as write_plan
from load.timeline import Moment, Timeline, since

#: records that a server may be behind before publishers are held
LAG_LIMIT = 20_000


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m load", description=__doc__)
    parser.add_argument("--shape", choices=SHAPES, default="all", help="what changes (default: %(default)s)")
    parser.add_argument("--seconds", type=int, default=180, help="how long (default: %(default)s)")
    parser.add_argument("--users", type=int, default=14, help="Locust users at first (default: %(default)s)")
    parser.add_argument(
        "--servers", type=int, default=3, help="servers of the network (default: %(default)s)"
    )
    parser.add_argument(
        "--subscriptions", type=int, default=2000, help="there from the beginning (default: %(default)s)"
    )
    parser.add_argument(
        "--narrow", type=float, default=300_000, help="bytes a second of a narrow link (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=1, help="of those subscriptions (default: %(default)s)")
    parser.add_argument("--results", type=Path, default=Path("load-results"), help="folder of the results")
    return parser.parse_args()


@asynccontextmanager
async def _network(folder: Path, servers: int) -> AsyncIterator[str]:
    """A network of its own on free ports; it ends with this program, however that ends."""
    command = ["up", "--port", "0", "--servers", str(servers), "--data", str(folder), "--json-ready"]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "edn.cli", *command, "--with-stdin"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "EDN_LAG_LIMIT": str(LAG_LIMIT), "EDN_TUNING_SECONDS": "3"},
    )
    assert process.stdout is not None
    try:
        line = await process.stdout.readline()
        if not line:
            raise SystemExit("the network did not start")
        yield json.loads(line)["url"]
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def _settled(receiver: Receiver, client: AsyncClient) -> None:
    """Wait until the servers have caught up with the log and delivered what they hold, a minute at most."""
    deadline = time.monotonic() + 60.0
    while time.monotonic() < deadline:
        before = receiver.counters.notifications
        servers = await client.servers()
        if not any((server.lag or 0) + (server.backlog or 0) for server in servers):
            await asyncio.sleep(1.5)
            if receiver.counters.notifications == before:
                return
        await asyncio.sleep(0.2)


@dataclass(slots=True)
class Arrivals:
    """Notifications as they come, and how long after their event."""

    milliseconds: list[float] = field(default_factory=list)

    def take(self, notification: Notification) -> None:
        if len(self.milliseconds) < 1_000_000 and notification.event.time is not None:
            then = datetime.fromisoformat(str(notification.event.time))
            self.milliseconds.append((datetime.now(UTC) - then).total_seconds() * 1000)

    def percentiles(self) -> dict[str, float]:
        if not self.milliseconds:
            return {"p50": 0.0, "p95": 0.0, "p99": 0.0}
        ordered = sorted(self.milliseconds)
        return {f"p{at}": round(ordered[len(ordered) * at // 100], 1) for at in (50, 95, 99)}


@dataclass(frozen=True, slots=True)
class Measured:
    code: int
    receiver: Receiver
    arrivals: Arrivals
    servers: list[Server]
    moments: list[Moment]


async def _measure(arguments: argparse.Namespace, plan: list[Phase], folder: Path, log: BinaryIO) -> Measured:
    arrivals = Arrivals()
    async with (
        _network(folder, arguments.servers) as url,
        Receiver(arrivals.take) as receiver,
        AsyncClient(url) as client,
    ):
        print(
            f"network at {url}; {', '.join(phase.name for phase in plan)}: {arguments.seconds} s",
            file=sys.stderr,
        )
        await client.create_topic(TOPIC, ATTRIBUTES)
        wanted = filters(np.random.default_rng(arguments.seed), arguments.subscriptions)
        await client.subscribe_many(
            NewSubscription(topic=TOPIC, filter=one, url=receiver.url) for one in wanted
        )
        timeline = Timeline(url)
        watching = asyncio.create_task(timeline.run())
        code = await _locust(arguments, url, receiver.url, log)
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        # What waits behind a narrow link shall not take its time now.
        async with httpx.AsyncClient(base_url=url, trust_env=False) as http:
            (await http.put("/v1/link", json={})).raise_for_status()
        await _settled(receiver, client)
        if not (arguments.results / "began").exists():
            raise SystemExit(f"Locust did not begin: {log.name} says why")
        began = float((arguments.results / "began").read_text())
        moments = since(timeline.moments, began)
        return Measured(code, receiver, arrivals, await client.servers(), moments)


def main() -> int:
    arguments = _arguments()
    results: Path = arguments.results
    results.mkdir(parents=True, exist_ok=True)
    plan = phases(
        arguments.shape,
        seconds=arguments.seconds,
        users=arguments.users,
        subscriptions=arguments.subscriptions,
        narrow=arguments.narrow,
    )
    write_plan(plan, results / "plan.json")
    (results / "began").unlink(missing_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="edn-load-") as folder,
        (results / "locust.log").open("wb") as log,
    ):
        measured = asyncio.run(_measure(arguments, plan, Path(folder), log))
    requests = _read_stats(results / "load_stats.csv")
    rates = {row["request"]: row["per_second"] * (1 - row["failures"] / row["count"]) for row in requests}
    summary = {
        "machine": machine(),
        "shape": arguments.shape,
        "seconds": arguments.seconds,
        "users": arguments.users,
        "servers": arguments.servers,
        "subscriptions": arguments.subscriptions,
        "events_per_second": sum(
            rate * (BATCH if name == f"publish {BATCH}" else 1)
            for name, rate in rates.items()
            if name.startswith("publish ")
        ),
        "notifications": measured.receiver.counters.notifications,
        "repeated_posts": measured.receiver.counters.repeats,
        "undelivered": sum((server.lag or 0) + (server.backlog or 0) for server in measured.servers),
        "delivery_ms": measured.arrivals.percentiles(),
        "failures": sum(row["failures"] for row in requests),
        "phases": report.by_phase(plan, measured.moments),
        "requests": requests,
        "timeline": [asdict(moment) for moment in measured.moments],
    }
    (results / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    report.write(summary, plan, measured.moments, results / "report.html")
    _print(summary, results)
    return measured.code


async def _locust(arguments: argparse.Namespace, url: str, sink: str, log: BinaryIO) -> int:
    results: Path = arguments.results
    options = {
        "--locustfile": str(Path(__file__).with_name("users.py")),
        "--host": url,
        "--csv": str(results / "load"),
        "--html": str(results / "load.html"),
        "--loglevel": "WARNING",
    }
    words = [word for option in options.items() for word in option]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "locust", "--headless", "--only-summary", *words),
        env={
            **os.environ,
            "EDN_LOAD_URL": url,
            "EDN_LOAD_SINK": sink,
            "EDN_LOAD_PLAN": str(results / "plan.json"),
            "EDN_LOAD_BEGAN": str(results / "began"),
            "EDN_LOAD_SEED": str(arguments.seed),
            "EDN_LOAD_LAG_LIMIT": str(LAG_LIMIT),
            "PYTHONPATH": str(Path(__file__).parents[1]),
        },
        stdout=log,
        stderr=log,
    )
    try:
        return await process.wait()
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()


def _read_stats(path: Path) -> list[dict[str, Any]]:
    with path.open(newline="") as file:
        return [
            {
                "request": row["Name"],
                "count": int(row["Request Count"]),
                "failures": int(row["Failure Count"]),
                "per_second": float(row["Requests/s"]),
                "median_ms": float(row["50%"]),
                "p95_ms": float(row["95%"]),
                "p99_ms": float(row["99%"]),
            }
            for row in csv.DictReader(file)
            if row["Name"] != "Aggregated" and int(row["Request Count"])
        ]


def _print(summary: dict[str, Any], results: Path) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(width=None if sys.stdout.isatty() else 140)
    for columns, rows in ((report.PHASES, summary["phases"]), (report.REQUESTS, summary["requests"])):
        table = Table(columns[0][0], box=None)
        for heading, _ in columns[1:]:
            table.add_column(heading, justify="right")
        for row in rows:
            table.add_row(*(fill(cell, row) for _, cell in columns))
        console.print(table)
    delivery = summary["delivery_ms"]
    console.print(
        f"{summary['events_per_second']:,.0f} events/s accepted; {summary['notifications']:,} notifications "
        f"arrived, {summary['repeated_posts']} POSTs twice, {delivery['p50']:g} ms after their event (99 %: "
        f"{delivery['p99']:g} ms). {summary['machine']}. The page for people: {results}/report.html"
    )


if __name__ == "__main__":
    sys.exit(main())
