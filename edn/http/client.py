"""A lean HTTP client for the two hot paths: frames to servers and notifications to webhooks.

A general client needs several times the CPU per request (docs/adr/0020). This one sends a body of known
length and reads a bounded answer; `httptools` parses it. Hosts that offer HTTP/2 over TLS get it (`http2`).

An HTTP/1.1 connection carries one request at a time and is reused. If the other side closes an idle
connection just as it is reused, the request is repeated on a new connection, provided that no byte of an
answer arrived and the caller allows it. Redirects and proxies are not followed. Event loop only.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple, cast
from urllib.parse import urlsplit

import httptools

from edn.http.exchange import (
    HEAD_BYTES,
    IDLE_SECONDS,
    ExchangeFailed,
    HttpAnswer,
    Limits,
    OnEnd,
    Request,
    into,
)
from edn.http.http2 import Http2Connection

Headers = Iterable[tuple[str, str]]
#: resolves a host to the addresses to connect to
Resolve = Callable[[str], Awaitable[Sequence[str]]]


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


#: seconds for which a host that violated HTTP/2 gets HTTP/1.1, and how many such hosts are remembered
HTTP1_SECONDS = 600.0
MOST_BROKEN = 10_000


def header_lines(headers: Headers) -> str:
    """Write header fields as the lines of a request head."""
    return "".join([f"{name}: {value}\r\n" for name, value in headers])


def _head(request: Request) -> bytes:
    return (
        f"{request.method} {request.path} HTTP/1.1\r\nhost: {request.host}\r\n"
        f"content-length: {len(request.body)}\r\n{request.headers}\r\n"
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

    def begin(self, request: Request, deadline: float, on_end: OnEnd) -> None:
        """Sends a request; raises `ExchangeFailed` if the connection is closed."""
        transport = self._transport
        if transport is None or transport.is_closing():
            raise ExchangeFailed("the connection was closed", is_unanswered=True)
        self._reset()
        self._deadline = deadline
        if self._timer is None or self._timer.when() > deadline:
            self._set_timer()
        try:
            transport.writelines((_head(request), request.body))
        except RuntimeError as error:  # raised by uvloop if the connection was reset while idle
            self.close()
            raise ExchangeFailed(str(error), is_unanswered=True) from error
        self._on_end = on_end

    async def exchange(self, request: Request, deadline: float) -> HttpAnswer:
        """Sends a request, returns the answer; raises `ExchangeFailed`, or `TimeoutError` at `deadline`."""
        answer: asyncio.Future[HttpAnswer] = self._loop.create_future()
        self.begin(request, deadline, into(answer))
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


class _Negotiation(asyncio.Protocol):
    """Chooses the protocol of a TLS connection, as the handshake agreed."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.chosen: HttpConnection | Http2Connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        tls = transport.get_extra_info("ssl_object")
        is_http2 = tls is not None and tls.selected_alpn_protocol() == "h2"
        self.chosen = Http2Connection(self._limits) if is_http2 else HttpConnection(self._limits)
        transport.set_protocol(self.chosen)
        self.chosen.connection_made(transport)


class HttpClient:
    """Sends requests and reuses connections: HTTP/1.1, one request at a time, or HTTP/2, many at a time."""

    def __init__(
        self,
        limits: Limits,
        *,
        connect_seconds: float,
        most_idle: int = 1024,
        tls: ssl.SSLContext | bool = True,
        http2: ssl.SSLContext | None = None,
    ) -> None:
        """`tls`: the context of https connections; True is the default context.

        `http2`: the context of https connections that offer HTTP/2; without it none does.
        """
        self._limits = limits
        self._connect_seconds = connect_seconds
        self._most_idle = most_idle
        self._tls = tls
        self._http2 = http2
        if http2 is not None:
            http2.set_alpn_protocols(["h2", "http/1.1"])
        #: idle connections, longest idle first
        self._idle: OrderedDict[HttpConnection, Origin] = OrderedDict()
        self._by_origin: dict[Origin, list[HttpConnection]] = {}
        #: connections of requests by `begin`
        self._begun: set[HttpConnection] = set()
        #: HTTP/2 connections; one that is full or closing is replaced, and closes after its last answer
        self._shared: OrderedDict[Origin, Http2Connection] = OrderedDict()
        #: hosts that violated HTTP/2, and the loop time until which they get HTTP/1.1
        self._http1_until: OrderedDict[Origin, float] = OrderedDict()

    def close(self) -> None:
        """Close idle connections and end the requests by `begin`."""
        for connection in (*self._idle, *self._begun):
            connection.close()
        for shared in self._shared.values():
            shared.close()
        self._idle.clear()
        self._by_origin.clear()
        self._shared.clear()

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
        permit: Callable[[], None] | None = None,
    ) -> HttpAnswer:
        """Sends a request and returns the answer; raises `ExchangeFailed`.

        `headers` are lines (`header_lines`). `resolve` replaces the system's resolver. `repeat`: whether the
        request may be sent again if an idle connection turns out to be closed. `permit` is called just before
        the request is sent on a new connection, and may raise.
        """
        origin, host, path = parse_url(url)
        request = Request(method, host, path, headers, body)
        deadline = asyncio.get_running_loop().time() + seconds
        try:
            connection = self._take(origin)
            if connection is not None:
                try:
                    return await self._exchange(connection, origin, request, deadline)
                except ExchangeFailed as error:
                    if not (repeat and error.is_unanswered):
                        raise
            async with asyncio.timeout_at(deadline):
                connection = await self._connect(origin, resolve)
            if permit is not None:
                try:
                    permit()
                except BaseException:
                    self._release(connection, origin)
                    raise
            return await self._exchange(connection, origin, request, deadline)
        except TimeoutError:
            raise ExchangeFailed(f"no complete answer within {seconds:g} s") from None

    def begin(
        self, method: str, url: str, body: bytes, headers: str, *, seconds: float, on_end: OnEnd
    ) -> bool:
        """Sends a request if there is a connection for it; otherwise returns False.

        Costs less than `request`: no task waits. If the other side closed the connection before it answered
        (`ExchangeFailed.is_unanswered`), the request may be repeated by `request`.
        """
        origin, host, path = parse_url(url)
        connection = self._take(origin)
        if connection is None:
            return False

        def end(result: HttpAnswer | Exception) -> None:
            self._release(connection, origin)
            if isinstance(result, TimeoutError):
                result = ExchangeFailed(f"no complete answer within {seconds:g} s")
            on_end(result)

        deadline = asyncio.get_running_loop().time() + seconds
        if isinstance(connection, HttpConnection):
            self._begun.add(connection)
        try:
            connection.begin(Request(method, host, path, headers, body), deadline, end)
        except ExchangeFailed:
            self._release(connection, origin)
            return False
        return True

    async def _exchange(
        self, connection: HttpConnection | Http2Connection, origin: Origin, request: Request, deadline: float
    ) -> HttpAnswer:
        try:
            return await connection.exchange(request, deadline)
        finally:
            self._release(connection, origin)

    def _release(self, connection: HttpConnection | Http2Connection, origin: Origin) -> None:
        """Keep a connection after an exchange, if another request can follow."""
        if isinstance(connection, Http2Connection):
            if not connection.is_open and self._shared.get(origin) is connection:
                del self._shared[origin]
            if connection.is_broken:
                self._http1_until[origin] = asyncio.get_running_loop().time() + HTTP1_SECONDS
                if len(self._http1_until) > MOST_BROKEN:
                    self._http1_until.popitem(last=False)
            return
        self._begun.discard(connection)
        if connection.is_usable:
            self._put_back(connection, origin)
        else:
            connection.close()

    # -- idle connections -------------------------------------------------------------------------------

    def _take(self, origin: Origin) -> HttpConnection | Http2Connection | None:
        shared = self._shared.get(origin) if self._shared else None
        if shared is not None and shared.is_usable:
            return shared
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

    async def _connect(self, origin: Origin, resolve: Resolve | None) -> HttpConnection | Http2Connection:
        """Connects to the first address that accepts; Host header and TLS name are those of the URL."""
        scheme, host, port = origin
        loop = asyncio.get_running_loop()
        tls: ssl.SSLContext | bool | None = None
        if scheme == "https":
            offers = self._http2 is not None and self._http1_until.get(origin, 0.0) <= loop.time()
            tls = self._http2 if offers else self._tls
        name = host if scheme == "https" else None
        failure = ExchangeFailed(f"host {host} has no address")
        for address in [host] if resolve is None else await resolve(host):
            try:
                async with asyncio.timeout(self._connect_seconds):
                    _, negotiation = await loop.create_connection(
                        lambda: _Negotiation(self._limits), address, port, ssl=tls, server_hostname=name
                    )
            except TimeoutError:
                failure = ExchangeFailed(f"no connection to {address} within {self._connect_seconds:g} s")
            except OSError as error:  # TLS failures are among them
                failure = ExchangeFailed(f"no connection to {address}: {error}")
            else:
                connection = negotiation.chosen
                if isinstance(connection, Http2Connection):
                    self._share(connection, origin)
                return connection
        raise failure

    def _share(self, connection: Http2Connection, origin: Origin) -> None:
        self._shared[origin] = connection
        self._shared.move_to_end(origin)
        if len(self._shared) > self._most_idle:
            for other, oldest in list(self._shared.items()):
                if oldest.is_idle or not oldest.is_open:
                    oldest.close()
                    del self._shared[other]
                    break
