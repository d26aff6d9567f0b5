"""`python -m load`: a network, a receiver and Locust, headless; results as CSV, HTML and JSON."""

from __future__ import annotations

import argparse
import asyncio
import csv
import json
import os
import platform
import random
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, BinaryIO

from edn import AsyncClient, NewSubscription
from edn.client import Server
from edn.receiver import Receiver
from load.market import ATTRIBUTES, BATCH, TOPIC, random_filter


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m load", description=__doc__)
    parser.add_argument("--seconds", type=int, default=60, help="how long (default: %(default)s)")
    parser.add_argument("--users", type=int, default=14, help="Locust users at once (default: %(default)s)")
    parser.add_argument(
        "--servers", type=int, default=3, help="servers of the network (default: %(default)s)"
    )
    parser.add_argument(
        "--subscriptions", type=int, default=2000, help="there from the beginning (default: %(default)s)"
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


async def _measure(
    arguments: argparse.Namespace, folder: Path, log: BinaryIO
) -> tuple[int, Receiver, list[Server]]:
    """Locust's exit code, the receiver with its counters, the servers as they were at the end."""
    async with (
        _network(folder, arguments.servers) as url,
        Receiver(lambda _: None) as receiver,
        AsyncClient(url) as client,
    ):
        print(f"network at {url}; {arguments.users} users for {arguments.seconds} s", file=sys.stderr)
        await client.create_topic(TOPIC, ATTRIBUTES)
        dice = random.Random(arguments.seed)
        await client.subscribe_many(
            NewSubscription(topic=TOPIC, filter=random_filter(dice), url=receiver.url)
            for _ in range(arguments.subscriptions)
        )
        code = await _locust(arguments, url, receiver.url, log)
        await _settled(receiver, client)
        return code, receiver, await client.servers()


def main() -> int:
    arguments = _arguments()
    results: Path = arguments.results
    results.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="edn-load-") as folder,
        (results / "locust.log").open("wb") as log,
    ):
        code, receiver, servers = asyncio.run(_measure(arguments, Path(folder), log))
    requests = _read_stats(results / "load_stats.csv")
    rates = {row["request"]: row["per_second"] * (1 - row["failures"] / row["count"]) for row in requests}
    summary = {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "seconds": arguments.seconds,
        "users": arguments.users,
        "servers": arguments.servers,
        "subscriptions": arguments.subscriptions,
        "events_per_second": rates.get("publish 1", 0.0) + BATCH * rates.get(f"publish {BATCH}", 0.0),
        "notifications": receiver.counters.notifications,
        "repeated_posts": receiver.counters.repeats,
        "undelivered": sum((server.lag or 0) + (server.backlog or 0) for server in servers),
        "hit_ratio": [server.hit_ratio for server in servers],
        "requests": requests,
    }
    (results / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    _print(summary, results)
    return code


async def _locust(arguments: argparse.Namespace, url: str, sink: str, log: BinaryIO) -> int:
    results: Path = arguments.results
    options = {
        "--locustfile": str(Path(__file__).with_name("users.py")),
        "--host": url,
        "--users": str(arguments.users),
        "--spawn-rate": str(max(1, arguments.users)),
        "--run-time": f"{arguments.seconds}s",
        "--csv": str(results / "load"),
        "--html": str(results / "load.html"),
        "--loglevel": "WARNING",
    }
    words = [word for option in options.items() for word in option]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "locust", "--headless", "--only-summary", *words),
        env={**os.environ, "EDN_LOAD_SINK": sink, "PYTHONPATH": str(Path(__file__).parents[1])},
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
                "p99_ms": float(row["99%"]),
            }
            for row in csv.DictReader(file)
            if row["Name"] != "Aggregated" and int(row["Request Count"])
        ]


def _print(summary: dict[str, Any], results: Path) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("request", box=None)
    for heading in ("count", "failures", "a second", "median ms", "99 % ms"):
        table.add_column(heading, justify="right")
    for row in summary["requests"]:
        table.add_row(
            row["request"],
            f"{row['count']:,}",
            f"{row['failures']:,}",
            f"{row['per_second']:,.0f}",
            f"{row['median_ms']:g}",
            f"{row['p99_ms']:g}",
        )
    console = Console()
    console.print(table)
    console.print(
        f"{summary['events_per_second']:,.0f} events/s accepted; {summary['notifications']:,} notifications "
        f"arrived, {summary['repeated_posts']} POSTs twice. {summary['machine']}. Details: {results}/"
    )


if __name__ == "__main__":
    sys.exit(main())
