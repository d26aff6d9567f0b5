"""HTTP on plain sockets, so that the measuring program costs little."""

from __future__ import annotations

import asyncio
import itertools
import math
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

#: answer of a sink
TAKEN = b"HTTP/1.1 204 No Content\r\n\r\n"
#: from head and body of a request to the whole response; None never answers
Handler = Callable[[bytes, bytes], Awaitable[bytes | None]]


class Answer(NamedTuple):
    status: int
    #: lower-cased: status line and headers, up to the empty line
    head: bytes
    body: bytes


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> Answer:
    """Writes a whole request and returns the answer; the connection stays open."""
    writer.write(request)
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    body = await reader.readexactly(content_length(head))
    return Answer(int(head.split(b" ", 2)[1]), head, body)


async def connect(url: str, limit: int = 1 << 20) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Opens a connection; `limit`: bytes of an answer that are buffered."""
    host, port = url.removeprefix("http://").split(":")
    return await asyncio.open_connection(host, int(port), limit=limit)


def expect_accepted(answer: Answer, *_: float) -> None:
    """Raises unless a batch was accepted."""
    if answer.status != 202:
        raise RuntimeError(f"{answer.status} to a batch: {answer.body.decode()[:200]}")


def every(interval: float, seconds: float = math.inf) -> Iterator[float]:
    """Yields due times at a constant interval from now on, for some seconds; interval 0 means at once."""
    began = time.perf_counter()
    for number in itertools.count():
        if time.perf_counter() - began >= seconds:
            return
        yield began + number * interval


async def publish(
    url: str,
    requests: Sequence[bytes],
    schedule: Iterable[float],
    connections: int,
    on_answer: Callable[[Answer, float, float], None] = expect_accepted,
) -> int:
    """Sends whole requests in turn over several connections and returns their number.

    `schedule` has the due time of each by `time.perf_counter`. `on_answer` gets the answer, the due time and
    the time of sending.
    """
    numbered = enumerate(schedule)

    async def connection() -> int:
        reader, writer = await connect(url)
        sent = 0
        try:
            for number, due in numbered:
                if (wait := due - time.perf_counter()) > 0:
                    await asyncio.sleep(wait)
                began = time.perf_counter()
                on_answer(await ask(reader, writer, requests[number % len(requests)]), due, began)
                sent += 1
        finally:
            writer.close()
        return sent

    return sum(await asyncio.gather(*(connection() for _ in range(connections))))


async def start_program(module: str, *arguments: str) -> asyncio.subprocess.Process:
    """Starts a module as a process that ends with its standard input."""
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
                    await reader.read()  # until the other side closes
                    return
                writer.write(response)
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            pass  # one side has closed
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, backlog=1024, limit=1 << 22)
    return server, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def path_of(head: bytes) -> str:
    """Returns the path of a request."""
    return head.split(b" ", 2)[1].decode()


def content_length(head: bytes) -> int:
    """Returns the content length in a lower-cased head, 0 without one."""
    length = head.partition(b"content-length:")[2]
    return int(length.partition(b"\r\n")[0] or 0)
