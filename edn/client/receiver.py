"""A receiver of notifications: verifies them, drops repeated ones, and calls a function per notification.

It runs by itself or inside another ASGI application:

    async with Receiver(on_notification, secret=secret) as receiver:   # a server of its own, at receiver.url
    app.add_route("/notifications", receiver)                          # FastAPI and Starlette
    app.add_middleware(ReceiverMiddleware, receiver=receiver, path="/notifications")

Theory of operation
-------------------
A server repeats a POST under the same `webhook-id` and with the same body until the answer is 2xx. The answer
is 204 when the function has returned for every notification of the POST, and only then is the id
remembered. If the function raises, the answer is 500, and the repeated POST continues with the notification
that failed. A POST that arrives while its id is being processed waits for that result. Ids are remembered in
memory: after a restart of the program, a POST whose answer was lost is processed again.

| POST                                                       | answer |
|---|---|
| processed, now or before                                   | 204    |
| not JSON of this form                                      | 400    |
| no signature, a wrong one, or a time more than 5 minutes off | 401  |
| too long                                                   | 413    |
| an event in the format of CloudEvents                      | 415    |
| the function raised                                        | 500    |

The body of an answer explains it: `edn delivery attempts` shows that.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import inspect
import json
import logging
import socket
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Iterator, MutableMapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import msgspec
from standardwebhooks import Webhook, WebhookVerificationError

from edn.client.notifications import Match, Notification, NotifiedEvent
from edn.errors import InvalidSink
from edn.formats.webhooks import check_secret, new_secret

__all__ = ["Match", "Notification", "NotifiedEvent", "Receiver", "ReceiverMiddleware", "new_secret"]

#: bytes per POST
MAX_BODY_BYTES = 16 * 1024 * 1024
#: number of remembered `webhook-id`s; servers repeat a POST long before that many others
REMEMBERED = 100_000

log = logging.getLogger(__name__)


class _End(msgspec.Struct):
    subscription: str
    reason: str = ""


class _Body(msgspec.Struct):
    notifications: list[Notification]
    #: the report that a subscription has ended; it comes without notifications
    end: _End | None = None


_decoder = msgspec.json.Decoder(_Body)


@dataclass(slots=True)
class Counters:
    posts: int = 0
    #: POSTs that were received before
    repeats: int = 0
    #: notifications that were processed
    notifications: int = 0
    #: POSTs with an invalid body or signature
    refused: int = 0
    #: POSTs for which the function raised
    failed: int = 0


#: ASGI, as far as it is used here; the names are its own
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

#: headers and body of a POST → status of the answer
Forward = Callable[[list[tuple[bytes, bytes]], bytes], Awaitable[int]]


class Refused(Exception):
    """The POST is answered with this status and text."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail


class Receiver:
    """An ASGI application that calls `on_notification` once per notification, in order within a POST.

    A coroutine function runs on the event loop, a plain function in a thread; POSTs of several addresses are
    processed at the same time. `secret` is the signing secret
    of the subscription ("whsec_…"), or several of them during a rotation; without one, signatures are not
    verified and anybody who knows the URL can send notifications.

    `start`, or `async with`, listens on `host`:`port` (0: a free port) at `url`; it is not needed inside
    another application. `forward` is called first, also for repeated POSTs; unless it returns 2xx, the POST
    is not processed.
    """

    def __init__(
        self,
        on_notification: Callable[[Notification], object],
        *,
        secret: str | Iterable[str] | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        path: str = "/notifications",
        forward: Forward | None = None,
    ) -> None:
        if not callable(on_notification):
            raise TypeError(
                f"on_notification must be a function or a coroutine function, got {on_notification!r}"
            )
        self._on_notification = on_notification
        self._is_coroutine = _is_coroutine_function(on_notification)
        self._webhooks: list[Webhook] | None = None
        self.set_secret(secret)
        self._host = host
        self._port = port
        self._path = path
        self._forward = forward
        #: processed ids
        self._seen: OrderedDict[str, None] = OrderedDict()
        #: ids that are being processed
        self._active: dict[str, asyncio.Task[None]] = {}
        #: id of a POST that failed → digest of its body, and the number of notifications that did not fail
        self._partial: OrderedDict[str, tuple[bytes, int]] = OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()
        self._stop_server: Callable[[], Awaitable[None]] | None = None
        self.counters = Counters()
        self.url = ""

    def set_secret(self, secret: str | Iterable[str] | None) -> None:
        """Replaces the secrets; a POST must be signed with one of them."""
        if secret is None:
            self._webhooks = None
            return
        secrets = [secret] if isinstance(secret, str) else list(secret)
        if not secrets:
            raise ValueError("secret must be a secret, several, or None to verify nothing; got an empty list")
        for one in secrets:
            try:
                check_secret(one)
            except InvalidSink:
                # The message must not contain the secret.
                raise ValueError(
                    f"secret must be whsec_ and the base64 of 24 to 64 bytes, got {len(one)} characters "
                    "of another form"
                ) from None
        self._webhooks = [Webhook(one) for one in secrets]

    async def start(self) -> str:
        """Starts to listen and returns the URL to subscribe; raises `OSError` if the port is in use."""
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        listening = socket.create_server((self._host, self._port), family=family)
        port = listening.getsockname()[1]
        shown = f"[{self._host}]" if ":" in self._host else self._host
        self.url = f"http://{shown}:{port}{self._path}"
        self._stop_server = _serve(self, listening)
        return self.url

    async def stop(self) -> None:
        """Stops to listen, after the notifications that are being processed."""
        if self._stop_server is not None:
            stop, self._stop_server = self._stop_server, None
            await stop()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _live(receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1000})
        elif scope["method"] == "OPTIONS":  # the request for consent of CloudEvents webhooks
            origin = dict(scope["headers"]).get(b"webhook-request-origin", b"*")
            granted = [(b"webhook-allowed-origin", origin), (b"webhook-allowed-rate", b"*")]
            await _answer(send, 200, headers=granted)
        elif scope["method"] != "POST":
            await _answer(send, 405, "send notifications with POST", [(b"allow", b"POST, OPTIONS")])
        else:
            try:
                body = await _read(receive)
                if body is None:
                    return  # the sender has disconnected
                await self._receive(scope["headers"], body)
            except Refused as refused:
                await _answer(send, refused.status, refused.detail)
            else:
                await _answer(send, 204)

    async def _receive(self, headers: Iterable[tuple[bytes, bytes]], body: bytes) -> None:
        """Processes a POST, or waits until it is processed; raises `Refused`."""
        headers = list(headers)
        if self._forward is not None:
            status = await self._forward(headers, body)
            if not 200 <= status < 300:
                raise Refused(status, "")
        self.counters.posts += 1
        named = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in headers}
        try:
            self._verify(named, body)
            key = named.get("webhook-id")
            if key is not None and key in self._seen:
                self.counters.repeats += 1
                return
            task = None if key is None else self._active.get(key)
            if task is None:
                notifications = _decode(named, body)
                task = asyncio.create_task(self._process(key, hashlib.sha256(body).digest(), notifications))
                # The reference keeps the task alive; the sender may disconnect before it has finished.
                self._tasks.add(task)
                task.add_done_callback(self._forget)
                if key is not None:
                    self._active[key] = task
            else:
                self.counters.repeats += 1
        except Refused:
            self.counters.refused += 1
            raise
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            # The network stores this answer, and its operators see it: the exception's text may be private.
            raise Refused(500, f"the receiver's function raised {type(error).__name__}") from error

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # it is logged already, and asyncio need not complain if nobody waits for it

    def _verify(self, headers: dict[str, str], body: bytes) -> None:
        if self._webhooks is None:
            return
        try:
            text = body.decode()
        except UnicodeDecodeError:
            raise Refused(400, "the body must be UTF-8") from None
        reason = ""
        for webhook in self._webhooks:
            try:
                webhook.verify(text, headers, json_parse=False)
                return
            except WebhookVerificationError as error:
                reason = str(error)
            except ValueError:  # not base64, or no comma
                reason = "malformed"
        raise Refused(401, _REASONS.get(reason, f"webhook-signature cannot be verified: {reason}"))

    async def _process(self, key: str | None, digest: bytes, notifications: list[Notification]) -> None:
        """Calls the function for each notification, from the first that an earlier POST has not completed."""
        done = 0
        if key is not None:
            known, count = self._partial.pop(key, (digest, 0))
            done = count if known == digest else 0
        start = done

        def call_plain() -> Any:
            """Calls a plain function in a thread, until the end or until it returns an awaitable."""
            nonlocal done
            try:
                while done < len(notifications):
                    result = self._on_notification(notifications[done])
                    if inspect.isawaitable(result):
                        return result
                    done += 1
            except StopIteration as error:  # which cannot leave a thread of asyncio
                raise RuntimeError("on_notification raised StopIteration") from error
            return None

        try:
            if self._is_coroutine:
                for notification in notifications[start:]:
                    result: Any = self._on_notification(notification)
                    await result
                    done += 1
            else:
                while (awaitable := await asyncio.to_thread(call_plain)) is not None:
                    await awaitable
                    done += 1
        except Exception:
            self.counters.failed += 1
            failed = notifications[done].event.id
            log.exception("on_notification failed for event %s; the network will send it again", failed)
            if key is not None:
                _remember(self._partial, key, (digest, done))
            raise
        else:
            if key is not None:
                _remember(self._seen, key, None)
        finally:
            self.counters.notifications += done - start
            if key is not None:
                self._active.pop(key, None)


class ReceiverMiddleware:
    """ASGI middleware: passes requests for `path` to a receiver, and all others to the application."""

    def __init__(self, app: App, receiver: Receiver, path: str = "/notifications") -> None:
        if not path.startswith("/"):
            raise ValueError(f"path must begin with /, got {path!r}")
        self._app = app
        self._receiver = receiver
        self._path = path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_ours = scope["type"] == "http" and scope["path"] == self._path
        await (self._receiver if is_ours else self._app)(scope, receive, send)


#: texts of the library → of the answer
_REASONS = {
    "Missing required headers": "webhook-id, webhook-timestamp and webhook-signature are required: "
    "the receiver verifies signatures",
    "Invalid Signature Headers": "webhook-timestamp must be seconds since 1970",
    "Message timestamp too old": "webhook-timestamp is more than 5 minutes old: compare the clocks",
    "Message timestamp too new": "webhook-timestamp is more than 5 minutes in the future: compare the clocks",
    "No matching signature found": "webhook-signature fits none of the receiver's secrets: compare them "
    "with the secret of the subscription",
    "malformed": "webhook-signature must be v1,<base64>, or several separated by spaces",
}


def _decode(headers: dict[str, str], body: bytes) -> list[Notification]:
    kind = headers.get("content-type", "").lower()
    if kind.startswith("application/cloudevents") or "ce-specversion" in headers:
        raise Refused(
            415, "the receiver reads notifications of edn: subscribe without the format cloudevents"
        )
    try:
        decoded = _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Refused(400, f'the body must be {{"notifications": […]}}: {error}') from None
    if decoded.end is not None:
        log.warning("subscription %s has ended: %s", decoded.end.subscription, decoded.end.reason)
    return decoded.notifications


def _is_coroutine_function(function: Callable[..., object]) -> bool:
    called = getattr(function, "__call__", None)  # noqa: B004 - its kind is asked, not whether it exists
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)


def _remember(known: OrderedDict[str, Any], key: str, value: object) -> None:
    known[key] = value
    if len(known) > REMEMBERED:
        known.popitem(last=False)


def _serve(app: App, listening: socket.socket) -> Callable[[], Awaitable[None]]:
    """Serves the application in a task; returns the function that ends it."""
    import uvicorn

    class QuietServer(uvicorn.Server):
        """A uvicorn server that leaves signals to the program."""

        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield

    config = uvicorn.Config(
        app,
        interface="asgi3",
        lifespan="off",
        ws="none",
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=2,
    )
    server = QuietServer(config)
    running = asyncio.create_task(server.serve(sockets=[listening]))

    async def stop() -> None:
        server.should_exit = True
        await running

    return stop


async def _read(receive: Receive) -> bytes | None:
    """Reads the body; None if the sender disconnects, `Refused` beyond the limit."""
    body = bytearray()
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message.get("body", b"")
        more = message.get("more_body", False)
        if len(body) > MAX_BODY_BYTES:
            raise Refused(413, f"the body must have at most {MAX_BODY_BYTES} bytes")
    return bytes(body)


async def _answer(
    send: Send, status: int, detail: str = "", headers: Iterable[tuple[bytes, bytes]] = ()
) -> None:
    """Answers without a body, or with a problem (RFC 9457)."""
    body = json.dumps({"status": status, "detail": detail}).encode() if detail else b""
    kind = [(b"content-type", b"application/problem+json")] if detail else []
    length = [] if status == 204 else [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": [*headers, *kind, *length]})
    await send({"type": "http.response.body", "body": body})


async def _live(receive: Receive, send: Send) -> None:
    """Answers the start and the end of an ASGI server."""
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
