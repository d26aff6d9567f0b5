"""Networks under test: processes, subscriptions, events and counters."""

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

#: an address that refuses connections at once
NOWHERE = "http://127.0.0.1:9"
TOPIC = "bench"
#: subscriptions per request
STEP = 500


def bearer(url: str, key: str, timeout: float = 300) -> httpx.AsyncClient:
    """Returns a client that authenticates with a key."""
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
        [dispatcher] = self.processes("dispatcher")
        return dispatcher, self.processes("edn_server")

    def processes(self, module: str) -> list[psutil.Process]:
        """The processes that run a module, in the order of their start."""
        children = psutil.Process(self.pid).children(recursive=True)
        return [child for child in children if module in child.cmdline()[1:4]]


@contextmanager
def network(
    servers: int, flags: Sequence[str] = (), /, *, database: str | None = None, **environment: str
) -> Iterator[Running]:
    """Runs `edn up` with its own data folder, or on a database; it ends with this process.

    `EDN_…` variables set options without a flag.
    """
    with tempfile.TemporaryDirectory(prefix="edn-bench-") as folder:
        data = Path(folder) / (".edn" if database else "data")
        store = ["--database", database] if database else ["--data", str(data)]
        command = [sys.executable, "-m", "edn.cli", "up", "--port", "0", *store]
        command += ["--servers", str(servers), "--json-ready", "--with-stdin", *flags]
        pipe, environ = subprocess.PIPE, {**os.environ, **environment}
        # On a database `edn up` keeps its secret in the working directory.
        place = folder if database else None
        process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True, env=environ, cwd=place
        )
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line:
                raise RuntimeError("the network did not start; run `edn up` for the reason")
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
    *,
    database: str | None = None,
    **environment: str,
) -> Iterator[Running]:
    """Runs a network with uniform subscriptions per server, all of them in the summaries."""
    with network(servers, database=database, **environment) as running:
        with Client(running.url) as client:
            fill(client, *uniform_rectangles(rng, servers * subscriptions, dimensions), progress)
        progress.say("waiting for the summaries")
        summarised(running.url)
        yield running


def run_edn(*arguments: str) -> str:
    """Runs the command line and returns its output."""
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


def fill(client: Client, lo: Floats, hi: Floats, progress: Progress, what: str = "subscribing") -> list[str]:
    """Creates the topic and subscribes to rectangles; returns the server of each subscription."""
    client.create_topic(TOPIC, dict.fromkeys(names_of(lo.shape[1]), "number"))
    hosts: list[str] = []
    for start in range(0, len(lo), STEP):
        progress.say(f"{what}, {start:,} of {len(lo):,}")
        wanted = filters(lo[start : start + STEP], hi[start : start + STEP])
        made = client.subscribe_many(
            NewSubscription(topic=TOPIC, filter=filter, url=f"{NOWHERE}/{row % 10}")
            for row, filter in enumerate(wanted)
        )
        hosts += [one.server or "" for one in made]
    return hosts


def summarised(url: str) -> None:
    """Waits until the summary of every server is known and includes every subscription."""
    with httpx.Client(base_url=url, timeout=120) as http:
        while True:
            servers = [one["id"] for one in http.get("/v1/servers").json()["servers"]]
            summaries = [http.get(f"/v1/servers/{one}/summary").json() for one in servers]
            if not any(
                one["everything"] or any(topic["widenings"] for topic in one["topics"].values())
                for one in summaries
            ):
                return
            time.sleep(0.2)  # a poll: the loop ends with the last summary


class Counted(NamedTuple):
    """Counters of a dispatcher."""

    published: int
    forwarded: int
    servers: int
    #: of the slowest server
    lag: int

    @classmethod
    def read(cls, http: httpx.Client) -> Counted:
        found = http.get("/v1/servers").json()
        servers = found["servers"]
        forwarded = sum(one["forwarded"] for one in servers)
        lag = max((one["lag"] or 0 for one in servers), default=0)
        return cls(found["published"], forwarded, len(servers), lag)

    def hit_ratio(self, before: Counted) -> float:
        """Returns the hit ratio since earlier counters."""
        pairs = (self.published - before.published) * self.servers
        return (self.forwarded - before.forwarded) / pairs if pairs else 0.0


def request_of(body: bytes) -> bytes:
    """Returns a whole HTTP request to publish a body."""
    return (
        b"POST /v1/topics/%s/events HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        b"content-length: %d\r\n\r\n%s" % (TOPIC.encode(), len(body), body)
    )


def bodies_of(points: Iterable[Floats]) -> list[bytes]:
    """Returns batches of events, one per matrix of points."""
    return [
        msgspec.json.encode([dict(zip(names_of(len(row)), row, strict=True)) for row in rows.tolist()])
        for rows in points
    ]


def requests_of(rng: np.random.Generator, dimensions: int, batch: int) -> list[bytes]:
    """Returns fifty whole HTTP requests with uniform events."""
    return [request_of(body) for body in bodies_of(uniform_points(rng, batch, dimensions) for _ in range(50))]


def cpu_seconds(processes: Sequence[psutil.Process]) -> float:
    """Returns the CPU time of processes as reported by the system."""
    return sum(sum(process.cpu_times()[:2]) for process in processes)
