"""The sink of http and https: one POST, over a connection to an address that was checked.

The name is resolved here, every address that it has is checked, and the connection goes to one of those that
were: nothing is resolved twice, so no name can point elsewhere in between. Host header and TLS name stay the
sink's. No proxy and no redirect is followed. Names are resolved in threads of its own, so that a name server
that does not answer holds up nothing but sinks.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import anyio
import certifi
import httpcore

from edn import __version__, sinkpolicy
from edn.errors import InvalidSink
from edn_server.attempts import ANSWER_BYTES
from edn_server.settings import Settings
from edn_server.sinks import Answer, Message

CONNECT_SECONDS = 5.0
#: of an answer no more is read; a longer one costs its connection
READ_BYTES = 64 << 10
RESOLVING_THREADS = 16

_USER_AGENT = f"edn/{__version__}".encode()


class CheckedBackend(httpcore.AsyncNetworkBackend):
    """Connects to addresses that the sink policy allows, and to no other."""

    def __init__(self, *, allow_loopback: bool) -> None:
        self._allow_loopback = allow_loopback
        self._backend = httpcore.AnyIOBackend()
        self._threads = ThreadPoolExecutor(RESOLVING_THREADS, thread_name_prefix="resolve")

    def close(self) -> None:
        # Whoever still waits for a name server waits for nobody.
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109  the signature is httpcore's
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        failure: httpcore.NetworkError | httpcore.TimeoutException = httpcore.ConnectError("no address")
        for address in await self._resolve(host, port):
            try:
                return await self._backend.connect_tcp(address, port, timeout, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
        raise failure

    async def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,  # noqa: ASYNC109  the signature is httpcore's
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        raise httpcore.UnsupportedProtocol("sinks are reached over TCP only")

    async def sleep(self, seconds: float) -> None:
        await anyio.sleep(seconds)

    async def _resolve(self, host: str, port: int) -> list[str]:
        loop = asyncio.get_running_loop()
        try:
            found = await loop.run_in_executor(
                self._threads, lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            )
        except OSError as error:
            raise httpcore.ConnectError(f"the name {host} does not resolve: {error}") from None
        addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
        for address in addresses:
            reason = sinkpolicy.refusal(address, allow_loopback=self._allow_loopback)
            if reason is not None:
                raise InvalidSink(f"{host}: {reason}")
        return addresses


class HttpSink:
    """A pool of connections to sinks."""

    def __init__(self, settings: Settings) -> None:
        connections = settings.concurrent_posts + settings.slow_posts
        self._backend = CheckedBackend(allow_loopback=settings.allow_loopback_sinks)
        self._seconds = settings.attempt_seconds
        self._timeouts = {
            "connect": min(CONNECT_SECONDS, self._seconds),
            "read": self._seconds,
            "write": self._seconds,
            "pool": self._seconds,
        }
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=ssl.create_default_context(cafile=certifi.where()),
            max_connections=connections,
            max_keepalive_connections=connections,
            keepalive_expiry=30.0,
            network_backend=self._backend,
        )

    async def close(self) -> None:
        await self._pool.aclose()
        self._backend.close()

    async def send(self, message: Message) -> Answer:
        headers = [
            (b"content-type", b"application/json"),
            (b"user-agent", _USER_AGENT),
            (b"webhook-id", message.webhook_id.encode()),
            (b"webhook-timestamp", str(message.timestamp).encode()),
        ]
        if message.signature is not None:
            headers.append((b"webhook-signature", message.signature.encode()))
        try:
            async with (
                asyncio.timeout(self._seconds),
                self._pool.stream(
                    "POST",
                    message.url,
                    headers=headers,
                    content=message.body,
                    extensions={"timeout": self._timeouts},
                ) as response,
            ):
                read, kept = 0, b""
                async for chunk in response.aiter_stream():
                    kept += chunk[: max(0, ANSWER_BYTES - len(kept))]
                    read += len(chunk)
                    if read > READ_BYTES:
                        break
                reason = None if response.status < 300 else f"it answered {response.status}"
                return Answer(
                    response.status,
                    _header(response, b"retry-after"),
                    reason,
                    kept.decode("utf-8", "replace"),
                )
        except TimeoutError:
            return Answer(None, reason=f"no complete answer within {self._seconds:g} s")
        except InvalidSink as error:
            return Answer(None, reason=error.detail)
        except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException) as error:
            return Answer(None, reason=f"{type(error).__name__}: {error}")
        except (httpcore.UnsupportedProtocol, ssl.SSLError, OSError, ValueError) as error:
            return Answer(None, reason=f"{type(error).__name__}: {error}")


def _header(response: httpcore.Response, name: bytes) -> str | None:
    values = [value for key, value in response.headers if key.lower() == name]
    return values[0].decode("latin-1") if values else None
