"""The sink of http and https: one POST, over a connection to an address that was checked.

The name is resolved here, every address that it has is checked, and the connection goes to one of those that
were: nothing is resolved twice, so no name can point elsewhere in between. Host header and TLS name stay the
sink's. No proxy and no redirect is followed. `resolver` looks names up, so that a name server that does not
answer delays no other name.

Connections are kept for a while, a few an origin. One that was kept may have been closed by the other side in
the same moment; then the POST goes out once more, on a new one: it has the same webhook-id.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import OrderedDict
from collections.abc import Callable, Sequence
from urllib.parse import SplitResult, urlsplit

import certifi

from edn import __version__, sinkpolicy, tracing
from edn.errors import InvalidSink
from edn_server.settings import Settings
from edn_server.sinks.base import Answer, Message
from edn_server.sinks.http_connection import Connection, ConnectionFailed
from edn_server.sinks.resolver import Resolver, Unresolved

CONNECT_SECONDS = 5.0
KEPT_SECONDS = 30.0
#: connections that are kept while nobody uses them
MOST_IDLE = 256

#: scheme, host and port
Origin = tuple[str, str, int]
Headers = Sequence[tuple[str, str]]


class HttpSink:
    def __init__(self, settings: Settings, resolver: Resolver | None = None) -> None:
        """`resolver`: shared with other sinks; without it, the sink has one of its own."""
        self._resolver = resolver or Resolver(settings.nameservers)
        self._own_resolver = resolver is None
        self._allow_loopback = settings.allow_loopback_sinks
        self._seconds = settings.attempt_seconds
        self._tls = ssl.create_default_context(cafile=certifi.where())
        #: connections that nobody uses, the longest idle first
        self._idle: OrderedDict[Connection, Origin] = OrderedDict()
        self._by_origin: dict[Origin, list[Connection]] = {}
        self._most_idle = min(MOST_IDLE, settings.concurrent_posts)

    async def close(self) -> None:
        for connection in list(self._idle):
            connection.close()
        self._idle.clear()
        self._by_origin.clear()
        if self._own_resolver:
            await self._resolver.close()

    async def send(self, message: Message) -> Answer:
        return await self._exchange(
            message.url, lambda parts: _head(parts, message), message.body, self._seconds, message.tenant
        )

    async def ask(self, url: str, headers: Headers, seconds: float, tenant: str = "") -> Answer:
        """An OPTIONS instead of a POST: `Answer.allowed` is what matters."""
        return await self._exchange(url, lambda parts: _question(parts, headers), b"", seconds, tenant)

    async def _exchange(
        self, url: str, head: Callable[[SplitResult], bytes], body: bytes, seconds: float, tenant: str
    ) -> Answer:
        try:
            async with asyncio.timeout(seconds):
                parts = urlsplit(url)
                return await self._request(_origin(parts), head(parts), body, tenant)
        except TimeoutError:
            return Answer(None, reason=f"no complete answer within {seconds:g} s")
        except InvalidSink as error:
            return Answer(None, reason=error.detail)
        except (ConnectionFailed, OSError, ValueError) as error:
            return Answer(None, reason=f"{str(error) or type(error).__name__}")

    async def _request(self, origin: Origin, head: bytes, body: bytes, tenant: str) -> Answer:
        connection = self._take(origin)
        if connection is not None:
            try:
                await connection.post(head, body)
                return self._answer(connection, origin)
            except ConnectionFailed as error:
                if not error.silent:
                    raise
        connection = await self._connect(origin, tenant)
        await connection.post(head, body)
        return self._answer(connection, origin)

    def _answer(self, connection: Connection, origin: Origin) -> Answer:
        status, allowed = connection.status, connection.allowed
        text = connection.text.decode("utf-8", "replace")
        if connection.usable:
            self._give(connection, origin)
        else:
            connection.close()
        reason = None if status < 300 else f"it answered {status}"
        return Answer(status, connection.retry_after, reason, text, allowed=allowed)

    # -- connections ------------------------------------------------------------------------------------

    def _take(self, origin: Origin) -> Connection | None:
        self._drop_old()
        kept = self._by_origin.get(origin)
        while kept:
            connection = kept.pop()
            if not kept:
                del self._by_origin[origin]
            del self._idle[connection]
            if connection.usable:
                return connection
        return None

    def _give(self, connection: Connection, origin: Origin) -> None:
        connection.idle_since = asyncio.get_running_loop().time()
        self._idle[connection] = origin
        self._by_origin.setdefault(origin, []).append(connection)
        if len(self._idle) > self._most_idle:
            self._drop(next(iter(self._idle)))

    def _drop_old(self) -> None:
        oldest = asyncio.get_running_loop().time() - KEPT_SECONDS
        while self._idle and next(iter(self._idle)).idle_since < oldest:
            self._drop(next(iter(self._idle)))

    def _drop(self, connection: Connection) -> None:
        origin = self._idle.pop(connection)
        kept = self._by_origin[origin]
        kept.remove(connection)
        if not kept:
            del self._by_origin[origin]
        connection.close()

    async def _connect(self, origin: Origin, tenant: str) -> Connection:
        scheme, host, port = origin
        loop = asyncio.get_running_loop()
        tls, name = (self._tls, host) if scheme == "https" else (None, None)
        failure: Exception = ConnectionFailed(f"the name {host} has no address", silent=True)
        for address in await self._resolve(host, tenant):
            try:
                async with asyncio.timeout(CONNECT_SECONDS):
                    _, connection = await loop.create_connection(
                        Connection, address, port, ssl=tls, server_hostname=name
                    )
                return connection
            except TimeoutError:
                reason = f"no connection to {address} within {CONNECT_SECONDS:g} s"
                failure = ConnectionFailed(reason, silent=True)
            except OSError as error:  # TLS failures are among them
                failure = ConnectionFailed(f"no connection to {address}: {error}", silent=True)
        raise failure

    async def _resolve(self, host: str, tenant: str) -> Sequence[str]:
        """The addresses of a host; raises `InvalidSink` if any of them is forbidden."""
        literal = sinkpolicy.literal_address(host)
        if literal is not None:
            addresses: Sequence[str] = [str(literal)]
        else:
            try:
                addresses = await self._resolver.resolve(host, tenant)
            except Unresolved as error:
                raise ConnectionFailed(str(error), silent=True) from None
        for address in addresses:
            reason = sinkpolicy.refusal(address, allow_loopback=self._allow_loopback)
            if reason is not None:
                raise InvalidSink(f"{host}: {reason}")
        return addresses


def _origin(parts: SplitResult) -> Origin:
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("no http address")
    return parts.scheme, parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)


def _target(parts: SplitResult) -> str:
    return (parts.path or "/") + (f"?{parts.query}" if parts.query else "")


def _question(parts: SplitResult, headers: Headers) -> bytes:
    lines = [
        f"OPTIONS {_target(parts)} HTTP/1.1",
        f"host: {parts.netloc}",
        f"user-agent: edn/{__version__}",
        "accept: */*",
        "content-length: 0",
        *(f"{name}: {value}" for name, value in headers),
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("ascii")


def _head(parts: SplitResult, message: Message) -> bytes:
    lines = [
        f"POST {_target(parts)} HTTP/1.1",
        f"host: {parts.netloc}",
        f"user-agent: edn/{__version__}",
        "accept: */*",
        f"content-type: {message.content_type}",
        f"content-length: {len(message.body)}",
        f"webhook-id: {message.webhook_id}",
        f"webhook-timestamp: {message.timestamp}",
    ]
    if message.signature is not None:
        lines.append(f"webhook-signature: {message.signature}")
    lines += [f"{name}: {value}" for name, value in tracing.headers(message.trace)]
    lines += [f"{name}: {value}" for name, value in message.headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("ascii")
