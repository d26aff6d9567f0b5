"""Carries out a schedule: one fault after another, those that last beside the ones that follow."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

from tests.chaos.fleet import Fleet, Service
from tests.chaos.schedule import DISPATCHER, Fault
from tests.chaos.sinks import Sink
from tests.faults.wall_clock import set_clock

#: how long a fault waits for its target to run before it is left out
_PATIENCE = 15.0
#: what the small disk holds; above the room that a dispatcher insists on
_DISK_BYTES = 400 << 20
_BALLAST = "ballast"


class Faults:
    def __init__(
        self,
        fleet: Fleet,
        sinks: list[Sink],
        *,
        disk: Path | None,
        say: Callable[[str], None],
    ) -> None:
        self._fleet = fleet
        self._sinks = sinks
        self._disk = disk
        self._say = say
        self._tasks: set[asyncio.Task[None]] = set()
        #: by how much the clock of a process is off when it does not jump, and whose clock does
        self._steps: dict[str, float] = {}
        self._jumping: set[str] = set()
        #: (kind, role) of what was done; connections that were ended by it
        self.done: Counter[tuple[str, str]] = Counter()
        self.connections_ended = 0
        self.left_out: Counter[str] = Counter()

    @property
    def kills(self) -> int:
        return sum(count for (kind, _), count in self.done.items() if kind == "kill")

    async def run(self, schedule: list[Fault]) -> None:
        """Returns when the last fault is over."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        for fault in schedule:
            await asyncio.sleep(max(0.0, began + fault.at - loop.time()))
            self._say(f"{loop.time() - began:7.1f} s  {fault.what}")
            await self._carry_out(fault)
        if self._tasks:
            await asyncio.wait(list(self._tasks))

    async def _carry_out(self, fault: Fault) -> None:
        match fault.kind:
            case "kill":
                if await self._awaited(self._fleet.services[fault.target]):
                    self._kill(self._fleet.services[fault.target])
            case "kill both":
                both = [self._fleet.dispatcher, self._fleet.services[fault.target]]
                if all([await self._awaited(service) for service in both]):
                    for service in both:
                        self._kill(service)
            case "stop" | "long stop":
                if await self._awaited(self._fleet.services[fault.target]):
                    self._spawn(self._stop(self._fleet.services[fault.target], fault))
            case "vanish":
                self.done["vanish", "sink"] += 1
                for sink in self._sinks:
                    if sink.temper == "vanishing":
                        self._spawn(sink.vanish(fault.seconds))
            case "step clock":
                service = self._fleet.services[fault.target]
                self.done["step clock", service.role] += 1
                self._steps[fault.target] = fault.amount
                if fault.target not in self._jumping:
                    set_clock(service.clock_file, fault.amount)
            case "jump clock":
                self._spawn(self._jump(self._fleet.services[fault.target], fault))
            case "fill disk":
                if self._disk is None:
                    self.left_out["fill disk"] += 1
                else:
                    self._spawn(self._fill(self._disk, fault.seconds))
            case _:
                self._misbehave(fault)

    # -- one kind each ----------------------------------------------------------------------------------

    async def _awaited(self, service: Service) -> bool:
        """Until it is there."""
        try:
            async with asyncio.timeout(_PATIENCE):
                await service.up.wait()
        except TimeoutError:
            self.left_out[f"{service.name} did not come up within {_PATIENCE:.0f} s"] += 1
            return False
        return True

    def _kill(self, service: Service) -> None:
        if service.send(signal.SIGKILL):
            self.done["kill", service.role] += 1

    async def _jump(self, service: Service, fault: Fault) -> None:
        if service.name in self._jumping:
            self.left_out["jump clock: it is off already"] += 1
            return
        self.done["jump clock ahead" if fault.amount > 0 else "jump clock back", service.role] += 1
        self._jumping.add(service.name)
        set_clock(service.clock_file, fault.amount)
        try:
            await asyncio.sleep(fault.seconds)
        finally:
            self._jumping.discard(service.name)
            set_clock(service.clock_file, self._steps.get(service.name, 0.0))

    async def _stop(self, service: Service, fault: Fault) -> None:
        pid = service.pid
        if not service.send(signal.SIGSTOP):
            return
        self.done[fault.kind, service.role] += 1
        try:
            await asyncio.sleep(fault.seconds)
        finally:
            if service.pid == pid:  # it may have been killed meanwhile
                service.send(signal.SIGCONT)

    def _misbehave(self, fault: Fault) -> None:
        proxy = self._fleet.services[fault.target].proxy
        role = f"link to {DISPATCHER if fault.target == DISPATCHER else 'server'}"
        self.done[fault.kind, role] += 1
        match fault.kind:
            case "cut":
                self.connections_ended += proxy.cut()
            case "half-close":
                self.connections_ended += proxy.half_close(towards_client=fault.amount > 0)
            case "delay":
                self._spawn(self._delay(fault))
            case "blackhole":
                self._spawn(self._blackhole(fault))

    async def _delay(self, fault: Fault) -> None:
        proxy = self._fleet.services[fault.target].proxy
        proxy.delay = fault.amount
        try:
            await asyncio.sleep(fault.seconds)
        finally:
            proxy.delay = 0.0

    async def _blackhole(self, fault: Fault) -> None:
        proxy = self._fleet.services[fault.target].proxy
        proxy.swallow()
        try:
            await asyncio.sleep(fault.seconds)
        finally:
            # By the length, so that a replay does the same: what waited goes on, or is lost.
            cut = int(fault.seconds * 100) % 2 == 0
            self.connections_ended += proxy.connections if cut else 0
            proxy.release(cut=cut)

    async def _fill(self, disk: Path, seconds: float) -> None:
        ballast = disk / _BALLAST
        if ballast.exists():
            return  # full already
        self.done["fill disk", ""] += 1
        handle = os.open(ballast, os.O_CREAT | os.O_WRONLY, 0o600)
        try:
            free = os.statvfs(disk)
            with contextlib.suppress(OSError):  # somebody else was quicker with the last of it
                os.posix_fallocate(handle, 0, free.f_bavail * free.f_frsize)
            # What the processes free meanwhile, this takes too: full means full.
            end = asyncio.get_running_loop().time() + seconds
            while asyncio.get_running_loop().time() < end:
                free = os.statvfs(disk)
                if free.f_bavail:
                    with contextlib.suppress(OSError):
                        size = os.fstat(handle).st_size
                        os.posix_fallocate(handle, size, free.f_bavail * free.f_frsize)
                await asyncio.sleep(0.1)
        finally:
            os.close(handle)
            ballast.unlink()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[Path | None]:
    """A folder on a small disk of its own, or None where nothing may be mounted."""
    folder.mkdir()
    mounted = (
        os.geteuid() == 0
        and subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={_DISK_BYTES},mode=700", "tmpfs", str(folder)],
            capture_output=True,
            check=False,
        ).returncode
        == 0
    )
    try:
        yield folder if mounted else None
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(folder)], capture_output=True, check=False)
