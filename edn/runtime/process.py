"""Runs a service process: lock of the data folder, secret, logs, ready line, serving."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import gc
import io
import ipaddress
import json
import logging
import os
import re
import secrets
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, TextIO, cast

import structlog
import uvicorn
from fastapi import FastAPI

from edn.errors import EdnError
from edn.http.request_limits import Connections, LimitedProtocol
from edn.runtime import disk
from edn.runtime.private_files import protect

MIN_SECRET = 16
#: Longer than clients keep a connection that they do not use (httpx and Node 5 s, aiohttp 15 s, nginx 60 s).
#: Where a server gives up first, or at the same moment, it closes under a request that is on its way, and
#: whoever sent that cannot know whether it was read.
KEEP_ALIVE_SECONDS = 75
#: bytes of one message that a client sends over a WebSocket
_SOCKET_BYTES = 64 << 10
_COPY = "backup-"
#: nobody reads a copy for so long
_COPY_SECONDS = 86_400.0


class CannotStart(EdnError):
    """Something outside the program keeps it from starting; the message says what would help."""

    #: with which the process ends
    exit_code: ClassVar[int] = 1


def report_failure(program: str, error: EdnError) -> int:
    """Print why a process cannot start, and return its exit code."""
    for line in error.detail.splitlines():
        print(f"{program}: {line}", file=sys.stderr)  # noqa: T201  it never started
    return getattr(error, "exit_code", CannotStart.exit_code)


def wrong_format(place: str, found: object, read: int) -> str:
    """Say why data of another format is refused, and what to do with it."""
    return (
        f"{place} must have format {read}, got {found}: another version of the program wrote it, and formats "
        "are not converted; run that version to export the subscriptions (edn export), start this version "
        "with an empty folder, create the topics and import them (edn import)"
    )


def lock_folder(folder: Path) -> int:
    """Make the data folder and take it for this process; the descriptor must be kept open."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        protect(folder)
        handle = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if disk.is_full(error):
            raise  # there may be room later
        raise CannotStart(f"the data folder {folder} cannot be used: {error.strerror}") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise CannotStart(f"the data folder {folder} is in use by another process") from None
    return handle


def copy_in(folder: Path) -> Path:
    """Where a copy of a folder's data is put while somebody reads it: one of its own for each."""
    for left in folder.glob(f"{_COPY}*.db"):
        with contextlib.suppress(FileNotFoundError):  # whoever read it has just taken it away
            if time.time() - left.stat().st_mtime > _COPY_SECONDS:  # its process was killed
                left.unlink()
    return folder / f"{_COPY}{secrets.token_hex(8)}.db"


def read_secret(file: Path) -> str:
    try:
        secret = file.read_text().strip()
    except OSError as error:
        raise CannotStart(f"the secret file {file} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError:
        raise CannotStart(f"the secret in {file} is no text; `openssl rand -hex 32` makes one") from None
    if len(secret) < MIN_SECRET:
        raise CannotStart(
            f"the secret in {file} has {len(secret)} characters; at least {MIN_SECRET} are needed"
        )
    return secret


#: API keys, signing secrets, and whatever follows "Bearer"
_SECRET = re.compile(r"(edn_[0-9a-f]{12}_|whsec_|[Bb]earer )[^\s\"\\]+")


def hide_secrets(_: Any, __: str, line: Any) -> str:
    """Blot out what looks like a secret, wherever in a rendered line it stands: the last resort."""
    return _SECRET.sub(r"\1…", line)


class _Unfailing(io.TextIOBase):
    """A text file that drops what cannot be written: a log on a full disk must not end what it tells of."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            self._file.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            self._file.flush()


def configure_logs() -> None:
    """Structured lines on stderr; stdout belongs to the ready line."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
            hide_secrets,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(file=cast(TextIO, _Unfailing(sys.stderr))),
    )


def bind(host: str, port: int) -> socket.socket:
    """The listening socket, so that port 0 is known before anything is said of it."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise CannotStart(f"cannot listen on {host}:{port}: {error.strerror}") from error
    listener.listen(1024)
    return listener


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach what listens there."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def url_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class _Server(uvicorn.Server):
    """Says one JSON line on stdout when requests are taken."""

    ready: dict[str, Any]
    #: called when it is to stop, before it waits for answers that go on: they shall end
    closing: Sequence[Callable[[], None]] = ()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for close in self.closing:
            close()
        await super().shutdown(sockets)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            # What is here by now stays: the collector need not look at it again and again.
            gc.collect()
            gc.freeze()
            print(json.dumps({"ready": True, **self.ready}), flush=True)  # noqa: T201  programs read it


def serve(
    app: FastAPI,
    listeners: Sequence[socket.socket],
    ready: dict[str, Any],
    connections: Connections | None = None,
) -> None:
    """Run until SIGTERM or SIGINT; from the main thread."""
    # uvicorn raises the signal that stopped it once more when all is closed: a stop that was asked for
    # shall end with exit code 0.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        # Called like the class, with what uvicorn gives it.
        http=cast(Any, functools.partial(LimitedProtocol, connections=connections or Connections())),
        # Readers of streams send nothing but control frames.
        ws_max_size=_SOCKET_BYTES,
        ws_max_queue=4,
        lifespan="on",
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=5,
        server_header=False,
        proxy_headers=False,
    )
    server = _Server(config)
    server.ready = ready
    server.closing = getattr(app.state, "closing", ())
    try:
        server.run(sockets=list(listeners))
    except (
        SystemExit
    ):  # the app did not start, and its reason is told; uvicorn's own code means another thing here
        raise SystemExit(1) from None
