"""A malformed request is refused with a problem that names the place; it stores nothing and harms nothing."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from edn import protocol
from tests.hostile.requests import ATTRIBUTES, SINK, TABLE, Bad
from tests.network import Network, Receiver, until

SERVERS = 1


@pytest.fixture(scope="module")
def door(network: Network) -> Iterator[httpx.Client]:
    """A client of a network that has a topic, a subscription and an event."""
    http = network.http
    assert http.put("/v1/topics/stocks", json={"attributes": ATTRIBUTES}).status_code == 201
    closed = {"attributes": ATTRIBUTES, "closed": True}
    assert http.put("/v1/topics/closed", json=closed).status_code == 201
    assert http.put("/v1/topics/other", json={"attributes": {"a": "string"}}).status_code == 201
    kept = {"id": "kept", "topic": "stocks", "filter": {"price": {"gt": 1e6}}, "sink": SINK}
    assert http.post("/v1/subscriptions", json=kept).status_code == 201
    taken = {"$id": "taken", "price": 1}
    assert http.post("/v1/topics/stocks/events", json=taken).status_code == 202
    yield http
    assert network.dispatcher.alive()
    assert all(server.alive() for server in network.servers.values())


def stored(http: httpx.Client) -> Any:
    """All that a refused request could have changed."""
    subscriptions = http.get("/v1/subscriptions").json()
    published = http.get("/v1/servers").json()["published"]
    tuning, link = http.get("/v1/tuning").json(), http.get("/v1/link").json()
    held = tuning["mode"], tuning["precision"], tuning["history"], link["bytes_per_second"], link["lag_limit"]
    return http.get("/v1/topics").json(), subscriptions, published, held


def assert_problem(answer: httpx.Response, status: int) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem: dict[str, Any] = answer.json()
    assert problem["status"] == status
    assert problem["title"]
    assert problem["type"]
    return problem


def test_the_table_is_long_and_each_row_is_named_once() -> None:
    assert len(TABLE) >= 60
    assert len({bad.name for bad in TABLE}) == len(TABLE)


@pytest.mark.parametrize("bad", TABLE, ids=lambda bad: bad.name)
def test_a_malformed_request_is_refused_and_stores_nothing(
    network: Network, door: httpx.Client, bad: Bad
) -> None:
    before = stored(door)
    headers = {
        name: value.replace("SECRET", f"Bearer {network.secret}") for name, value in bad.headers.items()
    }
    answer = door.request(bad.method, bad.path, content=bad.content(), headers=headers)
    problem = assert_problem(answer, bad.status)
    assert bad.says.lower() in problem["detail"].lower()
    assert len(problem["detail"]) < 1000, "a problem is for people: it repeats no whole request"
    if bad.pointer is not None:
        assert [error["pointer"] for error in problem["errors"]] == [bad.pointer]
    assert stored(door) == before
    if bad.status == 405:
        assert answer.headers["allow"]


def exchange(network: Network, request: bytes) -> bytes:
    """What the dispatcher answers to raw bytes, up to the end of the connection or of its patience."""
    host, _, port = network.url.removeprefix("http://").rpartition(":")
    with socket.create_connection((host, int(port)), timeout=5) as connection:
        connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        answer = b""
        while data := connection.recv(65536):
            answer += data
        return answer


PUBLISH = b"POST /v1/topics/stocks/events HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # the beginning of TLS
        b"NONSENSE\r\n\r\n",
        b"BREW /v1/topics HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/9.9\r\nHost: x\r\n\r\n",
        PUBLISH + b"Content-Length: abc\r\n\r\n{}",
        PUBLISH + b"Content-Length: -1\r\n\r\n{}",
        PUBLISH + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
        PUBLISH + b"Content-Length: 100\r\n\r\n{}",
        PUBLISH + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
        PUBLISH + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n",
        PUBLISH + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        b"GET /v1/topics HTTP/1.1\r\nHost: x\r\nbad header\r\n\r\n",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
    ids=lambda value: repr(value[:90]) if isinstance(value, bytes) else None,
)
def test_broken_framing_is_refused_or_dropped_and_stores_nothing(
    network: Network, door: httpx.Client, request_bytes: bytes
) -> None:
    before = stored(door)
    answer = exchange(network, request_bytes)
    assert not answer.startswith(b"HTTP/1.1 2"), answer[:200]
    assert not answer.startswith(b"HTTP/1.1 5"), answer[:200]
    assert stored(door) == before


def test_a_body_without_end_is_cut_off(network: Network, door: httpx.Client) -> None:
    before = stored(door)

    def endless() -> Iterator[bytes]:
        yield b'{"symbol": "'
        for _ in range(64):
            yield b"x" * 65536

    try:
        answer = door.post(
            "/v1/topics/stocks/events", content=endless(), headers={"content-type": "application/json"}
        )
        assert_problem(answer, 413)
    except (httpx.WriteError, httpx.ReadError):
        pass  # it was told while it was still talking
    assert stored(door) == before


def test_a_second_server_of_a_known_id_is_refused(network: Network, door: httpx.Client) -> None:
    impostor = protocol.Register(
        id="s1",
        url="http://127.0.0.1:9",
        key="another key, as long as it must be",
        epoch=1,
        cursors={},
        subscriptions=0,
    )
    secret = {"authorization": f"Bearer {network.secret}"}
    answer = door.post("/internal/servers", content=protocol.encode(impostor), headers=secret)
    problem = assert_problem(answer, 409)
    assert "s1" in problem["detail"]
    assert network.states() == {"s1": "ready"}


@pytest.mark.parametrize(
    ("method", "path", "authorized", "status"),
    [
        ("POST", "/internal/subscriptions", False, 401),
        ("POST", "/internal/stream", False, 401),
        ("GET", "/internal/summary", False, 401),
        ("GET", "/internal/stats", False, 401),
        ("POST", "/internal/subscriptions", True, 400),
        ("POST", "/internal/stream", True, 400),
        ("GET", "/internal/stream", True, 405),
        ("GET", "/nowhere", True, 404),
    ],
)
def test_a_server_refuses_what_is_not_the_networks(
    network: Network, door: httpx.Client, method: str, path: str, authorized: bool, status: int
) -> None:
    headers = {"authorization": f"Bearer {network.secret if authorized else 'x' * 30}"}
    content = b"\xc1garbage" if method == "POST" else None
    answer = httpx.request(method, network.servers["s1"].url + path, headers=headers, content=content)
    assert_problem(answer, status)


def test_a_frame_of_a_stranger_is_refused_and_the_stream_goes_on(
    network: Network, door: httpx.Client, receiver: Receiver
) -> None:
    """A frame that begins beyond the cursor must not move it, whoever sends it."""
    secret = {"authorization": f"Bearer {network.secret}"}
    url = network.servers["s1"].url
    before = httpx.get(f"{url}/internal/stats", headers=secret).json()
    (log,) = before["cursors"]
    ahead = protocol.Frame(log=log, incarnation=1, after=10**9, upto=10**9 + 1, controls=[], segments=[])
    answer = httpx.post(f"{url}/internal/stream", content=protocol.encode(ahead), headers=secret)
    assert answer.status_code == 409
    assert httpx.get(f"{url}/internal/stats", headers=secret).json()["cursors"].keys() == {log}
    works(door, receiver, "after-the-stranger")


def works(http: httpx.Client, receiver: Receiver, name: str) -> None:
    body = {
        "id": name,
        "topic": "stocks",
        "filter": {"symbol": name},
        "sink": {"url": receiver.address(name)},
    }
    assert http.post("/v1/subscriptions", json=body).status_code == 201
    assert http.post("/v1/topics/stocks/events", json={"$id": name, "symbol": name}).status_code == 202
    until("its notification", lambda: receiver.webhook_ids().keys() >= {(name, name)})
    assert http.delete(f"/v1/subscriptions/{name}").status_code == 204


def test_after_all_that_the_network_works(network: Network, door: httpx.Client, receiver: Receiver) -> None:
    works(door, receiver, "after-all-that")
    answer = door.delete("/v1/topics/stocks", params={"cascade": "true"})
    assert answer.status_code == 204
    assert door.get("/v1/subscriptions/kept").status_code == 404
