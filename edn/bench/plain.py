"""HTTP on a plain socket, for whoever measures: it shall cost as little as it can."""

from __future__ import annotations

import asyncio
from typing import NamedTuple


class Answer(NamedTuple):
    status: int
    #: lower-cased: status line and headers, up to the empty line
    head: bytes
    body: bytes


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> Answer:
    """The answer to a whole request, ready to be written; the connection stays."""
    writer.write(request)
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    body = await reader.readexactly(content_length(head))
    return Answer(int(head.split(b" ", 2)[1]), head, body)


def content_length(head: bytes) -> int:
    """Of a request's or an answer's lower-cased head."""
    return int(head.split(b"content-length:")[1].split(b"\r\n")[0])
