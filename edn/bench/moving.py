"""A plan applied to a running network: what it costs publishers meanwhile, and what it brings.

Ten servers with two thousand subscriptions each, placed at random; a publisher that never pauses. The network
is exported, Spark plans, the plan is applied. The time of every publish is taken before, while subscriptions
move, and after; the hit ratio before and after is that of the dispatcher's own counters. All that was sent
and all that arrived is recorded, and the checker has the last word.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from edn.bench.histogram import Distribution
from edn.bench.publish import network, summarised
from edn.bench.report import Progress, show_one
from edn.bench.workloads import uniform_points, uniform_rectangles
from edn.checker import Recorder, check_recording
from edn.client import Client, moving

TOPIC = "moving"
ADDRESSES = 20
#: subscriptions of one request
STEP = 500


@dataclass(frozen=True, slots=True)
class Phase:
    """What publishers and the dispatcher saw for a while."""

    events: int
    p50_ms: float
    p99_ms: float
    #: forwarded ÷ (published × servers), from the dispatcher's counters
    hit_ratio: float
    #: milliseconds of each publish
    times: Distribution


@dataclass(frozen=True, slots=True)
class Moved:
    servers: int
    subscriptions: int
    moved: int
    seconds: float
    expected_hit_ratio: float | None
    before: Phase
    during: Phase
    after: Phase
    #: what the checker says of the whole run
    verdict: str
    pairs: int

    @property
    def distributions(self) -> list[Distribution]:
        return [self.before.times, self.during.times, self.after.times]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def cells(self) -> list[tuple[str, str]]:
        ratio = self.during.p99_ms / self.before.p99_ms
        promised = "" if self.expected_hit_ratio is None else f" (the plan: {self.expected_hit_ratio:.3f})"
        return [
            ("servers, subscriptions", f"{self.servers}, {self.subscriptions:,}"),
            ("moved, in seconds", f"{self.moved:,} in {self.seconds:.1f} s"),
            ("hit ratio before, after", f"{self.before.hit_ratio:.3f}, {self.after.hit_ratio:.3f}{promised}"),
            *(
                (
                    f"publish {name}: p50, p99",
                    f"{phase.p50_ms:.1f}, {phase.p99_ms:.1f} ms of {phase.events:,}",
                )
                for name, phase in (
                    ("before", self.before),
                    ("meanwhile", self.during),
                    ("after", self.after),
                )
            ),
            ("p99 meanwhile ÷ before", f"{ratio:.2f}"),
            ("the checker, pairs", f"{self.verdict}, {self.pairs:,}"),
        ]


class _Sink(threading.Thread):
    """Takes every POST, and records it before it answers."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(daemon=True)
        self._recorder = recorder
        self._loop = asyncio.new_event_loop()
        self._listening = threading.Event()
        self.pairs = 0
        self.url = ""

    def run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._connection, "127.0.0.1", 0, backlog=256)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self._listening.set()
        await asyncio.Event().wait()

    def begin(self) -> None:
        self.start()
        self._listening.wait()
        for number in range(ADDRESSES):
            self._recorder.listening(self.address(number))

    def address(self, number: int) -> str:
        return f"{self.url}/{number % ADDRESSES}"

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                fields = dict(line.split(": ", 1) for line in head.split("\r\n")[1:] if line)
                headers = {name.lower(): value for name, value in fields.items()}
                body = await reader.readexactly(int(headers["content-length"]))
                path = head.split(" ", 2)[1]
                self._recorder.notification(self.url + path, headers["webhook-id"], body)
                self.pairs += body.count(b'"subscription":')
                writer.write(b"HTTP/1.1 204 Taken\r\ncontent-length: 0\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@dataclass
class _Publisher(threading.Thread):
    """One event after the other, at a constant rate, whatever happens."""

    url: str
    recorder: Recorder
    names: list[str]
    rate: float
    seed: int
    taken: list[tuple[float, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(daemon=True)
        self.enough = threading.Event()

    def __hash__(self) -> int:
        return id(self)

    def run(self) -> None:
        rng = np.random.default_rng(self.seed)
        due = time.perf_counter()
        with httpx.Client(base_url=self.url, timeout=60) as http:
            while not self.enough.is_set():
                point = uniform_points(rng, 1, len(self.names))[0].tolist()
                event = {"$id": f"e{len(self.taken)}", **dict(zip(self.names, point, strict=True))}
                with self.recorder.operation("publish", topic=TOPIC, events=[event], publisher="p") as op:
                    began = time.perf_counter()
                    answer = http.post(f"/v1/topics/{TOPIC}/events", json=event)
                    ended = time.perf_counter()
                    op.answered(answer.status_code, ids=[event["$id"]])
                self.taken.append((began, ended - began))
                due = max(due + 1 / self.rate, ended)
                self.enough.wait(max(0.0, due - time.perf_counter()))


class _Watch:
    """The publisher's times and the dispatcher's counters, between two moments."""

    def __init__(self, url: str, publisher: _Publisher) -> None:
        self._http = httpx.Client(base_url=url, timeout=60)
        self._publisher = publisher

    def _counters(self) -> tuple[int, int, int]:
        answer = self._http.get("/v1/servers").json()
        servers = answer["servers"]
        return answer["published"], sum(server["forwarded"] for server in servers), len(servers)

    @contextmanager
    def phase(self, name: str, found: list[Phase]) -> Iterator[None]:
        began, (published, forwarded, servers) = time.perf_counter(), self._counters()
        yield
        ended = time.perf_counter()
        deadline = ended + 30
        while True:
            published_then, forwarded_then, _ = self._counters()
            lags = [server["lag"] for server in self._http.get("/v1/servers").json()["servers"]]
            if max(lags) < 5 or time.perf_counter() > deadline:
                break
            time.sleep(0.1)
        taken = [seconds * 1000 for at, seconds in self._publisher.taken if began <= at < ended]
        asked = (published_then - published) * servers
        found.append(
            Phase(
                len(taken),
                float(np.percentile(taken, 50)),
                float(np.percentile(taken, 99)),
                (forwarded_then - forwarded) / asked if asked else 0.0,
                Distribution.of(f"publishing {name}", "ms", taken),
            )
        )


def show(outcome: Moved, *, as_json: bool) -> None:
    show_one("A plan applied to a running network", outcome, as_json=as_json)


def run(
    *,
    servers: int,
    subscriptions: int,
    dimensions: int,
    rate: float,
    events: float,
    seconds: float,
    seed: int,
    progress: Progress,
) -> Moved:
    """`rate`: moves a second; `events`: events a second; `seconds`: of the phases before and after."""
    with tempfile.TemporaryDirectory(prefix="edn-bench-moving-") as name:
        folder = Path(name)
        recording = folder / "recording.jsonl"
        with Recorder(recording) as recorder:
            result = _run(
                folder, recorder, servers, subscriptions, dimensions, rate, events, seconds, seed, progress
            )
        progress.say("checking")
        report = check_recording(recording)
        verdict = "holds" if report.verdict == "holds" else f"{report.verdict}: {report}"
        return Moved(**{**result, "verdict": verdict})


def _run(
    folder: Path,
    recorder: Recorder,
    servers: int,
    subscriptions: int,
    dimensions: int,
    rate: float,
    events: float,
    seconds: float,
    seed: int,
    progress: Progress,
) -> dict[str, Any]:
    sink = _Sink(recorder)
    sink.begin()
    names = [f"a{number}" for number in range(dimensions)]
    settings = {"EDN_PLACEMENT": "random", "EDN_PLACEMENT_SEED": str(seed), "EDN_TUNING": "fixed"}
    with network(folder, servers, **settings) as (url, _), Client(url) as client:
        _subscribe(client, recorder, sink, names, servers * subscriptions, seed, progress)
        summarised(url)
        publisher = _Publisher(url, recorder, names, events, seed)
        publisher.start()
        watch = _Watch(url, publisher)
        phases: list[Phase] = []
        progress.say("publishing, before")
        time.sleep(2)  # connections and caches
        with watch.phase("before", phases):
            time.sleep(seconds)
        progress.say("planning on Spark")
        plan = _plan(folder, url, [one.id for one in client.servers()])
        progress.say("moving")
        with watch.phase("meanwhile", phases):
            began = time.perf_counter()
            done = _edn(
                "repartition", "apply", str(plan), "--yes", "--json", "--rate", str(rate), "--url", url
            )
            took = time.perf_counter() - began
        moved = json.loads(done)
        while client.run(moving.repartitions()).unsettled:
            time.sleep(0.1)
        summarised(url)
        progress.say("publishing, after")
        with watch.phase("after", phases):
            time.sleep(seconds)
        publisher.enough.set()
        publisher.join()
        progress.say("coming to rest")
        while any(one.lag or one.backlog for one in client.servers()):
            time.sleep(0.2)
        time.sleep(2.5)  # heartbeats tell the backlog; two of them
        recorder.quiet()
    return {
        "servers": servers,
        "subscriptions": servers * subscriptions,
        "moved": moved["moved"],
        "seconds": took,
        "expected_hit_ratio": moved["expected_hit_ratio"],
        **dict(zip(("before", "during", "after"), phases, strict=True)),
        "pairs": sink.pairs,
    }


def _subscribe(
    client: Client,
    recorder: Recorder,
    sink: _Sink,
    names: list[str],
    count: int,
    seed: int,
    progress: Progress,
) -> None:
    attributes = dict.fromkeys(names, "number")
    recorder.topic(TOPIC, attributes)
    client.create_topic(TOPIC, attributes)
    rng = np.random.default_rng(seed)
    lo, hi = uniform_rectangles(rng, count, len(names))
    with httpx.Client(base_url=client.url, timeout=120) as http:
        for start in range(0, count, STEP):
            progress.say(f"subscribing, {start:,} of {count:,}")
            bodies: list[dict[str, Any]] = [
                {
                    "id": f"sub{row}",
                    "topic": TOPIC,
                    "filter": {
                        name: {"between": [low, high]}
                        for name, low, high in zip(names, lo[row].tolist(), hi[row].tolist(), strict=True)
                    },
                    "sink": {"url": sink.address(row)},
                }
                for row in range(start, min(start + STEP, count))
            ]
            operations = [
                recorder.operation(
                    "subscribe",
                    subscription=body["id"],
                    topic=TOPIC,
                    filter=body["filter"],
                    address=body["sink"]["url"],
                ).__enter__()
                for body in bodies
            ]
            answer = http.post("/v1/subscriptions", json=bodies)
            answer.raise_for_status()
            for operation in operations:
                operation.ok()


def _plan(folder: Path, url: str, servers: list[str]) -> Path:
    snapshot, plan = folder / "subscriptions.parquet", folder / "plan"
    _edn("export", str(snapshot), "--topic", TOPIC, "--url", url)
    _edn(
        "repartition",
        "plan",
        "--snapshot",
        str(snapshot),
        "--servers",
        ",".join(servers),
        "--plan",
        str(plan),
    )
    return plan


def _edn(*arguments: str) -> str:
    ran = subprocess.run(
        [sys.executable, "-m", "edn.cli", *arguments], capture_output=True, text=True, check=False
    )
    if ran.returncode:
        raise RuntimeError(f"edn {arguments[0]} {arguments[1]}: {ran.stderr[-2000:]}")
    return ran.stdout
