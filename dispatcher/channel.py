"""Kept-alive HTTP/1.1 connections to servers, one request at a time: what streams of frames need and no more.

A general client costs several times as much CPU for each request, and the dispatcher pays it for every frame
to every server (`edn bench publish` shows it), and for every step of a move. This one speaks to our own
servers only: it sends a body of known length and reads an answer of known length.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from urllib.parse import urlsplit

#: bytes of an answer's head, and of its body
_HEAD_LIMIT = 16_384
_BODY_LIMIT = 1 << 26
#: seconds that a connection is kept unused; servers keep it longer
_KEPT_SECONDS = 30.0


class ChannelError(Exception):
    """The request may or may not have been carried out; the message says what happened."""


class Channel:
    """Requests to one address, one after another. A failure closes the connection; the next opens one."""

    def __init__(self, url: str, secret: str, *, timeout: float = 30.0, connect_timeout: float = 3.0) -> None:
        parts = urlsplit(url)
        self._host = parts.hostname or ""
        self._tls = parts.scheme == "https"
        self._port = parts.port or (443 if self._tls else 80)
        self._prefix = parts.path.rstrip("/")
        self._headers = f"host: {parts.netloc}\r\nauthorization: Bearer {secret}\r\n"
        self._timeout = timeout
        self._connect_timeout = connect_timeout
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._deadline: float | None = None
        self._watch: asyncio.TimerHandle | None = None

    async def post(self, path: str, body: bytes, content_type: str) -> tuple[int, bytes]:
        """Status and body of the answer; raises `ChannelError`."""
        head = self._head(path, body, content_type)
        kept = self._streams is not None
        try:
            return await self._exchange(head, body)
        except ChannelError:
            if not kept:
                raise
        # A connection that was kept may have been closed by the other side meanwhile. Frames may be repeated.
        return await self._exchange(head, body)

    async def post_once(self, path: str, body: bytes, content_type: str) -> tuple[int, bytes]:
        """The same for what must not be sent twice."""
        if self._streams is not None and self._streams[0].at_eof():
            self.close()
        return await self._exchange(self._head(path, body, content_type), body)

    def _head(self, path: str, body: bytes, content_type: str) -> bytes:
        return (
            f"POST {self._prefix}{path} HTTP/1.1\r\n{self._headers}content-type: {content_type}\r\n"
            f"content-length: {len(body)}\r\n\r\n"
        ).encode("ascii")

    async def _exchange(self, head: bytes, body: bytes) -> tuple[int, bytes]:
        try:
            reader, writer = self._streams or await self._open()
            self._expect_by(self._timeout)
            writer.writelines((head, body))
            await writer.drain()
            status, length, closing = _parse(await reader.readuntil(b"\r\n\r\n"))
            answer = await reader.readexactly(length)
        except (
            OSError,
            EOFError,
            TimeoutError,
            ValueError,
            RuntimeError,
            asyncio.LimitOverrunError,
        ) as error:
            # RuntimeError: uvloop's, for writing to a connection that was reset while it was kept
            late = self._deadline is not None and asyncio.get_running_loop().time() >= self._deadline
            self.close()
            raise ChannelError("no answer in time" if late else _reason(error)) from error
        except BaseException:
            self.close()  # cancelled inside an exchange: what comes next on this connection is not ours
            raise
        self._deadline = None
        if closing:
            self.close()
        return status, answer

    def _expect_by(self, seconds: float) -> None:
        """End the connection if the answer is not complete by then.

        A timer that outlives the answer and is set again only when it fires: making one for every frame costs
        as much as composing a small frame.
        """
        loop = asyncio.get_running_loop()
        self._deadline = loop.time() + seconds
        if self._watch is None:
            self._watch = loop.call_at(self._deadline, self._look)

    def _look(self) -> None:
        self._watch = None
        if self._deadline is None:
            return
        loop = asyncio.get_running_loop()
        if loop.time() < self._deadline:
            self._watch = loop.call_at(self._deadline, self._look)
        elif self._streams is not None:
            self._streams[1].transport.abort()

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        async with asyncio.timeout(self._connect_timeout):
            self._streams = await asyncio.open_connection(
                self._host, self._port, ssl=self._tls or None, limit=_HEAD_LIMIT
            )
        return self._streams

    def close(self) -> None:
        self._deadline = None
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


class Channels:
    """As many channels to each address as there are requests at the same time. Event loop only."""

    def __init__(self, secret: str, *, timeout: float) -> None:
        self._secret = secret
        self._timeout = timeout
        #: those that nobody uses, with when they were last used, the longest unused first
        self._unused: defaultdict[str, list[tuple[float, Channel]]] = defaultdict(list)

    async def post(self, url: str, path: str, body: bytes, content_type: str) -> tuple[int, bytes]:
        """Status and body of the answer; raises `ChannelError`. It is sent once."""
        loop = asyncio.get_running_loop()
        unused = self._unused[url]
        while unused and unused[0][0] < loop.time() - _KEPT_SECONDS:
            unused.pop(0)[1].close()
        channel = unused.pop()[1] if unused else Channel(url, self._secret, timeout=self._timeout)
        answer = await channel.post_once(path, body, content_type)  # a failure has closed it
        unused.append((loop.time(), channel))
        return answer

    def close(self) -> None:
        for unused in self._unused.values():
            for _, channel in unused:
                channel.close()
        self._unused.clear()


def _parse(head: bytes) -> tuple[int, int, bool]:
    """Status, content length, and whether the connection ends with this answer."""
    first, *lines = head.decode("latin-1").split("\r\n")
    version, _, rest = first.partition(" ")
    if not version.startswith("HTTP/1."):
        raise ValueError("an answer that is not HTTP/1")
    status = int(rest[:3])
    length, closing = -1, False
    for line in lines:
        name, _, value = line.partition(":")
        match name.lower():
            case "content-length":
                length = int(value)
            case "connection":
                closing = value.strip().lower() == "close"
    if not 0 <= length <= _BODY_LIMIT:
        raise ValueError(f"an answer without a usable content-length, status {status}")
    return status, length, closing


def _reason(error: BaseException) -> str:
    if isinstance(error, asyncio.IncompleteReadError):
        return "the connection was closed before the answer was complete"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return str(error) or type(error).__name__
