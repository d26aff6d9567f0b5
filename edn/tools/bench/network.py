"""Networks under test: started as processes, filled with subscriptions, and sent events."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import msgspec
import numpy as np
import psutil

from edn.arrays import Floats
from edn.client import Client, NewSubscription
from edn.tools.bench.report import Progress
from edn.tools.bench.workloads import uniform_points, uniform_rectangles

#: nothing listens there, and the system says so at once
NOWHERE = "http://127.0.0.1:9"
TOPIC = "bench"
#: subscriptions of one request
STEP = 500


def bearer(url: str, key: str, timeout: float = 300) -> httpx.AsyncClient:
    """Returns a client that sends a key with each request."""
    return httpx.AsyncClient(base_url=url, timeout=timeout, headers={"authorization": f"Bearer {key}"})


class Running(NamedTuple):
    """A network under test."""

    url: str
    #: of `edn up`
    pid: int
    #: its data folder
    data: Path

    @property
    def secret(self) -> str:
        """The operator's key."""
        return (self.data / "secret").read_text().strip()

    async def key(self, tenant: str, quota: Mapping[str, int] | None = None) -> str:
        """Creates a key of a tenant, with all scopes."""
        scopes = ["publish", "subscribe", "admin"]
        body = {"name": tenant, "tenant": tenant, "scopes": scopes, "quota": quota or {}}
        async with bearer(self.url, self.secret) as operator:
            answer = await operator.post("/v1/keys", json=body)
        return str(answer.raise_for_status().json()["key"])

    def roles(self) -> tuple[psutil.Process, list[psutil.Process]]:
        """The processes of the dispatcher and of the servers."""
        children = psutil.Process(self.pid).children(recursive=True)
        [dispatcher] = [child for child in children if "dispatcher" in child.cmdline()[1:4]]
        return dispatcher, [child for child in children if "edn_server" in child.cmdline()[1:4]]


@contextmanager
def network(servers: int, flags: Sequence[str] = (), /, **environment: str) -> Iterator[Running]:
    """`edn up` as a process that ends with this one, with a data folder of its own.

    `EDN_…` variables set what has no flag there.
    """
    with tempfile.TemporaryDirectory(prefix="edn-bench-") as folder:
        data = Path(folder) / "data"
        command = [sys.executable, "-m", "edn.cli", "up", "--port", "0", "--data", str(data)]
        command += ["--servers", str(servers), "--json-ready", "--with-stdin", *flags]
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, **environment},
        )
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line:
                raise RuntimeError("the network did not start; `edn up` says why")
            yield Running(json.loads(line)["url"], process.pid, data)
        finally:
            process.terminate()
            process.wait(60)


@contextmanager
def filled(
    servers: int,
    subscriptions: int,
    dimensions: int,
    rng: np.random.Generator,
    progress: Progress,
    **environment: str,
) -> Iterator[Running]:
    """A network with so many uniform subscriptions per server, all of them in the summaries."""
    with network(servers, **environment) as running:
        fill(running.url, rng, dimensions, servers * subscriptions, progress)
        progress.say("waiting for the summaries")
        summarised(running.url)
        yield running


def run_edn(*arguments: str) -> str:
    """Runs the command line; returns what it printed."""
    command = [sys.executable, "-m", "edn.cli", *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise RuntimeError(f"edn {' '.join(arguments)}: {ran.stderr[-2000:]}")
    return ran.stdout


def names_of(dimensions: int) -> list[str]:
    """Returns the names of a topic's attributes."""
    return [f"a{number}" for number in range(dimensions)]


def filters(lo: Floats, hi: Floats) -> list[dict[str, Any]]:
    """Returns the filters of rectangles (n, d)."""
    names = names_of(lo.shape[1])
    return [
        {name: {"between": [low, high]} for name, low, high in zip(names, lows, highs, strict=True)}
        for lows, highs in zip(lo.tolist(), hi.tolist(), strict=True)
    ]


def fill(url: str, rng: np.random.Generator, dimensions: int, count: int, progress: Progress) -> None:
    """Creates the topic and subscribes to uniform rectangles."""
    lo, hi = uniform_rectangles(rng, count, dimensions)
    with Client(url) as client:
        client.create_topic(TOPIC, dict.fromkeys(names_of(dimensions), "number"))
        for start in range(0, count, STEP):
            progress.say(f"subscribing, {start:,} of {count:,}")
            wanted = filters(lo[start : start + STEP], hi[start : start + STEP])
            client.subscribe_many(
                [
                    NewSubscription(topic=TOPIC, filter=filter, url=f"{NOWHERE}/{row % 10}")
                    for row, filter in enumerate(wanted)
                ]
            )


def summarised(url: str) -> None:
    """Until every rectangle that was subscribed is in a summary: servers build those in the background."""
    with httpx.Client(base_url=url, timeout=60) as http:
        while True:
            servers = [one["id"] for one in http.get("/v1/servers").json()["servers"]]
            held = [http.get(f"/v1/servers/{one}/summary").json()["topics"].values() for one in servers]
            if not any(topic["widenings"] for topics in held for topic in topics):
                return
            time.sleep(0.5)  # a poll: the loop ends when the last summary is there


def request_of(body: bytes) -> bytes:
    """A whole HTTP request, ready to be written to a socket."""
    return (
        b"POST /v1/topics/%s/events HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        b"content-length: %d\r\n\r\n%s" % (TOPIC.encode(), len(body), body)
    )


def bodies_of(points: Iterable[Floats]) -> list[bytes]:
    """Returns batches of events to publish, one per matrix of points."""
    return [
        msgspec.json.encode([dict(zip(names_of(len(row)), row, strict=True)) for row in rows.tolist()])
        for rows in points
    ]


def uniform_bodies(rng: np.random.Generator, dimensions: int, batch: int) -> list[bytes]:
    """Returns fifty batches of uniform events."""
    return bodies_of(uniform_points(rng, batch, dimensions) for _ in range(50))


def requests_of(rng: np.random.Generator, dimensions: int, batch: int) -> list[bytes]:
    """Returns whole HTTP requests of uniform events, ready to be written to a socket."""
    return [request_of(body) for body in uniform_bodies(rng, dimensions, batch)]


def cpu_seconds(processes: Sequence[psutil.Process]) -> float:
    """Returns the CPU time of processes, as the system tells it."""
    return sum(sum(process.cpu_times()[:2]) for process in processes)
