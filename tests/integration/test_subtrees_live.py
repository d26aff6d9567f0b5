"""A subscription to a subtree on real processes: every event of every topic once, whatever dies meanwhile."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import httpx
import httpx_sse
import pytest
from websockets.sync.client import connect

from tests.integration.scenario import assert_exactly, publish, settle
from tests.network import Network, Receiver, until
from tests.network.moving import await_moves, move

SERVERS = 2


@pytest.fixture(autouse=True)
def clean(network: Network) -> Iterator[None]:
    yield
    for one in network.http.get("/v1/subscriptions").json()["subscriptions"]:
        network.http.delete(f"/v1/subscriptions/{one['id']}")
    for topic in network.http.get("/v1/topics").json()["topics"]:
        network.http.delete(f"/v1/topics/{topic['name']}?cascade=true")


def create(network: Network, *names: str) -> None:
    for name in names:
        answer = network.http.put(f"/v1/topics/{name}", json={"attributes": {"n": "integer"}})
        assert answer.status_code == 201, answer.text


def subscribe(network: Network, id: str, topic: str, url: str | None, **more: Any) -> dict[str, Any]:
    sink = {} if url is None else {"sink": {"url": url}}
    answer = network.http.post("/v1/subscriptions", json={"id": id, "topic": topic, **sink, **more})
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


def shown(network: Network, id: str) -> dict[str, Any]:
    found: dict[str, Any] = network.http.get(f"/v1/subscriptions/{id}").json()
    return found


def spread(network: Network, id: str) -> dict[str, str]:
    """Have its members on both servers, whatever the policy thought of it; topic → server."""
    members = network.http.get("/v1/subscriptions?members=true").json()["subscriptions"]
    own = [one["id"] for one in members if one["id"].startswith(f"{id}+")]
    move(network.http, {one: f"s{place % 2 + 1}" for place, one in enumerate(own)})
    return {one["topic"]: one["server"] for one in shown(network, id)["topics"]}


def arrived(receiver: Receiver, *ids: str) -> dict[tuple[str, str], set[str]]:
    return {pair: hooks for pair, hooks in receiver.webhook_ids().items() if pair[0] in ids}


def test_three_topics_one_of_them_later_and_two_deaths(network: Network, receiver: Receiver) -> None:
    create(network, "stocks.nyse", "stocks.tokyo", "bonds")
    subscribe(network, "deaths", "stocks.**", receiver.address("deaths"), filter="n > 0")
    assert set(spread(network, "deaths").values()) == {"s1", "s2"}
    wanted: list[str] = []

    def tell(*topics: str) -> None:
        for topic in topics:
            wanted.extend(publish(network.http, topic, [{"n": n} for n in range(1, 21)]))
            publish(network.http, topic, {"n": 0})

    tell("stocks.nyse", "stocks.tokyo")
    publish(network.http, "bonds", {"n": 1})
    network.dispatcher.kill()
    network.restart_dispatcher()
    network.await_servers("ready", "s1", "s2")
    create(network, "stocks")  # the topic that the subtree is named after is in it
    tell("stocks", "stocks.nyse", "stocks.tokyo")
    network.servers["s1"].kill()
    tell("stocks", "stocks.nyse", "stocks.tokyo")
    # While one is away the other takes what is new.
    network.await_servers("away", "s1")
    create(network, "stocks.london")
    tell("stocks.london", "stocks.nyse")
    network.servers["s1"].start()
    network.servers["s1"].await_ready()
    network.await_servers("ready", "s1")
    tell("stocks", "stocks.nyse", "stocks.tokyo", "stocks.london")
    settle(network)
    assert_exactly(arrived(receiver, "deaths"), {("deaths", event) for event in wanted})
    posts = [delivery for delivery in receiver.deliveries() if delivery.path == "/deaths"]
    told = {entry["topic"] for post in posts for entry in post.body["notifications"]}
    assert told == {"stocks", "stocks.nyse", "stocks.tokyo", "stocks.london"}
    assert network.http.delete("/v1/subscriptions/deaths").status_code == 204
    for topic in told:
        publish(network.http, topic, {"n": 1})
    settle(network)
    assert len(arrived(receiver, "deaths")) == len(wanted)


def test_events_of_a_topic_that_has_just_been_created_are_never_missed(
    network: Network, receiver: Receiver
) -> None:
    subscribe(network, "prompt", "**", receiver.address("prompt"))
    wanted = []
    for number in range(12):
        create(network, f"new.t{number}")
        wanted += publish(network.http, f"new.t{number}", {"n": number})
    settle(network)
    assert_exactly(arrived(receiver, "prompt"), {("prompt", event) for event in wanted})


def test_counters_attempts_and_dead_letters_are_those_of_all_servers(
    network: Network, receiver: Receiver
) -> None:
    create(network, "a.b", "a.c")
    subscribe(network, "counted", "a.**", receiver.address("counted"))
    assert set(spread(network, "counted").values()) == {"s1", "s2"}
    for topic in ("a.b", "a.c"):
        publish(network.http, topic, {"n": 1})
    settle(network)
    delivery = shown(network, "counted")["delivery"]
    assert (delivery["matched"], delivery["delivered"], delivery["state"]) == (2, 2, "healthy")
    attempts = network.http.get("/v1/subscriptions/counted/attempts").json()["attempts"]
    assert [one["outcome"] for one in attempts] == ["delivered", "delivered"]
    assert attempts[0]["time"] >= attempts[1]["time"]
    # At an address that is gone they become letters, on either server, and are told in the end.
    body = {"sink": {"url": receiver.address("status/410/counted")}}
    assert network.http.put("/v1/subscriptions/counted", json=body).status_code == 200
    wanted = [publish(network.http, topic, {"n": 2})[0] for topic in ("a.b", "a.c")]

    def letters(limit: int = 100) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        query: dict[str, Any] = {"subscription": "counted", "limit": limit}
        while True:
            page = network.http.get("/v1/dead-letters", params=query).json()
            found += page["dead_letters"]
            if page["next"] is None:
                return found
            query["after"] = page["next"]

    until("a letter on each server", lambda: len(letters()) == 2)
    assert len({one["id"].split(".")[0] for one in letters(1)}) == 2
    whole = network.http.get(f"/v1/dead-letters/{letters()[0]['id']}").json()
    assert whole["subscriptions"] == ["counted"]
    body = {"sink": {"url": receiver.address("counted")}}
    assert network.http.put("/v1/subscriptions/counted", json=body).status_code == 200
    queued = network.http.post(
        "/v1/subscriptions/counted/recover", json={"since": "2020-01-01T00:00:00Z"}
    ).json()
    assert (queued["letters"], queued["notifications"]) == (2, 2)
    settle(network)
    assert {("counted", event) for event in wanted} <= arrived(receiver, "counted").keys()
    example = network.http.post("/v1/subscriptions/counted/example").json()
    assert (example["outcome"], example["status"]) == ("example", 204)


def test_a_pause_keeps_what_comes_to_any_topic_also_to_new_ones(network: Network, receiver: Receiver) -> None:
    create(network, "p.a", "p.b")
    subscribe(network, "paused", "p.**", receiver.address("paused"))
    network.http.post("/v1/subscriptions/paused/pause").raise_for_status()
    create(network, "p.c")
    wanted = [publish(network.http, f"p.{name}", {"n": 1})[0] for name in "abc"]
    spread(network, "paused")  # what is kept moves along
    until(
        "all events to be read",
        lambda: all(one["lag"] == 0 for one in network.http.get("/v1/servers").json()["servers"]),
    )
    assert arrived(receiver, "paused") == {}
    network.http.post("/v1/subscriptions/paused/resume").raise_for_status()
    settle(network)
    assert_exactly(arrived(receiver, "paused"), {("paused", event) for event in wanted})


def test_a_server_that_is_drained_gives_its_members_to_the_others(
    network: Network, receiver: Receiver
) -> None:
    create(network, "d.a", "d.b")
    subscribe(network, "drained", "d.**", receiver.address("drained"))
    assert set(spread(network, "drained").values()) == {"s1", "s2"}
    wanted = [publish(network.http, f"d.{name}", {"n": 1})[0] for name in "ab"]
    answer = network.http.post("/v1/servers/s1/drain")
    assert answer.status_code == 202, answer.text
    wanted += [publish(network.http, f"d.{name}", {"n": 2})[0] for name in "ab"]
    await_moves(network.http, answer.json()["id"])
    assert {one["server"] for one in shown(network, "drained")["topics"]} == {"s2"}
    wanted += [publish(network.http, f"d.{name}", {"n": 3})[0] for name in "ab"]
    filled = network.http.post("/v1/servers/s1/fill")
    await_moves(network.http, filled.json()["id"])
    settle(network)
    assert_exactly(arrived(receiver, "drained"), {("drained", event) for event in wanted})


# -- streams ----------------------------------------------------------------------------------------------


@contextlib.contextmanager
def reading(network: Network, id: str, last: str | None = None) -> Iterator[Iterator[dict[str, Any]]]:
    headers = {} if last is None else {"last-event-id": last}

    def entries(source: httpx_sse.EventSource) -> Iterator[dict[str, Any]]:
        for event in source.iter_sse():
            if event.data:
                assert event.event == "message"
                yield {"id": event.id, **event.json()}

    with (
        httpx.Client(base_url=network.url, timeout=30, headers=headers) as http,
        httpx_sse.connect_sse(http, "GET", f"/v1/subscriptions/{id}/events") as source,
    ):
        assert source.response.status_code == 200, source.response.read()
        yield entries(source)


def test_an_event_source_hears_a_subtree_and_goes_on_where_it_was(network: Network) -> None:
    create(network, "s.a", "s.b")
    subscribe(network, "stream", "s.**", None)
    assert set(spread(network, "stream").values()) == {"s1", "s2"}
    wanted = {publish(network.http, f"s.{name}", {"n": n})[0] for name in "ab" for n in range(3)}
    heard: list[str] = []
    last = None
    with reading(network, "stream") as events:
        for _ in range(4):
            entry = next(events)
            heard.append(entry["event"]["id"])
            last = entry["id"]
    create(network, "s.c")
    wanted |= {publish(network.http, "s.c", {"n": 9})[0]}
    with reading(network, "stream", last) as events:
        while len(heard) < len(wanted):
            entry = next(events)
            heard.append(entry["event"]["id"])
            last = entry["id"]
        # And live, from a topic that comes while somebody reads.
        create(network, "s.d")
        [late] = publish(network.http, "s.d", {"n": 1})
        assert next(events)["event"]["id"] == late
    assert sorted(heard) == sorted(wanted)
    refused = network.http.get("/v1/subscriptions/stream/events", headers={"last-event-id": "nonsense"})
    assert refused.status_code == 422


def test_a_websocket_hears_the_same_and_the_end(network: Network) -> None:
    create(network, "w.a", "w.b")
    subscribe(network, "socket", "w.**", None)
    wanted = {publish(network.http, f"w.{name}", {"n": 1})[0] for name in "ab"}
    url = network.url.replace("http", "ws") + "/v1/subscriptions/socket/events"
    with connect(url, open_timeout=30, proxy=None) as socket:
        heard = {json.loads(socket.recv(30))["data"]["event"]["id"] for _ in range(2)}
        assert heard == wanted
        network.http.delete("/v1/topics/w.a").raise_for_status()  # the rest goes on
        [more] = publish(network.http, "w.b", {"n": 2})
        assert json.loads(socket.recv(30))["data"]["event"]["id"] == more
        network.http.delete("/v1/subscriptions/socket").raise_for_status()
        assert json.loads(socket.recv(30))["event"] == "end"
