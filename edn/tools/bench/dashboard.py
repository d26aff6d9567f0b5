"""Measures the dispatcher's CPU time per event with and without open dashboards.

One network under a constant load, published by the clock, and turns of some seconds in which nobody watches,
or all dashboards show their overview, or all their map. Each round takes every turn, beginning with another
one; what a turn costs is compared with the turn of the same round in which nobody watched, and the median of
the rounds counts. Dashboards cost little beside what else varies from turn to turn, so when the load is over
they are measured at rest, too, where nothing else does: what they take then is told in parts of what the
dispatcher takes under the load.

The dashboards are a process of their own that asks what the page asks (`dispatcher/api/dashboard/static`):
the live stream, read and decoded; the topics, when it begins; for the map the projection, again every four
seconds, which is as often as the page ever asks, and only while summaries change. To open a page costs more
than to look at it: that is not counted. CPU time is the dispatcher's, of all its threads.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
import time
from dataclasses import asdict, dataclass
from statistics import median, stdev
from typing import Any, Literal, get_args

import httpx
import numpy as np

from edn.tools.bench.histogram import Distribution
from edn.tools.bench.network import TOPIC, filled, requests_of
from edn.tools.bench.plain import connect, publish, start_program
from edn.tools.bench.report import Progress, facts

View = Literal["nobody", "overview", "map"]
VIEWS: tuple[View, ...] = get_args(View)
BATCH = 100
CONNECTIONS = 4
#: seconds between two questions of a page for the map
MAP_SECONDS = 4.0


@dataclass(frozen=True, slots=True)
class Outcome:
    servers: int
    subscriptions: int
    dashboards: int
    seconds: float
    #: events a second that were offered, and accepted
    offered: float
    accepted: float
    #: by view: the dispatcher's CPU µs an event, one a round
    cpu_us: dict[View, list[float]]
    #: by view: the dispatcher's CPU time after the load, in parts of one core
    at_rest: dict[View, float]
    distributions: list[Distribution]

    def shares(self, view: View) -> list[float]:
        """What the dashboards took, in parts of the dispatcher's CPU time without them, one a round."""
        pairs = zip(self.cpu_us[view], self.cpu_us["nobody"], strict=True)
        return [watched / alone - 1 for watched, alone in pairs]

    @property
    def core(self) -> float:
        """The dispatcher's CPU time under the load with nobody watching, in parts of one core."""
        return median(self.cpu_us["nobody"]) * self.accepted / 1e6

    def rest_share(self, view: View) -> float:
        """What the dashboards took at rest, in parts of the dispatcher's CPU time under the load."""
        return (self.at_rest[view] - self.at_rest["nobody"]) / self.core

    def to_json(self) -> dict[str, Any]:
        share = {view: median(self.shares(view)) for view in VIEWS[1:]}
        return {
            **asdict(self),
            "share": share,
            "share_at_rest": {view: self.rest_share(view) for view in VIEWS[1:]},
        }

    def cost(self, view: View) -> str:
        """CPU µs an event, and how much more that is than without dashboards."""
        shares = self.shares(view)
        error = f" ± {stdev(shares) / len(shares) ** 0.5:.1%}" if len(shares) > 1 else ""
        return f"{median(self.cpu_us[view]):.2f}, {median(shares):+.1%}{error}"


show = facts(
    "Open dashboards",
    ("servers, subscriptions in all", "{r.servers}, {r.subscriptions:,}"),
    ("rounds, seconds of a turn", lambda r: f"{len(r.cpu_us['nobody'])}, {r.seconds:g}"),
    ("events/s offered, accepted", "{r.offered:,.0f}, {r.accepted:,.0f}"),
    (
        "dispatcher alone: CPU µs/event, of a core",
        lambda r: f"{median(r.cpu_us['nobody']):.2f}, {r.core:.0%}",
    ),
    ("{r.dashboards} dashboards on their overview: CPU µs/event, more", lambda r: r.cost("overview")),
    ("{r.dashboards} dashboards on their map: CPU µs/event, more", lambda r: r.cost("map")),
    ("… at rest, in parts of the above: overview", lambda r: f"{r.rest_share('overview'):+.2%}"),
    ("… at rest, in parts of the above: map", lambda r: f"{r.rest_share('map'):+.2%}"),
)


def run(
    *,
    servers: int,
    subscriptions: int,
    dashboards: int,
    rate: float,
    rounds: int,
    seconds: float,
    seed: int,
    progress: Progress,
) -> Outcome:
    """`subscriptions`: per server; `rate`: events a second; `seconds`: of a turn."""
    rng = np.random.default_rng(seed)
    with filled(servers, subscriptions, 4, rng, progress, EDN_TUNING="fixed") as running:
        dispatcher, _ = running.roles()
        requests = requests_of(rng, 4, BATCH)
        cpu_us, at_rest, accepted = asyncio.run(
            _measure(running.url, dispatcher.pid, requests, dashboards, rate, rounds, seconds, progress)
        )
    distributions = [
        Distribution.of(f"dispatcher's CPU, {view}", "µs/event", values) for view, values in cpu_us.items()
    ]
    return Outcome(
        servers=servers,
        subscriptions=servers * subscriptions,
        dashboards=dashboards,
        seconds=seconds,
        offered=rate,
        accepted=accepted,
        cpu_us=cpu_us,
        at_rest=at_rest,
        distributions=distributions,
    )


async def _measure(
    url: str,
    pid: int,
    requests: list[bytes],
    dashboards: int,
    rate: float,
    rounds: int,
    seconds: float,
    progress: Progress,
) -> tuple[dict[View, list[float]], dict[View, float], float]:
    """By view CPU µs an event, and parts of a core at rest; and the events accepted a second."""
    cpu_us: dict[View, list[float]] = {view: [] for view in VIEWS}
    at_rest: dict[View, float] = {}
    async with _Watchers(url, dashboards) as watchers:
        async with _Load(url, requests, rate) as load:
            await asyncio.sleep(min(3.0, seconds))  # connections and caches
            start, events = time.perf_counter(), load.accepted
            for number in range(rounds):
                for place in range(len(VIEWS)):
                    view = VIEWS[(place + number) % len(VIEWS)]
                    progress.say(f"round {number + 1} of {rounds}: {view}")
                    await watchers.show(view)
                    before = _cpu_seconds(pid), load.accepted
                    await asyncio.sleep(seconds)  # the length of the measurement
                    after = _cpu_seconds(pid), load.accepted
                    load.check()
                    cpu_us[view].append(1e6 * (after[0] - before[0]) / (after[1] - before[1]))
            accepted = (load.accepted - events) / (time.perf_counter() - start)
        await asyncio.sleep(min(3.0, seconds))  # until the last events are with the servers
        for view in VIEWS:
            progress.say(f"at rest: {view}")
            await watchers.show(view)
            began = time.perf_counter(), _cpu_seconds(pid)
            await asyncio.sleep(2 * seconds)  # the length of the measurement
            at_rest[view] = (_cpu_seconds(pid) - began[1]) / (time.perf_counter() - began[0])
    return cpu_us, at_rest, accepted


def _cpu_seconds(pid: int) -> float:
    """CPU time of a process, by its own clock: what `/proc` tells is counted in hundredths of a second."""
    clock = ~pid << 3 | 2  # as clock_getcpuclockid(3) makes it on Linux
    return time.clock_gettime(clock)


class _Load:
    """Publishes at a constant rate, by the clock, whatever else happens."""

    def __init__(self, url: str, requests: list[bytes], rate: float) -> None:
        self._url = url
        self._requests = requests
        self._numbers = itertools.count()
        self._began = time.perf_counter()
        self._interval = BATCH / rate
        self._tasks: list[asyncio.Task[None]] = []
        #: events so far
        self.accepted = 0

    async def __aenter__(self) -> _Load:
        self._tasks = [asyncio.create_task(self._connection()) for _ in range(CONNECTIONS)]
        return self

    def check(self) -> None:
        for task in self._tasks:
            if task.done():
                task.result()

    async def __aexit__(self, *_: object) -> None:
        await _close(self._tasks)

    async def _connection(self) -> None:
        reader, writer = await connect(self._url)
        try:
            for number in self._numbers:
                due = self._began + number * self._interval
                await asyncio.sleep(max(0.0, due - time.perf_counter()))
                await publish(reader, writer, self._requests[number % len(self._requests)])
                self.accepted += BATCH
        finally:
            writer.close()


class _Watchers:
    """The process of the dashboards, told line by line what they show."""

    def __init__(self, url: str, dashboards: int) -> None:
        self._starting = start_program("edn.tools.bench.dashboard", url, str(dashboards))

    async def __aenter__(self) -> _Watchers:
        self._process = await self._starting
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._process.communicate(b"")  # which ends its standard input

    async def show(self, view: View) -> None:
        """Return when every dashboard shows it, and has seen a sample since."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(view.encode() + b"\n")
        if await self._process.stdout.readline() != b"shown\n":
            raise RuntimeError("the dashboards failed; what they said is above")


# -- the process of the dashboards --------------------------------------------------------------------------


class _Page:
    """Asks what an open page asks."""

    def __init__(self, url: str) -> None:
        self._url = url
        #: since it was opened
        self.sampled = asyncio.Event()

    async def show(self, view: View) -> None:
        """Until cancelled."""
        async with httpx.AsyncClient(base_url=self._url, timeout=None) as http, asyncio.TaskGroup() as tasks:
            tasks.create_task(self._stream(http))
            if view == "map":
                tasks.create_task(self._map(http))

    async def _stream(self, http: httpx.AsyncClient) -> None:
        event = ""
        async with http.stream("GET", "/v1/live") as stream:
            stream.raise_for_status()
            async for line in stream.aiter_lines():
                field, _, value = line.partition(": ")
                if field == "event":
                    event = value
                elif field == "data":
                    json.loads(value)
                    if event == "history":
                        (await http.get("/v1/topics")).raise_for_status()
                    elif event == "sample":
                        self.sampled.set()

    async def _map(self, http: httpx.AsyncClient) -> None:
        while True:
            answer = await http.get(f"/v1/topics/{TOPIC}/projection", params={"x": "a0", "y": "a1"})
            answer.raise_for_status().json()
            await asyncio.sleep(MAP_SECONDS)


async def _open(url: str, dashboards: int, view: View) -> list[asyncio.Task[None]]:
    """So many pages on a view, each with a sample; raises what one of them fails of."""
    pages = [_Page(url) for _ in range(dashboards if view != "nobody" else 0)]
    tasks = []
    for page in pages:
        tasks.append(asyncio.create_task(page.show(view)))
        await asyncio.sleep(MAP_SECONDS / dashboards)  # nobody opens theirs at the same moment
    for page, task in zip(pages, tasks, strict=True):
        sampled = asyncio.create_task(page.sampled.wait())
        await asyncio.wait((task, sampled), return_when=asyncio.FIRST_COMPLETED)
        sampled.cancel()
        if task.done():
            task.result()
    return tasks


async def _watch(url: str, dashboards: int) -> None:
    """Do what standard input says, a view a line, until it ends; say when it is done."""
    tasks: list[asyncio.Task[None]] = []
    while wanted := (await asyncio.to_thread(sys.stdin.readline)).strip():
        await _close(tasks)
        [view] = [one for one in VIEWS if one == wanted]
        tasks = await _open(url, dashboards, view)
        print("shown", flush=True)  # noqa: T201  the process that waits for it reads it
    await _close(tasks)


async def _close(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


if __name__ == "__main__":
    asyncio.run(_watch(sys.argv[1], int(sys.argv[2])))
