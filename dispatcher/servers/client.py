"""Calls servers: frames, messages and questions; a server that is offline is `Unavailable`.

Frames and messages use the lean client, streamed and JSON answers the general one, which is shared by all
control calls of the process.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from functools import cached_property
from typing import Any

import msgspec

from dispatcher.config import Settings
from dispatcher.servers.registry import ServerRegistry
from edn import protocol
from edn.errors import CorruptMessage, InvalidInput, InvalidSink, Unavailable
from edn.http.client import ExchangeFailed, HttpAnswer, HttpClient, Limits, header_lines
from edn.http.control_client import CallFailed, ControlAnswer, ControlClient, Timeout, open_client

#: seconds that a server may take to store a subscription
STORE_SECONDS = 15.0

_stored = msgspec.msgpack.Decoder(protocol.Stored)
_snapshot = msgspec.msgpack.Decoder(protocol.SummarySnapshot)

#: limit of a server's answer, in bytes
_ANSWER_BYTES = 1 << 26
#: how long the answer to a frame is awaited
_FRAME_SECONDS = 30.0
_CONNECT_SECONDS = 3.0


class ServerClient:
    """Event loop only."""

    def __init__(self, settings: Settings, members: ServerRegistry) -> None:
        self._settings = settings
        self._members = members
        self._headers = header_lines(
            [("authorization", f"Bearer {settings.secret}"), ("content-type", protocol.MSGPACK)]
        )
        self._servers = HttpClient(
            Limits(read=_ANSWER_BYTES, returned=_ANSWER_BYTES, is_strict=True),
            connect_seconds=_CONNECT_SECONDS,
        )

    @cached_property
    def client(self) -> ControlClient:
        """The client of all control calls of this process, to servers and to other dispatchers."""
        return open_client(self._settings.secret)

    async def stop(self) -> None:
        await self.client.aclose()
        self._servers.close()

    # -- frames -----------------------------------------------------------------------------------------

    async def send_frame(self, url: str, frame: bytes) -> HttpAnswer:
        """Send a frame, which may be repeated; raises `ExchangeFailed`."""
        target = f"{url.rstrip('/')}/internal/stream"
        return await self._servers.request("POST", target, frame, self._headers, seconds=_FRAME_SECONDS)

    # -- messages ---------------------------------------------------------------------------------------

    async def tell(self, server: str, path: str, message: msgspec.Struct) -> bytes:
        """The answer of a server to a message; raises `Unavailable`, or `InvalidInput` where it refuses."""
        return await self._post(server, self._url(server), path, message)

    async def _post(self, server: str, url: str, path: str, message: msgspec.Struct) -> bytes:
        try:
            status, _, answer = await self._servers.request(
                "POST",
                f"{url.rstrip('/')}{path}",
                protocol.encode(message),
                self._headers,
                seconds=STORE_SECONDS,
                repeat=False,
            )
        except ExchangeFailed as error:  # nobody knows whether the server carried it out
            raise _unanswered(server, error) from error
        if status == 422:
            raise _refusal(server, answer)
        if status != 200:
            raise Unavailable(f"server {server} answered {status}", retry_after=2)
        return answer

    async def store(self, server: str, request: protocol.Store) -> protocol.Stored:
        """Have a server store subscriptions durably, inactive."""
        return _stored.decode(await self.tell(server, "/internal/subscriptions", request))

    async def store_at(self, server: str, url: str, request: protocol.Store) -> protocol.Stored:
        """The same of a server that is just coming."""
        return _stored.decode(await self._post(server, url, "/internal/subscriptions", request))

    # -- questions --------------------------------------------------------------------------------------

    async def summary(self, url: str) -> protocol.SummarySnapshot:
        """Of a server that may be just coming; raises `CorruptMessage`, or what the client raises."""
        response = await self.client.get(f"{url}/internal/summary")
        if response.status_code != 200:
            raise CorruptMessage(f"{response.status_code}: {response.text[:200]}")
        return _snapshot.decode(response.content)

    async def call(self, server: str, method: str, path: str, **request: Any) -> ControlAnswer:
        """Ask a server something; raises `Unavailable`."""
        url = f"{self._url(server)}{path}"
        try:
            return await self.client.request(method, url, **request)
        except CallFailed as error:
            raise _unanswered(server, error) from error

    async def fetch(self, server: str, path: str) -> ControlAnswer:
        """Something long, piece by piece; whoever asks for it closes it."""
        url, patient = f"{self._url(server)}{path}", Timeout(600.0, connect=_CONNECT_SECONDS)
        try:
            return await self.client.send(self.client.build_request("GET", url, timeout=patient), stream=True)
        except CallFailed as error:
            raise _unanswered(server, error) from error

    @contextlib.asynccontextmanager
    async def listen(self, server: str, path: str, headers: dict[str, str]) -> AsyncIterator[ControlAnswer]:
        """Open an endless answer of a server; raises `Unavailable`, also if it breaks off inside."""
        url = f"{self._url(server)}{path}"
        try:  # a live stream sends something more often than the client's timeout
            async with self.client.stream("GET", url, headers=headers) as response:
                yield response
        except CallFailed as error:
            raise _unanswered(server, error) from error

    def _url(self, server: str) -> str:
        """Return the address of a server; raises `Unavailable` if it is offline."""
        member = self._members.get(server)
        if member is None or self._members.state(member) == "away":
            raise Unavailable(f"server {server} is away", retry_after=2)
        return member.url


def _unanswered(server: str, error: Exception) -> Unavailable:
    return Unavailable(f"server {server} did not answer: {str(error) or type(error).__name__}", retry_after=2)


def _refusal(server: str, answer: bytes) -> InvalidInput:
    """Return the reason why a server refused a message."""
    try:
        problem = msgspec.json.decode(answer)
        if problem["title"] == InvalidSink.title:  # it did not consent
            return InvalidSink(problem["detail"])
    except (msgspec.DecodeError, KeyError, TypeError):
        pass
    return InvalidInput(f"server {server} refused: {answer[:300].decode(errors='replace')}")
