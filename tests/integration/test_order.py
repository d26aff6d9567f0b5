"""What a subscriber may rely on: after 201 every event comes, after 204 none, whatever else goes on."""

from __future__ import annotations

import datetime
import itertools
import threading
import time
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from tests.integration.scenario import publish, settle
from tests.network import Network, Receiver, until

SERVERS = 3
TOPIC = "orders"


@pytest.fixture(scope="module", autouse=True)
def topic(network: Network) -> str:
    answer = network.http.put(f"/v1/topics/{TOPIC}", json={"attributes": {"n": "integer", "s": "string"}})
    assert answer.status_code == 201, answer.text
    return TOPIC


def subscribe(network: Network, address: str, filter: Any = None, **more: Any) -> str:
    body = {"topic": TOPIC, "sink": {"url": address}, **({"filter": filter} if filter else {}), **more}
    answer = network.http.post("/v1/subscriptions", json=body)
    assert answer.status_code == 201, answer.text
    assert answer.headers["location"] == f"/v1/subscriptions/{answer.json()['id']}"
    identity: str = answer.json()["id"]
    return identity


def unsubscribe(network: Network, subscription: str) -> None:
    answer = network.http.delete(f"/v1/subscriptions/{subscription}")
    assert answer.status_code == 204, answer.text
    assert answer.content == b""


def arrived(receiver: Receiver, subscription: str) -> list[str]:
    """Event ids in the order of their arrival."""
    return [
        event
        for delivery in receiver.deliveries()
        for matched, event in delivery.pairs()
        if matched == subscription
    ]


def test_an_event_after_201_comes_and_one_after_204_does_not(network: Network, receiver: Receiver) -> None:
    expected = {}
    for _ in range(40):
        publish(network.http, TOPIC, {"n": 1})
        subscription = subscribe(network, receiver.address("rounds"))
        inside = publish(network.http, TOPIC, [{"n": 1}, {"n": 2}])
        unsubscribe(network, subscription)
        publish(network.http, TOPIC, {"n": 3})
        expected[subscription] = inside
    settle(network)
    assert {name: arrived(receiver, name) for name in expected} == expected


def test_a_changed_filter_holds_from_the_answer_on(network: Network, receiver: Receiver) -> None:
    expected = {}
    for _ in range(20):
        address = receiver.address("changes")
        subscription = subscribe(network, address, {"n": {"lt": 10}})
        first = publish(network.http, TOPIC, [{"n": 1}, {"n": 11}])
        body = {"filter": "n >= 10", "sink": {"url": address}}
        answer = network.http.put(f"/v1/subscriptions/{subscription}", json=body)
        assert answer.status_code == 200, answer.text
        second = publish(network.http, TOPIC, [{"n": 2}, {"n": 12}])
        expected[subscription] = [first[0], second[1]]
        unsubscribe(network, subscription)
    settle(network)
    assert {name: arrived(receiver, name) for name in expected} == expected


def test_a_changed_sink_holds_from_the_answer_on(network: Network, receiver: Receiver) -> None:
    subscription = subscribe(network, receiver.address("old-sink"))
    (first,) = publish(network.http, TOPIC, {"n": 1})
    body = {"sink": {"url": receiver.address("new-sink"), "recipient": "me"}}
    assert network.http.put(f"/v1/subscriptions/{subscription}", json=body).status_code == 200
    (second,) = publish(network.http, TOPIC, {"n": 2})
    unsubscribe(network, subscription)
    settle(network)
    places = {
        event: delivery.path
        for delivery in receiver.deliveries()
        for matched, event in delivery.pairs()
        if matched == subscription
    }
    assert places == {first: "/old-sink", second: "/new-sink"}


def read_time(text: str) -> float:
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def test_an_expired_subscription_hears_nothing_more(network: Network, receiver: Receiver) -> None:
    subscription = subscribe(network, receiver.address("expiry"), expires="PT1S")
    inside = publish(network.http, TOPIC, {"n": 1})
    path = f"/v1/subscriptions/{subscription}"
    until("the subscription to end", lambda: network.http.get(path).status_code in (404, 410))
    publish(network.http, TOPIC, {"n": 2})
    settle(network)
    assert arrived(receiver, subscription) == inside


def test_an_event_after_the_expiry_does_not_come_even_at_once(network: Network, receiver: Receiver) -> None:
    subscription = subscribe(network, receiver.address("expiry"), expires="PT1S")
    expires = read_time(network.http.get(f"/v1/subscriptions/{subscription}").json()["expires"])
    until("the instant of expiry", lambda: time.time() > expires, every=0.005)
    publish(network.http, TOPIC, {"n": 2})  # the housekeeping has had no time to notice
    settle(network)
    assert arrived(receiver, subscription) == []


def test_a_renewed_subscription_lives_on(network: Network, receiver: Receiver) -> None:
    subscription = subscribe(network, receiver.address("renewal"), expires="PT1S")
    path = f"/v1/subscriptions/{subscription}"
    first = read_time(network.http.get(path).json()["expires"])
    answer = network.http.post(f"{path}/renew", json={"expires": "PT1H"})
    assert answer.status_code == 200, answer.text
    assert read_time(answer.json()["expires"]) > first + 3000
    until("the first expiry to pass", lambda: time.time() > first + 0.2, every=0.02)
    inside = publish(network.http, TOPIC, {"n": 1})
    settle(network)
    assert arrived(receiver, subscription) == inside
    unsubscribe(network, subscription)


@dataclass(frozen=True)
class Published:
    id: str
    asked: float
    answered: float


class Stream:
    """Publishes without a pause until told to stop, and notes when each event was asked for and answered."""

    def __init__(self, url: str) -> None:
        self.published: list[Published] = []
        self._url = url
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        with httpx.Client(base_url=self._url, timeout=30) as http:
            for number in itertools.count():
                if self._stop.is_set():
                    return
                asked = time.monotonic()
                (name,) = publish(http, TOPIC, {"n": number, "s": "stream"})
                self.published.append(Published(name, asked, time.monotonic()))

    def await_events(self, count: int) -> None:
        until("a few events", lambda: len(self.published) > count, every=0.001)

    def __enter__(self) -> Stream:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def test_subscriptions_amid_a_stream_of_events_get_a_contiguous_part_of_it(
    network: Network, receiver: Receiver
) -> None:
    spans: dict[str, tuple[float, float, float, float]] = {}
    with Stream(network.url) as stream:
        for _ in range(25):
            asked = time.monotonic()
            subscription = subscribe(network, receiver.address("amid"), {"s": "stream"})
            since = time.monotonic()
            seen = len(stream.published)
            stream.await_events(seen + 5)
            ended = time.monotonic()
            unsubscribe(network, subscription)
            spans[subscription] = (asked, since, ended, time.monotonic())
    settle(network)
    order = {one.id: place for place, one in enumerate(stream.published)}
    for subscription, (asked, since, ended, gone) in spans.items():
        came = arrived(receiver, subscription)
        places = [order[event] for event in came]
        assert places == list(range(places[0], places[-1] + 1)), "a hole, a repeat, or out of order"
        for one in stream.published:
            if one.asked > since and one.answered < ended:
                assert one.id in came, "published after 201 and answered before DELETE, but lost"
            if one.answered < asked or one.asked > gone:
                assert one.id not in came, "published outside of the subscription's life"


def test_the_same_event_id_again_is_the_same_event(network: Network, receiver: Receiver) -> None:
    subscription = subscribe(network, receiver.address("again"))
    first = publish(network.http, TOPIC, {"$id": "same", "n": 1})
    again = publish(network.http, TOPIC, {"$id": "same", "n": 1})
    headers = {"idempotency-key": "key"}
    path = f"/v1/topics/{TOPIC}/events"
    answers = [network.http.post(path, json=[{"n": 2}, {"n": 3}], headers=headers).json() for _ in range(2)]
    settle(network)
    assert first == again == ["same"]
    assert answers[0]["ids"] == answers[1]["ids"] == ["key/0", "key/1"]
    assert arrived(receiver, subscription) == ["same", "key/0", "key/1"]
    unsubscribe(network, subscription)


def test_an_address_gets_an_event_once_with_all_recipients(network: Network, receiver: Receiver) -> None:
    address = receiver.address("group")
    bodies = [
        {"topic": TOPIC, "filter": {"s": "group"}, "sink": {"url": address, "recipient": f"r{number}"}}
        for number in range(24)
    ]
    made = network.http.post("/v1/subscriptions", json=bodies).json()["subscriptions"]
    events = publish(network.http, TOPIC, [{"s": "group", "n": number} for number in range(5)])
    settle(network)
    entries: dict[tuple[str, str], list[frozenset[tuple[str, str]]]] = {}
    servers = {one["id"]: one["server"] for one in made}
    for delivery in receiver.deliveries():
        if delivery.path != "/group":
            continue
        for entry in delivery.body["notifications"]:
            assert entry["topic"] == TOPIC
            assert entry["event"]["attributes"]["s"] == "group"
            matches = frozenset((match["subscription"], match["recipient"]) for match in entry["matches"])
            (server,) = {servers[subscription] for subscription, _ in matches}
            entries.setdefault((server, entry["event"]["id"]), []).append(matches)
    recipients = {
        server: frozenset((one["id"], one["sink"]["recipient"]) for one in made if one["server"] == server)
        for server in servers.values()
    }
    assert entries == {(server, event): [recipients[server]] for server in recipients for event in events}
    for one in made:
        unsubscribe(network, one["id"])


def test_an_id_that_has_expired_can_be_taken_again_at_once(network: Network, receiver: Receiver) -> None:
    address = receiver.address("again-after-expiry")
    subscribe(network, address, id="phoenix", expires="PT1S")
    expires = read_time(network.http.get("/v1/subscriptions/phoenix").json()["expires"])
    until("the instant of expiry", lambda: time.time() > expires, every=0.005)
    subscribe(network, address, id="phoenix")  # the housekeeping has had no time to notice
    events = publish(network.http, TOPIC, {"n": 1})
    settle(network)
    assert arrived(receiver, "phoenix") == events
    unsubscribe(network, "phoenix")


def test_an_id_that_was_ended_can_be_taken_again_at_once(network: Network, receiver: Receiver) -> None:
    expected = []
    for number in range(5):
        subscribe(network, receiver.address("reborn"), {"n": number}, id="reborn")
        expected += publish(network.http, TOPIC, [{"n": number}, {"n": number + 1}])[:1]
        unsubscribe(network, "reborn")
    settle(network)
    # Each life may be on another server, and only one server's notifications come in order; none comes twice.
    assert sorted(arrived(receiver, "reborn")) == sorted(expected)


def test_delivery_is_exact_at_every_precision(network: Network, receiver: Receiver) -> None:
    bodies: list[dict[str, Any]] = [
        {
            "id": f"precise-{number}",
            "topic": TOPIC,
            "filter": {"s": "precise", "n": {"between": [number, number + 3]}},
            "sink": {"url": receiver.address("precise")},
        }
        for number in range(0, 120, 2)
    ]
    assert network.http.post("/v1/subscriptions", json=bodies).status_code == 201
    before = network.http.get("/v1/tuning").json()
    expected: dict[str, set[str]] = {body["id"]: set() for body in bodies}
    for precision in (1.0, 0.5, 0.05, 0.0):
        answer = network.http.put("/v1/tuning", json={"mode": "fixed", "precision": precision})
        assert answer.status_code == 200, answer.text
        numbers = list(range(-2, 126, 3))
        names = publish(network.http, TOPIC, [{"s": "precise", "n": number} for number in numbers])
        for name, number in zip(names, numbers, strict=True):
            for low in range(0, 120, 2):
                if low <= number <= low + 3:
                    expected[f"precise-{low}"].add(name)
    settle(network)
    assert {name: set(arrived(receiver, name)) for name in expected} == expected
    restored = {"mode": before["mode"], "precision": before["precision"]}
    assert network.http.put("/v1/tuning", json=restored).status_code == 200
    for body in bodies:
        unsubscribe(network, body["id"])


def test_a_schema_may_grow_and_lose_what_nobody_uses(network: Network, receiver: Receiver) -> None:
    path = "/v1/topics/evolving"

    def define(attributes: dict[str, str], status: int = 200) -> None:
        answer = network.http.put(path, json={"attributes": attributes, "closed": True})
        assert answer.status_code == status, answer.text

    def watch(name: str, written: Any) -> None:
        body = {"id": name, "topic": "evolving", "filter": written, "sink": {"url": receiver.address(name)}}
        assert network.http.post("/v1/subscriptions", json=body).status_code == 201

    define({"a": "integer", "b": "string"}, 201)
    watch("first", {"a": {"gt": 5}})
    one = publish(network.http, "evolving", {"a": 6, "b": "x"})
    define({"a": "integer", "b": "string", "c": "number"})
    watch("second", {"c": {"lt": 1.5}, "a": {"exists": True}})
    watch("lacks", {"c": {"exists": False}})
    two = publish(network.http, "evolving", [{"a": 7, "c": 1.0}, {"a": 1, "c": 1.0}, {"c": 0.0}])
    define({"a": "integer", "c": "number"})  # nobody uses b
    assert network.http.post(f"{path}/events", json={"b": "x"}).status_code == 422
    define({"a": "integer", "c": "number", "b": "boolean"})  # and it comes back as something else
    watch("third", {"b": True})
    three = publish(network.http, "evolving", [{"a": 8, "b": True}, {"b": False, "c": 9}])
    define({"a": "integer", "c": "number"}, 409)
    settle(network)
    assert arrived(receiver, "first") == [*one, two[0], three[0]]
    assert arrived(receiver, "second") == two[:2]
    assert arrived(receiver, "third") == three[:1]
    assert arrived(receiver, "lacks") == three[:1]


def test_a_topic_made_again_has_nothing_of_the_first(network: Network, receiver: Receiver) -> None:
    path = "/v1/topics/again"
    body = {"topic": "again", "sink": {"url": receiver.address("made-again")}}
    assert network.http.put(path, json={"attributes": {"a": "integer"}}).status_code == 201
    old = network.http.post("/v1/subscriptions", json=body).json()["id"]
    first = publish(network.http, "again", {"$id": "one", "a": 1})
    assert network.http.delete(path).status_code == 409
    assert network.http.delete(path, params={"cascade": "true"}).status_code == 204
    assert network.http.put(path, json={"attributes": {"a": "string"}}).status_code == 201
    new = network.http.post("/v1/subscriptions", json=body).json()["id"]
    second = publish(network.http, "again", {"$id": "one", "a": "x"})  # another topic, another event
    settle(network)
    assert arrived(receiver, old) == first
    assert arrived(receiver, new) == second


def test_an_unsubscription_by_filter_ends_what_it_covers_and_nothing_else(
    network: Network, receiver: Receiver
) -> None:
    address = receiver.address("covered")
    filters = {
        "inside": {"n": {"between": [10, 20]}},
        "equal": {"n": {"gte": 10, "lt": 50}},
        "beyond": {"n": {"gte": 10, "lte": 50}},
        "elsewhere": {"s": "x"},
    }
    for name, written in filters.items():
        subscribe(network, address, written, id=f"covered-{name}", owner="me")
    subscribe(network, address, filters["inside"], id="covered-of-another", owner="you")
    query = {"topic": TOPIC, "owner": "me", "filter": "n >= 10 and n < 50"}
    answer = network.http.delete("/v1/subscriptions", params=query)
    assert answer.status_code == 200, answer.text
    assert sorted(answer.json()["ids"]) == ["covered-equal", "covered-inside"]
    (event,) = publish(network.http, TOPIC, {"n": 15, "s": "x"})
    settle(network)
    heard = {pair[0] for pair in receiver.webhook_ids() if pair[1] == event}
    assert heard == {"covered-beyond", "covered-elsewhere", "covered-of-another"}
    for name in heard:
        unsubscribe(network, name)


def test_one_dead_address_does_not_delay_another(network: Network, receiver: Receiver) -> None:
    """The last one here: what waits for the dead address would keep the network from coming to rest."""
    dead = subscribe(network, receiver.address("status/503/dead"))
    alive = subscribe(network, receiver.address("alive"))
    events = publish(network.http, TOPIC, [{"n": number} for number in range(10)])
    until("the living address to have it all", lambda: arrived(receiver, alive) == events)
    attempts = [one for one in receiver.deliveries() if one.path == "/status/503/dead"]
    assert len({one.webhook_id for one in attempts}) <= 1, "an attempt went on past one that was refused"
    unsubscribe(network, alive)
    unsubscribe(network, dead)
