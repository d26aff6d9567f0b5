"""Streams with an EventSource client (httpx-sse) and a WebSocket client (websockets), as they come."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import httpx
import httpx_sse
import psutil
import pytest
import websockets.exceptions
from websockets.sync.client import ClientConnection, connect

from edn.client import Client
from tests.network import Network, Receiver, until

SERVERS = 1
LOCKED = True
TOPIC = "streamed"


@pytest.fixture(scope="module")
def keys(network: Network) -> dict[str, str]:
    made = {}
    with Client(network.url, key=network.secret) as operator:
        for tenant in ("hers", "his"):
            key = operator.create_key("admin", ["admin"], tenant=tenant).key
            assert key is not None
            made[tenant] = key
            with Client(network.url, key=key) as client:
                client.create_topic(TOPIC, {"price": "number"})
    return made


@pytest.fixture
def client(network: Network, keys: dict[str, str]) -> Iterator[Client]:
    with Client(network.url, key=keys["hers"]) as made:
        yield made


@contextlib.contextmanager
def reading(
    network: Network, keys: dict[str, str], id: str, last: str | None = None
) -> Iterator[Iterator[httpx_sse.ServerSentEvent]]:
    headers = {"authorization": f"Bearer {keys['hers']}", **({} if last is None else {"last-event-id": last})}
    with (
        httpx.Client(base_url=network.url, timeout=30, headers=headers) as http,
        httpx_sse.connect_sse(http, "GET", f"/v1/subscriptions/{id}/events") as source,
    ):
        assert source.response.status_code == 200, source.response.read()
        yield source.iter_sse()


def prices(events: Iterator[httpx_sse.ServerSentEvent], count: int) -> tuple[list[float], str]:
    """The next so many, and the last id; comments never come out of the client."""
    found, last = [], ""
    while len(found) < count:
        event = next(events)
        if event.data:  # not what only sets the time to come back
            assert event.event == "message"
            entry = event.json()
            assert entry["topic"] == TOPIC
            found.append(entry["event"]["attributes"]["price"])
            last = event.id
    return found, last


def test_an_event_source_hears_what_matches_in_order_and_live(
    network: Network, keys: dict[str, str], client: Client
) -> None:
    made = client.subscribe(TOPIC, {"price": {"gte": 10}})
    assert made.sink is None
    client.publish_many(TOPIC, [{"price": n} for n in range(5, 15)])
    with reading(network, keys, made.id) as events:
        assert prices(events, 5)[0] == [10, 11, 12, 13, 14]
        client.publish(TOPIC, {"price": 9})
        client.publish(TOPIC, {"price": 20})
        assert prices(events, 1)[0] == [20]
    client.unsubscribe(made.id)


@pytest.mark.parametrize("seen", [1, 3, 7, 10])
def test_who_comes_back_goes_on_after_the_last_id(
    network: Network, keys: dict[str, str], client: Client, seen: int
) -> None:
    """Also inside of what was published, and so is stored, together."""
    made = client.subscribe(TOPIC)
    client.publish_many(TOPIC, [{"price": n} for n in range(5)])
    client.publish_many(TOPIC, [{"price": n} for n in range(5, 10)])
    with reading(network, keys, made.id) as events:
        first, last = prices(events, seen)
    client.publish(TOPIC, {"price": 10})
    with reading(network, keys, made.id, last) as events:
        rest, last = prices(events, 11 - seen)
    assert first + rest == list(range(11))
    # What was passed is gone; what was not is still there for whoever says nothing.
    client.publish(TOPIC, {"price": 11})
    with reading(network, keys, made.id, last) as events:
        assert prices(events, 1)[0] == [11]
    with reading(network, keys, made.id) as events:
        assert prices(events, 1)[0] in ([10], [11])
    client.unsubscribe(made.id)


@pytest.mark.parametrize("restarted", [False, True])
def test_a_second_reader_is_told_what_the_first_has_passed(
    network: Network, keys: dict[str, str], client: Client, restarted: bool
) -> None:
    """Over server-sent events and over a WebSocket, also after a restart of the server."""
    made = client.subscribe(TOPIC)
    ids = []
    with reading(network, keys, made.id) as events:
        # Reading each event before publishing the next stores one event per row. Events that share a row
        # are passed together, so the second reader would rightly receive more of them.
        for price in range(9):
            client.publish(TOPIC, {"price": price})
            ids.append(prices(events, 1)[1])
    early, late = ids[1], ids[6]
    with reading(network, keys, made.id, late) as events:  # the first reader passes 0 to 6
        assert prices(events, 2)[0] == [7, 8]
    if restarted:
        network.servers["s1"].kill()
        network.servers["s1"].start()
        network.servers["s1"].await_ready()
        network.await_servers("ready", "s1")
    with reading(network, keys, made.id, early) as events:
        gap = next(event for event in events if event.data)
        assert gap.event == "gap"
        assert "another reader" in gap.json()["reason"]
        assert prices(events, 2)[0] == [7, 8]
    with socket(network, made.id, keys["hers"], f"?last_event_id={early}") as one:
        line = json.loads(one.recv(timeout=30))
        assert line["event"] == "gap"
        assert [told(one.recv(timeout=30))[0] for _ in range(2)] == [7, 8]
    client.unsubscribe(made.id)


def test_a_stream_lives_through_the_death_of_its_server(
    network: Network, keys: dict[str, str], client: Client
) -> None:
    made = client.subscribe(TOPIC)
    client.publish(TOPIC, {"price": 1})
    with reading(network, keys, made.id) as events:
        assert prices(events, 1)[0] == [1]
        network.servers["s1"].kill()
        with contextlib.suppress(httpx.HTTPError):
            for event in events:
                assert not event.data
    network.servers["s1"].start()
    network.servers["s1"].await_ready()
    network.await_servers("ready", "s1")
    client.publish(TOPIC, {"price": 2})
    with reading(network, keys, made.id) as events:
        found, _ = prices(events, 2)
    assert found == [1, 2]
    client.unsubscribe(made.id)


def test_the_past_and_a_pause_reach_a_stream_too(
    network: Network, keys: dict[str, str], client: Client
) -> None:
    client.create_topic(f"{TOPIC}.kept", {"price": "number"}, availability="forever")
    client.publish(f"{TOPIC}.kept", {"price": 1})
    made = client.subscribe(f"{TOPIC}.kept")
    client.pause(made.id)
    client.publish(f"{TOPIC}.kept", {"price": 2})
    client.resume(made.id)
    client.publish(f"{TOPIC}.kept", {"price": 3})
    with reading(network, keys, made.id) as events:
        found = []
        while len(found) < 3:
            event = next(events)
            if event.data:
                found.append(event.json()["event"]["attributes"]["price"])
    assert found == [1, 2, 3]
    client.unsubscribe(made.id)


def test_a_sink_may_become_a_stream_and_a_stream_a_sink(
    network: Network, keys: dict[str, str], client: Client, receiver: Receiver
) -> None:
    made = client.subscribe(TOPIC, url=receiver.address("turned"))
    path = f"/v1/subscriptions/{made.id}"
    headers = {"authorization": f"Bearer {keys['hers']}"}
    with httpx.Client(base_url=network.url, headers=headers) as http:
        assert http.get(f"{path}/events").status_code == 409
        assert http.put(path, json={}).json()["sink"] is None
        client.publish(TOPIC, {"price": 1})
        with reading(network, keys, made.id) as events:
            assert prices(events, 1)[0] == [1]
        assert http.put(path, json={"sink": {"url": receiver.address("turned")}}).status_code == 200
        client.publish(TOPIC, {"price": 2})
    receiver.await_quiet(1)
    client.unsubscribe(made.id)


@pytest.mark.parametrize(
    ("id", "last", "status"),
    [("nobody", None, 404), (None, "nonsense", 422), (None, "a" * 200, 422)],
)
def test_what_cannot_be_read_is_refused(
    network: Network, keys: dict[str, str], client: Client, id: str | None, last: str | None, status: int
) -> None:
    made = client.subscribe(TOPIC)
    headers = {"authorization": f"Bearer {keys['hers']}", **({} if last is None else {"last-event-id": last})}
    answer = httpx.get(f"{network.url}/v1/subscriptions/{id or made.id}/events", headers=headers)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    client.unsubscribe(made.id)


# -- WebSockets -------------------------------------------------------------------------------------------


def socket(network: Network, id: str, key: str | None, query: str = "") -> ClientConnection:
    url = network.url.replace("http", "ws") + f"/v1/subscriptions/{id}/events{query}"
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    return connect(url, additional_headers=headers, open_timeout=30, proxy=None)


def told(message: str | bytes) -> tuple[float, str]:
    line: dict[str, Any] = json.loads(message)
    return line["data"]["event"]["attributes"]["price"], line["id"]


def test_a_websocket_hears_the_same_and_goes_on_where_it_was(
    network: Network, keys: dict[str, str], client: Client
) -> None:
    made = client.subscribe(TOPIC)
    client.publish_many(TOPIC, [{"price": n} for n in range(3)])
    with socket(network, made.id, keys["hers"]) as one:
        assert told(one.recv(timeout=30))[0] == 0
        price, last = told(one.recv(timeout=30))
        assert price == 1
    with socket(network, made.id, keys["hers"], f"?last_event_id={last}") as one:
        assert told(one.recv(timeout=30))[0] == 2
        client.publish(TOPIC, {"price": 3})
        assert told(one.recv(timeout=30))[0] == 3
    client.unsubscribe(made.id)


def test_a_websocket_is_refused_like_any_other_call(
    network: Network, keys: dict[str, str], client: Client
) -> None:
    made = client.subscribe(TOPIC)
    with Client(network.url, key=keys["hers"]) as admin:
        weak = admin.create_key("weak", ["publish"], tenant="hers").key
    for id, key, status in (
        (made.id, None, 401),
        (made.id, "wrong", 401),
        (made.id, weak, 403),
        (made.id, keys["his"], 404),
        ("nobody", keys["hers"], 404),
    ):
        with pytest.raises(websockets.exceptions.InvalidStatus) as refused:
            socket(network, id, key)
        assert refused.value.response.status_code == status, (id, status)
    client.unsubscribe(made.id)


def test_a_stream_says_when_its_subscription_ends(
    network: Network, keys: dict[str, str], client: Client
) -> None:
    made = client.subscribe(TOPIC)
    with socket(network, made.id, keys["hers"]) as one:
        client.unsubscribe(made.id)
        assert json.loads(one.recv(timeout=60))["event"] == "end"
        with pytest.raises(websockets.exceptions.ConnectionClosed):
            one.recv(timeout=30)


@pytest.mark.parametrize("topic", [TOPIC, f"{TOPIC}.**"])
def test_readers_who_leave_leave_no_connection_behind(
    network: Network, keys: dict[str, str], client: Client, topic: str
) -> None:
    """A dispatcher reads a stream from its server over connections of its own, one per topic."""
    made = client.subscribe(topic)
    port = int(network.servers["s1"].url.rpartition(":")[2])

    def connections() -> int:
        found = psutil.Process(network.dispatcher.pid).net_connections("tcp")
        return sum(bool(one.raddr) and one.raddr.port == port for one in found)

    before = connections()
    for number in range(10):
        with reading(network, keys, made.id) as events:
            client.publish(TOPIC, {"price": number})
            next(events)
    # The dispatcher's own connections come and go.
    until("connections to be closed", lambda: connections() <= before + 3)
    client.unsubscribe(made.id)
