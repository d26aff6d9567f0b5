"""The interface of a system under test, and the parts that both peers share."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Sequence
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol, Self

import psutil

from edn.errors import InvalidInput
from edn.tools.bench.delivery.load import Receivers, Target
from edn.tools.bench.delivery.program import program
from edn.tools.bench.delivery.usage import Roles
from edn.tools.bench.delivery.workload import Workload

PACKAGES = ("aiohttp", "arq", "asyncpg", "orjson", "redis")


class System(Target, Protocol):
    #: whether notifications name all matches
    lists_matches: bool
    #: names under which the system is measured; `activate` changes between them
    modes: Sequence[str]

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...

    async def subscribe(self, workload: Workload, receivers: Receivers) -> None:
        """Stores the subscriptions of a workload; afterwards events can be published."""

    async def activate(self, mode: str) -> None:
        """Prepares the system for measuring."""

    def pause(self) -> None:
        """Stops work in the background while others are measured."""


def find_program(name: str) -> str:
    """Returns the path of a database's program, which Debian keeps out of the PATH."""
    found = shutil.which(name)
    if found is None:
        versions = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
        found = str(versions[-1]) if versions else None
    if found is None:
        raise InvalidInput(f"{name} is not installed; run `make bench-peers`")
    return found


def check_packages() -> None:
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        raise InvalidInput(f"{', '.join(missing)} must be installed for the peers; run `make bench-peers`")


class Programs:
    """The front and the workers of a peer."""

    def __init__(self, module: str, stack: ExitStack, folder: Path) -> None:
        self._module = module
        self._stack = stack
        self._folder = folder
        self.processes: dict[str, list[psutil.Process]] = {}

    def start(self, role: str, name: str, settings: dict[str, Any]) -> dict[str, Any]:
        """Starts one program; returns the first line of its output."""
        log = self._folder / f"{name}.log"
        process, ready = self._stack.enter_context(program(self._module, [role], settings=settings, log=log))
        self.processes[name] = [psutil.Process(process.pid)]
        return ready

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        for processes in self.processes.values():
            for process in processes:
                process.send_signal(number)


def database_role(server: psutil.Process) -> list[psutil.Process]:
    return [server, *server.children(recursive=True)]


def merged(programs: Programs, server: psutil.Process) -> Roles:
    return {**programs.processes, "database": database_role(server)}
