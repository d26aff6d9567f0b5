"""One HTTP/1.1 connection to a sink, for one POST at a time: what delivery needs and no more.

A general client's pool looks at all of its connections for every request, and with a hundred addresses that
costs several times what the POST itself does (`edn bench isolation` shows it). Parsing is `httptools`', which
the web server uses, too.
"""

from __future__ import annotations

import asyncio
from typing import cast

import httptools

from edn_server.sinks.base import ANSWER_BYTES

#: of an answer no more is read; a longer one costs its connection
READ_BYTES = 64 << 10
#: of its head
HEAD_BYTES = 64 << 10


class ConnectionFailed(Exception):
    """The POST may or may not have arrived; the message says what happened."""

    def __init__(self, reason: str, *, silent: bool) -> None:
        """`silent`: not one byte of an answer came."""
        super().__init__(reason)
        self.silent = silent


class Connection(asyncio.Protocol):
    """Made by `loop.create_connection`; `post` once it is there."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._answered: asyncio.Future[None] | None = None
        #: loop time since when nobody uses it
        self.idle_since = 0.0
        self.status = 0
        self.retry_after: str | None = None
        #: headers that begin with webhook-allowed-
        self.allowed: dict[str, str] = {}
        self.text = b""
        self._head = self._unended = self._read = 0
        self._whole = self._heard = self._sized = False

    @property
    def usable(self) -> bool:
        """Whether another POST can follow."""
        return self._whole and self._transport is not None and not self._transport.is_closing()

    async def post(self, head: bytes, body: bytes) -> None:
        """Send, and await the answer: `status` and the other fields. Raises `ConnectionFailed`."""
        if self._transport is None or self._transport.is_closing():
            raise ConnectionFailed("the connection was closed", silent=True)
        self.status, self.retry_after, self.allowed, self.text = 0, None, {}, b""
        self._head = self._unended = self._read = 0
        self._whole = self._heard = self._sized = False
        self._answered = asyncio.get_running_loop().create_future()
        try:
            self._transport.writelines((head, body))
            await self._answered
        except BaseException:
            self.close()  # what comes next on this connection is not for whoever comes next
            raise
        finally:
            self._answered = None

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # -- what the event loop calls ----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclasses of asyncio's.
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._answered is None:  # nobody asked
            self.close()
            return
        self._heard = True
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(f"an answer that is not HTTP: {error}")
        if not self.status:
            # Not even a header that has no end: the parser gathers it, and tells of it when it is whole.
            self._unended += len(data)
        if max(self._head, self._unended) > HEAD_BYTES:
            self._fail("an answer whose head does not end")

    def connection_lost(self, error: Exception | None) -> None:
        if self.status >= 200 and error is None and not self._sized:
            self._done()  # an answer of no given length ends with its connection
        else:
            self._fail(str(error) if error else "the connection was closed before the answer was complete")

    # -- what the parser calls --------------------------------------------------------------------------

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head += len(name) + len(value)
        lowered = name.lower()
        if lowered == b"retry-after":
            self.retry_after = value.decode("latin-1")
        elif lowered in (b"content-length", b"transfer-encoding"):
            self._sized = True
        elif lowered.startswith(b"webhook-allowed-"):
            self.allowed[lowered.decode("latin-1")] = value.decode("latin-1").strip()

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()

    def on_body(self, data: bytes) -> None:
        self.text += data[: max(0, ANSWER_BYTES - len(self.text))]
        self._read += len(data)
        if self._read > READ_BYTES:
            self._done()
            self.close()

    def on_message_complete(self) -> None:
        if self.status < 200:  # "go on", and the like: the answer is yet to come
            self.status, self.retry_after, self._sized = 0, None, False
            return
        self._whole = self._parser.should_keep_alive()
        self._done()

    def _done(self) -> None:
        if self._answered is not None and not self._answered.done():
            self._answered.set_result(None)

    def _fail(self, reason: str) -> None:
        if self._answered is not None and not self._answered.done():
            self._answered.set_exception(ConnectionFailed(reason, silent=not self._heard))
        self.close()
