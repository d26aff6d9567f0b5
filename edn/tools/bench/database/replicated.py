"""Starts a PostgreSQL primary with a synchronous standby, in a temporary folder, as an unprivileged user."""

from __future__ import annotations

import itertools
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

import psutil
import psycopg

from edn.errors import InvalidInput
from edn.tools.bench.delivery.peers.database import free_port, hand_over, running_server, unprivileged
from edn.tools.bench.delivery.peers.system import find_program
from edn.tools.bench.delivery.usage import cpu_seconds

#: durable: a commit is flushed by both servers; autovacuum as docs/operating.md recommends
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "300",
    "shared_buffers": "256MB",
    "max_wal_size": "4GB",
    "checkpoint_timeout": "30min",
    "synchronous_commit": "on",
    "fsync": "on",
    "jit": "off",
    "autovacuum_naptime": "10s",
    "autovacuum_vacuum_cost_limit": "2000",
}
STANDBY = "standby"
USER = "edn"
START_SECONDS = 60.0


class Replicated:
    """Both servers."""

    def __init__(self, port: int, primary: psutil.Process, standby: psutil.Process) -> None:
        self._port = port
        self.primary = primary
        self.standby = standby
        self._numbers = itertools.count(1)

    def new_database(self) -> str:
        """Creates a database for one network; returns its URL."""
        number = next(self._numbers)
        with self._connect() as session:
            session.execute(f"CREATE DATABASE network{number}".encode())
        return self.url(number)

    def url(self, number: int) -> str:
        """Returns the URL of the n-th database."""
        return _url(self._port, f"network{number}")

    def cpu_seconds(self) -> dict[str, float]:
        """Returns the CPU time of both servers, with their sessions."""
        return {"primary": server_seconds(self.primary), "standby": server_seconds(self.standby)}

    def round_trip(self, commits: int = 300) -> float:
        """Returns the seconds by which the standby delays a small commit: a median difference."""
        seconds: dict[str, list[float]] = {"on": [], "local": []}
        with self._connect() as session:
            session.execute(b"CREATE TABLE IF NOT EXISTS round_trips (number int)")
            for _, mode in itertools.product(range(commits), seconds):
                session.execute(f"SET synchronous_commit = {mode}".encode())
                began = time.perf_counter()
                session.execute(b"INSERT INTO round_trips VALUES (1)")
                seconds[mode].append(time.perf_counter() - began)
        return median(seconds["on"]) - median(seconds["local"])

    def _connect(self) -> psycopg.Connection[tuple[object, ...]]:
        return psycopg.connect(_url(self._port, "postgres"), autocommit=True)


def server_seconds(server: psutil.Process) -> float:
    """Returns the CPU time of a database server and of all sessions that it had since it started."""
    return sum(map(cpu_seconds, [server, *server.children(recursive=True)]))


@contextmanager
def replicated() -> Iterator[Replicated]:
    """Runs both servers until the block ends."""
    check_programs()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="edn-bench-pg-")))
        hand_over(folder)
        data, copy = folder / "primary", folder / STANDBY
        _run(folder, "initdb", "-D", data, "-U", USER, "-A", "trust", "-E", "UTF8", "--no-locale", "-N")
        ports = free_port(), free_port()
        primary = stack.enter_context(_server(folder, data, ports[0]))
        url = _url(ports[0], "postgres")
        _until("the primary", lambda: bool(_asked(url, b"SELECT 1")))
        conninfo = f"host=127.0.0.1 port={ports[0]} user={USER} application_name={STANDBY}"
        _run(folder, "pg_basebackup", "-D", copy, "-d", conninfo, "-R", "-c", "fast", "-X", "stream")
        standby = stack.enter_context(_server(folder, copy, ports[1]))
        _asked(url, f"ALTER SYSTEM SET synchronous_standby_names = '{STANDBY}'".encode())
        _asked(url, b"SELECT pg_reload_conf()")
        query = b"SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'"
        _until("the standby", lambda: bool(_asked(url, query)))
        yield Replicated(ports[0], primary, standby)


def check_programs() -> None:
    """Raises `InvalidInput` unless the programs of PostgreSQL are installed."""
    for name in ("initdb", "postgres", "pg_basebackup"):
        find_program(name)


def _url(port: int, database: str) -> str:
    return f"postgresql://{USER}@127.0.0.1:{port}/{database}"


def _run(folder: Path, name: str, *arguments: object) -> None:
    done = subprocess.run(
        [find_program(name), *map(str, arguments)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        user=unprivileged(),
    )
    if done.returncode:
        raise InvalidInput(f"{name} failed: {done.stderr[-500:]}")


@contextmanager
def _server(folder: Path, data: Path, port: int) -> Iterator[psutil.Process]:
    flags = [part for name, value in SETTINGS.items() for part in ("-c", f"{name}={value}")]
    command = [find_program("postgres"), "-D", str(data), "-p", str(port), *flags]
    with running_server(command, folder / f"{data.name}.log") as process:
        yield process


def _asked(url: str, query: bytes) -> list[tuple[object, ...]]:
    try:
        with psycopg.connect(url, autocommit=True, connect_timeout=5) as session:
            cursor = session.execute(query)
            return cursor.fetchall() if cursor.description else []
    except psycopg.OperationalError:
        return []


def _until(what: str, condition: Callable[[], bool]) -> None:
    until = time.monotonic() + START_SECONDS
    while not condition():
        if time.monotonic() > until:
            raise RuntimeError(f"{what} did not start within {START_SECONDS:g} s")
        time.sleep(0.1)
