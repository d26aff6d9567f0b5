"""The network under test: dispatchers, servers and spares on the database cluster, without data folders.

A process that died is never started again. After a while, longer than a takeover, a fresh one comes in its
place, as on a new machine: another dispatcher with a log of its own, or another spare. All dispatchers are
active. Clients find one that is ready through doors, as through load balancers on `/readyz`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import httpx
import psutil

from edn.runtime.postgres.writer import EXIT_FENCED
from tests.chaos.cluster.database import DatabaseCluster
from tests.chaos.fleet import ready_line, unrest
from tests.chaos.proxy import Direction, Proxy
from tests.chaos.spawning import Spawner
from tests.faults import wall_clock
from tests.network.processes import free_port
from tests.postgres import USER

Role = Literal["dispatcher", "server"]

_SECRET = "a secret of the chaos, long enough"
#: seconds after a death until a fresh process comes
_REPLACED_AFTER = (8.0, 12.0)
_LOOK_SECONDS = 0.05


@dataclass(eq=False)
class Member:
    """One process, in its only life."""

    name: str
    role: Role
    flags: list[str]
    folder: Path
    #: its ways to the nodes of the database
    ways: list[Proxy]
    port: int
    pid: int | None = None
    #: its id in the network; a spare has none until it has taken a shard
    id: str = ""
    up: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    #: whether a fault may have cost it its lease
    is_excused: bool = False
    killed: bool = False
    largest_rss: int = 0

    @property
    def clock_file(self) -> Path:
        return self.folder / f"{self.name}.clock"

    @property
    def errors(self) -> Path:
        return self.folder / f"{self.name}.log"

    def send(self, number: signal.Signals) -> bool:
        if self.pid is None:
            return False
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            return False
        if number == signal.SIGKILL:
            self.killed = True
            self.up.clear()
        return True

    def swallow(self, direction: Direction) -> None:
        for way in self.ways:
            way.swallow(direction)

    def release(self, *, cut: bool) -> int:
        ended = sum(way.connections for way in self.ways) if cut else 0
        for way in self.ways:
            way.release(cut=cut)
        return ended


class ClusterFleet:
    """All processes of the network; `running` keeps their number until it is left."""

    def __init__(
        self,
        spawner: Spawner,
        folder: Path,
        database: DatabaseCluster,
        *,
        servers: int,
        dispatchers: int,
        spares: int,
        seed: int,
    ) -> None:
        self._spawner = spawner
        self._folder = folder
        self._database = database
        self._counts = {"dispatcher": dispatchers, "server": servers + spares}
        self._chance = random.Random(f"fleet of {seed}")
        self._stopping = False
        self._made = Counter[str]()
        self._stack = contextlib.AsyncExitStack()
        self._tasks: set[asyncio.Task[None]] = set()
        secret = folder / "secret"
        secret.write_text(_SECRET)
        secret.chmod(0o600)
        keys = folder / "secret-keys"
        keys.write_text("5e" * 32)
        keys.chmod(0o600)
        self._shared = ["--host", "127.0.0.1", "--secret-file", str(secret), "--allow-loopback-sinks"]
        self._shared += ["--secret-key-file", str(keys)]
        self.servers = [f"s{number}" for number in range(1, servers + 1)]
        #: processes that were started, dead ones too
        self.members: list[Member] = []
        #: ways of clients to dispatchers, and the first way of servers to one of them
        self.doors = [Proxy() for _ in range(dispatchers)]
        self._inner = Proxy()
        #: exit codes of ends that nobody asked for; those of them that no fault explains
        self.deaths: Counter[str] = Counter()
        self.unexplained: Counter[str] = Counter()
        #: how often a door led to another dispatcher
        self.switches = 0

    @property
    def url(self) -> str:
        return self.doors[0].url

    def living(self, role: Role) -> list[Member]:
        return [one for one in self.members if one.role == role and not one.ended.is_set()]

    def dispatching(self) -> list[Member]:
        """Return the dispatchers that own a log."""
        return [one for one in self.living("dispatcher") if one.up.is_set()]

    def hosting(self) -> list[Member]:
        """Return the processes that are servers by now."""
        return [one for one in self.living("server") if one.up.is_set() and one.id]

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with self._stack:
            for door in (*self.doors, self._inner):
                await self._stack.enter_async_context(door)
            for _ in range(self._counts["dispatcher"]):
                await self._start("dispatcher")
            for name in self.servers:
                await self._start("server", ["--id", name])
            for _ in range(self._counts["server"] - len(self.servers)):
                await self._start("server", ["--spare"])
            keepers = [asyncio.create_task(self._balance()), asyncio.create_task(self._measure())]
            try:
                yield
            finally:
                self._stopping = True
                for keeper in keepers:
                    keeper.cancel()
                await asyncio.gather(*keepers, return_exceptions=True)
                for one in self.members:
                    one.send(signal.SIGCONT)
                    one.send(signal.SIGKILL)
                for task in self._tasks:
                    task.cancel()
                await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _start(self, role: Role, own: list[str] | None = None) -> None:
        self._made[role] += 1
        name = f"{role[0]}x{self._made[role]}"
        ways: list[Proxy] = []
        for node in self._database.nodes.values():
            way = await self._stack.enter_async_context(Proxy())
            way.upstream = node.port
            ways.append(way)
        hosts = ",".join(f"127.0.0.1:{way.port}" for way in ways)
        port = free_port()
        flags = ["--database", f"postgresql://{USER}@{hosts}/postgres", *self._shared, "--port", str(port)]
        if role == "dispatcher":
            flags += ["--open", "--name", name]
        else:
            flags += ["--dispatcher", self._inner.url, *(own or [])]
        member = Member(name, role, flags, self._folder, ways, port)
        self.members.append(member)
        self._spawn(self._live(member))

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _live(self, member: Member) -> None:
        said = self._folder / f"{member.name}.ready"
        member.pid, ended = await self._spawner.start(
            "dispatcher" if member.role == "dispatcher" else "edn_server",
            member.flags,
            stdout=said,
            stderr=member.errors,
            environment={wall_clock.VARIABLE: str(member.clock_file)},
        )
        while not ended.done() and (line := ready_line(said)) is None:
            await asyncio.wait([ended], timeout=_LOOK_SECONDS)
        if not ended.done() and line is not None:
            member.id = str(line.get("id", ""))
            if not member.killed:
                member.up.set()
        code = await ended
        member.pid = None
        member.up.clear()
        member.ended.set()
        if self._stopping:
            return
        if not member.killed:
            self.deaths[f"{member.role}: {code}"] += 1
            if code == EXIT_FENCED and not member.is_excused:
                self.unexplained[f"{member.role}: {code}"] += 1
        await asyncio.sleep(self._chance.uniform(*_REPLACED_AFTER))
        if not self._stopping:
            await self._start(member.role, ["--spare"] if member.role == "server" else None)

    async def _balance(self) -> None:
        """Lead clients and servers to dispatchers that are ready, to different ones if possible."""
        async with httpx.AsyncClient(timeout=0.7, trust_env=False) as client:
            while True:
                up = self.dispatching()
                ready = [one.port for one in up if await _is_ready(client, one)]
                # None is ready before servers have registered: then they find the newest.
                wanted = ready or [one.port for one in up[-1:]]
                for number, door in enumerate((*self.doors, self._inner)):
                    used = {other.upstream for other in self.doors if other is not door}
                    shares = door.upstream in used and door is not self._inner and len(wanted) > 1
                    if wanted and (door.upstream not in wanted or shares):
                        free = [port for port in wanted if port not in used] or wanted
                        self.switches += door.upstream is not None
                        door.upstream = free[number % len(free)]
                        door.cut()
                await asyncio.sleep(0.2)

    async def _measure(self) -> None:
        while True:
            for one in self.members:
                if one.pid is not None:
                    with contextlib.suppress(psutil.Error):
                        one.largest_rss = max(one.largest_rss, psutil.Process(one.pid).memory_info().rss)
            await asyncio.sleep(1.0)

    def check_starts(self) -> None:
        """Raise if a process has ended: before the first fault none may."""
        for one in self.members:
            if one.ended.is_set():
                said = one.errors.read_text(errors="replace").strip() or "it said nothing"
                raise RuntimeError(f"{one.name} did not start: {said.splitlines()[-1][:500]}")

    async def all_up(self, seconds: float) -> bool:
        """Wait until a dispatcher answers, and every server has a process."""
        try:
            async with asyncio.timeout(seconds):
                while not self._is_complete():  # noqa: ASYNC110  several processes decide it
                    await asyncio.sleep(0.05)
        except TimeoutError:
            return False
        return True

    def _is_complete(self) -> bool:
        return bool(self.dispatching()) and {one.id for one in self.hosting()} >= set(self.servers)

    async def at_rest(self, client: httpx.AsyncClient) -> str | None:
        """None when all dispatchers say so, and no log of a dead one is left."""
        for door in self.doors:
            still = await unrest(client, door.url, len(self.servers))
            if still is not None:
                return still
        try:
            answer = await client.get(f"{self.url}/v1/dispatchers")
            listed = answer.raise_for_status().json()["dispatchers"]
        except (httpx.HTTPError, ValueError, KeyError) as error:
            return f"the dispatcher does not answer: {type(error).__name__}"
        left = [one["log"] for one in listed if one.get("draining") or not one.get("ready", True)]
        return f"{len(left)} logs of dead dispatchers are not retired" if left else None

    def said(self, text: str) -> int:
        """Return how often processes have logged something."""
        return sum(
            one.errors.read_text(errors="replace").count(text) for one in self.members if one.errors.exists()
        )


async def _is_ready(client: httpx.AsyncClient, member: Member) -> bool:
    try:
        answer = await client.get(f"http://127.0.0.1:{member.port}/readyz")
    except httpx.HTTPError:
        return False
    return answer.status_code == 200
