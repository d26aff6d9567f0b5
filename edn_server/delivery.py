"""One POST to a sink, over a connection to an address that was checked.

The name is resolved here, every address that it has is checked, and the connection goes to one of those that
were: nothing is resolved twice, so no name can point elsewhere in between. Host header and TLS name stay the
sink's. No proxy and no redirect is followed.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import anyio
import certifi
import httpcore

from edn import __version__, sinkpolicy
from edn.errors import InvalidSink

CONNECT_SECONDS = 5.0
TOTAL_SECONDS = 15.0
#: of an answer no more is read; a longer one costs its connection
ANSWER_BYTES = 64 << 10

_TIMEOUTS = {"connect": CONNECT_SECONDS, "read": TOTAL_SECONDS, "write": TOTAL_SECONDS, "pool": TOTAL_SECONDS}
_USER_AGENT = f"edn/{__version__}".encode()


@dataclass(frozen=True, slots=True)
class Answer:
    #: None when there was no answer
    status: int | None
    retry_after: str | None = None
    #: what went wrong, for the log
    reason: str | None = None


class CheckedBackend(httpcore.AsyncNetworkBackend):
    """Connects to addresses that the sink policy allows, and to no other."""

    def __init__(self, *, allow_loopback: bool) -> None:
        self._allow_loopback = allow_loopback
        self._backend = httpcore.AnyIOBackend()

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
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise httpcore.ConnectError(f"the name {host} does not resolve: {error}") from None
        addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
        for address in addresses:
            reason = sinkpolicy.refusal(address, allow_loopback=self._allow_loopback)
            if reason is not None:
                raise InvalidSink(f"{host}: {reason}")
        return addresses


class Delivery:
    """A pool of connections to sinks."""

    def __init__(self, *, allow_loopback: bool, connections: int) -> None:
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=ssl.create_default_context(cafile=certifi.where()),
            max_connections=connections,
            max_keepalive_connections=connections,
            keepalive_expiry=30.0,
            network_backend=CheckedBackend(allow_loopback=allow_loopback),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._pool.aclose()

    async def post(self, url: str, webhook_id: str, timestamp: int, body: bytes) -> Answer:
        """One attempt; whatever fails is an answer, too."""
        headers = [
            (b"content-type", b"application/json"),
            (b"user-agent", _USER_AGENT),
            (b"webhook-id", webhook_id.encode()),
            (b"webhook-timestamp", str(timestamp).encode()),
        ]
        try:
            async with (
                asyncio.timeout(TOTAL_SECONDS),
                self._pool.stream(
                    "POST", url, headers=headers, content=body, extensions={"timeout": _TIMEOUTS}
                ) as response,
            ):
                read = 0
                async for chunk in response.aiter_stream():
                    read += len(chunk)
                    if read > ANSWER_BYTES:
                        break
                return Answer(response.status, _header(response, b"retry-after"))
        except TimeoutError:
            return Answer(None, reason=f"no complete answer within {TOTAL_SECONDS:.0f} s")
        except InvalidSink as error:
            return Answer(None, reason=error.detail)
        except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException) as error:
            return Answer(None, reason=f"{type(error).__name__}: {error}")
        except (httpcore.UnsupportedProtocol, ssl.SSLError, OSError, ValueError) as error:
            return Answer(None, reason=f"{type(error).__name__}: {error}")


def _header(response: httpcore.Response, name: bytes) -> str | None:
    values = [value for key, value in response.headers if key.lower() == name]
    return values[0].decode("latin-1") if values else None
