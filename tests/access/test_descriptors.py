"""Streams hold connections open: at `ulimit -n 1024` they leave enough descriptors for everybody else."""

from __future__ import annotations

import contextlib
import resource
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from dispatcher.auth.quotas import STREAMS
from edn.client import Client
from tests.network import Network

LIMIT = 1024


@pytest.fixture
def narrow(tmp_path: Path) -> Iterator[Network]:
    running = Network(tmp_path, 1, locked=True)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (LIMIT, hard))
    try:
        running.start()
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4096)), hard))
        yield running
    finally:
        running.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_streams_leave_descriptors_for_others(narrow: Network) -> None:
    with Client(narrow.url, key=narrow.secret) as operator:
        key = operator.create_key("reader", ["subscribe"], tenant="acme").key or ""
        many = operator.create_key("reader", ["subscribe"], tenant="acme", quota={"streams": LIMIT}).key or ""
        admin = operator.create_key("admin", ["admin"], tenant="acme").key
        other = operator.create_key("other", ["admin"], tenant="other").key
    with Client(narrow.url, key=admin) as owner:
        owner.create_topic("t", {"n": "number"})
        id = owner.subscribe("t").id
    where = urlsplit(narrow.url)

    def open_stream(stack: contextlib.ExitStack, token: str) -> int:
        connection = socket.create_connection((where.hostname, where.port), timeout=30)
        stack.enter_context(connection)
        fields = f"host: localhost\r\nauthorization: Bearer {token}\r\n"
        connection.sendall(f"GET /v1/subscriptions/{id}/events HTTP/1.1\r\n{fields}\r\n".encode())
        return int(connection.recv(4096).split()[1])

    with contextlib.ExitStack() as stack:
        said = [open_stream(stack, key) for _ in range(STREAMS + 5)]
        assert said == [200] * STREAMS + [429] * 5
        said = [open_stream(stack, many) for _ in range(LIMIT // 2)]
        assert set(said) == {200, 503}
        assert said.index(503) >= 100
        headers = {"authorization": f"Bearer {other}"}
        with contextlib.ExitStack() as others:
            for _ in range(60):  # a connection each
                http = others.enter_context(httpx.Client(base_url=narrow.url, headers=headers, timeout=30))
                assert http.get("/v1/topics").status_code == 200
        with Client(narrow.url, key=other) as quiet:
            quiet.create_topic("t", {"n": "number"})
            quiet.subscribe("t")
            quiet.publish("t", {"n": 1})
