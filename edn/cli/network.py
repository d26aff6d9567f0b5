"""The network of `edn up`: prepares its folder, starts its processes, runs them and stops them in order."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import secrets
import shutil
import signal
import socket
import sys
import threading
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edn.cli.certificates import Certificates, prepare_certificates
from edn.cli.supervisor import Child, ChildFailedError, write_secret
from edn.client import AsyncClient, ClientError, Health, Retries, Server
from edn.errors import CannotStart
from edn.formats.counts import counted
from edn.runtime.disk import keep_private, protect
from edn.runtime.secret_box import KEY_FILE, create_key_file, read_key_file
from edn.tools.console import say, show_json

DEFAULT_SERVERS = 3
#: time in which the processes of a killed supervisor end
LEFTOVER_SECONDS = 20.0
JOIN_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    data: Path
    host: str
    port: int
    servers: int | None
    demo: bool
    allow_loopback_sinks: bool
    allow_sink_networks: tuple[str, ...]
    #: no API key is required
    open: bool
    json_ready: bool
    #: stop when standard input ends
    with_stdin: bool
    #: None: as many as the folder contains
    dispatchers: int | None = None
    #: settings of the processes; what `edn up` chooses itself, such as ports, goes first
    config_file: Path | None = None
    #: URL of the PostgreSQL database that holds log and shards in place of the folder
    database: str | None = None
    allow_single_database: bool = False
    #: keys of stored secrets; by default a file in the folder
    secret_key_file: Path | None = None
    #: serve https with certificates of a development authority
    tls: bool = False


class StartError(Exception):
    """The network cannot be started; the message contains the remedy."""

    def __init__(self, message: str, *, usage: bool = False) -> None:
        super().__init__(message)
        self.usage = usage


@dataclass(frozen=True, slots=True)
class Folder:
    path: Path
    lock: int
    secret: Path
    #: file with the keys of stored secrets, shared by all processes; None if other settings name the keys
    secret_keys: Path | None
    servers: tuple[str, ...]
    #: certificates, with --tls
    certificates: Certificates | None
    #: port of each dispatcher; chosen before the start, so that servers can start at the same time
    ports: dict[str, int]


@contextmanager
def prepare(settings: Settings) -> Iterator[Folder]:
    """Prepares and locks the data folder; raises `StartError` if another network uses it."""
    path = settings.data
    try:
        keep_private()
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        protect(path)
        for part in ("logs", "servers", "dispatcher"):
            (path / part).mkdir(exist_ok=True)
        lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise StartError(f"cannot use {path} as data folder: {error.strerror}", usage=True) from error
    try:
        _lock(lock, path)
        _write_pid(lock)
        secret = path / "secret"
        if not secret.exists():
            try:
                write_secret(secret, secrets.token_urlsafe(32))
            except OSError as error:
                secret.unlink(missing_ok=True)
                raise StartError(f"cannot write {secret}: {error.strerror}") from error
        keys = _secret_keys(settings)
        ports: dict[str, int] = {}
        for number, name in enumerate(_dispatcher_names(settings)):
            port = _usable_port(settings.host, settings.port and settings.port + number)
            while port in ports.values():  # the system may offer a free port twice
                port = _usable_port(settings.host, 0)
            ports[name] = port
        yield Folder(
            path=path,
            lock=lock,
            secret=secret,
            secret_keys=keys,
            certificates=_certificates(settings),
            servers=_server_names(settings),
            ports=ports,
        )
    finally:
        os.close(lock)


def _secret_keys(settings: Settings) -> Path | None:
    """Returns the key file of the processes, a new one in a new folder; None if they find their keys."""
    if settings.secret_key_file is None:
        has_variable = any(name.startswith("EDN_") and "SECRET_KEY" in name for name in os.environ)
        if has_variable or _names(settings.config_file, "secret-key-file"):
            return None
    file = settings.secret_key_file or settings.data / KEY_FILE
    try:
        if settings.secret_key_file is None and not file.exists():
            create_key_file(file)
        read_key_file(file)
    except CannotStart as error:
        raise StartError(str(error)) from error
    except OSError as error:
        raise StartError(f"cannot write {file}: {error.strerror}") from error
    return file


def _certificates(settings: Settings) -> Certificates | None:
    if _names(settings.config_file, "tls-cert"):
        raise StartError(
            "tls-cert in the settings file is for processes that are started one by one; `edn up --tls` "
            "makes certificates",
            usage=True,
        )
    if not settings.tls:
        return None
    try:
        return prepare_certificates(settings.data / "tls", settings.host)
    except (OSError, ValueError) as error:
        raise StartError(f"cannot create certificates in {settings.data / 'tls'}: {error}") from error


def _names(config_file: Path | None, setting: str) -> bool:
    """Tells whether a settings file has a setting; the processes report its errors."""
    if config_file is None:
        return False
    try:
        sections = tomllib.loads(config_file.read_text(encoding="utf-8")).values()
    except (OSError, ValueError):
        return False
    return any(isinstance(section, dict) and setting in section for section in sections)


def _lock(lock: int, path: Path) -> None:
    """Acquires the lock. Children inherit it, so it stays locked until they have ended, too."""
    deadline = time.monotonic() + LEFTOVER_SECONDS
    waiting = False
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            owner = _read_pid(lock)
            if _is_alive(owner) or time.monotonic() > deadline:
                pid = f" (process {owner})" if owner else ""
                raise StartError(
                    f"a network is already running on {path}{pid}: stop it first, or choose another --data",
                    usage=True,
                ) from None
        if not waiting:
            say("waiting until the processes of the previous network have ended …")
            waiting = True
        time.sleep(0.1)


def _write_pid(lock: int) -> None:
    """Writes the id of this process into the lock file, to be shown to people."""
    content = json.dumps({"pid": os.getpid()}).encode()
    with contextlib.suppress(OSError):
        # Overwriting before truncating reuses the block, which also works on a full disk.
        os.pwrite(lock, content, 0)
        os.ftruncate(lock, len(content))


def _read_pid(lock: int) -> int | None:
    try:
        found = json.loads(os.pread(lock, 1000, 0))["pid"]
    except (ValueError, KeyError, TypeError):
        return None
    return found if isinstance(found, int) else None


def _is_alive(pid: int | None) -> bool:
    if pid is None:
        return True  # it is starting and has not written its id yet
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _usable_port(host: str, port: int) -> int:
    """Returns the port, or a free one for 0; raises `StartError` if it is in use."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.create_server((host, port), family=family) as probe:
            free: int = probe.getsockname()[1]
            return free
    except OSError as error:
        raise StartError(
            f"cannot use port {port} on {host} ({os.strerror(error.errno or 0)}): "
            "choose another --port, or 0 for any",
            usage=True,
        ) from error


def _dispatcher_names(settings: Settings) -> list[str]:
    """Returns dispatcher, dispatcher2, …: at least those that the folder names."""
    held = 1
    while (settings.data / f"dispatcher{held + 1}").is_dir():
        held += 1
    wanted = settings.dispatchers or held
    if settings.database is None:
        return ["dispatcher"]
    if wanted < held:
        say(f"the network has had {held} dispatchers: starting all of them")
    return ["dispatcher", *(f"dispatcher{number}" for number in range(2, max(wanted, held) + 1))]


def _server_names(settings: Settings) -> tuple[str, ...]:
    """Returns s1, s2, …: at least those whose subscriptions the folder contains."""
    held = {entry.name for entry in (settings.data / "servers").iterdir() if entry.is_dir()}
    wanted = settings.servers or len(held) or DEFAULT_SERVERS
    names = sorted(held, key=lambda name: (len(name), name))
    if wanted < len(names):
        say(f"the folder contains {len(names)} servers with their subscriptions: starting all of them")
    number = 0
    while len(names) < wanted:
        number += 1
        if f"s{number}" not in held:
            names.append(f"s{number}")
    return tuple(names)


def _disk_failure(health: Health, servers: list[Server]) -> str | None:
    """Returns the report of the dispatcher or a server about a full disk."""
    reports = [str(health.detail.get("detail", "")), *(server.failure or "" for server in servers)]
    return next((report for report in reports if "disk:" in report), None)


class Network:
    """The processes of the network, from the first start to the last stop."""

    def __init__(self, settings: Settings, folder: Folder) -> None:
        self._settings = settings
        self._folder = folder
        self._children: list[Child] = []
        # A wildcard address can be listened on, but not connected to.
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)
        shown = f"[{host}]" if ":" in host else host
        scheme = "http" if folder.certificates is None else "https"
        self._urls = {name: f"{scheme}://{shown}:{port}" for name, port in folder.ports.items()}
        self._url = ",".join(self._urls.values())
        self._stop_requests = 0

    async def run(self) -> None:
        """Starts the network, serves until a signal and stops; raises `StartError`."""
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._request_stop, stop)
        if self._settings.with_stdin:
            threading.Thread(target=self._watch_stdin, args=(loop, stop), daemon=True).start()
        # Those of the user's client; processes have others.
        for name in ("CA", "CERT", "KEY"):
            os.environ.pop(f"EDN_TLS_{name}", None)
        certificates = self._folder.certificates
        if certificates is not None:
            os.environ["EDN_TLS_CA"] = str(certificates.ca)
        async with asyncio.TaskGroup() as group:
            serving = group.create_task(self._serve(group, stop))
            # A signal during the start stops at once.
            stopping = group.create_task(stop.wait())
            await asyncio.wait([serving, stopping], return_when=asyncio.FIRST_COMPLETED)
            serving.cancel()
            stopping.cancel()
            await asyncio.wait([serving])
            if self._stop_requests:
                self._say("stopping …")
            # Dispatchers stop first: they accept no events while the servers finish their deliveries.
            dispatchers = len(self._urls)
            await asyncio.gather(*(child.stop() for child in self._children[:dispatchers]))
            await asyncio.gather(*(child.stop() for child in self._children[dispatchers:]))
        if not serving.cancelled() and (error := serving.result()) is not None:
            raise error

    def _watch_stdin(self, loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
        while os.read(0, 4096):
            pass
        try:
            loop.call_soon_threadsafe(self._request_stop, stop)
        except RuntimeError:
            pass  # the loop has ended already

    def _request_stop(self, stop: asyncio.Event) -> None:
        """Stops the network; the second request kills its processes."""
        self._stop_requests += 1
        stop.set()
        if self._stop_requests == 2:
            say("killing all processes")
            for child in self._children:
                child.kill()

    async def _serve(self, group: asyncio.TaskGroup, stop: asyncio.Event) -> StartError | None:
        try:
            await self._start(group)
            servers = await self._await_servers()
        except ChildFailedError as error:
            return StartError(str(error))
        self._announce(servers)
        if self._settings.demo:
            from edn.tools.demo import run_demo

            await run_demo(self._url, key=self._key(), plain=self._settings.json_ready)
        await stop.wait()
        return None

    async def _start(self, group: asyncio.TaskGroup) -> None:
        folder, settings = self._folder, self._settings
        shared = ["--secret-file", str(folder.secret)]
        if folder.secret_keys is not None:
            shared += ["--secret-key-file", str(folder.secret_keys)]
        if folder.certificates is not None:
            shared += folder.certificates.options
        if settings.allow_loopback_sinks:
            shared.append("--allow-loopback-sinks")
        for network in settings.allow_sink_networks:
            shared += ["--allow-sink-network", network]
        if settings.config_file is not None:
            shared += ["--config-file", str(settings.config_file)]
        for name, port in folder.ports.items():
            command = ["dispatcher", *self._store(folder.path / name), "--host", settings.host]
            command += [] if settings.database is None else ["--name", name]
            command += ["--open"] if settings.open else []
            self._spawn(group, name, [*command, "--port", str(port), *shared])
        for name in folder.servers:
            data = folder.path / "servers" / name
            command = ["edn_server", "--id", name, *self._store(data)]
            for url in self._urls.values():
                command += ["--dispatcher", url]
            # Lower priority than the dispatcher, which all servers wait for.
            command += ["--host", "127.0.0.1", "--port", "0", "--nice", "5", *shared]
            self._spawn(group, name, command)
        count = len(folder.ports)
        dispatchers = "the dispatcher" if count == 1 else f"{count} dispatchers"
        self._say(f"starting {dispatchers} and {counted(len(folder.servers), 'server')} …")
        await asyncio.gather(*(child.first_ready() for child in self._children))

    def _store(self, folder: Path) -> list[str]:
        """Returns the options that name the store of a process."""
        settings = self._settings
        if settings.database is None:
            return ["--data", str(folder)]
        # The next start finds as many servers again.
        folder.mkdir(parents=True, exist_ok=True)
        single = ["--allow-single-database"] if settings.allow_single_database else []
        return ["--database", settings.database, *single]

    def _spawn(self, group: asyncio.TaskGroup, name: str, command: list[str]) -> None:
        child = Child(
            name, command, self._folder.path / "logs" / f"{name}.log", say, inherited=[self._folder.lock]
        )
        self._children.append(child)
        group.create_task(child.run(), name=f"run {name}")

    def _key(self) -> str:
        """Reads the network's secret, which is valid as a key with all scopes."""
        return self._folder.secret.read_text().strip()

    async def _await_servers(self) -> list[Server]:
        """Returns the servers when all of them are ready at every dispatcher."""
        deadline = time.monotonic() + JOIN_SECONDS
        servers: list[Server] = []
        for url in self._urls.values():
            async with AsyncClient(url, key=self._key(), retries=Retries(count=0)) as client:
                servers = await self._await_servers_at(client, deadline)
        return servers

    async def _await_servers_at(self, client: AsyncClient, deadline: float) -> list[Server]:
        report: Any = "nothing yet"
        warned = False
        while time.monotonic() < deadline:
            try:
                health = await client.health()
                servers = sorted(await client.servers(), key=lambda server: server.id)
                ready = {server.id for server in servers if server.state == "ready"}
                disk_failure = _disk_failure(health, servers)
                if ready >= set(self._folder.servers) and (health.ready or disk_failure is not None):
                    if disk_failure is not None:
                        self._warn(f"the network refuses events: {disk_failure}")
                    return servers
                report = health.detail
                if disk_failure is not None:
                    # Somebody may free disk space much later: there is no deadline until then.
                    deadline = time.monotonic() + JOIN_SECONDS
                    if not warned:
                        self._warn(f"waiting for disk space: {disk_failure}")
                        warned = True
            except ClientError as error:
                report = error
            await asyncio.sleep(0.05)
        raise ChildFailedError(
            f"the servers did not join within {JOIN_SECONDS:g} s; the dispatcher reports: {report}"
        )

    def _say(self, message: str) -> None:
        """Prints a message, unless a program waits for the line of JSON."""
        if not self._settings.json_ready:
            self._warn(message)

    @staticmethod
    def _warn(message: str) -> None:
        with contextlib.suppress(OSError):  # standard error may be a file on a full disk
            say(message)

    def _announce(self, servers: list[Server]) -> None:
        if self._settings.json_ready:
            certificates = self._folder.certificates
            tls = {} if certificates is None else {"tls_ca": str(certificates.ca)}
            show_json({"ready": True, "url": self._url, "servers": servers, **tls})
            return
        first = next(iter(self._urls.values()))
        key = ""
        if not self._settings.open:
            key = f"  export EDN_KEY=$(edn --key-file {self._folder.secret} key create me --scope admin)\n"
        activate = "" if shutil.which("edn") else f"  . {Path(sys.prefix, 'bin', 'activate')}\n"
        option = "" if self._url == "http://127.0.0.1:8080" else f"export EDN_URL={self._url}\n  "
        curl = ""
        if self._folder.certificates is not None:
            authority = self._folder.certificates.ca
            option += f"export EDN_TLS_CA={authority}\n  "
            curl = (
                f"Certificates are signed by {authority}, for development; trust it with `edn --tls-ca`, "
                f"EDN_TLS_CA or `curl --cacert`\n"
            )
        say(
            f"The network is running: {self._url}, {len(servers)} servers, data in {self._folder.path}\n"
            f"Dashboard: {first}  API reference: {first}/docs\n{curl}"
            f"Try, in another terminal:\n{activate}{key}"
            f"  {option}edn topic create trades symbol:string price:number\n"
            "  edn listen --topic trades --filter 'price > 30'\n"
            "  edn publish trades symbol=GE price=32.5\n"
            "Press Ctrl-C to stop."
        )
