"""Access rules on real processes: quotas under concurrency, a server's port, metrics, revoked streams."""

from __future__ import annotations

import concurrent.futures
import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import websockets.exceptions
from websockets.sync.client import connect

from edn.client import Client
from tests.network import Network, until
from tests.network.processes import Process

SERVERS = 1
LOCKED = True
TOPIC = "quotes"

Make = Callable[..., str]


@pytest.fixture(scope="module")
def make(network: Network) -> Iterator[Make]:
    """Make a key of the tenant `acme`, which has a topic."""
    with Client(network.url, key=network.secret) as operator:

        def create(*scopes: str, tenant: str = "acme", **more: Any) -> str:
            key = operator.create_key("app", scopes, tenant=tenant, **more).key
            assert key is not None
            return key

        with Client(network.url, key=create("admin")) as admin:
            admin.create_topic(TOPIC, {"price": "number", "size": "number"})
        yield create


@pytest.fixture(scope="module")
def server(network: Network) -> Process:
    return network.servers["s1"]


def bearer(key: str, **more: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}", **more}


def audited(network: Network) -> list[dict[str, Any]]:
    lines = (Path(network.folder) / "dispatcher" / "audit.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize("limit", ["subscriptions", "predicates"])
@pytest.mark.parametrize("where", ["dispatcher", "server"])
def test_calls_at_the_same_time_stay_within_a_quota_together(
    network: Network, server: Process, make: Make, limit: str, where: str
) -> None:
    tenant = f"race-{limit}-{where}"
    with Client(network.url, key=make("admin", tenant=tenant)) as admin:
        admin.create_topic(TOPIC, {"price": "number", "size": "number"})
        key = make("subscribe", tenant=tenant, quota={limit: 3})
        url = network.url if where == "dispatcher" else server.url

        def subscribe(number: int) -> int:
            body = {"topic": TOPIC, "filter": {"price": number}}
            return http.post("/v1/subscriptions", json=body).status_code

        with (
            httpx.Client(base_url=url, headers=bearer(key), timeout=60) as http,
            concurrent.futures.ThreadPoolExecutor(20) as pool,
        ):
            said = list(pool.map(subscribe, range(60)))
        assert sorted(set(said)) == [201, 429]
        assert said.count(201) == 3
        kept = list(admin.subscriptions())
        assert len(kept) == 3
        # A change of a filter is counted, too.
        with httpx.Client(base_url=url, headers=bearer(key), timeout=60) as http:
            more = http.put(
                f"/v1/subscriptions/{kept[0].id}", json={"filter": {"price": 1, "size": {"gt": 2}}}
            )
            assert more.status_code == (429 if limit == "predicates" else 200), more.text


def test_a_servers_port_asks_for_the_same_as_the_dispatcher(
    network: Network, server: Process, make: Make
) -> None:
    body = {"topic": TOPIC, "filter": {"price": {"gt": 0}}}
    with httpx.Client(base_url=server.url, timeout=60) as http:
        slow = bearer(make("subscribe", quota={"requests_per_second": 0.5}))
        said = [http.post("/v1/subscriptions", json=body, headers=slow).status_code for _ in range(6)]
        assert said[0] == 201
        assert said[-1] == 429
        small = bearer(make("subscribe", quota={"body": 30}))
        assert http.post("/v1/subscriptions", json=body, headers=small).status_code == 413
        assert http.get("/v1/subscriptions", headers=small).status_code == 200
        publisher = bearer(make("publish"))
        assert http.post("/v1/subscriptions", json=body, headers=publisher).status_code == 403
        before = len(audited(network))
        good = bearer(make("subscribe"))
        made = http.post("/v1/subscriptions", json=body, headers=good)
        assert made.status_code == 201
        path = f"/v1/subscriptions/{made.json()['id']}"
        assert http.delete(path, headers=good).status_code == 204
        assert http.post("/v1/subscriptions", json=body, headers=bearer("wrong")).status_code == 401
        assert http.get("/v1/subscriptions", headers=bearer("wrong")).status_code == 401
        assert http.post("/v1/subscriptions", json={**body, "topic": "none"}, headers=good).status_code == 404
        lines = [line for line in audited(network)[before:] if not line["path"].startswith("/v1/keys")]
    seen = [(line["what"], line["method"], line["path"], line["status"]) for line in lines]
    assert seen == [
        ("called", "POST", "/v1/subscriptions", 201),
        ("called", "DELETE", path, 204),
        ("refused", "POST", "/v1/subscriptions", 401),
        ("refused", "GET", "/v1/subscriptions", 401),
        ("called", "POST", "/v1/subscriptions", 404),
    ]
    assert {line["from"] for line in lines} == {"127.0.0.1"}


def test_the_audit_has_the_address_of_a_servers_client(network: Network, server: Process, make: Make) -> None:
    transport = httpx.HTTPTransport(local_address="127.0.0.7")
    with httpx.Client(base_url=server.url, timeout=60, transport=transport) as http:
        forged = {"x-edn-client": "8.8.8.8", "x-edn-via": "1"}
        http.get("/v1/subscriptions", headers=bearer("wrong", **forged))
        http.post("/v1/subscriptions", json={}, headers=bearer("wrong", **forged))
    assert [line["from"] for line in audited(network)[-2:]] == ["127.0.0.7"] * 2
    httpx.get(f"{network.url}/v1/subscriptions", headers=bearer("wrong", **forged))
    assert audited(network)[-1]["from"] == "127.0.0.1", "whoever has no secret cannot name another address"


def test_metrics_of_all_processes_want_a_key_for_them(network: Network, server: Process, make: Make) -> None:
    good = [make("metrics", tenant=""), make("admin", tenant=""), network.secret]
    bad = [make("admin"), make("publish", tenant=""), make("subscribe", tenant="")]
    for url in (network.url, server.url):
        for key in good:
            answer = httpx.get(f"{url}/metrics", headers=bearer(key))
            assert answer.status_code == 200
            assert "edn_" in answer.text
        assert [httpx.get(f"{url}/metrics", headers=bearer(key)).status_code for key in bad] == [403] * 3
        assert httpx.get(f"{url}/metrics", headers=bearer("wrong")).status_code == 401
        assert httpx.get(f"{url}/metrics").status_code == 401


def test_metrics_are_read_while_the_dispatcher_is_away_by_a_key_that_was_good(
    network: Network, server: Process, make: Make
) -> None:
    known, unknown = bearer(make("metrics", tenant="")), bearer(make("metrics", tenant=""))
    assert httpx.get(f"{server.url}/metrics", headers=known).status_code == 200
    network.dispatcher.stop()
    try:
        assert httpx.get(f"{server.url}/metrics", headers=known).status_code == 200
        assert httpx.get(f"{server.url}/metrics", headers=unknown).status_code == 503
    finally:
        network.restart_dispatcher()
        network.await_servers("ready", *network.servers)


@pytest.fixture(scope="module")
def stream(network: Network, make: Make) -> str:
    with Client(network.url, key=make("admin")) as admin:
        return admin.subscribe(TOPIC, {"price": {"gt": 0}}).id


def revoked(network: Network, key: str) -> None:
    with Client(network.url, key=network.secret) as operator:
        operator.revoke_key(key.split("_")[1])


def publish(network: Network, make: Make, price: float) -> None:
    with Client(network.url, key=make("publish")) as publisher:
        publisher.publish(TOPIC, {"price": price})


@pytest.mark.parametrize("end", ["revoked", "expired"])
@pytest.mark.parametrize("kind", ["events", "socket", "live"])
def test_an_open_stream_ends_with_its_key(
    network: Network, make: Make, stream: str, kind: str, end: str
) -> None:
    """It ends by itself, silent or not; otherwise the read times out, or there is no end of parts."""
    most = 20 if kind == "live" else 3  # a silent stream says every 15 seconds that it is alive
    tenant = "" if kind == "live" else "acme"
    life = {"expires": "PT1.5S"} if end == "expired" else {}
    key = make("admin", tenant=tenant, **life)
    path = "/v1/live" if kind == "live" else f"/v1/subscriptions/{stream}/events"

    def finish() -> None:
        if end == "revoked":
            revoked(network, key)

    if kind == "socket":
        url = network.url.replace("http:", "ws:") + path
        with connect(url, additional_headers=bearer(key)) as socket:
            finish()
            with contextlib.suppress(websockets.exceptions.ConnectionClosed):
                while True:
                    socket.recv(timeout=20)
    else:
        with httpx.stream("GET", network.url + path, headers=bearer(key), timeout=20) as response:
            assert response.status_code == 200
            parts = response.iter_raw()
            next(parts)
            finish()
            assert sum(1 for _ in zip(parts, range(most), strict=False)) < most
    assert httpx.get(f"{network.url}/v1/topics", headers=bearer(key)).status_code == 401


def test_a_stream_goes_on_while_its_key_is_good(network: Network, make: Make, stream: str) -> None:
    key = bearer(make("subscribe"))
    url = f"{network.url}/v1/subscriptions/{stream}/events"
    with httpx.stream("GET", url, headers=key, timeout=30) as response:
        parts = response.iter_raw()
        next(parts)
        revoked(network, make("subscribe"))  # another's
        for price in (41.0, 42.0):
            publish(network, make, price)
            seen = b""
            while b'"price":%g' % price not in seen:
                seen += next(parts)


def test_a_key_reads_as_many_streams_as_its_quota_says(network: Network, make: Make, stream: str) -> None:
    key = bearer(make("subscribe", quota={"streams": 2}))
    url = f"{network.url}/v1/subscriptions/{stream}/events"
    with contextlib.ExitStack() as stack:
        for _ in range(2):
            held = stack.enter_context(httpx.stream("GET", url, headers=key, timeout=30))
            assert held.status_code == 200
        refused = httpx.get(url, headers=key)
        assert refused.status_code == 429
        assert "retry-after" in refused.headers
        with pytest.raises(websockets.exceptions.InvalidStatus) as status:
            connect(url.replace("http:", "ws:"), additional_headers=key)
        assert status.value.response.status_code == 429
        with httpx.stream("GET", url, headers=bearer(make("subscribe")), timeout=30) as another:
            assert another.status_code == 200

    def opened() -> bool:
        with httpx.stream("GET", url, headers=key, timeout=30) as response:
            return response.status_code == 200

    until("the place of a stream that ended", opened)


@pytest.mark.parametrize("origin", ["http://evil.example", "null"])
def test_a_websocket_of_a_foreign_page_is_refused(
    network: Network, make: Make, stream: str, origin: str
) -> None:
    url = network.url.replace("http:", "ws:") + f"/v1/subscriptions/{stream}/events"
    key = bearer(make("subscribe"))
    with pytest.raises(websockets.exceptions.InvalidStatus) as refused:
        connect(url, additional_headers=key, origin=origin)  # type: ignore[arg-type]
    assert refused.value.response.status_code == 403
    with connect(url, additional_headers=key, origin=network.url):  # type: ignore[arg-type]
        pass
