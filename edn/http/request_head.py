"""Bounds what a client can send before anybody knows who it is: bytes and fields of a head, connections.

Theory of operation
-------------------
The parser calls back when something is complete: a field, the head, a piece of a body. Until then it buffers.
So bytes are counted that were fed since the last sign of progress (`_idle`): the end of a head, a chunk's
header, a piece of a body, the end of a message. Beyond `HEAD_BYTES` of them the connection ends. One count
covers heads without end, a single field without end, trailers and chunk extensions. What is complete is
counted exactly, field by field. Trailers are counted and dropped: nothing here reads them, and a field that
arrives after the head must not pass for one of the head.

`Connections` counts the open connections of a process by the client's address.
"""

from __future__ import annotations

import asyncio
import ipaddress
import math
import resource
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

#: bytes of a request line and its fields, as complete or incomplete as they are
HEAD_BYTES = 64 << 10
#: fields of a head, and of a trailer
HEAD_FIELDS = 100
#: requests of one connection that wait for the answer to an earlier one
PIPELINED = 32
#: open connections from one client address, at most; fewer where the process may have few descriptors
PER_ADDRESS = 1000
#: clients that stand for many others: a proxy on the same machine
UNCOUNTED = ("127.0.0.0/8", "::1/128")
#: share of the descriptors in use beyond which no connection is accepted: files and sinks need the rest
_FULL_SHARE = 7 / 8
#: and beyond which no new stream begins and connections end with their answers: other calls need the rest
_CROWDED_SHARE = 3 / 4
#: seconds for which a count of descriptors holds
_COUNT_SECONDS = 0.1

_TOO_LARGE = (
    "431 Request Header Fields Too Large",
    f"the head of a request must be at most {HEAD_BYTES} bytes in {HEAD_FIELDS} fields",
)
_TOO_MANY = ("429 Too Many Requests", "too many connections from this address")
_FULL = ("503 Service Unavailable", "too many connections")


def descriptor_limit() -> int:
    """Return how many descriptors this process may have open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft if soft != resource.RLIM_INFINITY else 1 << 20


def descriptors() -> int:
    """Count the descriptors that are open."""
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def has_room_for_streams() -> bool:
    """Whether enough descriptors are free that a connection may be held open for long."""
    return descriptors() < descriptor_limit() * _CROWDED_SHARE


class Connections:
    """Counts open inbound connections; event loop only."""

    def __init__(self, per_address: int | None = None, uncounted: Sequence[str] = UNCOUNTED) -> None:
        """`per_address`: 0 is no limit, None the default. `uncounted`: networks without a limit."""
        self._most = descriptor_limit()
        self._per_address = min(PER_ADDRESS, self._most // 4) if per_address is None else per_address
        self._uncounted = [ipaddress.ip_network(network) for network in uncounted]
        self._by_address: Counter[str] = Counter()
        self._total = 0
        self._used = 0
        self._counted = -math.inf

    def _share(self) -> float:
        """Return the share of the descriptors in use; 0 where connections are few."""
        if self._total < self._most // 8:
            return 0.0
        now = time.monotonic()
        if now - self._counted > _COUNT_SECONDS:
            self._used, self._counted = descriptors(), now
        return self._used / self._most

    @property
    def crowded(self) -> bool:
        """Whether connections that wait for nothing must make room."""
        return self._share() > _CROWDED_SHARE

    def refusal(self, address: str) -> tuple[str, str] | None:
        """Return the status line and the reason to refuse one more connection, None to accept it."""
        if self._share() > _FULL_SHARE:
            return _FULL
        if self._per_address and self._by_address[address] >= self._per_address and self._counts(address):
            return _TOO_MANY
        return None

    def _counts(self, address: str) -> bool:
        try:
            parsed = ipaddress.ip_address(address)
        except ValueError:
            return True
        mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
        return not any((mapped or parsed) in network for network in self._uncounted)

    def opened(self, address: str) -> None:
        self._total += 1
        self._by_address[address] += 1

    def closed(self, address: str) -> None:
        self._total -= 1
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]


class _Excess(Exception):
    """Raised inside the parser: it stops there, and the connection ends."""


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's protocol, with bounds on heads, trailers, pipelines and connections."""

    #: bytes fed without progress; bytes and fields of the head or trailer at hand that are complete
    _idle = 0
    _size = 0
    _fields = 0
    _progress = False
    #: the head is complete: what follows is its body, and then its trailer
    _in_body = False
    _excess = False
    _upgraded = False
    #: counted under this address
    _address: str | None = None

    def __init__(self, *args: Any, connections: Connections | None = None, **more: Any) -> None:
        super().__init__(*args, **more)
        self._count = connections

    # -- connections ------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn's
        super().connection_made(transport)
        if self._count is None:
            return
        address = self.client[0] if self.client else ""
        refusal = self._count.refusal(address)
        if refusal is not None:
            self._refuse(*refusal)
            return
        self._address = address
        self._count.opened(address)

    def connection_lost(self, exc: Exception | None) -> None:
        self._release()
        super().connection_lost(exc)

    def _release(self) -> None:
        if self._count is not None and self._address is not None:
            self._count.closed(self._address)
            self._address = None

    def handle_websocket_upgrade(self) -> None:
        self._upgraded = True
        super().handle_websocket_upgrade()
        # Another protocol has the connection from here on, and hears of its end.
        protocol: Any = self.transport.get_protocol()
        lost = protocol.connection_lost

        def connection_lost(exc: Exception | None) -> None:
            self._release()
            lost(exc)

        protocol.connection_lost = connection_lost

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._count is not None and not self.pipeline and not self._amid_request() and self._count.crowded:
            self.transport.close()

    def _amid_request(self) -> bool:
        return self._in_body or self._size > 0

    # -- bytes ------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if len(data) <= HEAD_BYTES or self._in_body:
            self._feed(data)
            return
        rest = memoryview(data)
        while rest and not self._upgraded and not self.transport.is_closing():
            # What follows a head in one read is fed at once: bodies are bounded elsewhere.
            part = rest if self._in_body else rest[:HEAD_BYTES]
            rest = rest[len(part) :]
            self._feed(bytes(part))

    def _feed(self, data: bytes) -> None:
        self._progress = False
        super().data_received(data)
        self._idle = 0 if self._progress else self._idle + len(data)
        if self._idle > HEAD_BYTES and not self._upgraded and not self.transport.is_closing():
            self._refuse(*_TOO_LARGE)

    def _grow(self, size: int) -> None:
        self._size += size
        if self._size > HEAD_BYTES or self._fields > HEAD_FIELDS:
            self._excess = True
            raise _Excess

    def _begin(self) -> None:
        self._progress, self._size, self._fields = True, 0, 0

    def on_message_begin(self) -> None:
        self._begin()
        self._in_body = False
        if len(self.pipeline) >= PIPELINED:
            self._excess = True
            raise _Excess
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._grow(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._fields += 1
        self._grow(len(name) + len(value) + 4)
        if not self._in_body:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._begin()
        self._in_body = True
        super().on_headers_complete()

    def on_chunk_header(self) -> None:
        self._progress = True

    def on_body(self, body: bytes) -> None:
        self._progress = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._begin()
        self._in_body = False
        super().on_message_complete()

    # -- refusing ---------------------------------------------------------------------------------------

    def send_400_response(self, msg: str) -> None:
        if self._excess:
            self._refuse(*_TOO_LARGE)
        else:
            super().send_400_response(msg)

    def _refuse(self, status: str, reason: str) -> None:
        """End a connection with an answer, if none is under way."""
        if self.cycle is None or self.cycle.response_complete:
            code, _, title = status.partition(" ")
            problem = {"type": "about:blank", "title": title, "status": int(code), "detail": reason}
            text = msgspec.json.encode(problem)
            self.transport.write(
                b"HTTP/1.1 %b\r\ncontent-type: application/problem+json\r\ncontent-length: %d\r\n"
                b"connection: close\r\n\r\n%b" % (status.encode(), len(text), text)
            )
            self.transport.close()
        else:
            self.transport.abort()
