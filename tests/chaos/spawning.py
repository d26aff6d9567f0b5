"""The near end of the zygote: starts processes and hears of their end."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from tests.network.processes import die_with_parent

ROOT = Path(__file__).resolve().parents[2]
#: importing, and compiling kernels that were never compiled on this machine
_IMPORT_SECONDS = 180.0


class Spawner:
    """Forks services; `start` gives a pid and a future of its exit code (negative: a signal)."""

    def __init__(self, environment: Mapping[str, str], errors: Path) -> None:
        self._environment = environment
        self._errors = errors
        self._process: asyncio.subprocess.Process | None = None
        self._starting: deque[asyncio.Future[int]] = deque()
        self._ends: dict[int, asyncio.Future[int]] = {}
        self._reader: asyncio.Task[None] | None = None
        self._imported = asyncio.Event()

    async def __aenter__(self) -> Self:
        with self._errors.open("ab") as errors:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "tests.chaos.zygote",
                cwd=ROOT,
                # A thread of a library would not survive the fork, and what waits for it would wait for ever.
                env={
                    **os.environ,
                    "OPENBLAS_NUM_THREADS": "1",
                    "OMP_NUM_THREADS": "1",
                    "PYTHONUNBUFFERED": "1",
                    **self._environment,
                },
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                preexec_fn=die_with_parent,
            )
        self._reader = asyncio.create_task(self._read(self._process), name="zygote")
        imported = asyncio.create_task(self._imported.wait())
        await asyncio.wait(
            [imported, self._reader], timeout=_IMPORT_SECONDS, return_when=asyncio.FIRST_COMPLETED
        )
        if not imported.done():
            imported.cancel()
            await self.__aexit__()
            said = self._errors.read_text(errors="replace")[-3000:]
            raise RuntimeError(f"the services could not be imported:\n{said}")
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._process is not None
        assert self._reader is not None
        if self._process.returncode is None:
            self._process.kill()  # and with it whatever it has forked
        await self._process.wait()
        await self._reader

    async def start(
        self,
        module: str,
        arguments: list[str],
        *,
        stdout: Path,
        stderr: Path,
        environment: Mapping[str, str] | None = None,
    ) -> tuple[int, asyncio.Future[int]]:
        """`environment`: what this process has besides that of all."""
        assert self._process is not None
        assert self._process.stdin is not None
        started: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._starting.append(started)
        order = {
            "module": module,
            "arguments": arguments,
            "stdout": str(stdout),
            "stderr": str(stderr),
            "environment": dict(environment or {}),
        }
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        await self._process.stdin.drain()
        pid = await started
        return pid, self._ends[pid]

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            self._hear(json.loads(line))
        for future in [*self._starting, *self._ends.values()]:
            if not future.done():
                future.cancel()

    def _hear(self, said: dict[str, Any]) -> None:
        if "started" in said:
            self._ends[said["started"]] = asyncio.get_running_loop().create_future()
            self._starting.popleft().set_result(said["started"])
        elif "ended" in said:
            ended = self._ends.pop(said["ended"])
            if not ended.done():  # nobody waits any more
                ended.set_result(said["code"])
        else:
            self._imported.set()
