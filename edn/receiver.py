"""A local receiver of notifications: what a subscriber would run, small enough to start inside a program.

It accepts the POSTs that servers send, drops repeats by their `webhook-id`, and hands each notification on.
The socket listens as soon as `start` returns: its address can be subscribed with at once.
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

#: what one POST may carry
MAX_BODY_BYTES = 16 * 1024 * 1024
#: how many `webhook-id`s are remembered; servers repeat within minutes, not after so many others
REMEMBERED = 100_000


class Match(msgspec.Struct, frozen=True):
    subscription: str
    recipient: str | None = None


class NotifiedEvent(msgspec.Struct, frozen=True):
    id: str
    time: str
    attributes: dict[str, Any]


class Notification(msgspec.Struct, frozen=True):
    """One event, and all subscriptions of this address that it matched."""

    topic: str
    event: NotifiedEvent
    matches: list[Match]
    #: W3C Trace Context, where the publisher sent one
    traceparent: str | None = None
    tracestate: str | None = None


class _Body(msgspec.Struct):
    notifications: list[Notification]


_decoder = msgspec.json.Decoder(_Body)


@dataclass(slots=True)
class Counters:
    posts: int = 0
    #: POSTs that had been received before
    repeats: int = 0
    notifications: int = 0
    #: POSTs whose body is no notification
    refused: int = 0


class _QuietServer(uvicorn.Server):
    """A uvicorn that leaves signals to the program that it runs in."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


#: headers and body of a POST → the status that it is answered with
Forward = Callable[[list[tuple[bytes, bytes]], bytes], Awaitable[int]]


class Receiver:
    """Listens on `host`:`port` (0: a free one) and calls `on_notification` for each that arrives, once.

    `forward` is asked first, with every POST and its repeats; unless it answers 2xx, nothing has arrived.
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
        """Listen; returns the address to subscribe with. Raises OSError when the port is taken."""
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
        """The ASGI application; `start` serves it, a test may call it."""
        if scope["type"] != "http":
            return
        headers = dict(scope["headers"])
        if scope["method"] == "OPTIONS":  # the consent that CloudEvents' web hooks ask for
            origin = headers.get(b"webhook-request-origin", b"*")
            granted = [(b"webhook-allowed-origin", origin), (b"webhook-allowed-rate", b"*")]
            await _answer(send, 200, granted)
        elif scope["method"] != "POST":
            await _answer(send, 405, [(b"allow", b"POST, OPTIONS")])
        else:
            body = await _read(receive)
            if body is None:
                return  # nobody is left to answer
            status = 413 if len(body) > MAX_BODY_BYTES else 204
            if status == 204 and self._forward is not None:
                status = await self._forward(scope["headers"], body)
            if 200 <= status < 300:
                status = self._take(headers.get(b"webhook-id"), body)
            await _answer(send, status)

    def _take(self, webhook_id: bytes | None, body: bytes) -> int:
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
    """The whole body, or of one that is larger than allowed the beginning; None when the sender went away."""
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
