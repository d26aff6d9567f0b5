"""The Redis peer: arq's jobs in Redis, a front and two workers beside it.

It is measured with an fsync per write, as the product and PostgreSQL have, and with one per second.
"""

from __future__ import annotations

import asyncio
import base64
import secrets
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import psutil

from edn.tools.bench.delivery.load import Receivers
from edn.tools.bench.delivery.peers.database import hand_over, running_server
from edn.tools.bench.delivery.peers.system import Programs, find_program, merged
from edn.tools.bench.delivery.usage import Roles
from edn.tools.bench.delivery.workload import Workload

WORKERS = 2
START_SECONDS = 30.0
SETTINGS = {
    "port": "0",
    "appendonly": "yes",
    "appendfsync": "always",
    "save": "",
    "auto-aof-rewrite-percentage": "0",
}


class Redis:
    name = "redis"
    #: with an fsync per write, per second
    modes: Sequence[str] = ("redis", "redis-everysec")
    publish_path = "/events"
    lists_matches = True

    def __init__(self) -> None:
        self.url = ""
        self._server: psutil.Process
        self._socket: Path
        self._programs: Programs
        self._client: Any = None

    def roles(self) -> Roles:
        return merged(self._programs, self._server)

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="edn-bench-redis-")))
            hand_over(folder)
            self._socket = folder / "socket"
            flags = [part for name, value in SETTINGS.items() for part in (f"--{name}", value)]
            command = [
                find_program("redis-server"),
                *flags,
                "--dir",
                str(folder),
                "--unixsocket",
                str(self._socket),
            ]
            self._server = stack.enter_context(running_server(command, folder / "redis.log"))
            self._programs = Programs("edn.tools.bench.delivery.peers.redis_program", stack, folder)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._programs.resume()
        self._stack.close()

    async def subscribe(self, workload: Workload, receivers: Receivers) -> None:
        await self._connect()
        shared = {
            "socket": str(self._socket),
            "urls": receivers.urls(workload.addresses, "webhook"),
            "secrets": [
                base64.b64encode(secrets.token_bytes(24)).decode() for _ in range(workload.addresses)
            ],
            "owners": workload.owners.tolist(),
            "lo_x": workload.lo[:, 0].tolist(),
            "hi_x": workload.hi[:, 0].tolist(),
            "lo_y": workload.lo[:, 1].tolist(),
            "hi_y": workload.hi[:, 1].tolist(),
        }
        for number in range(1, WORKERS + 1):
            await asyncio.to_thread(self._programs.start, "worker", f"worker{number}", shared)
        front = await asyncio.to_thread(self._programs.start, "front", "front", {"socket": str(self._socket)})
        self.url = front["url"]

    async def activate(self, mode: str) -> None:
        self._programs.resume()
        await self._client.config_set("appendfsync", "everysec" if mode == "redis-everysec" else "always")

    def pause(self) -> None:
        self._programs.pause()

    async def _connect(self) -> None:
        import redis.asyncio
        import redis.exceptions

        self._client = redis.asyncio.Redis(unix_socket_path=str(self._socket))
        async with asyncio.timeout(START_SECONDS):
            while True:
                try:
                    await self._client.ping()
                    return
                except redis.exceptions.ConnectionError:
                    await asyncio.sleep(0.1)
