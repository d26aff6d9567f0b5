"""Starts the processes of a network on one machine, restarts them when they end, and stops them.

Theory of operation
-------------------
A `Child` runs `edn.cli.child`, which ends with this process. A child prints one line of JSON on stdout when
it is ready; its other output goes to a log file of bounded size. If a child ends before it was ever ready,
the start of the network fails with the end of its log. A child that ends later is restarted after a delay,
which doubles with each early end and is reset after a healthy run.

A full disk ends neither this process nor a start. Log lines that cannot be written are dropped and counted.
A child that waits for disk space reports it in a line of JSON and has no deadline; a child that ended because
of a full disk before it was ready is restarted.
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
FIRST_DELAY = 0.5
LONGEST_DELAY = 30.0
#: a run of this length counts as healthy
HEALTHY_SECONDS = 60.0
LOG_BYTES = 10 * 1024 * 1024


class ChildFailedError(Exception):
    """A process ended, or printed no ready line, before it was ready."""


def restart_delay(failures: int) -> float:
    """Returns the seconds to wait after the n-th early end in a row (n ≥ 1)."""
    return min(LONGEST_DELAY, FIRST_DELAY * 2.0 ** (failures - 1))


class BoundedLog:
    """A log file that is renamed to `.1` at its limit, replacing the previous one."""

    def __init__(self, path: Path, limit: int = LOG_BYTES) -> None:
        self.path = path
        self._limit = limit
        self._file: IO[bytes] | None = None
        #: lines that could not be written since the last written one
        self.dropped = 0
        #: the last lines, shown when a start fails
        self.tail: deque[str] = deque(maxlen=15)

    def write(self, line: bytes) -> None:
        """Appends a line; counts and drops it if it cannot be written."""
        self.tail.append(line.decode("utf-8", "replace").rstrip())
        try:
            if self.dropped:
                self._append(b"log_lines_dropped count=%d\n" % self.dropped)
                self.dropped = 0
            self._append(line)
        except OSError:
            self.dropped += 1

    def _append(self, line: bytes) -> None:
        # Unbuffered: a buffer that a full disk rejected would fail again at close.
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
    """One process of the network; `run` restarts it until `stop`."""

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
        self._log = BoundedLog(log)
        self._print = say
        #: reason why the child is not ready yet
        self._waiting: str | None = None
        #: descriptors that the child inherits
        self._inherited = tuple(inherited)
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = asyncio.Event()
        self._first_ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def _say(self, message: str) -> None:
        with contextlib.suppress(OSError):  # standard error may be a file on the same full disk
            self._print(message)

    async def first_ready(self) -> None:
        """Waits for the first ready line; raises `ChildFailedError` if the process ends before."""
        await asyncio.shield(self._first_ready)

    async def run(self) -> None:
        """Runs the process, and restarts it when it ends, until `stop`."""
        loop = asyncio.get_running_loop()
        failures = 0
        try:
            while not self._stopping.is_set():
                began = loop.time()
                code = await self._run_once()
                if self._stopping.is_set():
                    return
                if not self._first_ready.done() and not self._is_disk_full():
                    reason = f"{self.name} {_ending(code)} before it was ready\n{self._log_tail()}"
                    self._first_ready.set_exception(ChildFailedError(reason))
                    self._first_ready.exception()  # mark as retrieved: only the first failure is reported
                    return
                failures = 1 if loop.time() - began > HEALTHY_SECONDS else failures + 1
                delay = restart_delay(failures)
                self._say(
                    f"{self.name} {_ending(code)}; restarting it in {delay:g} s (log: {self._log.path})"
                )
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(delay):
                        await self._stopping.wait()
        finally:
            self._log.close()

    async def stop(self) -> None:
        """Terminates the process, and kills it after `STOP_SECONDS`; `run` returns then."""
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
        """Kills the process; `run` returns then."""
        self._stopping.set()
        if self._process is not None and self._process.returncode is None:
            _signal(self._process, signal.SIGKILL)

    async def _run_once(self) -> int:
        """Runs the process until it ends; returns its exit code."""
        self._process = process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "edn.cli.child",
            *self.command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            pass_fds=self._inherited,
            # Ctrl-C reaches this process only, which stops the others in order.
            start_new_session=True,
        )
        assert process.stdout is not None
        assert process.stderr is not None
        if self._stopping.is_set():  # stopped while it was being started
            _signal(process, signal.SIGTERM)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._read_stdout(process.stdout))
            group.create_task(self._read_log(process.stderr))
            watch = group.create_task(self._kill_unless_ready())
            code = await process.wait()
            watch.cancel()
        return code

    async def _kill_unless_ready(self) -> None:
        is_waiting = True
        while is_waiting and not self._first_ready.done():
            await asyncio.wait([self._first_ready], timeout=READY_SECONDS)
            is_waiting = self._waiting is not None
        if not self._first_ready.done() and self._process is not None:
            self._log.write(f"not ready after {READY_SECONDS:g} s\n".encode())
            _signal(self._process, signal.SIGKILL)

    async def _read_stdout(self, stream: asyncio.StreamReader) -> None:
        async for line in _lines(stream):
            report = _read_report(line)
            if report is None:
                self._log.write(line)
            elif not report["ready"]:
                self._waiting = str(report.get("waiting"))
                self._say(f"{self.name} waits for disk space: {self._waiting}")
            else:
                self._waiting = None
                if self._first_ready.done():
                    self._say(f"{self.name} is ready again")
                else:
                    self._first_ready.set_result(None)

    async def _read_log(self, stream: asyncio.StreamReader) -> None:
        async for line in _lines(stream):
            self._log.write(line)

    def _is_disk_full(self) -> bool:
        """Whether the disk of logs and data lacks the space for a start."""
        try:
            return disk.free_bytes(self._log.path.parent) < disk.START_BYTES
        except OSError:
            return False

    def _log_tail(self) -> str:
        lines = "\n".join(f"  | {line}" for line in self._log.tail)
        return f"{lines}\nlog: {self._log.path}" if lines else f"no output; log: {self._log.path}"


async def _lines(stream: asyncio.StreamReader) -> Any:
    """Yields lines as they arrive; a line longer than the buffer is split."""
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


def _read_report(line: bytes) -> dict[str, Any] | None:
    """Decodes a line that reports whether the process is ready; None for other output."""
    try:
        report = json.loads(line)
    except ValueError:
        return None
    return report if isinstance(report, dict) and isinstance(report.get("ready"), bool) else None


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(number)


def _ending(code: int) -> str:
    if code < 0:
        return f"was ended by {signal.Signals(-code).name}"
    return f"ended with code {code}"


def write_secret(path: Path, secret: str) -> None:
    """Writes a secret to a new file that only its owner can read from the beginning."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(secret + "\n")
