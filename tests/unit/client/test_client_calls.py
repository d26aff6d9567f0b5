"""What each call sends and what it makes of the answer, on a network that is a function."""

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edn import AsyncClient, Client, NewSubscription
from edn.client import UnexpectedAnswerError
from edn.client.encoding import chunks, expiry
from edn.errors import InvalidEvent, InvalidInput

SUBSCRIPTION = {
    "id": "sub1",
    "topic": "stocks",
    "filter": {"price": {"gt": 30.0}},
    "sink": {"url": "http://sink.example/in", "recipient": "ann"},
    "state": "active",
    "expires": "2030-01-01T00:00:00Z",
    "owner": "me",
    "server": "s1",
    "created": "2026-01-01T00:00:00Z",
    "added_by_a_newer_network": 1,
}
ATTEMPT = {"time": "2030-01-01T00:00:00Z", "webhook_id": "msg_1", "status": 204, "outcome": "delivered"}
LETTER = {"id": "s1.4", "webhook_id": "msg_4", "url": "http://s/", "died": "2030", "created": "2029"}
ROUTE = {"name": "stocks", "server": "s1", "rectangles": 3, "maximal": 6, "precision": 0.5, "bytes": 99}
BINDING = {"name": "stocks.**", "servers": ["s1"], "engine": None, "created": "2026-01-01T00:00:00Z"}
ADVERTISEMENT = {"id": "a", "topic": "stocks", "publisher": "p", "advertisement": {"symbol": ["GE"]}}
TOPIC = {"name": "stocks", "attributes": {"price": "number"}, "engine": "bitmap", "availability": 0}


class Recorder:
    """Answers every request with the same status and body, and remembers the requests."""

    def __init__(self, status: int = 200, body: Any = None) -> None:
        self.status = status
        self.body = body
        self.requests: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        return httpx.Response(self.status, json=self.body) if self.status != 204 else httpx.Response(204)


def client_on(handler: Callable[[httpx.Request], httpx.Response]) -> Client:
    return Client("http://edn.test", transport=httpx.MockTransport(handler))


def async_client_on(handler: Callable[[httpx.Request], httpx.Response]) -> AsyncClient:
    return AsyncClient("http://edn.test", transport=httpx.MockTransport(handler))


# call, its arguments, status and body of the answer → method, path with query, body that must have been sent
CASES: list[tuple[str, tuple[Any, ...], dict[str, Any], int, Any, str, str, Any]] = [
    ("create_topic", ("stocks", {"price": "number"}), {}, 201, TOPIC, "PUT", "/v1/topics/stocks",
     {"attributes": {"price": "number"}}),
    ("create_topic", ("stocks", {}), {"engine": "rtree", "availability": "forever"}, 200, TOPIC, "PUT",
     "/v1/topics/stocks", {"attributes": {}, "engine": "rtree", "availability": "forever"}),
    ("topics", (), {}, 200, {"topics": [TOPIC]}, "GET", "/v1/topics", None),
    ("topic", ("a/b",), {}, 200, TOPIC, "GET", "/v1/topics/a%2Fb", None),
    ("delete_topic", ("stocks",), {}, 204, None, "DELETE", "/v1/topics/stocks", None),
    ("delete_topic", ("stocks",), {"cascade": True}, 204, None, "DELETE",
     "/v1/topics/stocks?cascade=true", None),
    ("subscribe", ("stocks", "price > 30"),
     {"url": "http://s/", "recipient": "ann", "expires": "PT1H", "id": "x", "owner": "me"}, 201, SUBSCRIPTION,
     "POST", "/v1/subscriptions",
     {"topic": "stocks", "id": "x", "filter": "price > 30", "sink": {"url": "http://s/", "recipient": "ann"},
      "expires": "PT1H", "owner": "me"}),
    ("subscription", ("sub1",), {}, 200, SUBSCRIPTION, "GET", "/v1/subscriptions/sub1", None),
    ("renew", ("sub1", timedelta(hours=1)), {}, 200, SUBSCRIPTION, "POST", "/v1/subscriptions/sub1/renew",
     {"expires": "PT3600S"}),
    ("renew", ("sub1", None), {}, 200, SUBSCRIPTION, "POST", "/v1/subscriptions/sub1/renew",
     {"expires": None}),
    ("unsubscribe", ("sub1",), {}, 204, None, "DELETE", "/v1/subscriptions/sub1", None),
    ("subscribe", ("stocks",), {"url": "http://s/", "secret": "whsec_x", "id": "x"}, 201, SUBSCRIPTION,
     "POST", "/v1/subscriptions",
     {"topic": "stocks", "id": "x", "sink": {"url": "http://s/", "secret": "whsec_x"}}),
    ("attempts", ("sub1",), {}, 200, {"attempts": [ATTEMPT]}, "GET", "/v1/subscriptions/sub1/attempts", None),
    ("enable", ("sub1",), {}, 200, {"state": "healthy"}, "POST", "/v1/subscriptions/sub1/enable", None),
    ("send_example", ("a/b",), {}, 200, ATTEMPT, "POST", "/v1/subscriptions/a%2Fb/example", None),
    ("rotate_secret", ("sub1",), {"secret": "whsec_x", "grace": timedelta(hours=1)}, 200,
     {"secret": None, "previous_until": "2030-01-01T00:00:00Z", "subscriptions": 2}, "POST",
     "/v1/subscriptions/sub1/rotate-secret", {"secret": "whsec_x", "grace": "PT3600S"}),
    ("recover", ("sub1", datetime(2030, 1, 1, tzinfo=UTC)), {}, 200, {"letters": 1, "notifications": 2},
     "POST",
     "/v1/subscriptions/sub1/recover", {"since": "2030-01-01T00:00:00+00:00"}),
    ("dead_letter_page", (), {"subscription": "sub1", "limit": 5, "after": "1-2"}, 200,
     {"dead_letters": [LETTER], "next": None}, "GET",
     "/v1/dead-letters?subscription=sub1&limit=5&after=1-2", None),
    ("dead_letter", ("s1.4",), {}, 200, LETTER, "GET", "/v1/dead-letters/s1.4", None),
    ("resend", ("s1.4",), {}, 200, {"letters": 1, "notifications": 2}, "POST", "/v1/dead-letters/s1.4/resend",
     None),
    ("publish", ("stocks", {"symbol": "GE"}), {}, 202, {"accepted": 1, "ids": ["e1"]}, "POST",
     "/v1/topics/stocks/events", {"symbol": "GE"}),
    ("create_topic", ("stocks", {}), {"advertising": "guard"}, 200, TOPIC, "PUT", "/v1/topics/stocks",
     {"attributes": {}, "advertising": "guard"}),
    ("advertise", ("stocks", {"symbol": ["GE"]}),
     {"id": "a", "expires": timedelta(hours=1), "publisher": "p"}, 201, ADVERTISEMENT,
     "POST", "/v1/advertisements",
     {"topic": "stocks", "advertisement": {"symbol": ["GE"]}, "publisher": "p", "expires": "PT3600S",
      "id": "a"}),
    ("advertisement", ("a/1",), {}, 200, ADVERTISEMENT, "GET", "/v1/advertisements/a%2F1", None),
    ("advertisement_page", (), {"topic": "t", "publisher": "p", "limit": 5, "cursor": "c"}, 200,
     {"advertisements": [ADVERTISEMENT], "next": None}, "GET",
     "/v1/advertisements?topic=t&publisher=p&limit=5&cursor=c", None),
    ("change_advertisement", ("a", {"symbol": "any"}), {}, 200, ADVERTISEMENT, "PUT",
     "/v1/advertisements/a", {"advertisement": {"symbol": "any"}}),
    ("unadvertise", ("a",), {}, 204, None, "DELETE", "/v1/advertisements/a", None),
    ("unadvertise_covered", ("t", {"n": [1]}), {"publisher": "p"}, 200, {"ids": ["a"]}, "DELETE",
     "/v1/advertisements?topic=t&advertisement=%7B%22n%22%3A%5B1%5D%7D&publisher=p", None),
    ("topic_schema", ("stocks",), {"publisher": "p"}, 200, {"type": "object"}, "GET",
     "/v1/topics/stocks/schema?publisher=p", None),
    ("asyncapi", (), {}, 200, {"asyncapi": "3.0.0"}, "GET", "/v1/asyncapi", None),
    ("subscription_page", (), {"dead": True}, 200, {"subscriptions": []}, "GET",
     "/v1/subscriptions?dead=true", None),
    ("servers", (), {}, 200, {"servers": [{"id": "s1"}]}, "GET", "/v1/servers", None),
    ("routes", (), {}, 200, {"routes": [ROUTE], "bindings": [BINDING]}, "GET", "/v1/routes", None),
    ("routes", ("stocks.**",), {}, 200, {"routes": [], "bindings": []}, "GET",
     "/v1/routes?name=stocks.%2A%2A", None),
    ("bind_route", ("acme/stocks.**",), {"servers": ("s1",), "engine": "rtree"}, 201, BINDING, "PUT",
     "/v1/routes/acme/stocks.**", {"servers": ["s1"], "engine": "rtree"}),
    ("unbind_route", ("stocks",), {}, 204, None, "DELETE", "/v1/routes/stocks", None),
    ("subscription_page", (), {"topic": "stocks", "members": True}, 200, {"subscriptions": []}, "GET",
     "/v1/subscriptions?topic=stocks&members=true", None),
    ("clock", (), {}, 200, {"time": "2030-01-01T00:00:00Z", "wall": "2030-01-01T00:00:00Z"}, "GET",
     "/v1/clock", None),
    ("confirm_clock", (), {}, 200, {"time": "2030-01-01T00:00:00Z", "wall": "2030-01-01T00:00:00Z"}, "POST",
     "/v1/clock/confirm", None),
    ("secrets", (), {}, 200, {"processes": [], "resealed": 0, "left": 0, "done": True}, "GET", "/v1/secrets",
     None),
    ("reseal_secrets", (), {}, 200, {"processes": [], "resealed": 0, "left": 0, "done": True}, "POST",
     "/v1/secrets/reseal", None),
    ("tuning", (), {}, 200, {"mode": "fixed", "precision": 1.0}, "GET", "/v1/tuning", None),
    ("tune", ("fixed",), {"precision": 0.5}, 200, {"mode": "fixed"}, "PUT", "/v1/tuning",
     {"mode": "fixed", "precision": 0.5}),
    ("health", (), {}, 200, {"status": "ok"}, "GET", "/readyz", None),
]  # fmt: skip


@pytest.mark.parametrize(
    ("call", "args", "kwargs", "status", "answer", "method", "target", "sent"), CASES,
    ids=[f"{case[0]}-{number}" for number, case in enumerate(CASES)],
)  # fmt: skip
def test_both_clients_send_what_the_interface_says_and_return_the_same(
    call: str, args: Any, kwargs: Any, status: int, answer: Any, method: str, target: str, sent: Any
) -> None:
    sync_network, async_network = Recorder(status, answer), Recorder(status, answer)
    with client_on(sync_network) as client:
        result = getattr(client, call)(*args, **kwargs)

    async def same() -> Any:
        async with async_client_on(async_network) as client:
            return await getattr(client, call)(*args, **kwargs)

    assert asyncio.run(same()) == result
    for network in (sync_network, async_network):
        (request,) = network.requests
        assert request.method == method
        assert request.url.raw_path.decode() == target
        assert (json.loads(request.content) if request.content else None) == sent


def test_answers_become_typed_records_and_unknown_fields_are_ignored() -> None:
    with client_on(Recorder(200, SUBSCRIPTION)) as client:
        subscription = client.subscription("sub1")
    assert subscription.sink is not None
    assert (subscription.sink.url, subscription.sink.recipient) == ("http://sink.example/in", "ann")
    assert (subscription.server, subscription.state) == ("s1", "active")


def test_dead_letters_are_walked_page_by_page_and_recovered_until_none_is_left() -> None:
    pages = [{"dead_letters": [LETTER], "next": "1-4"}, {"dead_letters": [LETTER], "next": None}]
    steps = [
        {"letters": 5, "notifications": 7, "more": True},
        {"letters": 1, "notifications": 1, "more": False},
    ]
    answers = iter([*pages, *steps, *pages])
    asked: list[str] = []

    def network(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.raw_path.decode())
        return httpx.Response(200, json=next(answers))

    with client_on(network) as client:
        assert [letter.id for letter in client.dead_letters(subscription="sub1")] == ["s1.4", "s1.4"]
        recovered = client.recover("sub1", "2030-01-01T00:00:00Z")
        assert (recovered.letters, recovered.notifications, recovered.more) == (6, 8, False)
    assert asked[1] == "/v1/dead-letters?subscription=sub1&after=1-4"

    async def same() -> list[str]:
        async with async_client_on(network) as client:
            return [letter.id async for letter in client.dead_letters()]

    assert asyncio.run(same()) == ["s1.4", "s1.4"]


def test_a_secret_that_is_made_here_is_sent_so_that_a_repeated_request_rotates_once() -> None:
    network = Recorder(200, {"secret": None, "previous_until": "2030-01-01T00:00:00Z", "subscriptions": 1})
    with client_on(network) as client:
        rotation = client.rotate_secret("sub1")
    (request,) = network.requests
    assert rotation.secret is not None
    assert json.loads(request.content) == {"secret": rotation.secret}
    assert rotation.secret not in repr(rotation)


def test_publish_returns_the_id_and_carries_a_key_of_its_own_each_time() -> None:
    network = Recorder(202, {"accepted": 1, "ids": ["e1"]})
    with client_on(network) as client:
        assert client.publish("stocks", {"price": 1}) == "e1"
        client.publish("stocks", {"price": 1})
        client.publish("stocks", {"price": 1}, idempotency_key="mine")
    keys = [request.headers["idempotency-key"] for request in network.requests]
    assert keys[2] == "mine"
    assert len(set(keys)) == 3


def test_dropped_events_of_later_requests_are_counted_from_the_first() -> None:
    answers = iter(
        [
            {"accepted": 499, "ids": [f"i{n}" for n in range(499)], "unadvertised": [3]},
            {"accepted": 1, "ids": ["last"], "unadvertised": [0]},
        ]
    )
    keys: list[str] = []

    def network(request: httpx.Request) -> httpx.Response:
        keys.append(request.headers["idempotency-key"])
        return httpx.Response(202, json=next(answers))

    with client_on(network) as client:
        published = client.publish_many("t", [{"n": n} for n in range(502)], idempotency_key="k")
    assert (published.accepted, published.unadvertised) == (500, [3, 500])
    assert keys == ["k", "k/500"]


def test_an_event_that_was_dropped_has_no_id() -> None:
    with client_on(Recorder(202, {"accepted": 0, "ids": [], "unadvertised": [0]})) as client:
        assert client.publish("t", {"n": 1}) == ""


def test_wanted_is_read_from_the_stream_on_both_clients() -> None:
    lines = (
        b'retry: 1000\n\nevent: wanted\ndata: {"wanted":false}\n\nevent: wanted\ndata: {"wanted":true}\n\n'
    )

    def network(request: httpx.Request) -> httpx.Response:
        assert request.url.path == "/v1/advertisements/a/wanted"
        return httpx.Response(200, content=lines, headers={"content-type": "text/event-stream"})

    async def read() -> list[bool]:
        async with async_client_on(network) as client:
            return [state async for state in client.wanted("a")]

    with client_on(network) as client:
        assert list(client.wanted("a")) == [False, True]
    assert asyncio.run(read()) == [False, True]


def test_a_subscription_without_an_id_gets_one_so_that_it_can_be_repeated() -> None:
    network = Recorder(201, SUBSCRIPTION)
    with client_on(network) as client:
        client.subscribe("stocks")
        client.subscribe("stocks")
    first, second = (json.loads(request.content) for request in network.requests)
    assert first["id"] != second["id"]
    assert "filter" not in first
    assert "sink" not in first


def test_instants_in_events_travel_as_rfc_3339() -> None:
    network = Recorder(202, {"accepted": 1, "ids": ["e1"]})
    with client_on(network) as client:
        client.publish("stocks", {"at": datetime(2026, 3, 1, 12, tzinfo=UTC)})
    assert json.loads(network.requests[0].content) == {"at": "2026-03-01T12:00:00+00:00"}


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (float("nan"), "JSON"),
        (float("inf"), "JSON"),
        ("\ud800", "surrogate"),
        (object(), "not a JSON type"),
        (datetime(2026, 1, 1), "time zone"),
    ],
)
def test_what_json_cannot_carry_is_refused_before_anything_is_sent(value: Any, said: str) -> None:
    network = Recorder(202, {"accepted": 0, "ids": []})
    with client_on(network) as client, pytest.raises(InvalidEvent, match=said) as caught:
        client.publish_many("stocks", [{"price": 1}, {"price": value}])
    assert caught.value.index == 1
    assert network.requests == []


def test_a_recipient_without_an_address_is_refused() -> None:
    with client_on(Recorder()) as client, pytest.raises(InvalidInput, match="recipient requires a url"):
        client.subscribe("stocks", recipient="ann")


def test_an_answer_that_is_not_the_interfaces_is_named_so() -> None:
    with (
        client_on(Recorder(200, {"hello": "world"})) as client,
        pytest.raises(UnexpectedAnswerError, match="id"),
    ):
        client.subscription("sub1")


def test_not_being_ready_is_an_answer_and_is_not_retried() -> None:
    network = Recorder(503, {"status": "starting"})
    with client_on(network) as client:
        health = client.health()
    assert (health.ready, health.detail) == (False, {"status": "starting"})
    assert len(network.requests) == 1


def test_an_address_without_a_scheme_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="http://"):
        Client("localhost:8080")


@pytest.mark.parametrize("more", [{}, {"format": "cloudevents-batch", "consent": True}])
def test_change_keeps_what_is_not_given(more: dict[str, Any]) -> None:
    sink = {**SUBSCRIPTION["sink"], **more}
    network = Recorder(200, {**SUBSCRIPTION, "sink": sink})
    with client_on(network) as client:
        client.change("sub1", filter="price > 40")
    assert [request.method for request in network.requests] == ["GET", "PUT"]
    assert json.loads(network.requests[1].content) == {
        "filter": "price > 40",
        "sink": sink,
        "expires": SUBSCRIPTION["expires"],
    }


def test_change_with_everything_given_reads_nothing_first() -> None:
    network = Recorder(200, SUBSCRIPTION)
    with client_on(network) as client:
        client.change("sub1", filter=None, url="http://new/", recipient=None, expires=None)
    (request,) = network.requests
    assert json.loads(request.content) == {"sink": {"url": "http://new/"}}


def test_subscriptions_walk_all_pages_in_order_on_both_clients() -> None:
    pages = {"": (["a", "b"], "p2"), "p2": ([], "p3"), "p3": (["c"], None)}

    def network(request: httpx.Request) -> httpx.Response:
        assert request.url.params["topic"] == "stocks"
        ids, following = pages[request.url.params.get("cursor", "")]
        listed = [{**SUBSCRIPTION, "id": id} for id in ids]
        return httpx.Response(200, json={"subscriptions": listed, "next": following})

    with client_on(network) as client:
        assert [one.id for one in client.subscriptions(topic="stocks")] == ["a", "b", "c"]

    async def walk() -> list[str]:
        async with async_client_on(network) as client:
            return [one.id async for one in client.subscriptions(topic="stocks")]

    assert asyncio.run(walk()) == ["a", "b", "c"]


def test_subscribe_many_splits_at_the_limit_and_returns_all() -> None:
    sizes: list[int] = []

    def network(request: httpx.Request) -> httpx.Response:
        asked = json.loads(request.content)
        sizes.append(len(asked))
        return httpx.Response(
            201, json={"subscriptions": [{**SUBSCRIPTION, "id": one["id"]} for one in asked]}
        )

    wanted = [NewSubscription(topic="stocks", id=f"n{number}") for number in range(2500)]
    with client_on(network) as client:
        done = client.subscribe_many(wanted)
    assert [one.id for one in done] == [f"n{number}" for number in range(2500)]
    assert sizes == [1000, 1000, 500]


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ("PT5M", "PT5M"),
        (timedelta(minutes=2), "PT120S"),
        (timedelta(seconds=1.5), "PT1.5S"),
        (timedelta(seconds=100), "PT100S"),
        (datetime(2026, 1, 1, tzinfo=UTC), "2026-01-01T00:00:00+00:00"),
    ],
)
def test_expiries_are_written_as_durations_or_instants(given: Any, sent: str) -> None:
    assert expiry(given) == sent


@given(
    st.lists(st.binary(min_size=1, max_size=40), max_size=60),
    st.integers(min_value=1, max_value=9),
    st.integers(min_value=10, max_value=100),
)
def test_chunks_keep_every_element_in_order_and_obey_both_limits(
    elements: list[bytes], most: int, most_bytes: int
) -> None:
    groups = list(chunks(iter(elements), most, most_bytes))
    assert [element for group in groups for element in group] == elements
    for group in groups:
        assert 1 <= len(group) <= most
        assert len(b"[" + b",".join(group) + b"]") <= most_bytes or len(group) == 1
    for group, following in pairwise(groups):
        joined = b"[" + b",".join([*group, following[0]]) + b"]"
        assert len(group) == most or len(joined) > most_bytes, "a group that could have been larger"
