"""The process behind all addresses: answers POSTs and records when each event arrives at each address.

One listener accepts the connections of all 127.x.y.z; the local end of a connection tells the address. The
path names the format of a body. `Records` of everything since the last request are at `GET /records` of
127.0.0.1, counters at `GET /counters`. `PUT /behaviour` makes addresses slow or dead, `PUT /streams` opens
server-sent event streams and records their events like POSTs.

Times are those of the steady clock, which all processes of a machine share.
"""

from __future__ import annotations

import asyncio
import gc
import json
import re
import socket
import sys
from array import array
from collections.abc import Callable
from time import monotonic
from typing import Any, cast

import httptools
import msgspec
import uvloop

from edn.tools.bench.delivery.workload import address_of

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"
#: stream connections that are opened at the same time
OPENING = 50


class Counters(msgspec.Struct):
    posts: int = 0
    entries: int = 0
    matches: int = 0
    #: streams that are open
    streams: int = 0


class Records(msgspec.Struct):
    """Arrivals as columns: one row per entry of a POST."""

    #: ids of events
    ids: list[str]
    #: array("i"), array("i"), array("d") as bytes
    addresses: bytes
    matches: bytes
    times: bytes
    posts: int


class Behaviour(msgspec.Struct):
    """Addresses that are not like others: slow ones answer after some seconds, dead ones never."""

    slow: list[int] = []
    slow_seconds: float = 2.0
    dead: list[int] = []
    #: addresses whose POSTs are not recorded
    ignored: list[int] = []


class Streams(msgspec.Struct):
    """Streams to read: the address number of each path."""

    url: str
    paths: list[str]


class _EventId(msgspec.Struct):
    id: str


class _Entry(msgspec.Struct):
    event: _EventId
    matches: list[msgspec.Raw]


class _Body(msgspec.Struct):
    notifications: list[_Entry]


_webhook = msgspec.json.Decoder(_Body).decode
_stream_entry = msgspec.json.Decoder(_Entry).decode
_cloudevents = msgspec.json.Decoder(list[_EventId]).decode
_SOAP_EVENT = re.compile(rb'<(?:\w+:)?event\b[^>]*?\bid="([^"]+)"')
_SOAP_MATCH = re.compile(rb"<(?:\w+:)?Match\b")


def _from_webhook(body: bytes) -> list[tuple[str, int]]:
    return [(entry.event.id, len(entry.matches)) for entry in _webhook(body).notifications]


def _from_cloudevents(body: bytes) -> list[tuple[str, int]]:
    return [(event.id, 0) for event in _cloudevents(body)]


def _from_soap(body: bytes) -> list[tuple[str, int]]:
    found = list(_SOAP_EVENT.finditer(body))
    if len(found) == 1:  # its matches may stand in the header
        return [(found[0][1].decode(), len(_SOAP_MATCH.findall(body)))]
    ends = [*(one.start() for one in found[1:]), len(body)]
    return [
        (one[1].decode(), len(_SOAP_MATCH.findall(body, one.start(), end)))
        for one, end in zip(found, ends, strict=True)
    ]


#: format by path → ids of events and numbers of their matches; 0 where the format does not list them
READ: dict[bytes, Callable[[bytes], list[tuple[str, int]]]] = {
    b"/webhook": _from_webhook,
    b"/cloudevents": _from_cloudevents,
    b"/soap": _from_soap,
}


class _Recorder:
    def __init__(self) -> None:
        self.counters = Counters()
        self.slow: frozenset[int] = frozenset()
        self.dead: frozenset[int] = frozenset()
        self._ignored: frozenset[int] = frozenset()
        self.slow_seconds = 0.0
        self._clear()

    def _clear(self) -> None:
        self._ids: list[str] = []
        self._addresses, self._matches, self._times = array("i"), array("i"), array("d")

    def record(self, address: int, entries: list[tuple[str, int]]) -> None:
        if address in self._ignored:
            return
        now = monotonic()
        counters = self.counters
        for id, matches in entries:
            self._ids.append(id)
            self._addresses.append(address)
            self._matches.append(matches)
            self._times.append(now)
            counters.matches += matches
        counters.posts += 1
        counters.entries += len(entries)

    def take(self) -> Records:
        """Returns the records and forgets them."""
        records = Records(
            self._ids,
            self._addresses.tobytes(),
            self._matches.tobytes(),
            self._times.tobytes(),
            self.counters.posts,
        )
        self._clear()
        self.counters = Counters(streams=self.counters.streams)
        return records

    def behave(self, behaviour: Behaviour) -> None:
        self.slow, self.dead = frozenset(behaviour.slow), frozenset(behaviour.dead)
        self._ignored = frozenset(behaviour.ignored)
        self.slow_seconds = behaviour.slow_seconds


class _Connection(asyncio.Protocol):
    """One connection of a sender, or of the benchmark."""

    def __init__(self, recorder: _Recorder) -> None:
        self._recorder = recorder
        self._parser: Any = httptools.HttpRequestParser(self)
        self._body: list[bytes] = []
        self._path = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's does not say that it is one
        self._address = address_of(transport.get_extra_info("sockname")[0])

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        self._path = url
        self._body.clear()

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        address = self._address
        if address < 0:
            self._control(body)
            return
        recorder = self._recorder
        if address in recorder.dead:
            return
        recorder.record(address, READ[self._path](body))
        if address in recorder.slow:
            asyncio.get_running_loop().call_later(recorder.slow_seconds, self._answer_late)
        else:
            self._transport.write(OK)

    def _answer_late(self) -> None:
        if not self._transport.is_closing():
            self._transport.write(OK)

    def _control(self, body: bytes) -> None:
        recorder = self._recorder
        answer = b""
        if self._path == b"/records":
            answer = msgspec.msgpack.encode(recorder.take())
        elif self._path == b"/counters":
            answer = msgspec.msgpack.encode(recorder.counters)
        elif self._path == b"/behaviour":
            recorder.behave(msgspec.json.decode(body, type=Behaviour))
        elif self._path == b"/streams":
            streams = msgspec.json.decode(body, type=Streams)
            recorder.reading = asyncio.ensure_future(_open_streams(recorder, streams))  # type: ignore[attr-defined]  # held, so that it is not collected
        self._transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(answer), answer))


class _Stream(asyncio.Protocol):
    """One server-sent event stream."""

    def __init__(self, recorder: _Recorder, address: int) -> None:
        self._recorder = recorder
        self._address = address
        self._parser: Any = httptools.HttpResponseParser(self)
        self._rest = b""
        self.began: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_headers_complete(self) -> None:
        if not self.began.done():
            self.began.set_result(self._parser.get_status_code())

    def on_body(self, body: bytes) -> None:
        *lines, self._rest = (self._rest + body).split(b"\n")
        entries = []
        for line in lines:
            if line.startswith(b"data: {") and b'"event"' in line:
                entry = _stream_entry(line[6:])
                entries.append((entry.event.id, len(entry.matches)))
        if entries:
            self._recorder.record(self._address, entries)


async def _open_streams(recorder: _Recorder, streams: Streams) -> None:
    loop = asyncio.get_running_loop()
    host, _, port = streams.url.removeprefix("http://").partition(":")
    left = iter(enumerate(streams.paths))

    async def open_some() -> None:
        for address, path in left:
            transport, protocol = await loop.create_connection(
                lambda address=address: _Stream(recorder, address),  # type: ignore[misc]  # mypy takes no default of a lambda
                host,
                int(port),
            )
            transport.write(
                f"GET {path} HTTP/1.1\r\nhost: {host}\r\naccept: text/event-stream\r\n\r\n".encode()
            )
            if await protocol.began != 200:
                raise RuntimeError(f"{path} was answered with {protocol.began.result()}")
            recorder.counters.streams += 1

    await asyncio.gather(*(open_some() for _ in range(OPENING)))


async def _main() -> None:
    recorder = _Recorder()
    loop = asyncio.get_running_loop()
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        # Every 127.x.y.z is an address of this interface, and nobody outside may connect.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo")
    except (AttributeError, PermissionError):
        pass
    listener.bind(("0.0.0.0", 0))
    server = await loop.create_server(lambda: _Connection(recorder), sock=listener, backlog=4096)
    print(json.dumps({"port": listener.getsockname()[1]}), flush=True)  # noqa: T201
    await loop.run_in_executor(None, sys.stdin.buffer.read)
    server.close()


if __name__ == "__main__":
    gc.freeze()
    gc.set_threshold(100_000, 50, 1000)
    uvloop.run(_main())
