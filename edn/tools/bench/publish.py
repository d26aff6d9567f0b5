"""Publishing, end to end, compared with a bare HTTP app that only decodes the same bodies.

Rounds alternate on the same machine with the same publisher:

- *bare*: uvicorn, plain ASGI, msgspec decodes each body to Python objects;
- *network*: a dispatcher and N servers with subscriptions; a batch counts when every server has committed its
  matches to its outbox. The sinks refuse connections, so no delivery is measured.

`--open` compares two kinds of events of the same size instead, in alternating rounds on one network: *flat*
events have declared attributes only, one of them a long string; *open* ones have the same numbers inside a
document of undeclared fields, nested objects and arrays.

CPU time is that of the processes, as reported by the system. Events per second include the publisher's share
of the machine, in both alike.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import repeat
from statistics import median
from typing import Any

import msgspec
import numpy as np
import psutil

from edn.arrays import Floats
from edn.client import Client
from edn.tools.bench.network import TOPIC, cpu_seconds, filled, names_of, request_of, requests_of
from edn.tools.bench.plain import publish
from edn.tools.bench.report import Progress, facts
from edn.tools.bench.workloads import uniform_points

#: factor by which the bare app gets more events
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
    """Medians over the rounds."""

    dimensions: int
    servers: int
    subscriptions: int
    batch: int
    #: per round
    events: int
    bare_events_per_second: float
    bare_cpu_us: float
    network_events_per_second: float
    dispatcher_cpu_us: float
    servers_cpu_us: float
    publisher_cpu_us: float
    matches_per_event: float
    hit_ratio: float

    @property
    def dispatcher_cpu_ratio(self) -> float:
        return self.dispatcher_cpu_us / self.bare_cpu_us

    @property
    def throughput_ratio(self) -> float:
        return self.network_events_per_second / self.bare_events_per_second


@dataclass(frozen=True, slots=True)
class OpenCost:
    """Medians over the rounds."""

    dimensions: int
    servers: int
    subscriptions: int
    batch: int
    #: per round and kind
    events: int
    #: bytes of an event, of either kind
    size: int
    flat_events_per_second: float
    flat_dispatcher_cpu_us: float
    flat_servers_cpu_us: float
    open_events_per_second: float
    open_dispatcher_cpu_us: float
    open_servers_cpu_us: float

    @property
    def throughput_ratio(self) -> float:
        return self.open_events_per_second / self.flat_events_per_second


_show_flat = facts(
    "Publishing, end to end",
    ("dimensions", "{r.dimensions}"),
    ("servers × subscriptions", "{r.servers} × {r.subscriptions:,}"),
    ("matches per event, hit ratio", "{r.matches_per_event:,.1f}, {r.hit_ratio:.3f}"),
    ("bare app: events/s", "{r.bare_events_per_second:,.0f}"),
    ("bare app: CPU µs/event", "{r.bare_cpu_us:.2f}"),
    ("network, to outbox committed: events/s", "{r.network_events_per_second:,.0f}"),
    ("dispatcher: CPU µs/event", "{r.dispatcher_cpu_us:.2f}"),
    ("all servers: CPU µs/event", "{r.servers_cpu_us:.2f}"),
    ("publisher: CPU µs/event", "{r.publisher_cpu_us:.2f}"),
    ("dispatcher's CPU ÷ bare app's", "{r.dispatcher_cpu_ratio:.1f}"),
    ("bare app's events/s ÷ network's", lambda r: f"{1 / r.throughput_ratio:.1f}"),
)


_show_open = facts(
    "Publishing open documents",
    ("dimensions, bytes of an event", "{r.dimensions}, {r.size:,}"),
    ("servers × subscriptions", "{r.servers} × {r.subscriptions:,}"),
    ("flat: events/s", "{r.flat_events_per_second:,.0f}"),
    ("flat: dispatcher, servers CPU µs/event", "{r.flat_dispatcher_cpu_us:.2f}, {r.flat_servers_cpu_us:.2f}"),
    ("open: events/s", "{r.open_events_per_second:,.0f}"),
    ("open: dispatcher, servers CPU µs/event", "{r.open_dispatcher_cpu_us:.2f}, {r.open_servers_cpu_us:.2f}"),
    ("open events/s ÷ flat", "{r.throughput_ratio:.2f}"),
)


def show(result: list[Cost] | list[OpenCost], *, as_json: bool) -> None:
    shown = _show_open if result and isinstance(result[0], OpenCost) else _show_flat
    shown(result, as_json=as_json)


def run(
    *, dimensions: Sequence[int] | None, documents: bool = False, **sizes: Any
) -> list[Cost] | list[OpenCost]:
    """Measures one network per number of attributes."""
    if documents:
        return [measure_open(dimensions=width, **sizes) for width in dimensions or (8,)]
    return [measure(dimensions=width, **sizes) for width in dimensions or (8, 4)]


def measure_open(
    *,
    dimensions: int,
    servers: int,
    subscriptions: int,
    events: int,
    seed: int,
    repeats: int,
    progress: Progress,
) -> OpenCost:
    """Measures flat events and documents of the same size on one network."""
    rng = np.random.default_rng(seed)
    batch = 100
    points = [uniform_points(rng, batch, dimensions) for _ in range(20)]
    requests, size = _documents(points)
    with filled(servers, subscriptions, dimensions, rng, progress, EDN_TUNING="fixed") as running:
        with Client(running.url) as client:
            client.create_topic(TOPIC, {**dict.fromkeys(names_of(dimensions), "number"), "note": "string"})
        dispatcher, others = running.roles()
        rounds: list[dict[str, float]] = []
        for number in range(repeats + 1):
            one: dict[str, float] = {}
            for kind, own in requests.items():
                progress.say(f"publishing {kind} events, round {number} of {repeats}")
                before = cpu_seconds([dispatcher]), cpu_seconds(others)
                seconds = asyncio.run(publish_all(running.url, own, events // batch, drain=True))
                one[f"{kind}_events_per_second"] = events // batch * batch / seconds
                for name, processes, spent in zip(
                    ("dispatcher", "servers"), ([dispatcher], others), before, strict=True
                ):
                    one[f"{kind}_{name}_cpu_us"] = 1e6 * (cpu_seconds(processes) - spent) / events
            if number:  # the first one warms up
                rounds.append(one)
    middle = {name: median(one[name] for one in rounds) for name in rounds[0]}
    return OpenCost(dimensions, servers, subscriptions, batch, events, size, **middle)


def _documents(points: list[Floats]) -> tuple[dict[str, list[bytes]], int]:
    """Returns requests with flat events and with documents, and the bytes of an event."""
    names = names_of(points[0].shape[1])
    bodies: dict[str, list[bytes]] = {"flat": [], "open": []}
    size = 0
    for rows in points:
        flat, documents = [], []
        for row in rows.tolist():
            values = dict(zip(names, row, strict=True))
            document = msgspec.json.encode({**values, **_undeclared()})
            plain = msgspec.json.encode({**values, "note": ""})
            note = b"n" * (len(document) - len(plain))
            documents.append(document)
            flat.append(plain[:-2] + note + b'"}')
            size = len(document)
        for kind, own in (("flat", flat), ("open", documents)):
            bodies[kind].append(b"[" + b",".join(own) + b"]")
    return {kind: [request_of(body) for body in own] for kind, own in bodies.items()}, size


def _undeclared() -> dict[str, Any]:
    """Some 1,900 bytes as producers send them: an order with its lines, an address, tags."""
    address = {"street": "Long Street 12", "city": "Springfield", "zip": "12345", "country": "US"}
    lines = [
        {"sku": f"SKU-{number:05d}", "name": "An article with a name", "count": number, "price": 9.95}
        for number in range(17)
    ]
    return {
        "order": {"id": "3f2504e0-4f89-11d3-9a0c-0305e82c3301", "customer": {"id": 4711, "address": address}},
        "lines": lines,
        "tags": ["express", "gift", "returning customer"],
        "meta": {"source": "web", "agent": "Mozilla/5.0", "flags": {"vip": False, "test": None}},
        "comment": "Please leave the parcel at the door, and ring twice. " * 4,
    }


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
    """Measures one network; `subscriptions` is per server, `events` per round."""
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
            if number:  # the first one warms up
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
    # More events for the bare app, because the system counts CPU time in hundredths of a second.
    bare_seconds = (
        asyncio.run(publish_all(bare_url, requests, count * _BARE_TIMES, drain=False)) / _BARE_TIMES
    )
    bare_cpu = (cpu_seconds([bare_process]) - cpu) / _BARE_TIMES

    def counters() -> np.ndarray:
        """CPU seconds of dispatcher, servers and publisher; matched and forwarded events."""
        with Client(url) as client:
            servers = client.servers()
        matched, forwarded = (
            sum(getattr(one, name) or 0 for one in servers) for name in ("matched", "forwarded")
        )
        cpu = cpu_seconds([dispatcher]), cpu_seconds(others), time.process_time()
        return np.array([*cpu, matched, forwarded])

    before = counters()
    seconds = asyncio.run(publish_all(url, requests, count, drain=True))
    published = count * batch
    per_event = (counters() - before) / published
    return {
        "bare_events_per_second": published / bare_seconds,
        "bare_cpu_us": bare_cpu / published * 1e6,
        "network_events_per_second": published / seconds,
        "dispatcher_cpu_us": 1e6 * per_event[0],
        "servers_cpu_us": 1e6 * per_event[1],
        "publisher_cpu_us": 1e6 * per_event[2],
        "matches_per_event": per_event[3],
        "hit_ratio": per_event[4] / len(others),
    }


async def publish_all(url: str, requests: list[bytes], count: int, *, drain: bool) -> float:
    """Returns the seconds for `count` requests, and until every server has them if `drain`."""
    began = time.perf_counter()
    await publish(url, requests, repeat(0.0, count), 8)
    if drain:
        await asyncio.to_thread(wait_for_servers, url)
    return time.perf_counter() - began


def wait_for_servers(url: str) -> None:
    """Waits until no server has a lag; polls seldom, because a poll costs as much as a batch."""
    with Client(url) as client:
        before, at = None, time.perf_counter()
        while lag := max(1 if server.lag is None else server.lag for server in client.servers()):
            now = time.perf_counter()
            rate = (before - lag) / (now - at) if before is not None and before > lag else 0.0
            before, at = lag, now
            # Half of the remaining time at the rate since the last poll.
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
