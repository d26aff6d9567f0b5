"""Starts PostgreSQL servers for tests: unprivileged, in a folder of their own, on a free port."""

from __future__ import annotations

import contextlib
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg

from tests import programs
from tests.network.processes import free_port

#: where Debian's package has the programs that are not on the path
DEBIAN = Path("/usr/lib/postgresql/15/bin")
USER = "edn"
#: a user that needs a password, once a test has created it
LOCKED = "locked"
#: faster, and no test cuts the power
FAST = {"fsync": "off", "full_page_writes": "off", "shared_buffers": "32MB", "max_connections": "200"}


def program(name: str) -> str | None:
    """Return the path of a program of PostgreSQL; None if it is not installed."""
    return shutil.which(name, path=f"{DEBIAN}:{os.environ.get('PATH', '')}")


@dataclass(slots=True)
class Cluster:
    """One PostgreSQL server."""

    folder: Path
    port: int
    settings: dict[str, str] = field(default_factory=dict)
    _process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"postgresql://{USER}@127.0.0.1:{self.port}/postgres"

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def network_options(self) -> list[str]:
        """Return the options of a network's processes that name a schema of their own."""
        schema = f"edn_{secrets.token_hex(4)}"
        return ["--database", self.url, "--database-schema", schema, "--allow-single-database"]

    def create(self) -> None:
        """Create the files."""
        self._run("initdb", "-D", self.data, "-U", USER, "-A", "trust", "-E", "UTF8", "--no-locale", "-N")
        access = self.data / "pg_hba.conf"
        access.write_text(f"host all {LOCKED} 127.0.0.1/32 scram-sha-256\n{access.read_text()}")

    def start(self) -> None:
        """Start the server and wait until it answers."""
        chosen = {**FAST, **self.settings, "port": str(self.port), "listen_addresses": "127.0.0.1"}
        chosen["unix_socket_directories"] = ""
        options = [part for name, value in chosen.items() for part in ("-c", f"{name}={value}")]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(program("postgres")), "-D", str(self.data), *options],
                stdout=log,
                stderr=log,
                cwd=self.folder,
                **_unprivileged(),
            )
        deadline = time.monotonic() + 60
        while True:
            with contextlib.suppress(psycopg.OperationalError):
                psycopg.connect(self.url, connect_timeout=5).close()
                return
            assert self._process.poll() is None, (self.folder / "log").read_text()[-2000:]
            assert time.monotonic() < deadline, "PostgreSQL did not start"
            time.sleep(0.05)

    def stop(self, how: signal.Signals = signal.SIGQUIT) -> None:
        """End the server by its pid; SIGQUIT ends it at once, as a crash does."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(60)
            self._process = None

    def execute(self, text: str) -> list[tuple[object, ...]]:
        """Run a statement as the superuser."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(text.encode())
            return cursor.fetchall() if cursor.description else []

    def with_password(self, user: str, password: str, database: str = "postgres") -> str:
        return f"postgresql://{user}:{quote(password)}@127.0.0.1:{self.port}/{database}"

    def _run(self, name: str, *arguments: object) -> None:
        found = program(name)
        assert found is not None, f"{name} is missing: install Debian's package postgresql"
        done = subprocess.run(
            [found, *map(str, arguments)], cwd=self.folder, capture_output=True, text=True, **_unprivileged()
        )
        assert done.returncode == 0, done.stderr


def _unprivileged() -> dict[str, Any]:
    """Return the arguments of a process that is not root: PostgreSQL refuses root."""
    if os.getuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


@contextlib.contextmanager
def cluster(**settings: str) -> Iterator[Cluster]:
    """A running server that ends with the context; skips the test, or fails it in CI, without PostgreSQL."""
    if program("postgres") is None:
        programs.unavailable("not installed: postgres; `make programs` installs it on Debian")
    # Not in pytest's folder, which only its user may enter.
    with tempfile.TemporaryDirectory(prefix="edn-postgres-") as place:
        folder = Path(place)
        if os.getuid() == 0:
            nobody = pwd.getpwnam("nobody")
            os.chown(folder, nobody.pw_uid, nobody.pw_gid)
        made = Cluster(folder, free_port(), settings)
        made.create()
        made.start()
        try:
            yield made
        finally:
            made.stop()


class Proxy:
    """Forwards connections to a server, and can lose what one side sends."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        #: called with bytes of the client and of the server; what it returns is forwarded
        self.upwards: Callable[[bytes], bytes] = lambda data: data
        self.downwards: Callable[[bytes], bytes] = lambda data: data
        threading.Thread(target=self._accept, daemon=True).start()

    def url(self, cluster: Cluster) -> str:
        return cluster.url.replace(f":{cluster.port}/", f":{self.port}/")

    def heal(self) -> None:
        self.upwards = self.downwards = lambda data: data

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._target))
                for pair, upwards in (((client, server), True), ((server, client), False)):
                    threading.Thread(target=self._pump, args=(*pair, upwards), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, upwards: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                forwarded = self.upwards(data) if upwards else self.downwards(data)
                if forwarded:
                    sink.sendall(forwarded)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
