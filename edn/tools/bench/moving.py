"""A plan applied to a running network: its cost for publishers, and the hit ratio before and after.

Ten servers with two thousand subscriptions each, placed at random, and a steady publisher. The network is
exported, Spark makes a plan, the plan is applied. Every publish is timed before, during and after the
migrations; hit ratios are those of the dispatcher's counters. Requests and notifications are recorded, and
the checker judges the recording.
"""

from __future__ import annotations

import asyncio
import json
import re
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from edn.client import Client, moving
from edn.tools.bench.histogram import Distribution
from edn.tools.bench.network import STEP, Counted, filters, names_of, network, run_edn, summarised
from edn.tools.bench.plain import TAKEN, listen, path_of
from edn.tools.bench.report import Cell, Progress, facts
from edn.tools.bench.workloads import uniform_points, uniform_rectangles
from edn.tools.checker import Recorder, check_recording

TOPIC = "moving"
ADDRESSES = 20
_WEBHOOK_ID = re.compile(rb"(?i)\nwebhook-id: *([^\r]*)")


@dataclass(frozen=True, slots=True)
class Phase:
    """Publishing and the hit ratio in one phase."""

    events: int
    p50_ms: float
    p99_ms: float
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
    #: of the checker, on the whole run
    verdict: str
    pairs: int

    @property
    def distributions(self) -> list[Distribution]:
        return [self.before.times, self.during.times, self.after.times]


def _publishing(name: str, phase: str) -> tuple[str, Cell]:
    cell = f"{{r.{phase}.p50_ms:.1f}}, {{r.{phase}.p99_ms:.1f}} ms of {{r.{phase}.events:,}}"
    return f"publish {name}: p50, p99", cell


def _hit_ratios(moved: Moved) -> str:
    expected = moved.expected_hit_ratio
    promised = "" if expected is None else f" (the plan: {expected:.3f})"
    return f"{moved.before.hit_ratio:.3f}, {moved.after.hit_ratio:.3f}{promised}"


show = facts(
    "A plan applied to a running network",
    ("servers, subscriptions", "{r.servers}, {r.subscriptions:,}"),
    ("moved, in seconds", "{r.moved:,} in {r.seconds:.1f} s"),
    ("hit ratio before, after", _hit_ratios),
    _publishing("before", "before"),
    _publishing("meanwhile", "during"),
    _publishing("after", "after"),
    ("p99 meanwhile ÷ before", lambda r: f"{r.during.p99_ms / r.before.p99_ms:.2f}"),
    ("the checker, pairs", "{r.verdict}, {r.pairs:,}"),
)


class _Sink:
    """A sink, in a thread, that records every POST before it answers."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self.pairs = 0
        self.url = ""
        listening = threading.Event()
        threading.Thread(target=lambda: asyncio.run(self._serve(listening)), daemon=True).start()
        listening.wait()
        for number in range(ADDRESSES):
            recorder.listening(self.address(number))

    async def _serve(self, listening: threading.Event) -> None:
        _, self.url = await listen(self._take)
        listening.set()
        await asyncio.Event().wait()

    def address(self, number: int) -> str:
        return f"{self.url}/{number % ADDRESSES}"

    async def _take(self, head: bytes, body: bytes) -> bytes:
        [identifier] = _WEBHOOK_ID.findall(head)
        self._recorder.notification(self.url + path_of(head), identifier.decode(), body)
        self.pairs += body.count(b'"subscription":')
        return TAKEN


#: time of each publish, and its seconds
Taken = list[tuple[float, float]]


@contextmanager
def _publisher(url: str, recorder: Recorder, names: list[str], rate: float, seed: int) -> Iterator[Taken]:
    """Publishes single events at a constant rate, in a thread."""
    taken: Taken = []
    enough = threading.Event()

    def publish() -> None:
        rng = np.random.default_rng(seed)
        due = time.perf_counter()
        with httpx.Client(base_url=url, timeout=60) as http:
            while not enough.is_set():
                point = uniform_points(rng, 1, len(names))[0].tolist()
                event = {"$id": f"e{len(taken)}", **dict(zip(names, point, strict=True))}
                with recorder.operation("publish", topic=TOPIC, events=[event], publisher="p") as op:
                    began = time.perf_counter()
                    answer = http.post(f"/v1/topics/{TOPIC}/events", json=event)
                    ended = time.perf_counter()
                    op.answered(answer.status_code, ids=[event["$id"]])
                taken.append((began, ended - began))
                due = max(due + 1 / rate, ended)
                enough.wait(max(0.0, due - time.perf_counter()))

    thread = threading.Thread(target=publish, daemon=True)
    thread.start()
    try:
        yield taken
    finally:
        enough.set()
        thread.join()


@contextmanager
def _phase(name: str, http: httpx.Client, taken: Taken, found: list[Phase]) -> Iterator[None]:
    """Measures publishing and the hit ratio while the body runs."""
    began, before = time.perf_counter(), Counted.read(http)
    yield
    ended = time.perf_counter()
    while (now := Counted.read(http)).lag >= 5 and time.perf_counter() < ended + 30:
        time.sleep(0.1)
    milliseconds = [seconds * 1000 for at, seconds in taken if began <= at < ended]
    times = Distribution.of(f"publishing {name}", "ms", milliseconds)
    found.append(Phase(times.count, times.p50, times.p99, now.hit_ratio(before), times))


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
    """`rate`: migrations per second; `events`: per second; `seconds`: of the phases before and after."""
    settings = {"EDN_PLACEMENT": "random", "EDN_PLACEMENT_SEED": str(seed), "EDN_TUNING": "fixed"}
    phases: list[Phase] = []
    drawn = uniform_rectangles(np.random.default_rng(seed), servers * subscriptions, dimensions)
    with tempfile.TemporaryDirectory(prefix="edn-bench-moving-") as name:
        recording = Path(name) / "recording.jsonl"
        with (
            Recorder(recording) as recorder,
            network(servers, **settings) as running,
            Client(running.url) as client,
            httpx.Client(base_url=running.url, timeout=120) as http,
        ):
            url, sink = running.url, _Sink(recorder)
            _subscribe(client, http, recorder, sink, filters(*drawn), progress)
            summarised(url)
            with _publisher(url, recorder, names_of(dimensions), events, seed) as taken:
                progress.say("publishing, before")
                time.sleep(2)  # connections and caches
                with _phase("before", http, taken, phases):
                    time.sleep(seconds)
                progress.say("planning on Spark")
                plan = str(_plan(Path(name), url, [one.id for one in client.servers()]))
                progress.say("moving")
                with _phase("meanwhile", http, taken, phases):
                    began = time.perf_counter()
                    apply = (
                        "repartition",
                        "apply",
                        plan,
                        "--yes",
                        "--json",
                        "--rate",
                        str(rate),
                        "--url",
                        url,
                    )
                    moved = json.loads(run_edn(*apply))
                    took = time.perf_counter() - began
                while client.run(moving.repartitions()).unsettled:
                    time.sleep(0.1)
                summarised(url)
                progress.say("publishing, after")
                with _phase("after", http, taken, phases):
                    time.sleep(seconds)
            progress.say("draining")
            while any(one.lag or one.backlog for one in client.servers()):
                time.sleep(0.2)
            time.sleep(2.5)  # two heartbeats, which report the backlog
            recorder.quiet()
        progress.say("checking")
        report = check_recording(recording)
    verdict = "holds" if report.verdict == "holds" else f"{report.verdict}: {report}"
    return Moved(
        servers,
        servers * subscriptions,
        moved["moved"],
        took,
        moved["expected_hit_ratio"],
        *(phases[0], phases[1], phases[2]),
        verdict,
        sink.pairs,
    )


def _subscribe(
    client: Client,
    http: httpx.Client,
    recorder: Recorder,
    sink: _Sink,
    wanted: list[dict[str, Any]],
    progress: Progress,
) -> None:
    attributes = dict.fromkeys(wanted[0], "number")
    recorder.topic(TOPIC, attributes)
    client.create_topic(TOPIC, attributes)
    for start in range(0, len(wanted), STEP):
        progress.say(f"subscribing, {start:,} of {len(wanted):,}")
        bodies: list[dict[str, Any]] = [
            {"id": f"sub{row}", "topic": TOPIC, "filter": filter, "sink": {"url": sink.address(row)}}
            for row, filter in enumerate(wanted[start : start + STEP], start)
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
    run_edn("export", str(snapshot), "--topic", TOPIC, "--url", url)
    aims = ("--servers", ",".join(servers), "--plan", str(plan))
    run_edn("repartition", "plan", "--snapshot", str(snapshot), *aims)
    return plan
