"""The server's side of a keep-alive connection over which webhooks are posted."""

from __future__ import annotations

import asyncio

import httptools


class PostProtocol(asyncio.Protocol):
    """Calls `posted` for each request when it is complete; whoever is it answers over `transport`."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self._parser = httptools.HttpRequestParser(self)

    def posted(self, path: str, webhook_id: str, body: bytes) -> None:
        raise NotImplementedError

    def answer(self, status: int) -> None:
        self.transport.write(b"HTTP/1.1 %d Answer\r\ncontent-length: 0\r\n\r\n" % status)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self.transport.abort()

    # -- what the parser calls -------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._path = b""
        self._id = ""
        self._body: list[bytes] = []

    def on_url(self, url: bytes) -> None:
        self._path += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"webhook-id":
            self._id = value.decode()

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        self.posted(self._path.decode(), self._id, b"".join(self._body))
