"""Measures publishing, end to end, beside a bare HTTP app that only decodes the same bodies.

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
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import numpy as np
import psutil

from edn.client import Client, Server
from edn.tools.bench.network import cpu_seconds, filled, requests_of
from edn.tools.bench.plain import connect, publish
from edn.tools.bench.report import Progress, facts

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


show = facts(
    "Publishing, end to end",
    ("dimensions", "{r.dimensions}"),
    ("servers × subscriptions", "{r.servers} × {r.subscriptions:,}"),
    ("matches an event, hit ratio", "{r.matches_per_event:,.1f}, {r.hit_ratio:.3f}"),
    ("bare app: events/s", "{r.bare_events_per_second:,.0f}"),
    ("bare app: CPU µs/event", "{r.bare_cpu_us:.2f}"),
    ("network, to outbox committed: events/s", "{r.network_events_per_second:,.0f}"),
    ("dispatcher: CPU µs/event", "{r.dispatcher_cpu_us:.2f}"),
    ("all servers: CPU µs/event", "{r.servers_cpu_us:.2f}"),
    ("publisher: CPU µs/event", "{r.publisher_cpu_us:.2f}"),
    ("dispatcher's CPU ÷ bare app's", lambda r: f"{r.dispatcher_cpu_us / r.bare_cpu_us:.1f}"),
    (
        "bare app's events/s ÷ network's",
        lambda r: f"{r.bare_events_per_second / r.network_events_per_second:.1f}",
    ),
)


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
    requests = requests_of(rng, dimensions, batch)
    with (
        _bare() as bare,
        filled(servers, subscriptions, dimensions, rng, progress, EDN_TUNING="fixed") as running,
    ):
        dispatcher, others = running.roles()
        rounds: list[dict[str, float]] = []
        for number in range(repeats + 1):
            progress.say(f"publishing, round {number} of {repeats}")
            one = _round(bare, running.url, dispatcher, others, requests, events, batch)
            if number:  # the first warms both up
                rounds.append(one)
    middle = {name: median(one[name] for one in rounds) for name in rounds[0]}
    return Cost(dimensions, servers, subscriptions, batch, events, **middle)


def _round(
    bare: tuple[str, psutil.Process],
    url: str,
    dispatcher: psutil.Process,
    others: list[psutil.Process],
    requests: list[bytes],
    events: int,
    batch: int,
) -> dict[str, float]:
    count = events // batch
    bare_url, bare_process = bare
    cpu = cpu_seconds([bare_process])
    # Many times as much for the bare app: the system counts CPU time in hundredths of a second.
    bare_seconds = asyncio.run(_publish(bare_url, requests, count * _BARE_TIMES, settle=False)) / _BARE_TIMES
    bare_cpu = (cpu_seconds([bare_process]) - cpu) / _BARE_TIMES
    with Client(url) as client:
        before = client.servers()
    marks = cpu_seconds([dispatcher]), cpu_seconds(others), time.process_time()
    seconds = asyncio.run(_publish(url, requests, count, settle=True))
    after_marks = cpu_seconds([dispatcher]), cpu_seconds(others), time.process_time()
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


async def _publish(url: str, requests: list[bytes], count: int, *, settle: bool) -> float:
    """Seconds for `count` requests over a few connections, and until every server has them if `settle`."""
    left = iter(range(count))

    async def connection() -> None:
        reader, writer = await connect(url)
        for number in left:
            await publish(reader, writer, requests[number % len(requests)])
        writer.close()

    began = time.perf_counter()
    await asyncio.gather(*(connection() for _ in range(8)))
    if settle:
        await asyncio.to_thread(_settle, url)
    return time.perf_counter() - began


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


@contextmanager
def _bare() -> Iterator[tuple[str, psutil.Process]]:
    process = subprocess.Popen([sys.executable, "-c", _BARE], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["url"], psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait(10)
