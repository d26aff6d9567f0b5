"""Three PostgreSQL nodes with Patroni, and etcd: real programs on loopback, as a user who is not root.

Standbys reach the primary through its proxy, each Patroni reaches etcd through a proxy of its own, and the
processes of the network get proxies to all nodes. So every way between two of them can be cut.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil
import psycopg

from tests import postgres
from tests.chaos.proxy import Proxy
from tests.network.processes import die_with_parent, free_ports
from tests.postgres import USER

NODES = ("n1", "n2", "n3")
#: bytes of the small disk of each node
_DISK_BYTES = 1 << 30
#: seconds of the first start
_START_SECONDS = 120.0
#: how far the clock of a node is from the true time, where it can be faked
CLOCKS = {"n1": 0, "n2": 3600, "n3": -3600}
_FAKETIME = Path("usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")


class Missing(Exception):
    """A program that the run needs is not installed."""


def unprivileged() -> dict[str, Any]:
    """Return the arguments of a process that is not root: PostgreSQL refuses root."""
    if os.getuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def _own(folder: Path) -> None:
    if os.getuid() == 0:
        nobody = pwd.getpwnam("nobody")
        os.chown(folder, nobody.pw_uid, nobody.pw_gid)


def _program(name: str) -> str:
    beside = Path(sys.prefix) / "programs/usr/bin" / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        raise Missing(f"{name} is not installed; `make programs` installs it on Debian")
    return found


def _interpreter() -> tuple[str, dict[str, str]]:
    """Return a Python that the unprivileged user can run, and the environment in which it has Patroni.

    Without the packages of that interpreter (-S): Debian's would mix with ours.
    """
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    packages = str(Path(psycopg.__file__).resolve().parents[1])
    environment = {"PYTHONPATH": packages, "PATH": os.environ.get("PATH", ""), "LANG": "C.UTF-8"}
    for python in (sys.executable, f"/usr/bin/python{version}"):
        with contextlib.suppress(OSError):
            tried = subprocess.run(
                [python, "-S", "-c", "import patroni.__main__, psycopg, psycopg.pq"],
                env=environment,
                cwd="/",
                capture_output=True,
                check=False,
                **unprivileged(),
            )
            if tried.returncode == 0:
                return python, environment
    raise Missing("Patroni is not installed for a user who is not root: pip install 'edn[chaos]'")


@dataclass(eq=False)
class Node:
    """One machine of the database: Patroni and PostgreSQL."""

    name: str
    folder: Path
    port: int
    rest: int
    #: the way of the standbys to this node, and the way of its Patroni to etcd
    replication: Proxy = field(default_factory=Proxy)
    etcd: Proxy = field(default_factory=Proxy)
    #: folder of a small disk of its own
    disk: Path | None = None
    process: subprocess.Popen[bytes] | None = None

    @property
    def data(self) -> Path:
        return (self.disk or self.folder) / "data"

    def postmaster(self) -> int | None:
        """Return the pid of the running PostgreSQL server."""
        try:
            pid = int((self.data / "postmaster.pid").read_text().split()[0])
            is_running = Path(f"/proc/{pid}/exe").resolve().name == "postgres"
        except (OSError, ValueError, IndexError):
            return None
        return pid if is_running else None

    def processes(self, *, patroni: bool) -> list[int]:
        """Return the pids of PostgreSQL, with or without Patroni."""
        found: list[int] = []
        if patroni and self.process is not None and self.process.poll() is None:
            found.append(self.process.pid)
        if (postmaster := self.postmaster()) is not None:
            found.append(postmaster)
            with contextlib.suppress(psutil.Error):
                found += [child.pid for child in psutil.Process(postmaster).children(recursive=True)]
        return found

    def send(self, number: signal.Signals, *, patroni: bool) -> int:
        """Signal all processes of the node; return how many there were."""
        pids = self.processes(patroni=patroni)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        if number == signal.SIGKILL and patroni and self.process is not None:
            self.process.wait()
            self.process = None
        return len(pids)


class DatabaseCluster:
    """Starts, observes and ends the nodes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._python, self._environment = _interpreter()
        self._etcd_program = _program("etcd")
        bin = postgres.program("postgres")
        if bin is None:
            raise Missing("PostgreSQL is not installed; `make programs` installs it on Debian")
        self._bin = Path(bin).resolve().parent
        self._etcd: subprocess.Popen[bytes] | None = None
        self._etcd_port = 0
        faketime = Path(sys.prefix) / "programs" / _FAKETIME
        self.faketime = faketime if faketime.exists() else Path("/") / _FAKETIME
        self.nodes: dict[str, Node] = {}

    @property
    def has_disks(self) -> bool:
        return all(node.disk is not None for node in self.nodes.values())

    @property
    def has_clocks(self) -> bool:
        """Whether the nodes have wrong clocks."""
        return self.faketime.exists()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as stack:
            ports = free_ports(2 + 2 * len(NODES))
            self._etcd_port = ports[0]
            try:
                self._start_etcd(ports[1])
                await self._await_etcd()
                for place, name in enumerate(NODES):
                    folder = self._folder / name
                    folder.mkdir()
                    node = Node(name, folder, ports[2 + 2 * place], ports[3 + 2 * place])
                    node.disk = stack.enter_context(_small_disk(folder / "disk"))
                    _own(folder)
                    self.nodes[name] = node
                    await stack.enter_async_context(node.replication)
                    await stack.enter_async_context(node.etcd)
                    node.replication.upstream, node.etcd.upstream = node.port, self._etcd_port
                for node in self.nodes.values():
                    self.start(node)
                    if node.name == NODES[0]:
                        await self._await(1)  # it creates the cluster
                await self._await(len(NODES))
                await self._await_synchronous()
                yield
            finally:
                self._end()

    def _start_etcd(self, peer: int) -> None:
        folder = self._folder / "etcd"
        folder.mkdir()
        _own(folder)
        client, own = f"http://127.0.0.1:{self._etcd_port}", f"http://127.0.0.1:{peer}"
        arguments = {
            "--data-dir": str(folder / "data"),
            "--listen-client-urls": client,
            "--advertise-client-urls": client,
            "--listen-peer-urls": own,
            "--initial-advertise-peer-urls": own,
            "--initial-cluster": f"default={own}",
        }
        with (folder / "etcd.log").open("ab") as log:
            self._etcd = subprocess.Popen(
                [self._etcd_program, *(part for pair in arguments.items() for part in pair)],
                stdout=log,
                stderr=log,
                cwd=folder,
                preexec_fn=die_with_parent,
                **unprivileged(),
            )

    def start(self, node: Node) -> None:
        """Start the Patroni of a node, which starts PostgreSQL."""
        assert node.process is None
        settings = node.folder / "patroni.json"  # YAML is a superset of JSON
        settings.write_text(json.dumps(self._settings(node)))
        with (node.folder / f"{node.name}.log").open("ab") as log:
            node.process = subprocess.Popen(
                [self._python, "-S", "-m", "patroni", str(settings)],
                stdout=log,
                stderr=log,
                cwd=node.folder,
                env=self._environment,
                preexec_fn=die_with_parent,
                **unprivileged(),
            )

    def _programs(self, node: Node) -> Path:
        """Return the folder of PostgreSQL's programs; its server may see another time of day."""
        if not (self.has_clocks and CLOCKS[node.name]):
            return self._bin
        folder = node.folder / "bin"
        if not folder.exists():
            folder.mkdir()
            for program in self._bin.iterdir():
                if program.name != "postgres":
                    (folder / program.name).symlink_to(program)
            wrapper = folder / "postgres"
            # Only the server: Patroni measures its own leases by this clock, and they are not under test.
            wrapper.write_text(
                f"#!/bin/sh\nexport LD_PRELOAD={self.faketime} FAKETIME={CLOCKS[node.name]:+d}"
                f' FAKETIME_DONT_FAKE_MONOTONIC=1 DONT_FAKE_MONOTONIC=1\nexec {self._bin}/postgres "$@"\n'
            )
            wrapper.chmod(0o755)
        return folder

    def _settings(self, node: Node) -> dict[str, Any]:
        user = {"username": USER, "password": "unused"}
        return {
            "scope": "edn",
            "name": node.name,
            "restapi": {"listen": f"127.0.0.1:{node.rest}", "connect_address": f"127.0.0.1:{node.rest}"},
            # As proxies: otherwise Patroni asks etcd for its own address, and goes around ours.
            "etcd3": {"hosts": f"127.0.0.1:{node.etcd.port}", "use_proxies": True},
            "bootstrap": {
                "dcs": {
                    "ttl": 20,
                    "loop_wait": 2,
                    "retry_timeout": 4,
                    "maximum_lag_on_failover": 64 << 20,
                    "synchronous_mode": "quorum",
                    "synchronous_mode_strict": True,
                    "postgresql": {
                        "use_pg_rewind": True,
                        "parameters": {
                            "wal_log_hints": "on",
                            "max_connections": 200,
                            "max_wal_senders": 8,
                            "wal_keep_size": "128MB",
                            "max_wal_size": "256MB",
                        },
                    },
                },
                "initdb": [{"encoding": "UTF8"}, "no-locale", {"auth": "trust"}],
            },
            "postgresql": {
                "listen": f"127.0.0.1:{node.port}",
                "connect_address": f"127.0.0.1:{node.replication.port}",
                "data_dir": str(node.data),
                "bin_dir": str(self._programs(node)),
                "pgpass": str(node.folder / "pgpass"),
                "authentication": {"superuser": user, "replication": user, "rewind": user},
                "pg_hba": [
                    "local all all trust",
                    "host all all 127.0.0.1/32 trust",
                    "host replication all 127.0.0.1/32 trust",
                ],
                "parameters": {
                    "unix_socket_directories": str(node.folder),
                    "shared_buffers": "32MB",
                    # Nobody cuts the power, and two cores have enough to do.
                    "fsync": "off",
                    "full_page_writes": "off",
                },
                "basebackup": [{"checkpoint": "fast"}],
                "remove_data_directory_on_rewind_failure": True,
                "remove_data_directory_on_diverged_timelines": True,
            },
            "tags": {},
        }

    # -- observing --------------------------------------------------------------------------------------

    async def states(self) -> dict[str, dict[str, Any]]:
        """Return what each Patroni says of its node; a silent one is left out."""
        found: dict[str, dict[str, Any]] = {}
        async with httpx.AsyncClient(timeout=1.0, trust_env=False) as client:
            for node in self.nodes.values():
                with contextlib.suppress(httpx.HTTPError, ValueError):
                    found[node.name] = (await client.get(f"http://127.0.0.1:{node.rest}/patroni")).json()
        return found

    async def primary(self) -> Node | None:
        for name, state in (await self.states()).items():
            if state.get("role") in ("primary", "master") and state.get("state") == "running":
                return self.nodes[name]
        return None

    async def standbys(self) -> list[Node]:
        return [
            self.nodes[name]
            for name, state in (await self.states()).items()
            if state.get("role") == "replica" and state.get("state") in ("running", "streaming")
        ]

    async def is_whole(self) -> bool:
        """Whether there is a primary, and all others follow it."""
        return await self.primary() is not None and len(await self.standbys()) == len(NODES) - 1

    async def await_whole(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                while not await self.is_whole():  # noqa: ASYNC110  other programs decide it
                    await asyncio.sleep(0.3)
        except TimeoutError:
            return False
        return True

    async def _await(self, nodes: int) -> None:
        async with asyncio.timeout(_START_SECONDS):
            while True:
                there = (await self.primary() is not None) + len(await self.standbys())
                if there >= nodes:
                    return
                for node in self.nodes.values():
                    if node.process is not None and node.process.poll() is not None:
                        raise RuntimeError(f"Patroni of {node.name} ended: {self.log(node)[-2000:]}")
                await asyncio.sleep(0.3)

    async def _await_etcd(self) -> None:
        """Wait until etcd has a leader: it names no version before."""
        async with asyncio.timeout(_START_SECONDS), httpx.AsyncClient(trust_env=False) as client:
            while True:
                with contextlib.suppress(httpx.HTTPError):
                    answer = await client.get(f"http://127.0.0.1:{self._etcd_port}/version")
                    if answer.json()["etcdcluster"] != "not_decided":
                        return
                await asyncio.sleep(0.1)

    async def _await_synchronous(self) -> None:
        """Wait until commits wait for a standby."""
        hosts = ",".join(f"127.0.0.1:{node.port}" for node in self.nodes.values())
        url = f"postgresql://{USER}@{hosts}/postgres?target_session_attrs=read-write"

        def names() -> str:
            with psycopg.connect(url) as session:
                row = session.execute("SHOW synchronous_standby_names").fetchone()
                return str(row[0]) if row else ""

        async with asyncio.timeout(_START_SECONDS):
            while not await asyncio.to_thread(names):  # noqa: ASYNC110  Patroni sets them
                await asyncio.sleep(0.3)

    def log(self, node: Node) -> str:
        path = node.folder / f"{node.name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def _end(self) -> None:
        for node in self.nodes.values():
            node.send(signal.SIGCONT, patroni=True)
            node.send(signal.SIGKILL, patroni=True)
            node.send(signal.SIGKILL, patroni=False)
        if self._etcd is not None:
            self._etcd.kill()
            self._etcd.wait()


@contextlib.contextmanager
def _small_disk(folder: Path) -> Any:
    """A folder on a small disk of its own, or None where nothing may be mounted."""
    folder.mkdir()
    mounted = False
    if os.geteuid() == 0:
        nobody = pwd.getpwnam("nobody")
        options = f"size={_DISK_BYTES},mode=700,uid={nobody.pw_uid},gid={nobody.pw_gid}"
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
        mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    try:
        yield folder if mounted else None
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(folder)], capture_output=True, check=False)
