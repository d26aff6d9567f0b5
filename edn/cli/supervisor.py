"""Processes of a network on one machine: started, watched, started again when they die, stopped together.

Theory of operation
-------------------
A `Child` runs `edn.cli.child`, which ends with this process. Its first line on stdout is JSON that says it is
ready; everything else that it writes goes to a log file of bounded size. A child that dies before it was ever
ready is a failure of the start, told with the end of its log. One that dies later is started again, after a
pause that doubles with each early death and falls back once the child has lived for a while.

A full disk ends neither this process nor a start. Log lines that cannot be written are dropped and counted. A
child that waits for disk space says so in a line of JSON, and has all the time that takes; one that died of a
full disk before it was ready is started again.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

from edn.runtime import disk

READY_SECONDS = 180.0
STOP_SECONDS = 15.0
FIRST_PAUSE = 0.5
LONGEST_PAUSE = 30.0
#: a life of so many seconds counts as healthy
HEALTHY_SECONDS = 60.0
LOG_BYTES = 10 * 1024 * 1024


class ChildFailedError(Exception):
    """A process ended, or said nothing, before it was ready."""


def pause_after(early_deaths: int) -> float:
    """Seconds to wait after the n-th death in a row (n ≥ 1) before the next start."""
    return min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** (early_deaths - 1))


class BoundedLog:
    """A log file that is set aside as `.1` when it grows too large, so two of them are the most there is."""

    def __init__(self, path: Path, limit: int = LOG_BYTES) -> None:
        self.path = path
        self._limit = limit
        self._file: IO[bytes] | None = None
        #: lines that could not be written since the last one that was
        self.dropped = 0
        #: the last lines, to show when a start fails
        self.tail: deque[str] = deque(maxlen=15)

    def write(self, line: bytes) -> None:
        """Append a line; one that the disk does not take is counted and dropped."""
        self.tail.append(line.decode("utf-8", "replace").rstrip())
        try:
            if self.dropped:
                self._append(b"log_lines_dropped count=%d\n" % self.dropped)
                self.dropped = 0
            self._append(line)
        except OSError:
            self.dropped += 1

    def _append(self, line: bytes) -> None:
        # Without a buffer: what a full disk did not take must not wait in one and fail again at the close.
        if self._file is None:
            self._file = self.path.open("ab", buffering=0)
        if self._file.tell() + len(line) > self._limit and self._file.tell() > 0:
            self.close()
            self.path.replace(self.path.with_name(self.path.name + ".1"))
            self._file = self.path.open("ab", buffering=0)
        written = self._file.write(line)
        if written != len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(OSError):
                file.close()


class Child:
    """One process of the network, under its name; `keep` runs it until `stop`."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        say: Callable[[str], None],
        *,
        inherited: Sequence[int] = (),
    ) -> None:
        self.name = name
        self.command = list(command)
        #: what the ready line said, of the newest start
        self.ready: dict[str, Any] = {}
        self._log = BoundedLog(log)
        self._tell = say
        #: what the child waits for before it is ready
        self.waiting: str | None = None
        #: descriptors that the child holds open as long as it lives
        self._inherited = tuple(inherited)
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = asyncio.Event()
        self._first_ready: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self.starts = 0

    def _say(self, message: str) -> None:
        with contextlib.suppress(OSError):  # where that is written may lie on the same full disk
            self._tell(message)

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    async def first_ready(self) -> dict[str, Any]:
        """What the first ready line said; raises `ChildFailedError` when there was none."""
        return await asyncio.shield(self._first_ready)

    async def keep(self) -> None:
        """Run the process, again and again, until `stop`."""
        loop = asyncio.get_running_loop()
        early_deaths = 0
        try:
            while not self._stopping.is_set():
                began = loop.time()
                code = await self._live()
                if self._stopping.is_set():
                    return
                if not self._first_ready.done() and not self._disk_full():
                    self._first_ready.set_exception(
                        ChildFailedError(f"{self.name} {_how(code)} before it was ready\n{self._ending()}")
                    )
                    self._first_ready.exception()  # told or not: several may fail, the first one is reported
                    return
                early_deaths = 1 if loop.time() - began > HEALTHY_SECONDS else early_deaths + 1
                pause = pause_after(early_deaths)
                self._say(
                    f"{self.name} {_how(code)}; starting it again in {pause:g} s (log: {self._log.path})"
                )
                await self._sleep(pause)
        finally:
            self._log.close()

    async def stop(self) -> None:
        """Ask the process to end, and insist after a while; `keep` returns then."""
        self._stopping.set()
        process = self._process
        if process is None or process.returncode is not None:
            return
        _signal(process, signal.SIGTERM)
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await process.wait()
        except TimeoutError:
            self._say(f"{self.name} does not stop; killing it")
            self.kill()
            await process.wait()

    def kill(self) -> None:
        """End the process at once."""
        self._stopping.set()
        if self._process is not None and self._process.returncode is None:
            _signal(self._process, signal.SIGKILL)

    async def _live(self) -> int:
        """One life of the process; returns its exit code."""
        self.starts += 1
        self._process = process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "edn.cli.child",
            *self.command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            pass_fds=self._inherited,
            # Ctrl-C reaches this process only, which then stops the others in good order.
            start_new_session=True,
        )
        assert process.stdout is not None
        assert process.stderr is not None
        if self._stopping.is_set():  # asked to stop while it was being started
            _signal(process, signal.SIGTERM)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._read_stdout(process.stdout))
            group.create_task(self._read_log(process.stderr))
            watch = group.create_task(self._insist_on_ready())
            code = await process.wait()
            watch.cancel()
        return code

    async def _insist_on_ready(self) -> None:
        waited = True
        while waited and not self._first_ready.done():
            await asyncio.wait([self._first_ready], timeout=READY_SECONDS)
            waited = self.waiting is not None
        if not self._first_ready.done() and self._process is not None:
            self._log.write(f"not ready after {READY_SECONDS:g} s\n".encode())
            _signal(self._process, signal.SIGKILL)

    async def _read_stdout(self, stream: asyncio.StreamReader) -> None:
        async for line in _lines(stream):
            said = _ready_line(line)
            if said is None:
                self._log.write(line)
                continue
            if not said["ready"]:
                self.waiting = str(said.get("waiting"))
                self._say(f"{self.name} waits for disk space: {self.waiting}")
                continue
            self.ready, self.waiting = said, None
            if not self._first_ready.done():
                self._first_ready.set_result(said)
            else:
                self._say(f"{self.name} is back")

    async def _read_log(self, stream: asyncio.StreamReader) -> None:
        async for line in _lines(stream):
            self._log.write(line)

    async def _sleep(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            pass

    def _disk_full(self) -> bool:
        """Whether the disk of the log, which is that of the data, lacks what a start needs."""
        try:
            return disk.free_bytes(self._log.path.parent) < disk.START_BYTES
        except OSError:
            return False

    def _ending(self) -> str:
        lines = "\n".join(f"  | {line}" for line in self._log.tail)
        return f"{lines}\nlog: {self._log.path}" if lines else f"it said nothing; log: {self._log.path}"


async def _lines(stream: asyncio.StreamReader) -> Any:
    """Lines as they come; one that is longer than the buffer comes in pieces."""
    while True:
        try:
            line = await stream.readuntil(b"\n")
        except asyncio.IncompleteReadError as end:
            if end.partial:
                yield end.partial
            return
        except asyncio.LimitOverrunError as overrun:
            line = await stream.readexactly(overrun.consumed)
        yield line


def _ready_line(line: bytes) -> dict[str, Any] | None:
    try:
        said = json.loads(line)
    except ValueError:
        return None
    return said if isinstance(said, dict) and isinstance(said.get("ready"), bool) else None


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    try:
        process.send_signal(number)
    except ProcessLookupError:
        pass


def _how(code: int) -> str:
    if code < 0:
        return f"was ended by {signal.Signals(-code).name}"
    return f"ended with code {code}"


def write_secret(path: Path, secret: str) -> None:
    """Write a secret that only its owner can read; it is never there with wider rights, not for a moment."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(secret + "\n")
