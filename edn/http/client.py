"""A lean HTTP/1.1 client for the two hot paths: frames to servers and notifications to webhooks.

A general client needs several times the CPU per request (docs/adr/0020). This one sends a body of known
length and reads a bounded answer; `httptools` parses it.

A connection carries one request at a time and is reused. If the other side closes an idle connection just as
it is reused, the request is repeated on a new connection, provided that no byte of an answer arrived and the
caller allows it. Redirects and proxies are not followed. Event loop only.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, cast
from urllib.parse import urlsplit

import httptools

#: limit of an answer's head, in bytes
HEAD_BYTES = 64 << 10
#: seconds after which an idle connection is closed; servers close it later
IDLE_SECONDS = 30.0

Headers = Iterable[tuple[str, str]]
#: resolves a host to the addresses to connect to
Resolve = Callable[[str], Awaitable[Sequence[str]]]


class ExchangeFailed(Exception):
    """The request may or may not have arrived; the message contains the reason."""

    def __init__(self, reason: str, *, is_unanswered: bool = False) -> None:
        """`is_unanswered`: the connection ended before the first byte of an answer."""
        super().__init__(reason)
        self.is_unanswered = is_unanswered


class Origin(NamedTuple):
    scheme: str
    host: str
    port: int


class Target(NamedTuple):
    """A parsed URL."""

    origin: Origin
    #: value of the Host header
    host: str
    #: path and query
    path: str


class HttpAnswer(NamedTuple):
    status: int
    #: names in lower case; the last value of repeated headers
    headers: dict[bytes, bytes]
    #: the first `Limits.returned` bytes
    body: bytes


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of an answer's body, in bytes."""

    #: bytes that are read
    read: int
    #: bytes that are returned
    returned: int
    #: refuse an answer without a length, or longer than `read`, instead of truncating it
    is_strict: bool = False


def header_lines(headers: Headers) -> str:
    """Write header fields as the lines of a request head."""
    return "".join([f"{name}: {value}\r\n" for name, value in headers])


def _head(method: str, path: str, host: str, body: bytes, headers: str) -> bytes:
    return (
        f"{method} {path} HTTP/1.1\r\nhost: {host}\r\ncontent-length: {len(body)}\r\n{headers}\r\n"
    ).encode("ascii")


@lru_cache(maxsize=1 << 16)
def parse_url(url: str) -> Target:
    """Parse an http or https URL; raises `ValueError`."""
    if not (url.isascii() and url.isprintable()) or " " in url:
        raise ValueError("a URL must be printable ASCII without spaces")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("a URL must begin with http:// or https:// and name a host")
    port = parts.port or (443 if parts.scheme == "https" else 80)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Target(Origin(parts.scheme, parts.hostname, port), parts.netloc, path)


#: called once, with the answer or with `ExchangeFailed` or `TimeoutError`
OnEnd = Callable[[HttpAnswer | Exception], None]


class HttpConnection(asyncio.Protocol):
    """One connection, created by `loop.create_connection`; performs one exchange at a time."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        #: of the exchange under way
        self._on_end: OnEnd | None = None
        self._deadline = 0.0
        #: fires at the deadline of this or an earlier exchange, so most exchanges need no timer of their own
        self._timer: asyncio.TimerHandle | None = None
        #: loop time since when the connection is idle
        self.idle_since = 0.0
        self._reset()

    def _reset(self) -> None:
        self._status = 0
        self._headers: dict[bytes, bytes] = {}
        self._parts: list[bytes] = []
        # bytes of complete headers, of an incomplete head, and of the body
        self._head = self._unended = self._read = 0
        self._is_answering = self._is_reusable = False
        #: the complete answer, until `on_end` is called
        self._answer: HttpAnswer | None = None

    @property
    def is_usable(self) -> bool:
        """Whether another request can follow."""
        return self._is_reusable and self._transport is not None and not self._transport.is_closing()

    def begin(self, head: bytes, body: bytes, deadline: float, on_end: OnEnd) -> None:
        """Sends a request; raises `ExchangeFailed` if the connection is closed."""
        transport = self._transport
        if transport is None or transport.is_closing():
            raise ExchangeFailed("the connection was closed", is_unanswered=True)
        self._reset()
        self._deadline = deadline
        if self._timer is None or self._timer.when() > deadline:
            self._set_timer()
        try:
            transport.writelines((head, body))
        except RuntimeError as error:  # raised by uvloop if the connection was reset while idle
            self.close()
            raise ExchangeFailed(str(error), is_unanswered=True) from error
        self._on_end = on_end

    async def exchange(self, head: bytes, body: bytes, deadline: float) -> HttpAnswer:
        """Sends a request, returns the answer; raises `ExchangeFailed`, or `TimeoutError` at `deadline`."""
        answer: asyncio.Future[HttpAnswer] = self._loop.create_future()

        def end(result: HttpAnswer | Exception) -> None:
            if answer.done():
                return
            if isinstance(result, Exception):
                answer.set_exception(result)
            else:
                answer.set_result(result)

        self.begin(head, body, deadline, end)
        try:
            return await answer
        except BaseException:
            self.close()  # a late answer must not reach the next request
            raise

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._transport is not None:
            self._transport.abort()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(self._deadline, self._check_deadline)

    def _check_deadline(self) -> None:
        self._timer = None
        if self._on_end is None:
            return
        if self._loop.time() >= self._deadline:
            self._fail(TimeoutError())
        else:
            self._set_timer()

    # -- called by the event loop -----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclasses of asyncio's.
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._on_end is None:  # data without a request
            self.close()
            return
        self._is_answering = True
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail(ExchangeFailed(f"the answer is not HTTP: {error}"))
        if not self._status:
            # The parser buffers an incomplete header and reports it when it is complete.
            self._unended += len(data)
        if max(self._head, self._unended) > HEAD_BYTES:
            self._fail(ExchangeFailed(f"the head of the answer exceeds {HEAD_BYTES} bytes"))
        if self._answer is not None:  # not in the parser's callback: the next request may follow at once
            self._end(self._answer)

    def connection_lost(self, error: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        sized = b"content-length" in self._headers or b"transfer-encoding" in self._headers
        if self._status >= 200 and error is None and not sized:
            self._complete()  # an answer of unknown length ends with its connection
        if self._answer is not None:
            self._end(self._answer)
        else:
            reason = str(error) if error else "the connection was closed before the answer was complete"
            self._fail(ExchangeFailed(reason, is_unanswered=not self._is_answering))

    # -- called by the parser ---------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self._on_end is None or self._answer is not None:  # a second answer to one request
            self.close()

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head += len(name) + len(value)
        self._headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        self._status = self._parser.get_status_code()
        if self._limits.is_strict and self._status >= 200:
            length = int(self._headers.get(b"content-length", -1))
            if not 0 <= length <= self._limits.read:
                reason = f"the answer has no valid content-length, status {self._status}"
                self._fail(ExchangeFailed(reason))

    def on_body(self, data: bytes) -> None:
        if self._read < self._limits.returned:
            self._parts.append(data[: self._limits.returned - self._read])
        self._read += len(data)
        if self._read > self._limits.read:
            self._complete()
            self.close()

    def on_message_complete(self) -> None:
        if self._status < 200:  # 100 Continue and the like: the answer follows
            self._status, self._headers = 0, {}
            return
        self._is_reusable = self._parser.should_keep_alive()
        self._complete()

    def _complete(self) -> None:
        if self._on_end is not None and self._answer is None:
            self._answer = HttpAnswer(self._status, self._headers, b"".join(self._parts))
            self._headers = {}

    def _fail(self, error: Exception) -> None:
        self.close()
        self._end(self._answer or error)  # what follows a complete answer does not change it

    def _end(self, result: HttpAnswer | Exception) -> None:
        on_end, self._on_end, self._answer = self._on_end, None, None
        if on_end is not None:
            on_end(result)


class HttpClient:
    """Sends requests, one connection per concurrent request, and reuses connections."""

    def __init__(
        self,
        limits: Limits,
        *,
        connect_seconds: float,
        most_idle: int = 1024,
        tls: ssl.SSLContext | bool = True,
    ) -> None:
        """`tls`: the context of https connections; True is the default context."""
        self._limits = limits
        self._connect_seconds = connect_seconds
        self._most_idle = most_idle
        self._tls = tls
        #: idle connections, longest idle first
        self._idle: OrderedDict[HttpConnection, Origin] = OrderedDict()
        self._by_origin: dict[Origin, list[HttpConnection]] = {}
        #: connections of requests by `begin`
        self._begun: set[HttpConnection] = set()

    def close(self) -> None:
        """Close idle connections and end the requests by `begin`."""
        for connection in (*self._idle, *self._begun):
            connection.close()
        self._idle.clear()
        self._by_origin.clear()

    async def request(
        self,
        method: str,
        url: str,
        body: bytes,
        headers: str,
        *,
        seconds: float,
        resolve: Resolve | None = None,
        repeat: bool = True,
    ) -> HttpAnswer:
        """Sends a request and returns the answer; raises `ExchangeFailed`.

        `headers` are lines (`header_lines`). `resolve` replaces the system's resolver. `repeat`: whether the
        request may be sent again if an idle connection turns out to be closed.
        """
        origin, host, path = parse_url(url)
        head = _head(method, path, host, body, headers)
        deadline = asyncio.get_running_loop().time() + seconds
        try:
            connection = self._take(origin)
            if connection is not None:
                try:
                    return await self._exchange(connection, origin, head, body, deadline)
                except ExchangeFailed as error:
                    if not (repeat and error.is_unanswered):
                        raise
            async with asyncio.timeout_at(deadline):
                connection = await self._connect(origin, resolve)
            return await self._exchange(connection, origin, head, body, deadline)
        except TimeoutError:
            raise ExchangeFailed(f"no complete answer within {seconds:g} s") from None

    def begin(
        self, method: str, url: str, body: bytes, headers: str, *, seconds: float, on_end: OnEnd
    ) -> bool:
        """Sends a request if there is an idle connection for it; otherwise returns False.

        Costs less than `request`: no task waits. If the other side closed the connection before it answered
        (`ExchangeFailed.is_unanswered`), the request may be repeated by `request`.
        """
        origin, host, path = parse_url(url)
        connection = self._take(origin)
        if connection is None:
            return False

        def end(result: HttpAnswer | Exception) -> None:
            self._begun.discard(connection)
            if connection.is_usable:
                self._put_back(connection, origin)
            else:
                connection.close()
            if isinstance(result, TimeoutError):
                result = ExchangeFailed(f"no complete answer within {seconds:g} s")
            on_end(result)

        try:
            connection.begin(
                _head(method, path, host, body, headers),
                body,
                asyncio.get_running_loop().time() + seconds,
                end,
            )
        except ExchangeFailed:
            return False
        self._begun.add(connection)
        return True

    async def _exchange(
        self, connection: HttpConnection, origin: Origin, head: bytes, body: bytes, deadline: float
    ) -> HttpAnswer:
        answer = await connection.exchange(head, body, deadline)
        if connection.is_usable:
            self._put_back(connection, origin)
        else:
            connection.close()
        return answer

    # -- idle connections -------------------------------------------------------------------------------

    def _take(self, origin: Origin) -> HttpConnection | None:
        oldest = asyncio.get_running_loop().time() - IDLE_SECONDS
        while self._idle and next(iter(self._idle)).idle_since < oldest:
            self._drop(next(iter(self._idle)))
        idle = self._by_origin.get(origin)
        while idle:
            connection = idle.pop()
            del self._idle[connection]
            if not idle:
                del self._by_origin[origin]
            if connection.is_usable:
                return connection
        return None

    def _put_back(self, connection: HttpConnection, origin: Origin) -> None:
        connection.idle_since = asyncio.get_running_loop().time()
        self._idle[connection] = origin
        self._by_origin.setdefault(origin, []).append(connection)
        if len(self._idle) > self._most_idle:
            self._drop(next(iter(self._idle)))

    def _drop(self, connection: HttpConnection) -> None:
        origin = self._idle.pop(connection)
        idle = self._by_origin[origin]
        idle.remove(connection)
        if not idle:
            del self._by_origin[origin]
        connection.close()

    # -- new connections --------------------------------------------------------------------------------

    async def _connect(self, origin: Origin, resolve: Resolve | None) -> HttpConnection:
        """Connects to the first address that accepts; Host header and TLS name are those of the URL."""
        scheme, host, port = origin
        tls, name = (self._tls, host) if scheme == "https" else (None, None)
        loop = asyncio.get_running_loop()
        failure = ExchangeFailed(f"host {host} has no address")
        for address in [host] if resolve is None else await resolve(host):
            try:
                async with asyncio.timeout(self._connect_seconds):
                    _, connection = await loop.create_connection(
                        lambda: HttpConnection(self._limits), address, port, ssl=tls, server_hostname=name
                    )
                return connection
            except TimeoutError:
                failure = ExchangeFailed(f"no connection to {address} within {self._connect_seconds:g} s")
            except OSError as error:  # TLS failures are among them
                failure = ExchangeFailed(f"no connection to {address}: {error}")
        raise failure
