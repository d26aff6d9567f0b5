"""Prepares connections to brokers: the address that is connected to is the address that was checked.

The name of a broker is resolved once per connection. Every address must satisfy the policy of sinks
(`edn.http.sink_policy`), and the library connects to one of them as a literal, so that nothing is resolved
twice. The certificate must be that of the name in the URL: the context of TLS overrides the literal.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import ssl
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import certifi

from edn.brokers.messages import BrokerFailed
from edn.formats.broker_url import BrokerUrl
from edn.http import sink_policy
from edn.http.tls import load_client_certificate

#: seconds to open a connection, until the broker has accepted the credentials
CONNECT_SECONDS = 8.0
#: heartbeats of all protocols
HEARTBEAT_SECONDS = 20

#: loggers of libraries: failures are raised, too, and reported once by whoever asked
_LOGGERS = {"amqp": ("aio_pika", "aiormq"), "mqtt": ("mqtt",), "nats": ("nats",)}

#: returns the addresses of a name; raises `OSError`
Resolve = Callable[[str], Awaitable[Sequence[str]]]


class _NamedContext(ssl.SSLContext):
    """Verifies the certificate for one name, whatever literal the library connects to."""

    name: str

    def wrap_socket(self, sock: Any, *args: Any, **named: Any) -> ssl.SSLSocket:
        return super().wrap_socket(sock, *args, **{**named, "server_hostname": self.name})

    def wrap_bio(self, incoming: Any, outgoing: Any, *args: Any, **named: Any) -> ssl.SSLObject:
        args = args[:1]  # server_side; the name is ours
        return super().wrap_bio(incoming, outgoing, *args, **{**named, "server_hostname": self.name})


@dataclass(frozen=True, slots=True)
class Link:
    """Resolves and checks brokers for one process."""

    resolve: Resolve
    allow_loopback: bool = False
    #: further certificates of authorities that brokers' certificates may have
    ca_file: Path | None = None
    #: private networks whose brokers may be connected to
    networks: tuple[sink_policy.Network, ...] = ()
    #: libraries that connect in threads share those with other parts of the process
    connecting: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(4))

    async def addresses(self, url: BrokerUrl) -> Sequence[str]:
        """Returns the checked addresses of a broker; raises `BrokerFailed`."""
        literal = sink_policy.literal_address(url.host)
        if literal is not None:
            found: Sequence[str] = [str(literal)]
        else:
            try:
                found = await self.resolve(url.host)
            except OSError as error:
                raise BrokerFailed(str(error)) from None
        for address in found:
            refusal = sink_policy.refusal(address, allow_loopback=self.allow_loopback, networks=self.networks)
            if refusal is not None:
                raise BrokerFailed(f"{url.host}: {refusal}")
        if not url.is_secure and not self.allow_loopback:
            for address in found:
                refusal = sink_policy.plain_refusal(address, self.networks, url.scheme)
                if refusal is not None:
                    raise BrokerFailed(f"{url.host}: {refusal}")
        return found

    async def connect(self, url: BrokerUrl, open: Callable[[str], Awaitable[Any]]) -> Any:
        """Opens a connection to the first address that accepts one; raises `BrokerFailed`."""
        failure = BrokerFailed(f"{url.host} has no address")
        for address in await self.addresses(url):
            try:
                async with asyncio.timeout(CONNECT_SECONDS):
                    return await open(address)
            except TimeoutError:
                failure = BrokerFailed(f"{url.host} did not accept a connection in {CONNECT_SECONDS:g} s")
            except BrokerFailed as error:
                failure = error
        raise failure

    def tls(self, url: BrokerUrl) -> ssl.SSLContext:
        """Returns a context that verifies the broker's certificate for the name in the URL.

        Raises `BrokerFailed` if the client certificate cannot be used.
        """
        context = _NamedContext(ssl.PROTOCOL_TLS_CLIENT)
        context.name = url.host
        context.load_verify_locations(certifi.where())
        if self.ca_file is not None:
            context.load_verify_locations(self.ca_file)
        if url.certificate is not None:
            try:
                load_client_certificate(context, url.certificate.certificate, url.certificate.key)
            except ssl.SSLError as error:
                raise BrokerFailed(f"the client certificate cannot be used: {describe(error)}") from None
        return context


def describe(error: BaseException) -> str:
    """Returns the reason of a failure, as the system names it."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate verify failed: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {error.reason or error}"
    # asyncio replaces the system's text by one of its own.
    if isinstance(error, OSError) and error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    return str(error) or type(error).__name__


def library(module: str, extra: str) -> ModuleType:
    """Imports the library of a broker; raises `BrokerFailed` that names the extra if it is not installed."""
    for logger in _LOGGERS[extra]:
        logging.getLogger(logger).setLevel(logging.CRITICAL)
    try:
        return importlib.import_module(module)
    except ImportError:
        raise BrokerFailed(
            f"the library for {extra} is not installed here: pip install 'edn[{extra}]'"
        ) from None
