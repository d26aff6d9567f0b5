"""HTTP on a plain socket, for whoever measures: it shall cost as little as it can."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import NamedTuple

#: the answer of a sink
TAKEN = b"HTTP/1.1 204 No Content\r\n\r\n"
#: takes the head and the body of a request; answers with a whole response, or never where it is None
Handler = Callable[[bytes, bytes], Awaitable[bytes | None]]


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


async def connect(url: str, limit: int = 1 << 20) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Opens a connection; `limit`: bytes of an answer that are buffered."""
    host, port = url.removeprefix("http://").split(":")
    return await asyncio.open_connection(host, int(port), limit=limit)


async def publish(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> None:
    """Sends a whole request to publish a batch, which must be accepted."""
    answer = await ask(reader, writer, request)
    if answer.status != 202:
        raise RuntimeError(f"{answer.status} to a batch: {answer.body.decode()[:200]}")


async def start_program(module: str, *arguments: str) -> asyncio.subprocess.Process:
    """Starts a module as a process of its own, which shall end with its standard input."""
    command = (sys.executable, "-m", module, *arguments)
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)


async def listen(handle: Handler) -> tuple[asyncio.Server, str]:
    """Serves HTTP on a free port; returns the server and its URL."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                response = await handle(head, await reader.readexactly(content_length(head.lower())))
                if response is None:
                    await reader.read()  # until the other side ends
                    return
                writer.write(response)
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            pass  # the other side, or this benchmark, is done
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, backlog=1024, limit=1 << 22)
    return server, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def path_of(head: bytes) -> str:
    """Returns the path of a request."""
    return head.split(b" ", 2)[1].decode()


def content_length(head: bytes) -> int:
    """Of a request's or an answer's lower-cased head; 0 if it names none."""
    length = head.partition(b"content-length:")[2]
    return int(length.partition(b"\r\n")[0] or 0)
