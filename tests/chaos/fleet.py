"""The network under test: a dispatcher, its servers, and proxies on every way between them.

Each process is kept as a supervisor would keep it: whenever it ends, whatever the reason, it is started again
in the same data folder. A server may come back at another port; what the dispatcher calls is its proxy.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil

from tests.chaos.proxy import Proxy
from tests.chaos.schedule import DISPATCHER, SECOND
from tests.chaos.spawning import Spawner
from tests.faults import wall_clock
from tests.network.processes import free_port

_LOOK_SECONDS = 0.02
_SECRET = "a secret of the chaos, long enough"


@dataclass(eq=False)
class Service:
    """One process, over all its lives."""

    name: str
    module: str
    data: Path
    #: flags but for the port
    flags: list[str]
    folder: Path
    #: leads to it, for those whom faults concern
    proxy: Proxy
    chance: random.Random
    #: a server may choose another port in its next life
    port_varies: bool
    port: int = 0
    pid: int | None = None
    up: asyncio.Event = field(default_factory=asyncio.Event)
    starts: int = 0
    #: kills of ours that have not been heard of yet
    killed: int = 0
    #: exit codes of ends that nobody asked for
    deaths: list[int] = field(default_factory=list)
    largest_rss: int = 0

    @property
    def role(self) -> str:
        return DISPATCHER if self.module == DISPATCHER else "server"

    @property
    def clock_file(self) -> Path:
        """Holds by how much its wall clock is wrong."""
        return self.folder / f"{self.name}.clock"

    @property
    def errors(self) -> Path:
        return self.folder / f"{self.name}.log"

    def send(self, number: signal.Signals) -> bool:
        """Signal the process that runs now; False when there is none."""
        if self.pid is None:
            return False
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            return False
        if number == signal.SIGKILL:
            self.killed += 1
            self.up.clear()
        return True

    def measure(self) -> None:
        if self.pid is not None:
            with contextlib.suppress(psutil.Error):
                self.largest_rss = max(self.largest_rss, psutil.Process(self.pid).memory_info().rss)


class Fleet:
    """All services; `running` keeps them alive until it is left."""

    def __init__(
        self, spawner: Spawner, folder: Path, full: Path | None, servers: int, dispatchers: int, seed: int
    ) -> None:
        """`full`: a folder on a small disk of its own, for the dispatcher and the first server."""
        self._spawner = spawner
        self._stopping = asyncio.Event()
        secret = folder / "secret"
        secret.write_text(_SECRET)
        secret.chmod(0o600)
        shared = ["--host", "127.0.0.1", "--secret-file", str(secret), "--allow-loopback-sinks"]

        def service(name: str, module: str, proxy: Proxy, flags: list[str]) -> Service:
            data = (full if full is not None and name in (DISPATCHER, "s1") else folder) / name
            chance = random.Random(f"{name} of {seed}")
            return Service(
                name,
                module,
                data,
                ["--data", str(data), *shared, *flags],
                folder,
                proxy,
                chance,
                port_varies=module != DISPATCHER,
            )

        self.dispatchers = {
            name: service(name, DISPATCHER, Proxy(), ["--open"])
            for name in (DISPATCHER, SECOND)[:dispatchers]
        }
        self.dispatcher = self.dispatchers[DISPATCHER]
        self.servers = {
            name: service(name, "edn_server", Proxy(), ["--id", name])
            for name in (f"s{number}" for number in range(1, servers + 1))
        }
        self.services = {**self.dispatchers, **self.servers}

    @property
    def urls(self) -> dict[str, str]:
        """Where clients find the dispatchers: each at its own port, in all its lives."""
        return {name: f"http://127.0.0.1:{one.port}" for name, one in self.dispatchers.items()}

    @property
    def url(self) -> str:
        return self.urls[DISPATCHER]

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as stack:
            for service in self.services.values():
                await stack.enter_async_context(service.proxy)
                service.port = free_port()
                service.proxy.upstream = service.port
            for server in self.servers.values():
                for dispatcher in self.dispatchers.values():
                    server.flags += ["--dispatcher", dispatcher.proxy.url]
                server.flags += ["--advertise", server.proxy.url]
            keepers = [asyncio.create_task(self._keep(service)) for service in self.services.values()]
            watcher = asyncio.create_task(self._measure())
            try:
                yield
            finally:
                self._stopping.set()
                for service in self.services.values():
                    service.send(signal.SIGCONT)
                    service.send(signal.SIGTERM)
                watcher.cancel()
                _, late = await asyncio.wait(keepers, timeout=20)
                for service in self.services.values():
                    service.send(signal.SIGKILL)
                await asyncio.gather(*late, watcher, return_exceptions=True)

    async def _keep(self, service: Service) -> None:
        while not self._stopping.is_set():
            if service.starts and service.port_varies and service.chance.random() < 0.5:
                service.port = free_port()
                service.proxy.upstream = service.port
            service.starts += 1
            said = service.folder / f"{service.name}.{service.starts}.ready"
            service.pid, ended = await self._spawner.start(
                service.module,
                [*service.flags, "--port", str(service.port)],
                stdout=said,
                stderr=service.errors,
                environment={wall_clock.VARIABLE: str(service.clock_file)},
            )
            if self._stopping.is_set():
                service.send(signal.SIGTERM)
            service.killed = 0
            while not ended.done() and ready_line(said) is None:
                await asyncio.wait([ended], timeout=_LOOK_SECONDS)
            if not ended.done() and not service.killed:
                service.up.set()
            code = await ended
            service.pid = None
            service.up.clear()
            said.unlink(missing_ok=True)
            if not self._stopping.is_set() and not (code == -signal.SIGKILL and service.killed):
                service.deaths.append(code)
                await asyncio.sleep(0.5)
            elif not self._stopping.is_set():
                await asyncio.sleep(service.chance.uniform(0.0, 0.4))

    async def _measure(self) -> None:
        while True:
            for service in self.services.values():
                service.measure()
            await asyncio.sleep(1.0)

    async def all_up(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                for service in self.services.values():
                    await service.up.wait()
        except TimeoutError:
            return False
        return True

    async def at_rest(self, client: httpx.AsyncClient) -> str | None:
        """None when every server has read all logs and delivered everything; else what is still under way."""
        for url in self.urls.values():
            still = await unrest(client, url, len(self.servers))
            if still is not None:
                return still
        return None

    def disabled(self) -> int:
        """How often a process said that it disables an address."""
        return sum(
            service.errors.read_text(errors="replace").count('"sink_disabled"')
            for service in self.services.values()
            if service.errors.exists()
        )

    def deaths(self) -> Counter[str]:
        """Ends that nobody asked for, by name and exit code."""
        return Counter(
            f"{service.name}: {code}" for service in self.services.values() for code in service.deaths
        )


async def unrest(client: httpx.AsyncClient, url: str, servers: int) -> str | None:
    """None when a dispatcher says that so many servers have read and delivered everything; else what not."""
    try:
        answer = await client.get(f"{url}/v1/servers")
        listed: list[dict[str, Any]] = answer.raise_for_status().json()["servers"]
        moving = (await client.get(f"{url}/v1/repartitions")).raise_for_status().json()
    except (httpx.HTTPError, ValueError, KeyError) as error:
        return f"the dispatcher does not answer: {type(error).__name__}"
    if len(listed) < servers:
        return f"{len(listed)} of {servers} servers are registered"
    for one in listed:
        if one["state"] != "ready" or one["lag"] or one["backlog"]:
            return f"{one['id']} is {one['state']}, lag {one['lag']}, backlog {one['backlog']}"
    if moving["unsettled"] or any(one["state"] == "running" for one in moving["repartitions"]):
        return f"subscriptions are being moved, {moving['unsettled']} are not settled"
    return None


def ready_line(file: Path) -> dict[str, Any] | None:
    """What a process said when it became ready; one that waits for something says first that it is not."""
    try:
        data = file.read_bytes()
    except OSError:
        return None
    *lines, _ = data.split(b"\n")
    said: list[dict[str, Any]] = [json.loads(line) for line in lines]
    return next((line for line in said if line.get("ready") is True), None)
