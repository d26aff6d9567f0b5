"""Carries out a schedule: one fault after another, and between them time for a takeover or a failover."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from tests.chaos.cluster.database import DatabaseCluster, Node
from tests.chaos.cluster.fleet import ClusterFleet, Member
from tests.chaos.cluster.schedule import Fault
from tests.chaos.proxy import Direction
from tests.chaos.sinks import Sink
from tests.faults.wall_clock import set_clock

T = TypeVar("T")

#: how long the next fault waits for the nodes of the database, and for the processes of the network
_WHOLE_SECONDS = 90.0
_UP_SECONDS = 45.0
#: how long replication hangs before the primary dies
_HUNG_SECONDS = 2.5
#: by how much the clock of a process is off
_JUMP = 3600.0
_DIRECTIONS: tuple[Direction, ...] = ("up", "down", "both")


class Faults:
    def __init__(
        self,
        fleet: ClusterFleet,
        database: DatabaseCluster,
        sinks: list[Sink],
        say: Callable[[str], None],
    ) -> None:
        self._fleet = fleet
        self._database = database
        self._sinks = sinks
        self._say = say
        self._tasks: set[asyncio.Task[None]] = set()
        #: (kind, role) of what was done; connections that were ended by it
        self.done: Counter[tuple[str, str]] = Counter()
        self.connections_ended = 0
        #: faults that were carried out, by kind
        self.kinds: Counter[str] = Counter()
        self.left_out: Counter[str] = Counter()
        #: seconds from the death of a server's process until another one is ready in its place
        self.takeovers: list[float] = []

    async def run(self, schedule: list[Fault]) -> None:
        """Returns when the last fault is over and the network is complete again."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        for fault in schedule:
            self._say(f"{loop.time() - began:7.1f} s  {fault.what}")
            left_out = self.left_out.total()
            await self._carry_out(fault)
            self.kinds[fault.kind] += self.left_out.total() == left_out
            await asyncio.sleep(fault.gap)
            if not await self._database.await_whole(_WHOLE_SECONDS):
                self.left_out["the database was not whole before the next fault"] += 1
            if not await self._fleet.all_up(_UP_SECONDS):
                self.left_out["the network was not complete before the next fault"] += 1
        if self._tasks:
            await asyncio.wait(list(self._tasks))

    async def _carry_out(self, fault: Fault) -> None:
        kind = fault.kind
        if kind in ("kill server", "kill dispatcher", "kill both"):
            await self._kill(fault)
        elif kind == "vanish":
            self.done["vanish", "sink"] += 1
            for sink in self._sinks:
                if sink.temper == "vanishing":
                    self._spawn(sink.vanish(fault.seconds))
        elif kind == "jump clock":
            self._spawn(self._jump(fault))
        elif "of primary" in kind or "of standby" in kind:
            await self._fill(fault)
        elif kind in ("cut replication", "cut primary from etcd"):
            await self._cut_node(fault)
        elif kind in ("kill postgres", "kill node", "kill standby", "stop node"):
            await self._end_node(fault)
        elif kind == "hang replication and kill node":
            await self._hang(fault)
        else:
            await self._trouble(fault)

    # -- processes of the network -----------------------------------------------------------------------

    def _member(self, fault: Fault) -> Member | None:
        if "dispatcher" in fault.kind:
            return _chosen(self._fleet.dispatching(), fault)
        return _chosen(self._fleet.hosting(), fault)

    async def _kill(self, fault: Fault) -> None:
        """Kill for good: a standby or a spare takes over."""
        victims = [_chosen(self._fleet.dispatching(), fault)] if fault.kind != "kill server" else []
        victims += [_chosen(self._fleet.hosting(), fault)] if fault.kind != "kill dispatcher" else []
        loop = asyncio.get_running_loop()
        for victim in victims:
            if victim is None or not victim.send(signal.SIGKILL):
                self.left_out[f"{fault.kind}: nobody there"] += 1
                continue
            self.done["kill", victim.role] += 1
            if victim.id:
                self._spawn(self._time_takeover(victim.id, loop.time()))

    async def _time_takeover(self, id: str, died: float) -> None:
        loop = asyncio.get_running_loop()
        while loop.time() < died + 120:
            if any(one.id == id for one in self._fleet.hosting()):
                self.takeovers.append(loop.time() - died)
                return
            await asyncio.sleep(0.05)
        self.left_out[f"{id} was not taken over within 120 s"] += 1

    async def _trouble(self, fault: Fault) -> None:
        """Stop a process, or take the database from it."""
        member = self._member(fault)
        if member is None:
            self.left_out[f"{fault.kind}: nobody there"] += 1
            return
        member.is_excused = True
        name = fault.kind.replace(member.role, "").replace("  ", " ").strip()
        if fault.kind.startswith("stop"):
            await self._stop(member, fault, inside="in transaction" in fault.kind, name=name)
            return
        direction: Direction = "down"
        if fault.kind.startswith("cut"):
            direction = _chosen(_DIRECTIONS, fault)
            name = f"cut from database ({direction})"
        else:
            name = "lose answers"
        self.done[name, member.role] += 1
        member.swallow(direction)
        try:
            await asyncio.sleep(fault.seconds)
        finally:
            # What waited is lost, or goes on late.
            cut = fault.kind.startswith("lose") or int(fault.choice * 100) % 2 == 0
            self.connections_ended += member.release(cut=cut)

    async def _stop(self, member: Member, fault: Fault, *, inside: bool, name: str) -> None:
        if inside:
            halved = [asyncio.create_task(way.halve().wait()) for way in member.ways]
            done, rest = await asyncio.wait(halved, timeout=8.0, return_when=asyncio.FIRST_COMPLETED)
            for task in rest:
                task.cancel()
            if not done:
                member.release(cut=False)
                self.left_out[f"{fault.kind}: no transaction came"] += 1
                return
        if not member.send(signal.SIGSTOP):
            member.release(cut=False)
            return
        self.done[name, member.role] += 1
        try:
            await asyncio.sleep(fault.seconds)
        finally:
            # The rest of its transaction arrives now, before the process knows anything.
            member.release(cut=False)
            await asyncio.sleep(0.5)
            member.send(signal.SIGCONT)

    async def _jump(self, fault: Fault) -> None:
        """Set the clock of any process wrong, also of one that waits."""
        member = _chosen([*self._fleet.living("server"), *self._fleet.living("dispatcher")], fault)
        if member is None:
            return
        ahead = int(fault.choice * 1000) % 2 == 0
        self.done["jump clock ahead" if ahead else "jump clock back", member.role] += 1
        set_clock(member.clock_file, _JUMP if ahead else -_JUMP)
        try:
            await asyncio.sleep(fault.seconds)
        finally:
            set_clock(member.clock_file, 0.0)

    # -- nodes of the database --------------------------------------------------------------------------

    async def _primary(self, fault: Fault) -> Node | None:
        node = await self._database.primary()
        if node is None:
            self.left_out[f"{fault.kind}: there is no primary"] += 1
        return node

    async def _cut_node(self, fault: Fault) -> None:
        node = await self._primary(fault)
        if node is None:
            return
        direction = _chosen(_DIRECTIONS, fault)
        proxy = node.replication if fault.kind == "cut replication" else node.etcd
        self.done[f"{fault.kind} ({direction})", "database"] += 1
        proxy.swallow(direction)
        try:
            await asyncio.sleep(fault.seconds)
        finally:
            proxy.release(cut=True)

    async def _end_node(self, fault: Fault) -> None:
        if fault.kind == "kill standby":
            node = _chosen(await self._database.standbys(), fault)
        else:
            node = await self._primary(fault)
        if node is None:
            return
        self.done[fault.kind.replace("kill postgres", "kill server of primary"), "database"] += 1
        if fault.kind == "kill postgres":
            node.send(signal.SIGKILL, patroni=False)
        elif fault.kind == "stop node":
            node.send(signal.SIGSTOP, patroni=True)
            try:
                await asyncio.sleep(fault.seconds)
            finally:
                node.send(signal.SIGCONT, patroni=True)
        else:
            node.send(signal.SIGKILL, patroni=True)
            await asyncio.sleep(fault.seconds)
            self._database.start(node)

    async def _hang(self, fault: Fault) -> None:
        """No standby gets anything for a while; then the primary dies."""
        node = await self._primary(fault)
        if node is None:
            return
        self.done["hang replication, then kill primary", "database"] += 1
        node.replication.swallow("both")
        try:
            await asyncio.sleep(_HUNG_SECONDS)
            node.send(signal.SIGKILL, patroni=True)
        finally:
            node.replication.release(cut=True)
        await asyncio.sleep(fault.seconds)
        self._database.start(node)

    async def _fill(self, fault: Fault) -> None:
        primary = fault.kind == "fill disk of primary"
        node = await self._primary(fault) if primary else _chosen(await self._database.standbys(), fault)
        if node is None or node.disk is None:
            self.left_out[f"{fault.kind}: no small disk"] += 1
            return
        self.done[fault.kind, "database"] += 1
        ballast = node.disk / "ballast"
        handle = os.open(ballast, os.O_CREAT | os.O_WRONLY, 0o600)
        loop = asyncio.get_running_loop()
        end, size = loop.time() + fault.seconds, 0
        try:
            while loop.time() < end:
                free = os.statvfs(node.disk)
                if free.f_bavail:
                    with contextlib.suppress(OSError):
                        os.posix_fallocate(handle, size, free.f_bavail * free.f_frsize)
                        size = os.fstat(handle).st_size
                await asyncio.sleep(0.1)
        finally:
            os.close(handle)
            ballast.unlink()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _chosen(among: Sequence[T], fault: Fault) -> T | None:
    return among[int(fault.choice * len(among))] if among else None
