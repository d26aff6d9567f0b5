"""TLS of a process: the contexts of its listeners and of its calls to other processes, and their renewal.

A process with a certificate (`--tls-cert`, `--tls-key`) serves https. A certificate authority (`--tls-ca`)
makes it mutual: the process calls only processes with a certificate of this authority and presents its own,
and callers need one, too (`--tls-clients required`), or those of the network's own paths do (`internal`).

`watch` looks at the files every second. New handshakes use the changed files, also without an authority that
was removed, and open connections stay. Files that do not fit together are not loaded: a renewal may replace
one file after the other.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import stat
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import structlog
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from edn.errors import CannotStart

logger = structlog.get_logger()

#: which callers need a certificate: all, or those of paths that only the network's processes call
Clients = Literal["required", "internal"]

#: seconds between two looks at the files
WATCH_SECONDS = 1.0
#: time before the end of a certificate in which the log warns of it, and seconds between two warnings
WARN_TIME = timedelta(days=14)
WARN_SECONDS = 86_400.0


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files; `cert` may contain intermediate certificates after the process's own."""

    cert: Path | None = None
    key: Path | None = None
    ca: Path | None = None

    def state(self) -> list[object]:
        """Returns values that change when a file does."""
        found: list[object] = []
        for file in (self.cert, self.key, self.ca):
            try:
                status = None if file is None else file.stat()
            except OSError:
                status = None
            found.append(status and (status.st_mtime_ns, status.st_size, status.st_ino))
        return found

    def check(self) -> datetime | None:
        """Returns the end of the certificate; raises `CannotStart`."""
        if self.ca is not None:
            _certificates(self.ca, "--tls-ca")
        if self.cert is None or self.key is None:
            return None
        certificate = _certificates(self.cert, "--tls-cert")[0]
        content = _read(self.key, "--tls-key")
        if stat.S_IMODE(self.key.stat().st_mode) & 0o007:
            raise CannotStart(
                f"--tls-key {self.key} must not be accessible to other users; `chmod 600 {self.key}`"
            )
        try:
            key = serialization.load_pem_private_key(content, None)
        except TypeError:
            raise CannotStart(
                f"--tls-key {self.key} must not be encrypted: nobody can type a passphrase"
            ) from None
        except ValueError:
            raise CannotStart(f"--tls-key {self.key} must be a private key in PEM") from None
        if key.public_key() != certificate.public_key():
            raise CannotStart(
                f"--tls-key {self.key} must be the key of --tls-cert {self.cert}, got another key"
            )
        now, starts = datetime.now(UTC), certificate.not_valid_before_utc
        if certificate.not_valid_after_utc <= now:
            raise CannotStart(
                f"--tls-cert {self.cert} expired on {certificate.not_valid_after_utc:%Y-%m-%d %H:%M} UTC"
            )
        if starts > now:
            raise CannotStart(f"--tls-cert {self.cert} is not valid before {starts:%Y-%m-%d %H:%M} UTC")
        return certificate.not_valid_after_utc


def _read(file: Path, flag: str) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise CannotStart(f"{flag} {file} cannot be read: {error.strerror}") from None


def _certificates(file: Path, flag: str) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(_read(file, flag))
    except ValueError:
        raise CannotStart(f"{flag} {file} must be a certificate in PEM") from None


def load_client_certificate(context: ssl.SSLContext, certificate: str, key: str) -> None:
    """Loads a client certificate, both as PEM text; raises `ssl.SSLError`."""
    # The library reads files only; a key must not be on a disk.
    descriptor = os.memfd_create("certificate")
    try:
        os.write(descriptor, f"{certificate}\n{key}\n".encode())
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


class ReplaceableContext(ssl.SSLContext):
    """Begins every handshake with another context, `current`, which may be replaced at any time.

    Listeners and clients keep their context for ever, and a context cannot unload an authority.
    """

    _current: ssl.SSLContext
    _protocols: list[str] | None = None

    def replace(self, current: ssl.SSLContext) -> None:
        if self._protocols is not None:
            current.set_alpn_protocols(self._protocols)
        self._current = current

    def set_alpn_protocols(self, alpn_protocols: Any) -> None:
        super().set_alpn_protocols(alpn_protocols)
        self._protocols = list(alpn_protocols)
        self._current.set_alpn_protocols(alpn_protocols)

    def wrap_socket(self, *args: Any, **named: Any) -> ssl.SSLSocket:
        return self._current.wrap_socket(*args, **named)

    def wrap_bio(self, *args: Any, **named: Any) -> ssl.SSLObject:
        return self._current.wrap_bio(*args, **named)


class Tls:
    """The contexts of a process; event loop only."""

    def __init__(self, files: TlsFiles, clients: Clients = "required") -> None:
        """Loads the files; raises `CannotStart`."""
        self._files = files
        self._state = files.state()
        self._clients = clients
        #: for listeners; None serves plain http
        self.server: ReplaceableContext | None = None
        #: for calls to other processes; True is the default of the HTTP client
        self.client: ReplaceableContext | bool = True
        #: whether callers of the network's own paths need a certificate, though others do not
        self.guards_internal = files.ca is not None and files.cert is not None and clients == "internal"
        self._ends = files.check()
        self._warned = 0.0
        if files.cert is not None:
            self.server = ReplaceableContext(ssl.PROTOCOL_TLS_SERVER)
        if files.cert is not None or files.ca is not None:
            self.client = ReplaceableContext(ssl.PROTOCOL_TLS_CLIENT)
        self._load()

    def _load(self) -> None:
        """Loads checked files into new contexts; raises `CannotStart`."""
        try:
            loaded = [
                (context, self._new_context(context.protocol))
                for context in (self.server, self.client)
                if isinstance(context, ReplaceableContext)
            ]
        except (ssl.SSLError, OSError) as error:
            raise CannotStart(f"the TLS files cannot be loaded: {error}") from error
        for context, current in loaded:
            context.replace(current)

    def _new_context(self, protocol: ssl._SSLMethod) -> ssl.SSLContext:
        files = self._files
        context = ssl.SSLContext(protocol)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if protocol is ssl.PROTOCOL_TLS_SERVER:
            context.set_alpn_protocols(["http/1.1"])
            if files.ca is not None:
                is_required = self._clients == "required"
                context.verify_mode = ssl.CERT_REQUIRED if is_required else ssl.CERT_OPTIONAL
        elif files.ca is None:
            context.load_default_certs()
        # With an authority, certificates of the system's authorities are not trusted.
        if files.cert is not None:
            context.load_cert_chain(files.cert, files.key)
        if files.ca is not None:
            context.load_verify_locations(files.ca)
        return context

    async def watch(self) -> None:
        """Loads changed files, for ever."""
        while True:
            self._warn()
            await asyncio.sleep(WATCH_SECONDS)
            state = self._files.state()
            if state != self._state:
                self._state = state
                self.reload()

    def reload(self) -> bool:
        """Loads the files again; keeps the old ones if they are not valid, and returns whether they are."""
        try:
            self._ends = self._files.check()
            self._load()
        except (CannotStart, OSError) as error:
            logger.error("tls_reload_failed", reason=str(error))
            return False
        self._warned = 0.0
        logger.info("tls_reloaded", ends=None if self._ends is None else self._ends.isoformat())
        return True

    def _warn(self) -> None:
        if self._ends is not None and self._ends - datetime.now(UTC) < WARN_TIME:
            now = time.monotonic()
            if not self._warned or now - self._warned > WARN_SECONDS:
                self._warned = now
                logger.warning(
                    "tls_certificate_ends", file=str(self._files.cert), ends=self._ends.isoformat()
                )
