"""`python -m load`: runs a network, a receiver and Locust, headless; results as CSV, HTML and JSON."""

from __future__ import annotations

import argparse
import asyncio
import csv
import json
import os
import sys
import time
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

import httpx
import numpy as np

from edn import AsyncClient, NewSubscription
from edn.client.receiver import Notification, Receiver
from edn.tools.bench.histogram import percentile
from edn.tools.bench.network import network
from edn.tools.bench.report import machine, print_rows
from load import report
from load.market import ATTRIBUTES, BATCH, TOPIC, filters
from load.plan import SHAPES, Phase, phases
from load.plan import write as write_plan
from load.timeline import Moment, Timeline, since

#: lag of a server in records from which on publishers are held
LAG_LIMIT = 20_000
#: columns of Locust's statistics
_STATS = {
    "count": ("Request Count", int),
    "failures": ("Failure Count", int),
    "per_second": ("Requests/s", float),
    "median_ms": ("50%", float),
    "p95_ms": ("95%", float),
    "p99_ms": ("99%", float),
}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m load", description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--shape", choices=SHAPES, default="all", help="what changes during the run")
    parser.add_argument("--seconds", type=int, default=180, help="length of the run")
    parser.add_argument("--users", type=int, default=14, help="initial number of Locust users")
    parser.add_argument("--servers", type=int, default=3, help="servers of the network")
    parser.add_argument("--subscriptions", type=int, default=2000, help="initial number of subscriptions")
    parser.add_argument("--narrow", type=float, default=300_000, help="bytes per second of a narrow link")
    parser.add_argument("--seed", type=int, default=1, help="seed of the subscriptions")
    parser.add_argument("--results", type=Path, default=Path("load-results"), help="folder of the results")
    return parser.parse_args()


async def _drain(receiver: Receiver, client: AsyncClient) -> None:
    """Waits at most a minute until no server has a lag or a backlog, and no notification arrives."""
    deadline = time.monotonic() + 60.0
    while time.monotonic() < deadline:
        before = receiver.counters.notifications
        if not await _undelivered(client):
            await asyncio.sleep(1.5)
            if receiver.counters.notifications == before:
                return
        await asyncio.sleep(0.2)


async def _undelivered(client: AsyncClient) -> int:
    return sum((server.lag or 0) + (server.backlog or 0) for server in await client.servers())


@dataclass(slots=True)
class Arrivals:
    """Times from events to their notifications."""

    milliseconds: list[float] = field(default_factory=list)

    async def take(self, notification: Notification) -> None:
        if len(self.milliseconds) < 1_000_000 and notification.event.time is not None:
            then = datetime.fromisoformat(str(notification.event.time))
            self.milliseconds.append((datetime.now(UTC) - then).total_seconds() * 1000)

    def percentiles(self) -> dict[str, float]:
        return {f"p{at}": round(percentile(self.milliseconds or [0.0], at), 1) for at in (50, 95, 99)}


async def _measure(
    arguments: argparse.Namespace, url: str, log: BinaryIO
) -> tuple[int, dict[str, Any], list[Moment]]:
    """Returns Locust's exit code, the figures of delivery, and the timeline."""
    arrivals = Arrivals()
    async with Receiver(arrivals.take) as receiver, AsyncClient(url) as client:
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
        # A narrow link would delay the rest.
        async with httpx.AsyncClient(base_url=url, trust_env=False) as http:
            (await http.put("/v1/link", json={})).raise_for_status()
        await _drain(receiver, client)
        if not (arguments.results / "began").exists():
            raise SystemExit(f"Locust did not start; see {log.name}")
        began = float((arguments.results / "began").read_text())
        figures = {
            "notifications": receiver.counters.notifications,
            "repeated_posts": receiver.counters.repeats,
            "undelivered": await _undelivered(client),
            "delivery_ms": arrivals.percentiles(),
        }
        return code, figures, since(timeline.moments, began)


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
        network(arguments.servers, EDN_LAG_LIMIT=str(LAG_LIMIT), EDN_TUNING_SECONDS="3") as running,
        (results / "locust.log").open("wb") as log,
    ):
        shown = ", ".join(phase.name for phase in plan)
        print(f"network at {running.url}; {shown}: {arguments.seconds} s", file=sys.stderr)
        code, figures, moments = asyncio.run(_measure(arguments, running.url, log))
    summary = _summarise(arguments, plan, figures, moments)
    (results / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    report.write(summary, plan, moments, results / "report.html")
    _print(summary, results)
    return code


def _summarise(
    arguments: argparse.Namespace, plan: list[Phase], figures: dict[str, Any], moments: list[Moment]
) -> dict[str, Any]:
    requests = _read_stats(arguments.results / "load_stats.csv")
    rates = {row["request"]: row["per_second"] * (1 - row["failures"] / row["count"]) for row in requests}
    sizes = ("shape", "seconds", "users", "servers", "subscriptions")
    return {
        "machine": machine(),
        **{name: getattr(arguments, name) for name in sizes},
        "events_per_second": sum(
            rate * (BATCH if name == f"publish {BATCH}" else 1)
            for name, rate in rates.items()
            if name.startswith("publish ")
        ),
        **figures,
        "failures": sum(row["failures"] for row in requests),
        "phases": report.by_phase(plan, moments),
        "requests": requests,
        "timeline": [asdict(moment) for moment in moments],
    }


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
            {"request": row["Name"], **{name: kind(row[column]) for name, (column, kind) in _STATS.items()}}
            for row in csv.DictReader(file)
            if row["Name"] != "Aggregated" and int(row["Request Count"])
        ]


def _print(summary: dict[str, Any], results: Path) -> None:
    print_rows("Phases", report.PHASES, summary["phases"])
    print_rows("Requests", report.REQUESTS, summary["requests"])
    delivery = summary["delivery_ms"]
    print(
        f"{summary['events_per_second']:,.0f} events/s accepted; {summary['notifications']:,} notifications "
        f"arrived, {summary['repeated_posts']} POSTs twice, {delivery['p50']:g} ms after their event (99 %: "
        f"{delivery['p99']:g} ms). Report: {results}/report.html"
    )


if __name__ == "__main__":
    sys.exit(main())
