"""A receiver of notifications that runs inside a program.

It accepts POSTs of servers, drops repeated ones by their `webhook-id`, and calls a function per notification.
The socket listens when `start` returns, so its URL can be subscribed at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import msgspec
import uvicorn

#: bytes per POST
MAX_BODY_BYTES = 16 * 1024 * 1024
#: number of remembered `webhook-id`s; servers repeat a POST long before that many others
REMEMBERED = 100_000


class Match(msgspec.Struct, frozen=True):
    subscription: str
    recipient: str | None = None


class NotifiedEvent(msgspec.Struct, frozen=True):
    id: str
    time: str
    attributes: dict[str, Any]


class Notification(msgspec.Struct, frozen=True):
    """One event with all its matches at this address."""

    topic: str
    event: NotifiedEvent
    matches: list[Match]
    #: W3C Trace Context of the publisher
    traceparent: str | None = None
    tracestate: str | None = None


class _Body(msgspec.Struct):
    notifications: list[Notification]


_decoder = msgspec.json.Decoder(_Body)


@dataclass(slots=True)
class Counters:
    posts: int = 0
    #: POSTs that were received before
    repeats: int = 0
    notifications: int = 0
    #: POSTs with an invalid body
    refused: int = 0


class _QuietServer(uvicorn.Server):
    """A uvicorn server that leaves signals to the program."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


#: headers and body of a POST → status of the answer
Forward = Callable[[list[tuple[bytes, bytes]], bytes], Awaitable[int]]


class Receiver:
    """Listens on `host`:`port` (0: a free port) and calls `on_notification` once per notification.

    `forward` is called first, also for repeated POSTs; unless it returns 2xx, the POST is not processed.
    """

    def __init__(
        self,
        on_notification: Callable[[Notification], None],
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        path: str = "/notifications",
        forward: Forward | None = None,
    ) -> None:
        self._on_notification = on_notification
        self._host = host
        self._port = port
        self._path = path
        self._forward = forward
        self._seen: OrderedDict[str, None] = OrderedDict()
        self._server: _QuietServer | None = None
        self._running: asyncio.Task[None] | None = None
        self.counters = Counters()
        self.url = ""

    async def start(self) -> str:
        """Starts to listen and returns the URL to subscribe; raises `OSError` if the port is in use."""
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        listening = socket.create_server((self._host, self._port), family=family)
        port = listening.getsockname()[1]
        shown = f"[{self._host}]" if ":" in self._host else self._host
        self.url = f"http://{shown}:{port}{self._path}"
        config = uvicorn.Config(
            self.app,
            interface="asgi3",
            lifespan="off",
            ws="none",
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=2,
        )
        self._server = _QuietServer(config)
        self._running = asyncio.create_task(self._server.serve(sockets=[listening]))
        return self.url

    async def stop(self) -> None:
        if self._server is not None and self._running is not None:
            self._server.should_exit = True
            await self._running
            self._server = self._running = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()

    async def app(
        self,
        scope: dict[str, Any],
        receive: Callable[[], Awaitable[dict[str, Any]]],
        send: Callable[[dict[str, Any]], Awaitable[None]],
    ) -> None:
        """The ASGI application."""
        if scope["type"] != "http":
            return
        headers = dict(scope["headers"])
        if scope["method"] == "OPTIONS":  # the request for consent of CloudEvents webhooks
            origin = headers.get(b"webhook-request-origin", b"*")
            granted = [(b"webhook-allowed-origin", origin), (b"webhook-allowed-rate", b"*")]
            await _answer(send, 200, granted)
        elif scope["method"] != "POST":
            await _answer(send, 405, [(b"allow", b"POST, OPTIONS")])
        else:
            body = await _read(receive)
            if body is None:
                return  # the sender has disconnected
            status = 413 if len(body) > MAX_BODY_BYTES else 204
            if status == 204 and self._forward is not None:
                status = await self._forward(scope["headers"], body)
            if 200 <= status < 300:
                status = self._process(headers.get(b"webhook-id"), body)
            await _answer(send, status)

    def _process(self, webhook_id: bytes | None, body: bytes) -> int:
        self.counters.posts += 1
        key = webhook_id.decode("latin-1") if webhook_id else None
        if key is not None and key in self._seen:
            self.counters.repeats += 1
            return 204
        try:
            notifications = _decoder.decode(body).notifications
        except (msgspec.DecodeError, UnicodeDecodeError):
            self.counters.refused += 1
            return 400
        if key is not None:
            self._seen[key] = None
            if len(self._seen) > REMEMBERED:
                self._seen.popitem(last=False)
        self.counters.notifications += len(notifications)
        for notification in notifications:
            self._on_notification(notification)
        return 204


async def _read(receive: Callable[[], Awaitable[dict[str, Any]]]) -> bytes | None:
    """Reads the body, at most a little more than the limit; None if the sender disconnects."""
    body = bytearray()
    more = True
    while more and len(body) <= MAX_BODY_BYTES:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message.get("body", b"")
        more = message.get("more_body", False)
    return bytes(body)


async def _answer(
    send: Callable[[dict[str, Any]], Awaitable[None]],
    status: int,
    headers: list[tuple[bytes, bytes]] | None = None,
) -> None:
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": [*(headers or []), (b"content-length", b"0")],
        }
    )
    await send({"type": "http.response.body", "body": b""})
