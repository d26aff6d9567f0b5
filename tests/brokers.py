"""Starts message brokers for tests: RabbitMQ, Mosquitto and NATS, each in its own folder on a free port."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar

from tests import programs
from tests.network.processes import die_with_parent, free_port

ROOT = Path(__file__).resolve().parents[1]
#: where `tests/programs.sh` unpacks programs whose packages would start a service
UNPACKED = ROOT / ".venv" / "programs" / "usr"


def program(name: str, *folders: str) -> str | None:
    """Return the path of a program, of Debian's package or unpacked; None if it is not installed."""
    places = [str(UNPACKED / folder) for folder in folders] + [f"/usr/{folder}" for folder in folders]
    return shutil.which(name, path=":".join([*places, os.environ.get("PATH", "")]))


class Broker:
    """One broker: `start`, `end` by its pid, and `start` again with the same port and files."""

    name: ClassVar[str]
    scheme: ClassVar[str]
    seconds: ClassVar[float] = 30.0

    def __init__(self, folder: Path, options: Sequence[str] = ()) -> None:
        self.folder = folder
        self.port = free_port()
        self.options = list(options)
        self._process: subprocess.Popen[bytes] | None = None

    @classmethod
    def find(cls) -> str | None:
        raise NotImplementedError

    def command(self) -> list[str]:
        raise NotImplementedError

    def environment(self) -> dict[str, str]:
        return {}

    def is_up(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False

    def url(self, path: str = "", userinfo: str = "") -> str:
        return f"{self.scheme}://{userinfo}127.0.0.1:{self.port}/{path}"

    def start(self) -> None:
        """Start the broker and wait until it accepts clients."""
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self.command(),
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                cwd=self.folder,
                env={**os.environ, **self.environment()},
                preexec_fn=die_with_parent,
            )
        deadline = time.monotonic() + self.seconds
        while not self.is_up():
            assert self._process.poll() is None, (self.folder / "log").read_text(errors="replace")[-2000:]
            assert time.monotonic() < deadline, f"{self.name} did not start"
            time.sleep(0.05)

    def end(self, how: signal.Signals = signal.SIGKILL) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(60)
            self._process = None

    def close(self) -> None:
        self.end()


class Mosquitto(Broker):
    name = "mosquitto"
    scheme = "mqtt"

    @classmethod
    def find(cls) -> str | None:
        return program("mosquitto", "sbin")

    def command(self) -> list[str]:
        settings = [
            f"listener {self.port} 127.0.0.1",
            "persistence true",
            f"persistence_location {self.folder}/",
            # The default drops messages of a session beyond 1000.
            "max_queued_messages 0",
            "allow_anonymous true" if not self.options else "",
            *(["user root"] if os.getuid() == 0 else []),
            *self.options,
        ]
        (self.folder / "mosquitto.conf").write_text("\n".join(settings))
        return [str(self.find()), "-c", "mosquitto.conf"]


class Nats(Broker):
    name = "nats-server"
    scheme = "nats"

    @classmethod
    def find(cls) -> str | None:
        return program("nats-server", "sbin", "bin")

    def command(self) -> list[str]:
        found = [str(self.find()), "-a", "127.0.0.1", "-p", str(self.port), "-js", "-sd", "jetstream"]
        return [*found, *self.options]


class RabbitMQ(Broker):
    name = "rabbitmq-server"
    scheme = "amqp"
    seconds = 90.0
    plugins: ClassVar[tuple[str, ...]] = ()

    def __init__(self, folder: Path, options: Sequence[str] = ()) -> None:
        super().__init__(folder, options)
        self._names = free_port()
        self._distribution = free_port()
        self._daemon: subprocess.Popen[bytes] | None = None

    @classmethod
    def find(cls) -> str | None:
        if program("erl", "bin") is None:
            return None
        return program("rabbitmq-server", "lib/rabbitmq/bin")

    def environment(self) -> dict[str, str]:
        place = str(self.folder)
        return {
            "HOME": place,
            "ERL_EPMD_PORT": str(self._names),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"edn{self.port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(self._distribution),
            "RABBITMQ_MNESIA_BASE": f"{place}/mnesia",
            "RABBITMQ_LOG_BASE": f"{place}/logs",
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_CONFIG_FILE": f"{place}/rabbitmq",
            "RABBITMQ_CONF_ENV_FILE": f"{place}/none",
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{place}/plugins",
            "RABBITMQ_PLUGINS_EXPAND_DIR": f"{place}/expanded",
            "RABBITMQ_SERVER_START_ARGS": "-start_epmd false",
            # The script replaces itself by the broker, so that its pid is that of the broker.
            "RUNNING_UNDER_SYSTEMD": "true",
        }

    def command(self) -> list[str]:
        (self.folder / "rabbitmq.conf").write_text(
            "\n".join(["disk_free_limit.absolute = 1MB", *self.options])
        )
        (self.folder / "plugins").write_text(f"[{','.join(self.plugins)}].")
        return [str(self.find())]

    def is_up(self) -> bool:
        """Whether it has started completely: it accepts connections earlier."""
        if not super().is_up():
            return False
        return b"Server startup complete" in (self.folder / "log").read_bytes()[self._logged :]

    def start(self) -> None:
        if self._daemon is None:
            # Otherwise the broker starts one that outlives it.
            self._daemon = subprocess.Popen(
                [str(program("epmd", "bin")), "-port", str(self._names), "-address", "127.0.0.1"],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                preexec_fn=die_with_parent,
            )
        log = self.folder / "log"
        self._logged = log.stat().st_size if log.exists() else 0
        super().start()

    def close(self) -> None:
        super().close()
        if self._daemon is not None:
            self._daemon.kill()
            self._daemon.wait(10)
            self._daemon = None


@contextlib.contextmanager
def running(kind: type[Broker], options: Sequence[str] = ()) -> Iterator[Broker]:
    """A broker that ends with the context; skips the test, or fails it in CI, if it is not installed."""
    if kind.find() is None:
        programs.unavailable(f"not installed: {kind.name}; `make programs` installs it on Debian")
    with tempfile.TemporaryDirectory(prefix="edn-broker-", ignore_cleanup_errors=True) as place:
        made = kind(Path(place), options)
        made.start()
        try:
            yield made
        finally:
            made.close()
