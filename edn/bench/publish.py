"""What publishing costs, end to end, beside a bare HTTP app that only decodes the same bodies.

One run measures, one after the other and several times in turn, with the same publisher on the same machine:

- *bare*: uvicorn, plain ASGI, msgspec decoding each body to Python objects, nothing else;
- *network*: a dispatcher and N servers with their subscriptions; a batch counts when every server has
  committed what it found in it to its outbox. The sinks refuse connections, so that no delivery is measured.

CPU time is that of the processes, read from the system; events a second include the publisher's own share of
the machine, in both alike.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import httpx
import msgspec
import numpy as np
import psutil

from edn.bench.report import Progress, print_table
from edn.bench.workloads import uniform_points, uniform_rectangles
from edn.cli.console import show_json
from edn.client import Client, NewSubscription, Server

#: nothing listens there, and the system says so at once
NOWHERE = "http://127.0.0.1:9"
TOPIC = "bench"
#: how many times as many events the bare app gets
_BARE_TIMES = 40

_BARE = """
import json, socket, sys, msgspec, uvicorn
decode = msgspec.json.Decoder().decode
async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    parts = []
    while True:
        message = await receive()
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            break
    count = len(decode(b"".join(parts)))
    await send({"type": "http.response.start", "status": 202, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"{}"})
listener = socket.socket()
listener.bind(("127.0.0.1", 0))
listener.listen(128)
print(json.dumps({"url": "http://127.0.0.1:%d" % listener.getsockname()[1]}), flush=True)
uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off")).run(sockets=[listener])
"""


@dataclass(frozen=True, slots=True)
class Cost:
    """One side of the comparison: medians over the rounds."""

    dimensions: int
    servers: int
    subscriptions: int
    batch: int
    #: events published in a round
    events: int
    bare_events_per_second: float
    bare_cpu_us: float
    network_events_per_second: float
    dispatcher_cpu_us: float
    servers_cpu_us: float
    publisher_cpu_us: float
    matches_per_event: float
    hit_ratio: float

    def to_json(self) -> dict[str, Any]:
        return {
            **asdict(self),
            "dispatcher_cpu_ratio": self.dispatcher_cpu_us / self.bare_cpu_us,
            "throughput_ratio": self.network_events_per_second / self.bare_events_per_second,
        }

    def cells(self) -> list[tuple[str, str]]:
        shown = self.to_json()
        return [
            ("dimensions", f"{self.dimensions}"),
            ("servers × subscriptions", f"{self.servers} × {self.subscriptions:,}"),
            ("matches an event, hit ratio", f"{self.matches_per_event:,.1f}, {self.hit_ratio:.3f}"),
            ("bare app: events/s", f"{self.bare_events_per_second:,.0f}"),
            ("bare app: CPU µs/event", f"{self.bare_cpu_us:.2f}"),
            ("network, to outbox committed: events/s", f"{self.network_events_per_second:,.0f}"),
            ("dispatcher: CPU µs/event", f"{self.dispatcher_cpu_us:.2f}"),
            ("all servers: CPU µs/event", f"{self.servers_cpu_us:.2f}"),
            ("publisher: CPU µs/event", f"{self.publisher_cpu_us:.2f}"),
            ("dispatcher's CPU ÷ bare app's", f"{shown['dispatcher_cpu_ratio']:.1f}"),
            ("bare app's events/s ÷ network's", f"{1 / shown['throughput_ratio']:.1f}"),
        ]


def show(costs: list[Cost], *, as_json: bool) -> None:
    if as_json:
        show_json([cost.to_json() for cost in costs])
    else:
        for cost in costs:
            print_table("Publishing, end to end", ("", ""), cost.cells())


def run(*, dimensions: Sequence[int] | None, **sizes: Any) -> list[Cost]:
    """A network for each number of attributes."""
    return [measure(dimensions=width, **sizes) for width in dimensions or (8, 4)]


def measure(
    *,
    dimensions: int,
    servers: int,
    subscriptions: int,
    events: int,
    seed: int,
    repeats: int,
    progress: Progress,
) -> Cost:
    """One network. `subscriptions` is per server, `events` per round."""
    rng = np.random.default_rng(seed)
    batch = 100
    bodies = _bodies(rng, dimensions, batch)
    with (
        tempfile.TemporaryDirectory() as folder,
        _bare() as bare,
        network(Path(folder), servers, EDN_TUNING="fixed") as (url, pid),
    ):
        fill(url, rng, dimensions, servers * subscriptions, progress)
        progress.say("waiting for the summaries")
        summarised(url)
        dispatcher, others = roles(pid)
        rounds: list[dict[str, float]] = []
        for number in range(repeats + 1):
            progress.say(f"publishing, round {number} of {repeats}")
            one = _round(bare, url, dispatcher, others, bodies, events, batch)
            if number:  # the first warms both up
                rounds.append(one)
    middle = {name: median(one[name] for one in rounds) for name in rounds[0]}
    return Cost(dimensions, servers, subscriptions, batch, events, **middle)


def _round(
    bare: tuple[str, psutil.Process],
    url: str,
    dispatcher: psutil.Process,
    others: list[psutil.Process],
    bodies: list[bytes],
    events: int,
    batch: int,
) -> dict[str, float]:
    count = events // batch
    bare_url, bare_process = bare
    cpu = _cpu([bare_process])
    # Many times as much for the bare app: the system counts CPU time in hundredths of a second.
    bare_seconds = asyncio.run(_publish(bare_url, bodies, count * _BARE_TIMES, settle=False)) / _BARE_TIMES
    bare_cpu = (_cpu([bare_process]) - cpu) / _BARE_TIMES
    with Client(url) as client:
        before = client.servers()
    marks = _cpu([dispatcher]), _cpu(others), time.process_time()
    seconds = asyncio.run(_publish(url, bodies, count, settle=True))
    after_marks = _cpu([dispatcher]), _cpu(others), time.process_time()
    with Client(url) as client:
        after = client.servers()
    published = count * batch

    def total(name: str) -> int:
        def counted(servers: list[Server]) -> int:
            return sum(getattr(server, name) or 0 for server in servers)

        return counted(after) - counted(before)

    spent = [(late - early) / published * 1e6 for early, late in zip(marks, after_marks, strict=True)]
    return {
        "bare_events_per_second": published / bare_seconds,
        "bare_cpu_us": bare_cpu / published * 1e6,
        "network_events_per_second": published / seconds,
        "dispatcher_cpu_us": spent[0],
        "servers_cpu_us": spent[1],
        "publisher_cpu_us": spent[2],
        "matches_per_event": total("matched") / published,
        "hit_ratio": total("forwarded") / (published * len(after)),
    }


async def _publish(url: str, bodies: list[bytes], count: int, *, settle: bool) -> float:
    """Seconds for `count` requests over a few connections, and until every server has them if `settle`."""
    host, port = url.removeprefix("http://").split(":")
    requests = [request_of(body) for body in bodies]
    left = iter(range(count))
    began = time.perf_counter()
    await asyncio.gather(*(_connection(host, int(port), requests, left) for _ in range(8)))
    if settle:
        await asyncio.to_thread(_settle, url)
    return time.perf_counter() - began


def request_of(body: bytes) -> bytes:
    """A whole HTTP request, ready to be written to a socket."""
    return (
        b"POST /v1/topics/%s/events HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        b"content-length: %d\r\n\r\n%s" % (TOPIC.encode(), len(body), body)
    )


def requests_of(rng: np.random.Generator, dimensions: int, batch: int) -> list[bytes]:
    """Whole HTTP requests of uniform events, ready to be written to a socket."""
    return [request_of(body) for body in _bodies(rng, dimensions, batch)]


async def _connection(host: str, port: int, requests: list[bytes], left: Iterator[int]) -> None:
    """Pre-built requests on a plain socket: the publisher shall cost as little as it can."""
    reader, writer = await asyncio.open_connection(host, port)
    for number in left:
        writer.write(requests[number % len(requests)])
        head = await reader.readuntil(b"\r\n\r\n")
        status = head.split(b" ", 2)[1]
        length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
        answer = await reader.readexactly(length)
        if status != b"202":
            raise RuntimeError(f"{status.decode()} to a batch: {answer.decode()[:200]}")
    writer.close()


def _settle(url: str) -> None:
    """Until every server has everything. Asks seldom: a question costs the dispatcher as much as a batch."""
    with Client(url) as client:
        before, at = None, time.perf_counter()
        while lag := max(1 if server.lag is None else server.lag for server in client.servers()):
            now = time.perf_counter()
            rate = (before - lag) / (now - at) if before is not None and before > lag else 0.0
            before, at = lag, now
            # Half of what it will still take, if it goes on as since the last question.
            time.sleep(min(2.0, max(0.05, lag / rate / 2)) if rate else 0.1)


def summarised(url: str) -> None:
    """Until every rectangle that was subscribed is in a summary: servers build those in the background."""
    with httpx.Client(base_url=url, timeout=60) as http:
        while True:
            servers = [one["id"] for one in http.get("/v1/servers").json()["servers"]]
            held = [http.get(f"/v1/servers/{one}/summary").json()["topics"].values() for one in servers]
            if not any(topic["widenings"] for topics in held for topic in topics):
                return
            time.sleep(0.5)  # a poll: the loop ends when the last summary is there


def fill(url: str, rng: np.random.Generator, dimensions: int, count: int, progress: Progress) -> None:
    names = [f"a{number}" for number in range(dimensions)]
    lo, hi = uniform_rectangles(rng, count, dimensions)
    with Client(url) as client:
        client.create_topic(TOPIC, dict.fromkeys(names, "number"))
        step = 500
        for start in range(0, count, step):
            progress.say(f"subscribing, {start:,} of {count:,}")
            client.subscribe_many(
                [
                    NewSubscription(
                        topic=TOPIC,
                        filter={
                            name: {"between": [low, high]}
                            for name, low, high in zip(names, lo[row].tolist(), hi[row].tolist(), strict=True)
                        },
                        url=f"{NOWHERE}/{row % 10}",
                    )
                    for row in range(start, min(start + step, count))
                ]
            )


def _bodies(rng: np.random.Generator, dimensions: int, batch: int) -> list[bytes]:
    names = [f"a{number}" for number in range(dimensions)]
    drawn = (uniform_points(rng, batch, dimensions).tolist() for _ in range(50))
    return [msgspec.json.encode([dict(zip(names, row, strict=True)) for row in rows]) for rows in drawn]


@contextmanager
def _bare() -> Iterator[tuple[str, psutil.Process]]:
    process = subprocess.Popen([sys.executable, "-c", _BARE], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["url"], psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait(10)


@contextmanager
def network(
    folder: Path, servers: int, flags: Sequence[str] = (), /, **environment: str
) -> Iterator[tuple[str, int]]:
    """`edn up` as a process that ends with this one; `EDN_…` variables set what has no flag there."""
    command = [sys.executable, "-m", "edn.cli", "up", "--port", "0", "--data", str(folder / "data")]
    command += ["--servers", str(servers), "--json-ready", "--with-stdin"]
    command += flags
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
        yield json.loads(line)["url"], process.pid
    finally:
        process.terminate()
        process.wait(60)


def roles(pid: int) -> tuple[psutil.Process, list[psutil.Process]]:
    children = psutil.Process(pid).children(recursive=True)
    [dispatcher] = [child for child in children if "dispatcher" in child.cmdline()[1:4]]
    return dispatcher, [child for child in children if "edn_server" in child.cmdline()[1:4]]


def _cpu(processes: list[psutil.Process]) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in processes)
