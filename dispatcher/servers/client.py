"""Calls servers: frames, messages and control requests. An offline server raises `Unavailable`.

Frames and messages use the lean HTTP client. Streamed and JSON answers use the general one, which all control
requests of the process share.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterator
from functools import cached_property
from typing import Any

import msgspec

from dispatcher.config import Settings
from dispatcher.servers.registry import ServerRegistry
from edn import protocol
from edn.errors import CorruptMessage, InvalidInput, InvalidSink, Unavailable
from edn.http.client import HttpClient, header_lines
from edn.http.control_client import CallFailed, ControlAnswer, ControlClient, Timeout, open_client
from edn.http.exchange import ExchangeFailed, HttpAnswer, Limits
from edn.runtime.ownership import owned

_stored = msgspec.msgpack.Decoder(protocol.Stored)
_snapshot = msgspec.msgpack.Decoder(protocol.SummarySnapshot)

#: timeouts of messages and of frames
_MESSAGE_SECONDS = 15.0
_FRAME_SECONDS = 30.0
_CONNECT_SECONDS = 3.0
#: limit of a server's answer, in bytes
_ANSWER_BYTES = 1 << 26
#: part of a second's bytes that may leave at once after a quiet time
BURST_SECONDS = 0.1


@owned("loop")
class Link:
    """A token bucket that limits the bytes per second of all frames, first come, first served.

    For a metered line, and to make the link the bottleneck on purpose. None is unlimited.
    """

    def __init__(
        self, bytes_per_second: float | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rate = bytes_per_second
        self._clock = clock
        self._tokens = 0.0
        self._at = clock()
        self._turn = asyncio.Lock()
        self._changed = asyncio.Event()

    @property
    def bytes_per_second(self) -> float | None:
        return self._rate

    def limit(self, bytes_per_second: float | None) -> None:
        """Set another rate, also for senders that are waiting."""
        self._refill()
        self._rate = bytes_per_second
        self._tokens = min(0.0, self._tokens)
        self._changed.set()

    def _refill(self) -> None:
        now = self._clock()
        if self._rate is not None:
            earned = (now - self._at) * self._rate
            self._tokens = min(self._tokens + earned, BURST_SECONDS * self._rate)
        self._at = now

    async def acquire(self, size: int) -> None:
        """Wait until `size` bytes may leave.

        A sender may leave as soon as nothing is owed, and then owes its size. So a message larger than the
        bucket passes, too, and the mean rate holds.
        """
        if self._rate is None:
            return
        async with self._turn:
            while self._rate is not None:
                self._refill()
                if self._tokens >= 0:
                    self._tokens -= size
                    return
                self._changed.clear()
                with contextlib.suppress(TimeoutError):
                    # The minimum keeps a tiny debt from being rounded to no time at all.
                    async with asyncio.timeout(max(0.001, -self._tokens / self._rate)):
                        await self._changed.wait()


@owned("loop")
class ServerClient:
    def __init__(
        self, settings: Settings, registry: ServerRegistry, tls: ssl.SSLContext | bool = True
    ) -> None:
        self._settings = settings
        self._tls = tls
        self._registry = registry
        self.link = Link(settings.link_bytes)
        self._headers = header_lines(
            [("authorization", f"Bearer {settings.secret}"), ("content-type", protocol.MSGPACK)]
        )
        self._http = HttpClient(
            Limits(read=_ANSWER_BYTES, returned=_ANSWER_BYTES, is_strict=True),
            connect_seconds=_CONNECT_SECONDS,
            tls=tls,
        )

    @cached_property
    def client(self) -> ControlClient:
        """The client of all control requests of this process, to servers and to other dispatchers."""
        return open_client(self._settings.secret, tls=self._tls)

    async def stop(self) -> None:
        await self.client.aclose()
        self._http.close()

    # -- frames and messages ----------------------------------------------------------------------------

    async def send_frame(self, url: str, frame: bytes) -> HttpAnswer:
        """Send a frame, which is idempotent; raises `ExchangeFailed`."""
        await self.link.acquire(len(frame))
        target = f"{url.rstrip('/')}/internal/stream"
        return await self._http.request("POST", target, frame, self._headers, seconds=_FRAME_SECONDS)

    async def send(self, server: str, path: str, message: msgspec.Struct, *, url: str | None = None) -> bytes:
        """Send a message and return the answer; raises `Unavailable`, or `InvalidInput` if it is refused.

        `url` is the address of a server that has not registered yet.
        """
        target = f"{(url or self._url(server)).rstrip('/')}{path}"
        with _unavailable(server):
            # Not repeated: a server may have carried out a message that it did not answer.
            status, _, answer = await self._http.request(
                "POST",
                target,
                protocol.encode(message),
                self._headers,
                seconds=_MESSAGE_SECONDS,
                repeat=False,
            )
        if status == 422:
            raise _refusal(server, answer)
        if status != 200:
            raise Unavailable(f"server {server} answered {status}", retry_after=2)
        return answer

    async def store(self, server: str, request: protocol.Store, *, url: str | None = None) -> protocol.Stored:
        """Store subscriptions on a server, durable and inactive."""
        return _stored.decode(await self.send(server, "/internal/subscriptions", request, url=url))

    # -- control requests -------------------------------------------------------------------------------

    async def summary(self, url: str) -> protocol.SummarySnapshot:
        """Fetch a server's summaries; raises `CorruptMessage`, or an error of the client."""
        response = await self.client.get(f"{url}/internal/summary")
        if response.status_code != 200:
            raise CorruptMessage(f"{response.status_code}: {response.text[:200]}")
        return _snapshot.decode(response.content)

    async def call(self, server: str, method: str, path: str, **request: Any) -> ControlAnswer:
        """Make a request to a server; raises `Unavailable`."""
        url = f"{self._url(server)}{path}"
        with _unavailable(server):
            return await self.client.request(method, url, **request)

    async def fetch(self, server: str, path: str) -> ControlAnswer:
        """Open a long answer, to be read in pieces; the caller closes it."""
        url, patient = f"{self._url(server)}{path}", Timeout(600.0, connect=_CONNECT_SECONDS)
        with _unavailable(server):
            return await self.client.send(self.client.build_request("GET", url, timeout=patient), stream=True)

    @contextlib.asynccontextmanager
    async def listen(self, server: str, path: str, headers: dict[str, str]) -> AsyncIterator[ControlAnswer]:
        """Open an endless answer of a server; raises `Unavailable`, also if it breaks off."""
        url = f"{self._url(server)}{path}"
        with _unavailable(server):  # a live stream sends data more often than the client's timeout
            async with self.client.stream("GET", url, headers=headers) as response:
                yield response

    def _url(self, server: str) -> str:
        found = self._registry.get(server)
        if found is None or self._registry.state(found) == "away":
            raise Unavailable(f"server {server} is offline", retry_after=2)
        return found.url


@contextlib.contextmanager
def _unavailable(server: str) -> Iterator[None]:
    """Translate failures of the HTTP clients."""
    try:
        yield
    except (CallFailed, ExchangeFailed) as error:
        reason = str(error) or type(error).__name__
        raise Unavailable(f"server {server} did not answer: {reason}", retry_after=2) from error


def _refusal(server: str, answer: bytes) -> InvalidInput:
    try:
        problem = msgspec.json.decode(answer)
        if problem["title"] == InvalidSink.title:  # the sink did not consent
            return InvalidSink(problem["detail"])
    except (msgspec.DecodeError, KeyError, TypeError):
        pass
    return InvalidInput(f"server {server} refused: {answer[:300].decode(errors='replace')}")
