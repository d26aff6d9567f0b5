"""Streams at the front door: server-sent events, or a WebSocket, instead of a webhook.

The server that hosts the subscription tells what there is, line by line (`edn_server.sinks.sse`); here each
line becomes an event of the one or a message of the other. A connection that breaks is made again by the
client, which says the last id that it saw: in the header Last-Event-ID, as every EventSource does, or in the
query as `last_event_id` where headers cannot be set.

    id: 3f2a91c04b1d.17.0                          {"id": "3f2a91c04b1d.17.0", "data": {"topic": …}}
    data: {"topic": …, "event": …, "matches": …}

    event: gap                                     {"event": "gap", "data": {"reason": …}}
    data: {"reason": …}

A subscription to a subtree is read topic by topic, and told as one (see `merged_streams`).

A stream ends when the key that opened it is revoked or expires.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Annotated
from urllib.parse import quote

import msgspec
from fastapi import APIRouter, Header, Query, WebSocket
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocketDisconnect, WebSocketState

from dispatcher.api import merged_streams
from dispatcher.api.caller import Who
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
from edn.errors import Conflict, EdnError, InvalidInput, NotFound, Unavailable
from edn.http.asgi import refuse
from edn.http.control_client import CallFailed, ControlAnswer, problem_detail

_REFUSED = {404: NotFound, 422: InvalidInput}
#: how often it is checked that a stream's key still opens it
CHECK_SECONDS = 0.5
#: so soon an EventSource comes back when its connection breaks, in milliseconds
RETRY = 1000
#: characters of an id: one more topic than a connection of a subtree ends with
LONGEST = merged_streams.LONGEST + 100

LastEventId = Annotated[
    str | None, Header(alias="last-event-id", description="The last id that was seen.", max_length=LONGEST)
]
LastEventIdQuery = Annotated[
    str | None, Query(description="The same, where headers cannot be set.", max_length=LONGEST)
]


class _Line(msgspec.Struct):
    data: msgspec.Raw
    event: str = ""
    id: str = ""


_decoder = msgspec.json.Decoder(_Line)


@contextlib.asynccontextmanager
async def _lines(
    log: Log, calls: ServerClient, found: Subscription, last: str | None
) -> AsyncIterator[AsyncIterator[bytes]]:
    """The server's lines, or all servers'; raises what is refused, before the first."""
    if not is_stream(found.url):
        raise Conflict("it has a sink, and its notifications go there; PUT it without one to read them here")
    if found.subtree is not None:
        positions = merged_streams.read_positions(last)

        def look(connection: Connection) -> list[Subscription] | None:
            alive = directory.find(connection, found.id)
            return None if alive is None else directory.members(connection, found.id)

        merged = MergedStream(
            lambda member, seen: _lines(log, calls, member, seen), lambda: log.reading(look)
        )
        async with contextlib.aclosing(merged.lines(positions)) as told:
            yield told
        return
    check_descriptors()  # of a subtree, each topic takes a connection
    path = f"/internal/subscriptions/{quote(found.id, safe='')}/events"
    headers = {} if last is None else {"last-event-id": last}
    async with calls.listen(found.server, path, headers) as response:
        if response.status_code != 200:
            raise await _refusal(response, found.server)
        yield _split(response.aiter_raw())


class EventStream(StreamingResponse):
    """Server-sent events that go on for long, and what is held open for them until they end."""

    def __init__(
        self,
        parts: AsyncIterator[bytes],
        held: contextlib.AsyncExitStack,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        fields = {"cache-control": "no-store", **(headers or {})}
        super().__init__(parts, media_type="text/event-stream", headers=fields)
        self._held = held

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._held:
            await super().__call__(scope, receive, send)


async def while_valid(parts: AsyncIterator[bytes], valid: Callable[[], bool]) -> AsyncIterator[bytes]:
    """Pass on what comes until it ends, or `valid` does not hold any more, which is asked twice a second."""
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
            await merged_streams.end([waiting])


async def _refusal(response: ControlAnswer, server: str) -> EdnError:
    await response.aread()
    detail = problem_detail(response)
    kind = _REFUSED.get(response.status_code)
    return kind(detail) if kind is not None else Unavailable(f"server {server}: {detail}", retry_after=2)


async def _split(parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    rest = b""
    async for part in parts:
        *whole, rest = (rest + part).split(b"\n")
        for line in whole:
            yield line


def server_sent(line: bytes) -> bytes:
    """A line as a server-sent event; an empty one as a comment."""
    if not line:
        return b":\n\n"
    told = _decoder.decode(line)
    fields = [b"event: %b\n" % told.event.encode()] if told.event else []
    fields += [b"id: %b\n" % told.id.encode()] if told.id else []
    return b"".join((*fields, b"data: %b\n\n" % bytes(told.data)))


def routes(
    log: Log, calls: ServerClient, find: Callable[[Caller, str], Awaitable[Subscription]], guard: Guard
) -> APIRouter:
    """`find` gives a living subscription that a caller may know of, or raises `NotFound`."""
    router = APIRouter(prefix="/v1/subscriptions", tags=["subscriptions"])

    @router.get(
        "/{id}/events",
        response_class=StreamingResponse,
        responses={200: {"description": "server-sent events", "content": {"text/event-stream": {}}}},
    )
    @needs(Need.SUBSCRIBE)
    async def events(
        id: str, who: Who, header: LastEventId = None, last_event_id: LastEventIdQuery = None
    ) -> StreamingResponse:
        """Notifications of a subscription without a sink, as server-sent events, after the last one seen."""
        found = await find(who, id)
        async with contextlib.AsyncExitStack() as opening:
            opening.enter_context(guard.quotas.stream(who))
            lines = await opening.enter_async_context(_lines(log, calls, found, header or last_event_id))
            stack = opening.pop_all()

        async def told() -> AsyncIterator[bytes]:
            yield b"retry: %d\n\n" % RETRY
            with contextlib.suppress(CallFailed):  # the server is gone: the client asks again
                async for line in while_valid(lines, lambda: guard.is_valid(who)):
                    yield server_sent(line)

        return EventStream(told(), stack, {"x-accel-buffering": "no"})

    @router.websocket("/{id}/events")
    @needs(Need.SUBSCRIBE)
    async def messages(socket: WebSocket, id: str) -> None:
        """The same as messages of a WebSocket."""
        last = socket.headers.get("last-event-id") or socket.query_params.get("last_event_id")
        who = caller_of(socket.scope)
        try:
            found = await find(who, id)
            with guard.quotas.stream(who):
                async with _lines(log, calls, found, last) as lines:
                    await socket.accept()
                    await _send(socket, while_valid(lines, lambda: guard.is_valid(who)))
        except EdnError as error:
            if socket.client_state is WebSocketState.CONNECTING:
                await refuse(error, socket.scope, socket.receive, socket.send)

    return router


async def _send(socket: WebSocket, lines: AsyncIterator[bytes]) -> None:
    """Until the stream ends, or the client goes away; what it says is not listened to."""

    async def tell() -> None:
        with contextlib.suppress(CallFailed, WebSocketDisconnect, RuntimeError):
            async for line in lines:
                if line:
                    await socket.send_text(line.decode())
            await socket.close()

    async def listen() -> None:
        with contextlib.suppress(WebSocketDisconnect, RuntimeError):
            while True:
                await socket.receive_text()

    telling, listening = asyncio.create_task(tell()), asyncio.create_task(listen())
    try:
        await asyncio.wait({telling, listening}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await merged_streams.end([telling, listening])
        if (
            socket.client_state is WebSocketState.CONNECTED
            and socket.application_state is WebSocketState.CONNECTED
        ):
            with contextlib.suppress(RuntimeError):
                await socket.close(1012)
