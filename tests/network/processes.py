"""Starts, awaits, kills and restarts the services as processes of their own."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import random
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import httpx

from tests import faults

ROOT = Path(__file__).resolve().parents[2]
READY_SECONDS = 60.0
T = TypeVar("T")


def until(what: str, condition: Callable[[], T], *, seconds: float = 30.0, every: float = 0.05) -> T:
    """The first true answer of the condition; an AssertionError that says what was awaited otherwise."""
    deadline = time.monotonic() + seconds
    while True:
        answer = condition()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds:g} s in vain for {what}; last answer: {answer!r}")
        time.sleep(every)


def free_port() -> int:
    [port] = free_ports(1)
    return port


def free_ports(count: int) -> list[int]:
    """Different ones, below those that the system gives to whoever asks for any: while the process that one
    is for is not there, yet or any more, no connection on its way out takes it."""
    chance = random.SystemRandom()
    found: set[int] = set()
    while len(found) < count:
        with socket.socket() as probe, contextlib.suppress(OSError):
            port = chance.randrange(10_000, 32_768)
            probe.bind(("127.0.0.1", port))
            found.add(port)
    return list(found)


def die_with_parent() -> None:
    """Nothing that a test started outlives the test run, even when that is killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)


class Process:
    """One service: `start`, `await_ready`, then `stop` or `kill`, and `start` again."""

    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        folder: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self._environment = dict(environment or {})
        self.ready: dict[str, Any] = {}
        self._arguments = list(arguments)
        self._errors = folder / f"{name}.stderr"
        self._process: subprocess.Popen[bytes] | None = None
        self._first_line: list[bytes] = []
        self._reader: threading.Thread | None = None

    def start(self) -> None:
        """Starts it; only from the main thread, as the child ends with the thread that made it."""
        assert self._process is None, f"{self.name} runs already"
        self._first_line = []
        environment = {**os.environ, "PYTHONUNBUFFERED": "1", **self._environment}
        faulty = self._arguments[0] in faults.SERVICES and faults.are_wanted(environment)
        launcher = ["tests.faults"] if faulty else []
        with self._errors.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", *launcher, *self._arguments],
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=errors,
                stdin=subprocess.DEVNULL,
                env=environment,
                preexec_fn=die_with_parent,
            )
        self._reader = threading.Thread(
            target=self._read, args=(self._process, self._first_line), daemon=True
        )
        self._reader.start()

    @staticmethod
    def _read(process: subprocess.Popen[bytes], lines: list[bytes]) -> None:
        assert process.stdout is not None
        for line in process.stdout:  # drained to its end, so that the child never blocks on a full pipe
            if not lines and b'"ready": false' not in line:  # it waits for something
                lines.append(line)

    def await_ready(self, seconds: float = READY_SECONDS) -> dict[str, Any]:
        def readiness() -> bool:
            if not self._first_line and not self.alive():
                raise AssertionError(
                    f"{self.name} ended with {self.exit_code()} before it was ready\n{self.tail()}"
                )
            return bool(self._first_line)

        try:
            until(f"the readiness line of {self.name}", readiness, seconds=seconds)
        except AssertionError as waited:
            raise AssertionError(f"{waited}\n{self.tail()}") from None
        self.ready = json.loads(self._first_line[0])
        assert self.ready.get("ready") is True, self.ready
        return self.ready

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} does not run"
        return self._process.pid

    @property
    def url(self) -> str:
        url: str = self.ready["url"]
        return url

    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def exit_code(self) -> int | None:
        return None if self._process is None else self._process.poll()

    def kill(self) -> None:
        """SIGKILL: no chance to write anything down."""
        self._end(signal.SIGKILL)

    def stop(self, seconds: float = 15.0) -> int:
        """SIGTERM, SIGKILL after a while; the exit code."""
        return self._end(signal.SIGTERM, seconds)

    def freeze(self) -> None:
        """SIGSTOP: it is there, and silent."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def _end(self, number: signal.Signals, seconds: float = 15.0) -> int:
        if self._process is None:
            return 0
        process, self._process = self._process, None
        if process.poll() is None:
            process.send_signal(number)
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        if self._reader is not None:
            self._reader.join(5)
        if process.stdout is not None:
            process.stdout.close()
        return code

    def text(self) -> str:
        """Its standard error so far."""
        return self._errors.read_text(errors="replace") if self._errors.exists() else ""

    def tail(self, lines: int = 25) -> str:
        """The last lines of its standard error, for the report of a failed test."""
        if not self._errors.exists():
            return f"--- {self.name}: no standard error"
        text = self._errors.read_text(errors="replace").splitlines()[-lines:]
        return "\n".join([f"--- {self.name}, end of standard error", *text])


class Network:
    """A dispatcher, or several, and the servers, all on 127.0.0.1, in one data folder."""

    def __init__(
        self,
        folder: Path,
        servers: int,
        *,
        dispatchers: int = 1,
        dispatcher_options: Sequence[str] = (),
        server_options: Sequence[str] = (),
        locked: bool = False,
        environment: Mapping[str, str] | None = None,
        database: Sequence[str] = (),
        tls: Sequence[str] = (),
        verify: ssl.SSLContext | bool = True,
    ) -> None:
        """`database`: options of a database that all processes use in place of data folders.

        `tls`: options of TLS of all processes; `verify`: TLS of the test's own client.
        """
        self._verify = verify
        self.folder = folder
        #: options of the database
        self.database = list(database)
        self._environment = environment
        self._locked = locked
        self._dispatcher_options = [*dispatcher_options, *([] if locked else ["--open"])]
        self._server_options = list(server_options)
        secret = folder / "secret"
        secret.write_text("a secret of the tests, long enough\n")
        secret.chmod(0o600)
        self._options = ["--host", "127.0.0.1", "--secret-file", str(secret), "--allow-loopback-sinks"]
        # The same in every network, so that one network can go on with the data of another.
        keys = folder / "secret-keys"
        keys.write_text("5e" * 32)
        keys.chmod(0o600)
        self._options += ["--secret-key-file", str(keys)]
        self.secret = secret.read_text().strip()
        # Fixed ports: the servers find a restarted dispatcher again where it was.
        scheme = "https" if tls else "http"
        self._options += tls
        self.urls = [f"{scheme}://127.0.0.1:{port}" for port in free_ports(dispatchers)]
        self.url = self.urls[0]
        #: all of them, in the order of `urls`
        self.dispatchers = [
            self._new_dispatcher("dispatcher" if not number else f"dispatcher{number + 1}", url)
            for number, url in enumerate(self.urls)
        ]
        self.dispatcher = self.dispatchers[0]
        self.servers = {f"s{number}": self.new_server(f"s{number}") for number in range(1, servers + 1)}
        self.http = self._client()

    def _client(self) -> httpx.Client:
        """The operator's: where keys are wanted, it has the network's secret."""
        authorization = {"authorization": f"Bearer {self.secret}"} if self._locked else {}
        return httpx.Client(base_url=self.url, timeout=30, headers=authorization, verify=self._verify)

    def _new_dispatcher(self, name: str, url: str) -> Process:
        store = ["--data", str(self.folder / name)]
        if self.database:
            store = [*self.database, "--name", name]
        where = [*store, "--port", url.rpartition(":")[2]]
        options = [*self._options, *self._dispatcher_options]
        return Process(name, ["dispatcher", *where, *options], self.folder, self._environment)

    def new_server(self, name: str, *, data: Path | None = None) -> Process:
        """A server of this network, not started and not among `servers`."""
        store = self.database or ["--data", str(data or self.folder / name)]
        return self._server(name, ["--id", name, *store])

    def new_spare(self, name: str, *options: str) -> Process:
        """A process that waits for a server's death, not started."""
        return self._server(name, ["--spare", *self.database, *options])

    def _server(self, name: str, own: Sequence[str]) -> Process:
        where = [*own, "--port", "0"]
        where += [part for url in self.urls for part in ("--dispatcher", url)]
        options = [*self._options, *self._server_options]
        return Process(name, ["edn_server", *where, *options], self.folder, self._environment)

    def start(self) -> None:
        for dispatcher in self.dispatchers:
            dispatcher.start()
        for server in self.servers.values():  # side by side: each imports and compiles for seconds
            server.start()
        for dispatcher in self.dispatchers:
            dispatcher.await_ready()
        for server in self.servers.values():
            server.await_ready()
        self.await_servers("ready", *self.servers)

    def states(self, url: str | None = None) -> dict[str, str]:
        """What the dispatcher says of each server."""
        answer = self.http.get(f"{url or self.url}/v1/servers")
        answer.raise_for_status()
        return {server["id"]: server["state"] for server in answer.json()["servers"]}

    def await_servers(self, state: str, *names: str, seconds: float = 30.0) -> None:
        def all_there() -> bool:
            there = zip(self.urls, self.dispatchers, strict=True)
            seen = [self.states(url) for url, dispatcher in there if dispatcher.alive()]
            assert seen, "no dispatcher runs"
            return all(states.get(name) == state for states in seen for name in names)

        until(f"{', '.join(names)} to be {state}", all_there, seconds=seconds)

    def restart_dispatcher(self) -> None:
        self.dispatcher.start()
        self.dispatcher.await_ready()
        self.http.close()  # connections of the earlier life
        self.http = self._client()

    def processes(self) -> list[Process]:
        return [*self.dispatchers, *self.servers.values()]

    def close(self) -> None:
        self.http.close()
        for process in [*self.servers.values(), *self.dispatchers]:
            process.stop()

    def report(self) -> str:
        return "\n".join(process.tail() for process in self.processes())
