"""Heads, trailers and connections without end, without a key, on real processes: memory does not grow."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import psutil
import pytest

from tests.network import Network
from tests.network.processes import until

SERVERS = 1
LOCKED = True
#: bytes by which a process may grow while a client floods it
MOST_GROWTH = 8 << 20
FLOOD = 60_000_000

_GET = b"GET /v1/topics HTTP/1.1\r\nhost: 127.0.0.1\r\n"
_CHUNKED = b"POST /v1/topics/t/events HTTP/1.1\r\nhost: 127.0.0.1\r\ntransfer-encoding: chunked\r\n\r\n"


def repeated(part: bytes) -> Iterator[bytes]:
    block = part * (1 + 65_536 // len(part))
    for _ in range(1 + FLOOD // len(block)):
        yield block


#: what is sent first, and what is sent again and again after it
FLOODS = {
    "many small fields": (_GET, b"x-a: b\r\n"),
    "one field without end": (_GET + b"x-a: ", b"b" * 65_536),
    "a field name without end": (_GET, b"b" * 65_536),
    "a request line without end": (b"GET /", b"b" * 65_536),
    "a method without end": (b"", b"G" * 65_536),
    "empty lines before a request": (b"", b"\r\n" * 32_768),
    "a chunk size without end": (_CHUNKED, b"0" * 65_536),
    "a chunk extension without end": (_CHUNKED + b"1;a=", b"b" * 65_536),
    "many trailer fields": (_CHUNKED + b"0\r\n", b"x-a: b\r\n"),
    "one trailer field without end": (_CHUNKED + b"0\r\nx-a: ", b"b" * 65_536),
    "trailers of a body that was refused": (_CHUNKED + b"2\r\n{}\r\n0\r\n", b"x-a: b\r\n"),
    "pipelined requests": (b"", _GET + b"\r\n"),
}


def flood(url: str, first: bytes, part: bytes) -> tuple[int, bytes]:
    """Send until the other side ends the connection; bytes that it took, and its answer."""
    parts = urlsplit(url)
    sent, answer = 0, b""
    with socket.create_connection((parts.hostname, parts.port), timeout=20) as connection:
        with contextlib.suppress(ConnectionError):
            connection.sendall(first)
            for block in repeated(part):
                connection.sendall(block)
                sent += len(block)
        with contextlib.suppress(ConnectionError):
            while more := connection.recv(65_536):
                answer += more
    return sent, answer


@pytest.mark.parametrize("kind", FLOODS)
def test_a_head_without_end_is_refused_and_takes_no_memory(network: Network, kind: str) -> None:
    first, part = FLOODS[kind]
    for process in (network.dispatcher, *network.servers.values()):
        measured = psutil.Process(process.pid)
        before = measured.memory_info().rss
        sent, _ = flood(process.url, first, part)
        grown = measured.memory_info().rss - before
        assert sent < FLOOD / 4, f"{process.name} took {sent} bytes"
        assert grown <= MOST_GROWTH, f"{process.name} grew by {grown} bytes"


def test_the_answer_says_what_is_too_large(network: Network) -> None:
    parts = urlsplit(network.url)
    for head in (_GET + b"x-a: b\r\n" * 101 + b"\r\n", _GET + b"x-a: " + b"b" * 65_536 + b"\r\n\r\n"):
        with socket.create_connection((parts.hostname, parts.port), timeout=20) as connection:
            connection.sendall(head)
            answer = connection.recv(65_536)
            assert answer.startswith(b"HTTP/1.1 431 "), answer[:200]
            assert b"at most 65536 bytes in 100 fields" in answer


def test_large_bodies_and_ordinary_trailers_pass(network: Network) -> None:
    """A megabyte in one piece, in chunks of one byte, and with a trailer that names another caller."""
    http = network.http
    assert http.put("/v1/topics/large", json={"attributes": {"a": "string"}}).status_code == 201
    event = b'{"a": "%b"}' % (b"x" * 1_000_000)
    assert http.post("/v1/topics/large/events", content=event).status_code == 202
    small = iter([b"{", b'"a"', *(b"%c" % byte for byte in b': "' + b"x" * 20_000 + b'"'), b"}"])
    assert http.post("/v1/topics/large/events", content=small).status_code == 202
    parts = urlsplit(network.url)
    trailer = b"authorization: Bearer %b\r\n" % network.secret.encode()
    request = _CHUNKED.replace(b"/t/", b"/large/") + b'8\r\n{"a":""}\r\n0\r\n' + trailer + b"\r\n"
    with socket.create_connection((parts.hostname, parts.port), timeout=20) as connection:
        connection.sendall(request)
        assert connection.recv(65_536).startswith(b"HTTP/1.1 401 "), (
            "a trailer passed for a field of the head"
        )


def test_loopback_clients_have_no_limit_of_connections(network: Network) -> None:
    parts = urlsplit(network.url)
    with contextlib.ExitStack() as stack:
        for _ in range(300):
            stack.enter_context(socket.create_connection((parts.hostname, parts.port), timeout=20))
        assert network.http.get("/v1/topics").status_code == 200


def test_connections_of_one_address_are_bounded_where_it_is_no_proxy(network: Network) -> None:
    network.dispatcher.stop()
    limits = ["--connections-per-address", "20", "--uncounted-clients", "127.0.0.1"]
    network.dispatcher._arguments += limits
    try:
        network.restart_dispatcher()
        parts = urlsplit(network.url)

        def connect(address: str) -> socket.socket:
            return socket.create_connection(
                (parts.hostname, parts.port), timeout=20, source_address=(address, 0)
            )

        with contextlib.ExitStack() as stack:
            held = [stack.enter_context(connect("127.0.0.2")) for _ in range(20)]
            for _ in range(3):
                with connect("127.0.0.2") as refused:
                    assert refused.recv(65_536).startswith(b"HTTP/1.1 429 ")
            for address in ("127.0.0.1", "127.0.0.3"):
                with connect(address) as another:
                    another.sendall(b"GET /livez HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
                    assert another.recv(65_536).startswith(b"HTTP/1.1 200 ")
            held[0].close()

            def room() -> bool:
                with connect("127.0.0.2") as another:
                    another.sendall(b"GET /livez HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
                    return another.recv(65_536).startswith(b"HTTP/1.1 200 ")

            until("the place of a connection that ended", room)
    finally:
        network.dispatcher.stop()
        del network.dispatcher._arguments[-len(limits) :]
        network.restart_dispatcher()
        network.await_servers("ready", *network.servers)
