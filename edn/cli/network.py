"""The network that `edn up` runs: its folder, its start in order, its life and its end."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import secrets
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edn.cli.supervisor import Child, ChildFailedError, write_secret
from edn.client import AsyncClient, ClientError, Health, Retries, Server
from edn.runtime.private_files import keep_private, protect
from edn.tools.console import say, show_json

DEFAULT_SERVERS = 3
#: processes of a network whose supervisor was killed end within this time
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
    #: nobody is asked for a key
    open: bool
    json_ready: bool
    #: stop when standard input ends
    with_stdin: bool
    #: None: as many as the folder holds
    dispatchers: int | None = None


class StartError(Exception):
    """The network cannot be started; the message says what to do about it."""

    def __init__(self, message: str, *, usage: bool = False) -> None:
        super().__init__(message)
        self.usage = usage


@dataclass(frozen=True, slots=True)
class Folder:
    path: Path
    lock: int
    secret: Path
    servers: tuple[str, ...]
    #: of each dispatcher; chosen here when any would do, so that the servers can start beside it
    ports: dict[str, int]


@contextmanager
def prepare(settings: Settings) -> Iterator[Folder]:
    """Make the folder ready and hold its lock; raises `StartError` when another network has it."""
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
        _sign(lock)
        secret = path / "secret"
        if not secret.exists():
            try:
                write_secret(secret, secrets.token_urlsafe(32))
            except OSError as error:
                secret.unlink(missing_ok=True)
                raise StartError(f"cannot write {secret}: {error.strerror}") from error
        ports: dict[str, int] = {}
        for number, name in enumerate(_dispatcher_names(settings)):
            port = _usable_port(settings.host, settings.port and settings.port + number)
            while port in ports.values():  # a free one may be offered twice
                port = _usable_port(settings.host, 0)
            ports[name] = port
        yield Folder(path=path, lock=lock, secret=secret, servers=_server_names(settings), ports=ports)
    finally:
        os.close(lock)


def _lock(lock: int, path: Path) -> None:
    """Take the lock. Children share it, so after a kill of the supervisor it is free when they have ended."""
    give_up = time.monotonic() + LEFTOVER_SECONDS
    waiting = False
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            owner = _owner(lock)
            if _alive(owner) or time.monotonic() > give_up:
                held = f" (process {owner})" if owner else ""
                raise StartError(
                    f"a network is already running on {path}{held}: stop it first, or choose another --data",
                    usage=True,
                ) from None
        if not waiting:
            say("waiting for the processes of an earlier network to end …")
            waiting = True
        time.sleep(0.1)


def _sign(lock: int) -> None:
    """Write the number of this process into the lock, for people; a full disk may refuse it."""
    signature = json.dumps({"pid": os.getpid()}).encode()
    with contextlib.suppress(OSError):
        # Over the earlier one, whose block is there, and then cut: that needs no room.
        os.pwrite(lock, signature, 0)
        os.ftruncate(lock, len(signature))


def _owner(lock: int) -> int | None:
    try:
        found = json.loads(os.pread(lock, 1000, 0))["pid"]
    except (ValueError, KeyError, TypeError):
        return None
    return found if isinstance(found, int) else None


def _alive(pid: int | None) -> bool:
    if pid is None:
        return True  # it is just starting and has not written its number yet
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _usable_port(host: str, port: int) -> int:
    """The port, or a free one for 0; raises `StartError` when it is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.create_server((host, port), family=family) as probe:
            free: int = probe.getsockname()[1]
            return free
    except OSError as error:
        raise StartError(
            f"port {port} on {host} cannot be used ({error.strerror}): "
            "choose another --port, or 0 for a free one",
            usage=True,
        ) from error


def _dispatcher_names(settings: Settings) -> list[str]:
    """dispatcher, dispatcher2, …: never fewer than the folder holds: each has a log of its own."""
    held = 1
    while (settings.data / f"dispatcher{held + 1}").is_dir():
        held += 1
    wanted = settings.dispatchers or held
    if wanted < held:
        say(f"the folder holds the logs of {held} dispatchers: starting all of them")
    return ["dispatcher", *(f"dispatcher{number}" for number in range(2, max(wanted, held) + 1))]


def _server_names(settings: Settings) -> tuple[str, ...]:
    """s1, s2, …: as many as asked for, but never fewer than the folder holds: subscriptions live there."""
    held = {entry.name for entry in (settings.data / "servers").iterdir() if entry.is_dir()}
    wanted = settings.servers or len(held) or DEFAULT_SERVERS
    names = sorted(held, key=lambda name: (len(name), name))
    if wanted < len(names):
        say(f"the folder holds {len(names)} servers with their subscriptions: starting all of them")
    number = 0
    while len(names) < wanted:
        number += 1
        if f"s{number}" not in held:
            names.append(f"s{number}")
    return tuple(names)


def _short_of_disk(health: Health, servers: list[Server]) -> str | None:
    """What the dispatcher, or a server, says of a disk without room."""
    told = [str(health.detail.get("detail", "")), *(server.failure or "" for server in servers)]
    return next((one for one in told if "disk:" in one), None)


class Network:
    """One life of the network, from the first process to the last."""

    def __init__(self, settings: Settings, folder: Folder) -> None:
        self._settings = settings
        self._folder = folder
        self._children: list[Child] = []
        # An address to listen on everywhere is none to be reached at.
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)
        shown = f"[{host}]" if ":" in host else host
        self._urls = {name: f"http://{shown}:{port}" for name, port in folder.ports.items()}
        self._url = ",".join(self._urls.values())
        self._stop_asked = 0

    async def run(self) -> None:
        """Start, serve until a signal, stop; raises `StartError` when it cannot start."""
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._asked_to_stop, stop)
        if self._settings.with_stdin:
            threading.Thread(target=self._watch_stdin, args=(loop, stop), daemon=True).start()
        async with asyncio.TaskGroup() as group:
            life = group.create_task(self._live(group, stop))
            # A signal during the start must not wait for it.
            stopping = group.create_task(stop.wait())
            await asyncio.wait([life, stopping], return_when=asyncio.FIRST_COMPLETED)
            life.cancel()
            stopping.cancel()
            await asyncio.wait([life])
            if self._stop_asked:
                self._say("stopping …")
            # Publishers first: the dispatcher takes nothing new while the servers finish what they hold.
            front = len(self._urls)
            await asyncio.gather(*(child.stop() for child in self._children[:front]))
            await asyncio.gather(*(child.stop() for child in self._children[front:]))
        if not life.cancelled() and (error := life.result()) is not None:
            raise error

    def _watch_stdin(self, loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
        while os.read(0, 4096):
            pass
        try:
            loop.call_soon_threadsafe(self._asked_to_stop, stop)
        except RuntimeError:
            pass  # the loop has ended already

    def _asked_to_stop(self, stop: asyncio.Event) -> None:
        self._stop_asked += 1
        stop.set()
        if self._stop_asked == 2:
            say("stopping at once")
            for child in self._children:
                child.kill()

    async def _live(self, group: asyncio.TaskGroup, stop: asyncio.Event) -> StartError | None:
        try:
            await self._start(group)
            servers = await self._joined()
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
        if settings.allow_loopback_sinks:
            shared.append("--allow-loopback-sinks")
        for name, port in folder.ports.items():
            front = ["dispatcher", "--data", str(folder.path / name), "--host", settings.host]
            for other, url in self._urls.items():
                front += ["--peer", url] if other != name else []
            front += ["--open"] if settings.open else []
            self._spawn(group, name, [*front, "--port", str(port), *shared])
        for name in folder.servers:
            data = folder.path / "servers" / name
            command = ["edn_server", "--id", name, "--data", str(data)]
            for url in self._urls.values():
                command += ["--dispatcher", url]
            # The dispatcher goes first: everybody waits for it, and it does less with cold caches.
            command += ["--host", "127.0.0.1", "--port", "0", "--nice", "5", *shared]
            self._spawn(group, name, command)
        several = len(folder.ports)
        fronts = "the dispatcher" if several == 1 else f"{several} dispatchers"
        self._say(f"starting {fronts} and {len(folder.servers)} servers …")
        await asyncio.gather(*(child.first_ready() for child in self._children))

    def _spawn(self, group: asyncio.TaskGroup, name: str, command: list[str]) -> Child:
        child = Child(
            name, command, self._folder.path / "logs" / f"{name}.log", say, inherited=[self._folder.lock]
        )
        self._children.append(child)
        group.create_task(child.keep(), name=f"keep {name}")
        return child

    def _key(self) -> str:
        """The network's own secret opens everything."""
        return self._folder.secret.read_text().strip()

    async def _joined(self) -> list[Server]:
        """The servers, once every dispatcher counts all of them as ready."""
        deadline = time.monotonic() + JOIN_SECONDS
        servers: list[Server] = []
        for url in self._urls.values():
            async with AsyncClient(url, key=self._key(), retries=Retries(count=0)) as client:
                servers = await self._joined_at(client, deadline)
        return servers

    async def _joined_at(self, client: AsyncClient, deadline: float) -> list[Server]:
        said: Any = "nothing yet"
        told = False
        while time.monotonic() < deadline:
            try:
                health = await client.health()
                servers = sorted(await client.servers(), key=lambda server: server.id)
                ready = {server.id for server in servers if server.state == "ready"}
                short = _short_of_disk(health, servers)
                if ready >= set(self._folder.servers) and (health.ready or short is not None):
                    if short is not None:
                        self._warn(f"the network refuses events: {short}")
                    return servers
                said = health.detail
                if short is not None:
                    # The disk may have room again in an hour: then the network is there.
                    deadline = time.monotonic() + JOIN_SECONDS
                    if not told:
                        self._warn(f"waiting for disk space: {short}")
                        told = True
            except ClientError as error:
                said = error
            await asyncio.sleep(0.05)
        raise ChildFailedError(
            f"the servers did not join within {JOIN_SECONDS:g} s; the dispatcher says: {said}"
        )

    def _say(self, message: str) -> None:
        """What a person wants to see, and a program that waits for its line of JSON does not."""
        if not self._settings.json_ready:
            self._warn(message)

    @staticmethod
    def _warn(message: str) -> None:
        with contextlib.suppress(OSError):  # where that is written may lie on a full disk
            say(message)

    def _announce(self, servers: list[Server]) -> None:
        if self._settings.json_ready:
            show_json({"ready": True, "url": self._url, "servers": servers})
            return
        first = next(iter(self._urls.values()))
        key = ""
        if not self._settings.open:
            key = f"  export EDN_KEY=$(edn --key-file {self._folder.secret} key create me --scope admin)\n"
        option = "" if self._url == "http://127.0.0.1:8080" else f"export EDN_URL={self._url}\n  "
        say(
            f"The network is up: {self._url}, {len(servers)} servers, data in {self._folder.path}\n"
            f"Open {first} to see it at work; {first}/docs describes its interface.\n"
            f"Try, in another terminal:\n{key}"
            f"  {option}edn topic create trades symbol:string price:number\n"
            "  edn listen --topic trades --filter 'price > 30'\n"
            "  edn publish trades symbol=GE price=32.5\n"
            "Ctrl-C stops it."
        )
