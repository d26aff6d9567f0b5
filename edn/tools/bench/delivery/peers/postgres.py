"""The PostgreSQL peer: subscriptions and an outbox in tables, a front and two workers beside them."""

from __future__ import annotations

import asyncio
import base64
import secrets
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import psutil

from edn.tools.bench.delivery.load import Receivers
from edn.tools.bench.delivery.peers.database import hand_over, running_server, unprivileged
from edn.tools.bench.delivery.peers.system import Programs, find_program, merged
from edn.tools.bench.delivery.usage import Roles
from edn.tools.bench.delivery.workload import Workload

WORKERS = 2
START_SECONDS = 30.0
SETTINGS = {
    "listen_addresses": "",
    "max_connections": "40",
    "shared_buffers": "512MB",
    "max_wal_size": "4GB",
    "checkpoint_timeout": "30min",
    "jit": "off",
    "random_page_cost": "1.1",
    "effective_cache_size": "4GB",
    "work_mem": "32MB",
    "autovacuum_naptime": "5s",
    "autovacuum_vacuum_cost_delay": "0",
    "synchronous_commit": "on",
    "fsync": "on",
}
SCHEMA = """
CREATE TABLE subscriptions (
    id int PRIMARY KEY, address int NOT NULL,
    lo_x float8 NOT NULL, hi_x float8 NOT NULL, lo_y float8 NOT NULL, hi_y float8 NOT NULL
);
-- The box compares with a tolerance, so it finds candidates; the columns decide.
CREATE INDEX ON subscriptions USING gist (box(point(lo_x, lo_y), point(hi_x, hi_y)));
CREATE SEQUENCE event_ids;
CREATE TABLE outbox (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, event bigint NOT NULL, body text NOT NULL,
    address int NOT NULL, subscriptions int[] NOT NULL, due timestamptz NOT NULL DEFAULT now()
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
"""


class Postgres:
    name = "pg"
    modes: Sequence[str] = ("pg",)
    publish_path = "/events"
    lists_matches = True

    def __init__(self) -> None:
        self.url = ""
        self._server: psutil.Process
        self._folder: Path
        self._programs: Programs

    def roles(self) -> Roles:
        return merged(self._programs, self._server)

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="edn-bench-pg-")))
            hand_over(folder)
            data = folder / "data"
            command = [find_program("initdb"), "-D", str(data), "-U", "bench", "-A", "trust", "-E", "UTF8"]
            subprocess.run(
                [*command, "--no-locale"], check=True, capture_output=True, cwd="/", user=unprivileged()
            )
            flags = [part for name, value in SETTINGS.items() for part in ("-c", f"{name}={value}")]
            server = [find_program("postgres"), "-D", str(data), "-k", str(folder), *flags]
            self._server = stack.enter_context(running_server(server, folder / "postgres.log"))
            self._folder = folder
            self._programs = Programs("edn.tools.bench.delivery.peers.postgres_program", stack, folder)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._programs.resume()
        self._stack.close()

    async def subscribe(self, workload: Workload, receivers: Receivers) -> None:
        connection = await self._connect()
        await connection.execute(SCHEMA)
        columns = (
            workload.owners,
            workload.lo[:, 0],
            workload.hi[:, 0],
            workload.lo[:, 1],
            workload.hi[:, 1],
        )
        rows = zip(*(column.tolist() for column in columns), strict=True)
        await connection.copy_records_to_table(
            "subscriptions", records=[(number, *row) for number, row in enumerate(rows)]
        )
        await connection.execute("VACUUM ANALYZE subscriptions")
        await connection.close()
        shared = {
            "socket": str(self._folder),
            "urls": receivers.urls(workload.addresses, "webhook"),
            "secrets": [
                base64.b64encode(secrets.token_bytes(24)).decode() for _ in range(workload.addresses)
            ],
        }
        for number in range(1, WORKERS + 1):
            await asyncio.to_thread(self._programs.start, "worker", f"worker{number}", shared)
        front = await asyncio.to_thread(self._programs.start, "front", "front", {"socket": str(self._folder)})
        self.url = front["url"]

    async def activate(self, mode: str) -> None:
        self._programs.resume()

    def pause(self) -> None:
        self._programs.pause()

    async def _connect(self) -> Any:
        import asyncpg

        async with asyncio.timeout(START_SECONDS):
            while True:
                try:
                    return await asyncpg.connect(host=str(self._folder), user="bench", database="postgres")
                except (OSError, asyncpg.PostgresError):
                    await asyncio.sleep(0.1)
