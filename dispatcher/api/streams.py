"""Streams: notifications as server-sent events or WebSocket messages instead of webhooks.

The server that hosts the subscription sends lines (`edn_server.sinks.sse`); each becomes a server-sent event
or a message. After a lost connection the client reconnects with the last id that it received: in the header
Last-Event-ID, as every EventSource does, or in the query parameter `last_event_id`.

    id: 3f2a91c04b1d.17.0                          {"id": "3f2a91c04b1d.17.0", "data": {"topic": …}}
    data: {"topic": …, "event": …, "matches": …}

    event: gap                                     {"event": "gap", "data": {"reason": …}}
    data: {"reason": …}

The members of a subtree subscription are merged (`merged_streams`). A stream ends when its key is revoked or
expires.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Header, Query, WebSocket
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocketDisconnect, WebSocketState

from dispatcher.api import merged_streams
from dispatcher.api.bodies import Who
from dispatcher.api.delivery import server_error
from dispatcher.api.merged_streams import MergedStream
from dispatcher.auth.access import Guard, caller_of
from dispatcher.auth.caller import Caller, Need, needs
from dispatcher.auth.quotas import check_descriptors
from dispatcher.servers.client import ServerClient
from dispatcher.store import directory
from dispatcher.store.directory import Subscription
from dispatcher.store.event_log import Log
from dispatcher.store.interface import Connection
from dispatcher.subscriptions.sinks import is_stream
from edn.errors import Conflict, EdnError
from edn.http.asgi import refuse
from edn.http.control_client import CallFailed

#: seconds between checks that a stream's key is still valid
CHECK_SECONDS = 0.5
#: milliseconds after which an EventSource reconnects
RETRY = 1000
#: maximum length of an id: a merged stream ends with an id that is one topic too long
LONGEST = merged_streams.LONGEST + 100

LastEventId = Annotated[
    str | None,
    Header(alias="last-event-id", description="Last id that the client received.", max_length=LONGEST),
]
LastEventIdQuery = Annotated[
    str | None, Query(description="The same, for clients that cannot set headers.", max_length=LONGEST)
]


@contextlib.asynccontextmanager
async def _lines(
    log: Log, calls: ServerClient, found: Subscription, last: str | None
) -> AsyncIterator[AsyncIterator[bytes]]:
    """Opens the stream of a subscription; raises errors of the servers before the first line."""
    if not is_stream(found.url):
        raise Conflict("the subscription has a sink; remove it with PUT to read notifications as a stream")
    if found.subtree is not None:
        positions = merged_streams.read_positions(last)

        def look(connection: Connection) -> list[Subscription] | None:
            alive = directory.find(connection, found.id)
            return None if alive is None else directory.members(connection, found.id)

        merged = MergedStream(
            lambda member, seen: _lines(log, calls, member, seen), lambda: log.reading(look)
        )
        async with contextlib.aclosing(merged.lines(positions)) as lines:
            yield lines
        return
    check_descriptors()  # again per member: each has its own connection
    path = f"/internal/subscriptions/{quote(found.id, safe='')}/events"
    headers = {} if last is None else {"last-event-id": last}
    async with calls.listen(found.server, path, headers) as response:
        if response.status_code != 200:
            await response.aread()
            raise server_error(response, found.server)
        yield _split(response.aiter_raw())


class EventStream(StreamingResponse):
    """A response of server-sent events that closes `resources` at its end."""

    def __init__(
        self,
        parts: AsyncIterator[bytes],
        resources: contextlib.AsyncExitStack,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        fields = {"cache-control": "no-store", **(headers or {})}
        super().__init__(parts, media_type="text/event-stream", headers=fields)
        self._resources = resources

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._resources:
            await super().__call__(scope, receive, send)


async def while_valid(parts: AsyncIterator[bytes], valid: Callable[[], bool]) -> AsyncIterator[bytes]:
    """Yields the parts until they end or `valid` is false, which is checked every `CHECK_SECONDS`."""
    source = aiter(parts)
    waiting: asyncio.Future[bytes] | None = None
    try:
        while valid():
            if waiting is None:
                waiting = asyncio.ensure_future(anext(source))
            await asyncio.wait({waiting}, timeout=CHECK_SECONDS)
            if waiting.done():
                done, waiting = waiting, None
                try:
                    part = done.result()
                except StopAsyncIteration:
                    return
                if valid():
                    yield part
    finally:
        if waiting is not None:
            await merged_streams.cancel([waiting])


async def _split(parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    rest = b""
    async for part in parts:
        *whole, rest = (rest + part).split(b"\n")
        for line in whole:
            yield line


def server_sent(line: bytes) -> bytes:
    if not line:
        return b":\n\n"
    found = merged_streams.decoder.decode(line)
    fields = [b"event: %b\n" % found.event.encode()] if found.event else []
    fields += [b"id: %b\n" % found.id.encode()] if found.id else []
    return b"".join((*fields, b"data: %b\n\n" % bytes(found.data)))


def routes(
    log: Log, calls: ServerClient, find: Callable[[Caller, str], Awaitable[Subscription]], guard: Guard
) -> APIRouter:
    """`find` returns a subscription that is visible to a caller, or raises `NotFound`."""
    router = APIRouter(prefix="/v1/subscriptions", tags=["subscriptions"])

    @contextlib.asynccontextmanager
    async def opened(who: Caller, id: str, last: str | None) -> AsyncIterator[AsyncIterator[bytes]]:
        found = await find(who, id)
        with guard.quotas.open_stream(who):
            async with _lines(log, calls, found, last) as lines:
                yield while_valid(lines, lambda: guard.is_valid(who))

    @router.get(
        "/{id}/events",
        response_class=StreamingResponse,
        responses={200: {"description": "server-sent events", "content": {"text/event-stream": {}}}},
    )
    @needs(Need.SUBSCRIBE)
    async def events(
        id: str, who: Who, header: LastEventId = None, last_event_id: LastEventIdQuery = None
    ) -> StreamingResponse:
        """Stream notifications of a subscription without a sink as server-sent events, after the last id."""
        resources = contextlib.AsyncExitStack()
        lines = await resources.enter_async_context(opened(who, id, header or last_event_id))

        async def parts() -> AsyncIterator[bytes]:
            yield b"retry: %d\n\n" % RETRY
            with contextlib.suppress(CallFailed):  # the server is offline: the client reconnects
                async for line in lines:
                    yield server_sent(line)

        return EventStream(parts(), resources, {"x-accel-buffering": "no"})

    @router.websocket("/{id}/events")
    @needs(Need.SUBSCRIBE)
    async def messages(socket: WebSocket, id: str) -> None:
        """Streams notifications as WebSocket messages."""
        last = socket.headers.get("last-event-id") or socket.query_params.get("last_event_id")
        who = caller_of(socket.scope)
        try:
            async with opened(who, id, last) as lines:
                await socket.accept()
                await _send(socket, lines)
        except EdnError as error:
            if socket.client_state is WebSocketState.CONNECTING:
                await refuse(error, socket.scope, socket.receive, socket.send)

    return router


async def _send(socket: WebSocket, lines: AsyncIterator[bytes]) -> None:
    """Sends lines until the stream ends or the client disconnects; ignores messages of the client."""

    async def send() -> None:
        with contextlib.suppress(CallFailed, WebSocketDisconnect, RuntimeError):
            async for line in lines:
                if line:
                    await socket.send_text(line.decode())
            await socket.close()

    async def await_disconnect() -> None:
        with contextlib.suppress(WebSocketDisconnect, RuntimeError):
            while True:
                await socket.receive_text()

    tasks = {asyncio.create_task(send()), asyncio.create_task(await_disconnect())}
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await merged_streams.cancel(tasks)
        if (
            socket.client_state is WebSocketState.CONNECTED
            and socket.application_state is WebSocketState.CONNECTED
        ):
            with contextlib.suppress(RuntimeError):
                await socket.close(1012)
