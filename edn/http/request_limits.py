"""Limits of unauthenticated clients: bytes and fields of a head, time of a request, connections.

Theory of operation
-------------------
The parser buffers until something is complete: a field, the head, a chunk's header, a piece of a body, the
message. `_idle` counts the bytes since the last such progress, and beyond `HEAD_BYTES` the connection ends.
One count covers endless heads, endless fields, trailers and chunk extensions. Complete fields are counted
exactly. Trailers are counted and dropped: nothing reads them, and a field after the head must not be mistaken
for one of the head.

uvicorn waits without limit for the rest of a request. One timer per connection runs from the connection's
start, and from the first byte of each request to its last. A request that arrives in one piece never starts
it. Answers have no time limit; between requests uvicorn's keep-alive timeout applies.

`Connections` counts the open connections of a process by client address.
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
from urllib.parse import unquote_to_bytes

import httptools
import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

#: paths that only the network's own processes call
INTERNAL = b"/internal/"
#: bytes of a request line and its fields, complete or not
HEAD_BYTES = 64 << 10
#: fields of a head, and of a trailer
HEAD_FIELDS = 100
#: pipelined requests of one connection that wait for an earlier answer
PIPELINED = 32
#: seconds for a whole request, from its first byte
REQUEST_SECONDS = 30.0
#: open connections per client address; fewer if the process may open few descriptors
PER_ADDRESS = 1000
#: networks without that limit: a proxy on the same machine represents many clients
UNCOUNTED = ("127.0.0.0/8", "::1/128")
#: share of descriptors in use above which no connection is accepted: files and sinks need the rest
_FULL_SHARE = 7 / 8
#: share above which no stream begins and connections close after their answer: other calls need the rest
_CROWDED_SHARE = 3 / 4
#: seconds for which a count of descriptors is cached
_COUNT_SECONDS = 0.1

_TOO_LARGE = (
    "431 Request Header Fields Too Large",
    f"the head of a request must be at most {HEAD_BYTES} bytes in {HEAD_FIELDS} fields",
)
_TOO_MANY = ("429 Too Many Requests", "too many connections from this address")
_NO_CERTIFICATE = (
    "403 Forbidden",
    f"calls to {INTERNAL.decode()} need a certificate of the network's authority (--tls-ca)",
)
_FULL = ("503 Service Unavailable", "too many connections")


def descriptor_limit() -> int:
    """Returns the number of descriptors that this process may open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft if soft != resource.RLIM_INFINITY else 1 << 20


def descriptors() -> int:
    """Counts the open descriptors."""
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def has_room_for_streams() -> bool:
    """Whether enough descriptors are free for a long-lived connection."""
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
        """Returns the share of descriptors in use; 0 while there are few connections."""
        if self._total < self._most // 8:
            return 0.0
        now = time.monotonic()
        if now - self._counted > _COUNT_SECONDS:
            self._used, self._counted = descriptors(), now
        return self._used / self._most

    @property
    def is_crowded(self) -> bool:
        """Whether idle connections must be closed."""
        return self._share() > _CROWDED_SHARE

    def refusal(self, address: str) -> tuple[str, str] | None:
        """Returns the status line and the reason to refuse a connection, or None to accept it."""
        if self._share() > _FULL_SHARE:
            return _FULL
        if self._per_address and self._by_address[address] >= self._per_address and self._is_limited(address):
            return _TOO_MANY
        return None

    def _is_limited(self, address: str) -> bool:
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


class _LimitExceeded(Exception):
    """Stops the parser; the connection is closed."""


class LimitedProtocol(HttpToolsProtocol):
    """uvicorn's protocol with limits on heads, trailers, pipelines, connections and the time of a request."""

    #: bytes since the last progress; bytes and fields of the current head or trailer that are complete
    _idle = 0
    _size = 0
    _fields = 0
    _has_progress = False
    #: a request has begun and is not complete
    _is_receiving = False
    #: the head is complete; its body and trailer follow
    _is_in_body = False
    _is_exceeded = False
    _is_upgraded = False
    #: address under which the connection is counted
    _address: str | None = None
    _timer: asyncio.TimerHandle | None = None

    def __init__(self, *args: Any, connections: Connections | None = None, **more: Any) -> None:
        super().__init__(*args, **more)
        self._connections = connections

    # -- connections ------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn's
        super().connection_made(transport)
        self._start_timer()
        if self._connections is None:
            return
        address = self.client[0] if self.client else ""
        refusal = self._connections.refusal(address)
        if refusal is not None:
            self._refuse(*refusal)
            return
        self._address = address
        self._connections.opened(address)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self._release()
        super().connection_lost(exc)

    def _release(self) -> None:
        if self._connections is not None and self._address is not None:
            self._connections.closed(self._address)
            self._address = None

    def handle_websocket_upgrade(self) -> None:
        self._stop_timer()
        self._is_receiving = False
        self._is_upgraded = True
        super().handle_websocket_upgrade()
        # Another protocol owns the connection now, and is notified of its end.
        protocol: Any = self.transport.get_protocol()
        lost = protocol.connection_lost

        def connection_lost(exc: Exception | None) -> None:
            self._release()
            lost(exc)

        protocol.connection_lost = connection_lost

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if (
            self._connections is not None
            and not self.pipeline
            and not self._is_receiving
            and self._connections.is_crowded
        ):
            self.transport.close()

    # -- time -------------------------------------------------------------------------------------------

    def _start_timer(self) -> None:
        self._timer = self.loop.call_later(REQUEST_SECONDS, self._time_out)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _time_out(self) -> None:
        self._timer = None
        if not self.transport.is_closing():
            self.transport.abort()

    # -- bytes ------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if len(data) <= HEAD_BYTES or self._is_in_body:
            self._feed(data)
        else:
            rest = memoryview(data)
            while rest and not self._is_upgraded and not self.transport.is_closing():
                # The part behind a head is fed at once: bodies are limited elsewhere.
                part = rest if self._is_in_body else rest[:HEAD_BYTES]
                rest = rest[len(part) :]
                self._feed(bytes(part))
        if not self._is_receiving:
            self._stop_timer()
        elif self._timer is None:
            self._start_timer()

    def _feed(self, data: bytes) -> None:
        self._has_progress = False
        super().data_received(data)
        self._idle = 0 if self._has_progress else self._idle + len(data)
        if self._idle > HEAD_BYTES and not self._is_upgraded and not self.transport.is_closing():
            self._refuse(*_TOO_LARGE)

    def _grow(self, size: int) -> None:
        self._size += size
        if self._size > HEAD_BYTES or self._fields > HEAD_FIELDS:
            self._exceed()

    def _exceed(self) -> None:
        self._is_exceeded = True
        raise _LimitExceeded

    def _begin(self) -> None:
        self._has_progress, self._size, self._fields = True, 0, 0

    def on_message_begin(self) -> None:
        self._is_receiving = True
        self._begin()
        self._is_in_body = False
        if len(self.pipeline) >= PIPELINED:
            self._exceed()
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._grow(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._fields += 1
        self._grow(len(name) + len(value) + 4)
        if not self._is_in_body:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._begin()
        self._is_in_body = True
        super().on_headers_complete()

    def on_chunk_header(self) -> None:
        self._has_progress = True

    def on_body(self, body: bytes) -> None:
        self._has_progress = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._begin()
        self._is_receiving = self._is_in_body = False
        super().on_message_complete()

    # -- refusals ---------------------------------------------------------------------------------------

    def send_400_response(self, msg: str) -> None:
        if self._is_exceeded:
            self._refuse(*_TOO_LARGE)
        else:
            super().send_400_response(msg)

    def _refuse(self, status: str, reason: str) -> None:
        """Closes the connection, with an answer unless another one is being sent."""
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


class CertifiedProtocol(LimitedProtocol):
    """Refuses calls to the network's own paths on connections without a client certificate."""

    _is_certified = False
    _is_refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn's
        self._is_certified = bool(transport.get_extra_info("peercert"))
        super().connection_made(transport)

    def on_headers_complete(self) -> None:
        if not self._is_certified and self._is_internal():
            self._is_refused = True
            raise _LimitExceeded
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        if self._is_refused:
            self._refuse(*_NO_CERTIFICATE)
        else:
            super().send_400_response(msg)

    def _is_internal(self) -> bool:
        path = httptools.parse_url(self.url).path or b""
        return unquote_to_bytes(path).startswith(INTERNAL)
