"""What the dispatcher asks of servers, but for their streams, and one answer to "it is away".

Messages go over lean connections (`channel`), what is answered piece by piece through a general client.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import httpx
import msgspec

from dispatcher.channel import ChannelError, Channels
from dispatcher.config import Settings
from dispatcher.members import Members
from edn import wire
from edn.errors import CorruptMessage, InvalidInput, InvalidSink, Unavailable

#: seconds that a server may take to store a subscription
STORE_SECONDS = 15.0

_stored = msgspec.msgpack.Decoder(wire.Stored)
_snapshot = msgspec.msgpack.Decoder(wire.SummarySnapshot)


class Calls:
    """Event loop only."""

    def __init__(self, settings: Settings, members: Members) -> None:
        self._settings = settings
        self._members = members
        self._channels = Channels(settings.secret, timeout=STORE_SECONDS)
        self._client: httpx.AsyncClient | None = None

    def start(self) -> None:
        self._client = httpx.AsyncClient(
            headers={"authorization": f"Bearer {self._settings.secret}"},
            timeout=httpx.Timeout(30.0, connect=3.0),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=None),
            trust_env=False,
        )

    async def stop(self) -> None:
        if self._client is not None:
            await self._client.aclose()
        self._channels.close()

    # -- messages ---------------------------------------------------------------------------------------

    async def tell(self, server: str, path: str, message: msgspec.Struct) -> bytes:
        """The answer of a server to a message; raises `Unavailable`, or `InvalidInput` where it refuses."""
        _, url = self._reach(server)
        return await self._post(server, url, path, message)

    async def _post(self, server: str, url: str, path: str, message: msgspec.Struct) -> bytes:
        try:
            status, answer = await self._channels.post(url, path, wire.encode(message), wire.MSGPACK)
        except ChannelError as error:  # nobody knows what the server did
            raise Unavailable(f"server {server} did not answer: {error}", retry_after=2) from error
        if status == 422:
            raise _refusal(server, answer)
        if status != 200:
            raise Unavailable(f"server {server} answered {status}", retry_after=2)
        return answer

    async def store(self, server: str, request: wire.Store) -> wire.Stored:
        """Have a server store subscriptions durably, inactive."""
        return _stored.decode(await self.tell(server, "/internal/subscriptions", request))

    async def store_at(self, server: str, url: str, request: wire.Store) -> wire.Stored:
        """The same of a server that is just coming."""
        return _stored.decode(await self._post(server, url, "/internal/subscriptions", request))

    # -- questions --------------------------------------------------------------------------------------

    async def summary(self, url: str) -> wire.SummarySnapshot:
        """Of a server that may be just coming; raises `CorruptMessage`, or what the client raises."""
        assert self._client is not None
        response = await self._client.get(f"{url}/internal/summary")
        if response.status_code != 200:
            raise CorruptMessage(f"{response.status_code}: {response.text[:200]}")
        return _snapshot.decode(response.content)

    async def call(self, server: str, method: str, path: str, **request: Any) -> httpx.Response:
        """Ask a server something; raises `Unavailable` or what the client raises."""
        client, url = self._reach(server)
        return await client.request(method, f"{url}{path}", **request)

    async def fetch(self, server: str, path: str) -> httpx.Response:
        """Something long, piece by piece; whoever asks for it closes it."""
        client, url = self._reach(server)
        request = client.build_request("GET", f"{url}{path}", timeout=httpx.Timeout(600.0, connect=3.0))
        try:
            return await client.send(request, stream=True)
        except httpx.TransportError as error:
            raise Unavailable(f"server {server} did not answer: {error}", retry_after=2) from error

    @contextlib.asynccontextmanager
    async def listen(self, server: str, path: str, headers: dict[str, str]) -> AsyncIterator[httpx.Response]:
        """What a server answers without end; raises `Unavailable` or what the client raises."""
        client, url = self._reach(server)
        patient = httpx.Timeout(30.0, connect=3.0)  # a stream that lives says so more often
        async with client.stream("GET", f"{url}{path}", headers=headers, timeout=patient) as response:
            yield response

    def _reach(self, server: str) -> tuple[httpx.AsyncClient, str]:
        """The client, and where a server is; raises `Unavailable` if it is away."""
        member = self._members.get(server)
        if member is None or self._client is None or self._members.state(member) == "away":
            raise Unavailable(f"server {server} is away", retry_after=2)
        return self._client, member.url


def _refusal(server: str, answer: bytes) -> InvalidInput:
    """What a server says of a message that it does not take."""
    try:
        problem = msgspec.json.decode(answer)
        if problem["title"] == InvalidSink.title:  # it did not consent
            return InvalidSink(problem["detail"])
    except (msgspec.DecodeError, KeyError, TypeError):
        pass
    return InvalidInput(f"server {server} refused: {answer[:300].decode(errors='replace')}")
