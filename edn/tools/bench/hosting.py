"""One server with a million subscriptions: durable storage, matching, restart.

This program plays the dispatcher for an `edn_server` process over its internal protocol, so only the server's
work is measured: binding filters, the synced transaction, matcher and maximal set for storing; matching,
grouping and the synced outbox for frames.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import sys
import tempfile
import time
from asyncio.subprocess import PIPE, Process
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np
import psutil

from edn import protocol
from edn.arrays import Floats
from edn.tools.bench.network import NOWHERE, cpu_seconds, filters, names_of
from edn.tools.bench.plain import TAKEN, listen, path_of
from edn.tools.bench.report import Progress, facts
from edn.tools.bench.workloads import uniform_points, uniform_rectangles

SECRET = secrets.token_hex(16)
#: of stored secrets
SECRET_KEY = secrets.token_hex(32)
LOG = "0" * 32
STORE = 1000
FRAME = 200


@dataclass(slots=True)
class Hosted:
    subscriptions: int
    dimensions: int
    store_us: float = 0.0
    store_cpu_us: float = 0.0
    memory_mb: float = 0.0
    disk_mb: float = 0.0
    matches_per_event: float = 0.0
    event_us: float = 0.0
    event_cpu_us: float = 0.0
    restart_seconds: float = 0.0


show = facts(
    "One server",
    ("subscriptions, dimensions", "{r.subscriptions:,}, {r.dimensions}"),
    ("a durable subscription in bulk, with summary: µs", "{r.store_us:.0f}"),
    ("… CPU µs", "{r.store_cpu_us:.0f}"),
    ("memory of the process", "{r.memory_mb:,.0f} MB"),
    ("data folder", "{r.disk_mb:,.0f} MB"),
    ("matches per event", "{r.matches_per_event:,.0f}"),
    ("an event, to the committed outbox: µs", "{r.event_us:,.0f}"),
    ("… CPU µs", "{r.event_cpu_us:,.0f}"),
    ("restart with all of them", "{r.restart_seconds:.1f} s"),
)


async def run(
    *, subscriptions: int, dimensions: int, events: int = 2000, seed: int, progress: Progress
) -> Hosted:
    rng = np.random.default_rng(seed)
    hosted = Hosted(subscriptions, dimensions)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "secret").write_text(SECRET)
        dispatcher, at = await listen(play_dispatcher)
        process, url = await start_server(folder, at)
        async with connect(url) as client:
            watched = psutil.Process(process.pid)

            def clocks() -> Floats:
                return np.array([time.perf_counter(), cpu_seconds([watched])])

            began = clocks()
            await store(client, subscriptions, dimensions, rng, progress)
            hosted.store_us, hosted.store_cpu_us = 1e6 * (clocks() - began) / subscriptions
            progress.say("activating")
            cursor = await activate(client, subscriptions)
            progress.say("matching")
            cursor = (await match(client, cursor, FRAME, dimensions, rng))[0]  # warms up
            began = clocks()
            _, matched = await match(client, cursor, events, dimensions, rng)
            hosted.event_us, hosted.event_cpu_us = 1e6 * (clocks() - began) / events
            hosted.matches_per_event = matched / events
            hosted.memory_mb = watched.memory_info().rss / 1e6
        await stop_server(process)
        hosted.disk_mb = sum(file.stat().st_size for file in (folder / "data").iterdir()) / 1e6
        progress.say("restarting")
        restarted = time.perf_counter()
        process, _ = await start_server(folder, at)
        hosted.restart_seconds = time.perf_counter() - restarted
        await stop_server(process)
        dispatcher.close()
    return hosted


def connect(url: str) -> httpx.AsyncClient:
    """Returns a client of a server's internal protocol."""
    headers = {"authorization": f"Bearer {SECRET}", "content-type": protocol.MSGPACK}
    return httpx.AsyncClient(base_url=url, headers=headers, timeout=600)


def _topic(dimensions: int) -> protocol.TopicInfo:
    return protocol.TopicInfo(1, "", "bench", [(name, "number") for name in names_of(dimensions)], "bitmap")


async def store(
    client: httpx.AsyncClient, count: int, dimensions: int, rng: np.random.Generator, progress: Progress
) -> None:
    topic = _topic(dimensions)
    for start in range(0, count, STORE):
        progress.say(f"storing, {start:,} of {count:,}")
        drawn = uniform_rectangles(rng, min(STORE, count - start), dimensions)
        items = [
            protocol.StoreItem(
                f"sub_{start + row}", 1, "", "bench", filter, f"{NOWHERE}/{row % 10}", None, None
            )
            for row, filter in enumerate(filters(*drawn))
        ]
        answer = await client.post(
            "/internal/subscriptions", content=protocol.encode(protocol.Store(LOG, 1, topic, items))
        )
        answer.raise_for_status()


async def activate(client: httpx.AsyncClient, count: int) -> int:
    """Sends the join and the activation of all subscriptions; returns the cursor."""
    versions = [(f"sub_{number}", 1) for number in range(count)]
    controls = [
        protocol.Control(offset=1, time=1, kind="join", incarnation=1),
        protocol.Control(offset=2, time=1, kind="activate", versions=versions),
    ]
    await send(client, protocol.Frame(LOG, 1, 0, 2, controls, []))
    return 2


async def match(
    client: httpx.AsyncClient,
    cursor: int,
    count: int,
    dimensions: int,
    rng: np.random.Generator,
    *,
    frame: int = FRAME,
    body: bytes = b"{}",
) -> tuple[int, int]:
    """Sends events in frames; returns the cursor and the number of matches."""
    matched = 0
    for start in range(0, count, frame):
        size = min(frame, count - start)
        offsets = np.arange(cursor + 1, cursor + 1 + size)
        segment = protocol.Segment(
            topic=1,
            offsets=protocol.int64_bytes(offsets),
            times=protocol.int64_bytes(np.full(size, 2)),
            stamps=protocol.int64_bytes(np.full(size, 2)),
            points=protocol.points_bytes(uniform_points(rng, size, dimensions)),
            width=dimensions,
            ids=[f"e{offset}" for offset in offsets.tolist()],
            lines=(body + b"\n") * size,
        )
        ack = await send(client, protocol.Frame(LOG, 1, cursor, cursor + size, [], [segment]))
        cursor, matched = cursor + size, matched + ack.matched
    return cursor, matched


async def send(client: httpx.AsyncClient, frame: protocol.Frame) -> protocol.FrameAck:
    answer = await client.post("/internal/stream", content=protocol.encode(frame))
    answer.raise_for_status()
    return protocol.decode(answer.content, protocol.FrameAck)


async def play_dispatcher(head: bytes, _: bytes) -> bytes:
    """Answers registrations and heartbeats."""
    if path_of(head).endswith("/heartbeat"):
        return TAKEN
    body = protocol.encode(protocol.Registered(LOG, 1, 5.0))
    return b"HTTP/1.1 200 OK\r\ncontent-type: %s\r\ncontent-length: %d\r\n\r\n%s" % (
        protocol.MSGPACK.encode(),
        len(body),
        body,
    )


async def start_server(folder: Path, dispatcher: str, *, database: str | None = None) -> tuple[Process, str]:
    """Runs a server with its data in a folder, or in a database; returns its URL, too."""
    place = ["--data", str(folder / "data")]
    if database is not None:
        (folder / "keys").touch(0o600)
        (folder / "keys").write_text(SECRET_KEY)
        place = ["--database", database, "--secret-key-file", str(folder / "keys")]
    command = [sys.executable, "-m", "edn_server", "--id", "s1", *place]
    command += ["--port", "0", "--dispatcher", dispatcher, "--secret-file", str(folder / "secret")]
    process = await asyncio.create_subprocess_exec(
        *command, "--allow-loopback-sinks", stdout=PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    assert process.stdout is not None
    line = await process.stdout.readline()
    if not line:
        raise RuntimeError("the server did not start")
    return process, str(json.loads(line)["url"])


async def stop_server(process: Process) -> None:
    process.terminate()
    await process.wait()
