"""Runs a service process: lock of the data folder, secret, logs, ready line, serving."""

from __future__ import annotations

import asyncio
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
import ssl
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TextIO, cast

import structlog
import uvicorn
from fastapi import FastAPI

from edn.errors import CannotStart as CannotStart
from edn.errors import EdnError
from edn.http.request_limits import CertifiedProtocol, Connections, LimitedProtocol
from edn.http.tls import Tls
from edn.runtime import disk

MIN_SECRET = 16
#: longer than clients keep idle connections (httpx and Node 5 s, aiohttp 15 s, nginx 60 s): a server that
#: closes first may close while a request is on its way, and the client cannot know whether it was processed
KEEP_ALIVE_SECONDS = 75
#: seconds for the handshake of a TLS connection, which `Connections` does not count yet
HANDSHAKE_SECONDS = 10.0
#: bytes of a WebSocket message from a client
_SOCKET_BYTES = 64 << 10
_COPY = "backup-"
#: age at which a copy is left over from a killed process
_COPY_SECONDS = 86_400.0


def report_failure(program: str, error: EdnError) -> int:
    """Prints why a process cannot start; returns its exit code."""
    for line in error.detail.splitlines():
        print(f"{program}: {line}", file=sys.stderr)  # noqa: T201
    return getattr(error, "exit_code", CannotStart.exit_code)


def report_wait(reason: str) -> None:
    """Prints on stdout that the process waits before it is ready, as for a full disk."""
    with contextlib.suppress(OSError):
        print(json.dumps({"ready": False, "waiting": reason}), flush=True)  # noqa: T201


def wrong_format(place: str, found: object, read: int) -> str:
    """Explains why data of another format is refused, and how to convert it."""
    return (
        f"{place} must have format {read}, got {found}: another version of the program wrote it, and formats "
        "are not converted; run that version to export the subscriptions (edn export), start this version "
        "with an empty folder, create the topics and import them (edn import)"
    )


def lock_folder(folder: Path) -> int:
    """Creates and locks the data folder; returns the descriptor, which must stay open."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        disk.protect(folder)
        handle = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if disk.is_full(error):
            raise  # the caller waits for room
        raise CannotStart(f"the data folder {folder} cannot be used: {error.strerror}") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise CannotStart(f"the data folder {folder} is in use by another process") from None
    return handle


def copy_in(folder: Path) -> Path:
    """Returns the path of a new temporary copy of a folder's data; deletes left-over ones."""
    for left in folder.glob(f"{_COPY}*.db"):
        with contextlib.suppress(FileNotFoundError):  # its reader has just deleted it
            if time.time() - left.stat().st_mtime > _COPY_SECONDS:
                left.unlink()
    return folder / f"{_COPY}{secrets.token_hex(8)}.db"


def read_secret(file: Path) -> str:
    try:
        secret = file.read_text().strip()
    except OSError as error:
        raise CannotStart(f"the secret file {file} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError:
        raise CannotStart(f"the secret in {file} must be text; `openssl rand -hex 32` creates one") from None
    if len(secret) < MIN_SECRET:
        raise CannotStart(
            f"the secret in {file} must have at least {MIN_SECRET} characters, got {len(secret)}; "
            "`openssl rand -hex 32` creates one"
        )
    return secret


#: API keys, signing keys and bearer tokens
_SECRET = re.compile(r"(edn_[0-9a-f]{12}_|whsec_|[Bb]earer )[^\s\"\\]+")


def hide_secrets(_: Any, __: str, line: Any) -> str:
    """Masks everything in a rendered line that looks like a secret."""
    return _SECRET.sub(r"\1…", line)


class _LossyFile(io.TextIOBase):
    """A text file that ignores write errors, so that a full disk of the log does not stop the process."""

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
    """Configures structured logs on stderr; stdout is for the ready line."""
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
        logger_factory=structlog.PrintLoggerFactory(file=cast(TextIO, _LossyFile(sys.stderr))),
    )


def bind(host: str, port: int) -> socket.socket:
    """Opens the listening socket, so that the number of port 0 is known before the start."""
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
    """Tells whether only this machine can connect to an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def url_of(listener: socket.socket, scheme: str = "http") -> str:
    host, port = listener.getsockname()[:2]
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


class _Server(uvicorn.Server):
    """A server that prints one JSON line on stdout when it accepts requests."""

    ready: dict[str, Any]
    #: callbacks that end streaming responses before the shutdown waits for them
    closing: Sequence[Callable[[], None]] = ()
    #: serves https
    tls: ssl.SSLContext | None = None

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for close in self.closing:
            close()
        await super().shutdown(sockets)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        if self.tls is None:
            await super().startup(sockets)
        else:
            await super().startup([])
            await self._listen(sockets or [], self.tls)
        if self.started:
            # Excludes objects that live until the end from garbage collection.
            gc.collect()
            gc.freeze()
            print(json.dumps({"ready": True, **self.ready}), flush=True)  # noqa: T201

    async def _listen(self, sockets: Sequence[socket.socket], tls: ssl.SSLContext) -> None:
        """Accepts connections as uvicorn does, but with a limit for the time of a handshake."""
        config, loop = self.config, asyncio.get_running_loop()

        def protocol() -> asyncio.Protocol:
            make = cast(Any, config.http_protocol_class)
            found: asyncio.Protocol = make(
                config=config, server_state=self.server_state, app_state=self.lifespan.state
            )
            return found

        for one in sockets:
            server = await loop.create_server(
                protocol, sock=one, ssl=tls, backlog=config.backlog, ssl_handshake_timeout=HANDSHAKE_SECONDS
            )
            self.servers.append(server)


def serve(
    app: FastAPI,
    listeners: Sequence[socket.socket],
    ready: dict[str, Any],
    connections: Connections | None = None,
    tls: Tls | None = None,
) -> None:
    """Serves until SIGTERM or SIGINT; in the main thread."""
    # uvicorn raises the signal again after the shutdown; a requested stop must exit with code 0.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    protocol = CertifiedProtocol if tls is not None and tls.guards_internal else LimitedProtocol
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        # Called like the class, with what uvicorn gives it.
        http=cast(Any, functools.partial(protocol, connections=connections or Connections())),
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
    server.tls = None if tls is None else tls.server
    server.closing = getattr(app.state, "closing", ())
    try:
        server.run(sockets=list(listeners))
    except SystemExit:
        # The app did not start and has logged why; uvicorn's exit code has another meaning here.
        raise SystemExit(1) from None
