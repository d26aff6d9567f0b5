"""One run: a locked network, three tenants, sinks that come and go, samples."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psutil

from tests.network import Network
from tests.soak.churn import Figures, Tenant
from tests.soak.growth import STRICT_SECONDS, Growth, judge
from tests.soak.sampling import FIGURES, Samples, sample
from tests.soak.sinks import Sinks

TENANTS = ("acme", "globex", "initech")
#: what is kept for days is kept for seconds here, so that a run of minutes reaches a steady state
SERVER_OPTIONS = (
    "--attempts-kept", "20", "--dead-letters-kept", "25", "--give-up-seconds", "12",
    "--retry-steps", "0.5,1,2,4", "--refused-attempts", "3", "--warn-seconds", "15",
    "--disable-seconds", "30", "--attempt-seconds", "4",
)  # fmt: skip
#: the dispatcher holds 64 MiB of recent events in memory: filled before a run that is judged strictly
_FILL_DISPATCHER, _FILL_AT_ONCE = 13_000, 8
#: servers hold 64 MiB of recent matches and of what became of them, which takes more than half an hour of the
#: load to fill; before a run that is judged strictly so many requests go to subscriptions on all servers
_FILL_REQUESTS, _FILL_EVENTS, _FILL_SUBSCRIPTIONS = 700, 900, 4
_EVERY = 2.0


@dataclass(slots=True)
class Outcome:
    figures: Figures
    samples: dict[str, Samples]
    #: processes that ended by themselves
    deaths: list[str] = field(default_factory=list)
    backlog: list[tuple[float, int]] = field(default_factory=list)

    def growth(self) -> list[Growth]:
        return [
            judge(name, figure, one.times, one.figures[figure])
            for name, one in self.samples.items()
            for figure in FIGURES
            if len(one.times) >= 8
        ]


def run(folder: Path, seed: int, seconds: float, servers: int, say: Callable[[str], None]) -> Outcome:
    network = Network(folder, servers, locked=True, server_options=SERVER_OPTIONS)
    try:
        network.start()
        return asyncio.run(_drive(network, seed, seconds, say))
    except (AssertionError, httpx.HTTPError):
        print(network.report())
        raise
    finally:
        network.close()


async def _drive(network: Network, seed: int, seconds: float, say: Callable[[str], None]) -> Outcome:
    figures, ending = Figures(), asyncio.Event()
    sinks = Sinks(random.Random(f"sinks {seed}"))
    processes = {process.name: process for process in network.processes()}
    samples = {name: Samples(process.pid, network.folder / name) for name, process in processes.items()}
    outcome = Outcome(figures, samples)
    tenants = [
        Tenant(name, network.url, await _key(network, name), random.Random(f"{name} {seed}"), sinks, figures)
        for name in TENANTS
    ]
    async with asyncio.TaskGroup() as group:
        group.create_task(sinks.run(ending))
        for tenant in tenants:
            await tenant.open()
        if seconds >= STRICT_SECONDS:
            await _fill(tenants[0], _FILL_DISPATCHER, say)
            await _fill_servers(network, tenants[1], sinks, say)
        for tenant in tenants:
            group.create_task(tenant.publish(ending))
            group.create_task(tenant.churn(ending))
        watching = group.create_task(sample(samples, ending, _EVERY))
        try:
            await _watch(network, outcome, seconds, watching, say)
        finally:
            ending.set()
    for tenant in tenants:
        await tenant.http.aclose()
    outcome.deaths = [name for name, process in processes.items() if not process.alive()]
    return outcome


async def _key(network: Network, tenant: str) -> str:
    body = {"name": tenant, "tenant": tenant, "scopes": ["admin", "publish", "subscribe"]}
    answer = network.http.post("/v1/keys", json=body)
    answer.raise_for_status()
    key: str = answer.json()["key"]
    return key


async def _fill(tenant: Tenant, requests: int, say: Callable[[str], None]) -> None:
    """Fills the dispatcher's memory of recent events with records like those of the load: what they cost
    besides their bytes is not counted in its limit, so larger ones would leave room to grow."""
    began, left = time.monotonic(), iter(range(requests))

    async def publish() -> None:
        for _ in left:
            body = [{**event, "symbol": "fill"} for event in tenant.events()]
            for _ in range(60):
                answer = await tenant.http.post("/v1/topics/stocks/events", json=body)
                if answer.status_code not in (429, 503):
                    break
                await asyncio.sleep(0.5)
            answer.raise_for_status()

    async with asyncio.TaskGroup() as group:
        for _ in range(_FILL_AT_ONCE):
            group.create_task(publish())
    say(f"filled the dispatcher's memory with {requests} requests in {time.monotonic() - began:.0f} s")


async def _fill_servers(network: Network, tenant: Tenant, sinks: Sinks, say: Callable[[str], None]) -> None:
    began = time.monotonic()
    ids = [f"fill-{number}" for number in range(_FILL_SUBSCRIPTIONS)]
    for name in ids:
        body = {"id": name, "topic": "stocks", "filter": {"symbol": "fill"}, "sink": {"url": sinks.healthy()}}
        (await tenant.http.post("/v1/subscriptions", json=body)).raise_for_status()
    sent = 0
    events = [{"symbol": "fill", "note": "x" * 40}] * _FILL_EVENTS
    while sent < _FILL_REQUESTS:
        answer = await tenant.http.post("/v1/topics/stocks/events", json=events)
        if answer.status_code in (429, 503) or (sent % 50 == 49 and await _backlog(network) > 200_000):
            await asyncio.sleep(1.0)
        else:
            answer.raise_for_status()
        sent += 1
    for _ in range(180):
        if await _backlog(network) <= 100:
            break
        await asyncio.sleep(1.0)
    for name in ids:
        (await tenant.http.delete(f"/v1/subscriptions/{name}")).raise_for_status()
    say(f"filled the servers' evidence with {sent * _FILL_EVENTS} events in {time.monotonic() - began:.0f} s")


async def _backlog(network: Network) -> int:
    """Notifications that wait on all servers, and records that they have yet to read."""
    listed = (await asyncio.to_thread(network.http.get, "/v1/servers")).json()["servers"]
    return sum((one["backlog"] or 0) + (one["lag"] or 0) for one in listed)


async def _watch(
    network: Network,
    outcome: Outcome,
    seconds: float,
    watching: asyncio.Task[None],
    say: Callable[[str], None],
) -> None:
    """Until the time is over or a process has ended; a line per minute."""
    began = time.monotonic()
    said = 0
    while time.monotonic() - began < seconds:
        await asyncio.sleep(min(5.0, seconds))
        if watching.done():
            try:
                watching.result()
            except psutil.NoSuchProcess:
                say("a process has ended")
            return
        passed = time.monotonic() - began
        try:
            outcome.backlog.append((passed, await _backlog(network)))
        except (httpx.HTTPError, KeyError):
            pass
        if passed // 60 > said:
            said = int(passed // 60)
            rss = ", ".join(
                f"{name} {one.figures['rss'][-1] / (1 << 20):.0f}" for name, one in outcome.samples.items()
            )
            backlog = outcome.backlog[-1][1] if outcome.backlog else 0
            say(f"minute {said}: {outcome.figures.events} events, backlog {backlog}, MiB: {rss}")
