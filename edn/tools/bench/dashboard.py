"""The dispatcher's CPU time per event without and with open dashboards.

One network under a constant load, and turns of some seconds with a view: nobody watches, all dashboards show
their overview, or all show their map. Each round has every turn, beginning with another one. A turn is
compared with the turn of the same round without dashboards; the median of the rounds counts. Dashboards cost
little compared with the variation between turns, so they are measured after the load as well; that cost is
given as a share of the dispatcher's CPU time under the load.

The dashboards are a process that sends the page's requests (`dispatcher/api/dashboard/static`): the live
stream, read and decoded; the topics, at the beginning; for the map the projection every four seconds, the
page's maximum, which applies only while summaries change. Opening a page costs more than watching it and is
not counted. CPU time is that of all threads of the dispatcher.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median, stdev
from typing import Any, Literal, get_args

import httpx
import numpy as np

from edn.tools.bench.histogram import Distribution
from edn.tools.bench.network import TOPIC, filled, requests_of
from edn.tools.bench.plain import Answer, every, expect_accepted, publish, start_program
from edn.tools.bench.report import Progress, facts

View = Literal["nobody", "overview", "map"]
VIEWS: tuple[View, ...] = get_args(View)
BATCH = 100
CONNECTIONS = 4
#: seconds between two requests of a page for the map
MAP_SECONDS = 4.0


@dataclass(frozen=True, slots=True)
class Outcome:
    servers: int
    subscriptions: int
    dashboards: int
    seconds: float
    #: events per second
    offered: float
    accepted: float
    #: by view: the dispatcher's CPU µs per event, one per round
    cpu_us: dict[View, list[float]]
    #: by view: the dispatcher's CPU time after the load, as a share of one core
    at_rest: dict[View, float]
    distributions: list[Distribution]

    def shares(self, view: View) -> list[float]:
        """Returns the additional CPU time ÷ that without dashboards, one per round."""
        pairs = zip(self.cpu_us[view], self.cpu_us["nobody"], strict=True)
        return [watched / alone - 1 for watched, alone in pairs]

    @property
    def core(self) -> float:
        """The dispatcher's CPU time under the load without dashboards, as a share of one core."""
        return median(self.cpu_us["nobody"]) * self.accepted / 1e6

    @property
    def share(self) -> dict[View, float]:
        """Median share per view."""
        return {view: median(self.shares(view)) for view in VIEWS[1:]}

    @property
    def share_at_rest(self) -> dict[View, float]:
        """CPU time of the dashboards at rest ÷ CPU time of the dispatcher under the load."""
        return {view: (self.at_rest[view] - self.at_rest["nobody"]) / self.core for view in VIEWS[1:]}

    def cost(self, view: View) -> str:
        """Formats CPU µs per event and the increase over no dashboards."""
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
    ("… at rest, share of the CPU time above: overview", lambda r: f"{r.share_at_rest['overview']:+.2%}"),
    ("… at rest, share of the CPU time above: map", lambda r: f"{r.share_at_rest['map']:+.2%}"),
)


async def run(
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
    """`subscriptions`: per server; `rate`: events per second; `seconds`: of a turn."""
    rng = np.random.default_rng(seed)
    cpu_us: dict[View, list[float]] = {view: [] for view in VIEWS}
    at_rest: dict[View, float] = {}
    with filled(servers, subscriptions, 4, rng, progress, EDN_TUNING="fixed") as running:
        pid = running.roles()[0].pid
        async with _Watchers(running.url, dashboards) as watchers:
            async with _Load(running.url, requests_of(rng, 4, BATCH), rate) as load:
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
            await asyncio.sleep(min(3.0, seconds))  # until the servers have the last events
            for view in VIEWS:
                progress.say(f"at rest: {view}")
                await watchers.show(view)
                began = time.perf_counter(), _cpu_seconds(pid)
                await asyncio.sleep(2 * seconds)  # the length of the measurement
                at_rest[view] = (_cpu_seconds(pid) - began[1]) / (time.perf_counter() - began[0])
    distributions = [
        Distribution.of(f"dispatcher's CPU, {view}", "µs/event", values) for view, values in cpu_us.items()
    ]
    total = servers * subscriptions
    return Outcome(servers, total, dashboards, seconds, rate, accepted, cpu_us, at_rest, distributions)


def _cpu_seconds(pid: int) -> float:
    """Returns the CPU time of a process by its own clock: `/proc` counts in hundredths of a second."""
    clock = ~pid << 3 | 2  # like clock_getcpuclockid(3) on Linux
    return time.clock_gettime(clock)


class _Load:
    """Publishes at a constant rate, by the clock."""

    def __init__(self, url: str, requests: list[bytes], rate: float) -> None:
        self._publishing = publish(url, requests, every(BATCH / rate), CONNECTIONS, self._on_answer)
        #: events so far
        self.accepted = 0

    async def __aenter__(self) -> _Load:
        self._task = asyncio.create_task(self._publishing)
        return self

    def _on_answer(self, answer: Answer, *_: float) -> None:
        expect_accepted(answer)
        self.accepted += BATCH

    def check(self) -> None:
        """Raises if publishing has failed."""
        if self._task.done():
            self._task.result()

    async def __aexit__(self, *_: object) -> None:
        await _close([self._task])


class _Watchers:
    """The process of the dashboards, controlled by one line per view."""

    def __init__(self, url: str, dashboards: int) -> None:
        self._starting = start_program("edn.tools.bench.dashboard", url, str(dashboards))

    async def __aenter__(self) -> _Watchers:
        self._process = await self._starting
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._process.communicate(b"")  # closes its standard input

    async def show(self, view: View) -> None:
        """Returns when every dashboard shows the view and has received a sample."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(view.encode() + b"\n")
        if await self._process.stdout.readline() != b"shown\n":
            raise RuntimeError("the dashboards failed; see their output above")


# -- the process of the dashboards --------------------------------------------------------------------------


class _Page:
    """Sends the requests of an open page."""

    def __init__(self, url: str) -> None:
        self._url = url
        #: set by the first sample
        self.sampled = asyncio.Event()

    async def show(self, view: View) -> None:
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
    """Opens pages and waits for a sample of each; raises if one fails."""
    pages = [_Page(url) for _ in range(dashboards if view != "nobody" else 0)]
    tasks = []
    for page in pages:
        tasks.append(asyncio.create_task(page.show(view)))
        await asyncio.sleep(MAP_SECONDS / dashboards)  # not all at the same moment
    for page, task in zip(pages, tasks, strict=True):
        sampled = asyncio.create_task(page.sampled.wait())
        await asyncio.wait((task, sampled), return_when=asyncio.FIRST_COMPLETED)
        sampled.cancel()
        if task.done():
            task.result()
    return tasks


async def _watch(url: str, dashboards: int) -> None:
    """Shows the views that standard input names, one per line, until it ends; confirms each."""
    tasks: list[asyncio.Task[None]] = []
    while wanted := (await asyncio.to_thread(sys.stdin.readline)).strip():
        await _close(tasks)
        [view] = [one for one in VIEWS if one == wanted]
        tasks = await _open(url, dashboards, view)
        print("shown", flush=True)  # noqa: T201  the parent reads it
    await _close(tasks)


async def _close(tasks: Sequence[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


if __name__ == "__main__":
    asyncio.run(_watch(sys.argv[1], int(sys.argv[2])))
