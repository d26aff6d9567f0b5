"""Subtrees where there are two dispatchers: topics are made at one, subscriptions at the other."""

from __future__ import annotations

import threading
from typing import Any

import httpx
import pytest

from tests.integration.scenario import assert_exactly, settle
from tests.network import Network, Receiver, until

#: the same is tried without processes, side by side, in tests/unit/dispatcher/test_subtrees.py
pytestmark = pytest.mark.slow

SERVERS = 2
DISPATCHERS = 2


def call(url: str, method: str, path: str, **given: Any) -> httpx.Response:
    """As a client that tries again when it is told to."""

    def answer() -> httpx.Response | None:
        found = httpx.request(method, url + path, timeout=30, **given)
        return None if found.status_code in (429, 503) else found

    return until(f"{method} {url}{path}", answer, every=0.1)


def publish(url: str, topic: str, *events: dict[str, Any]) -> list[str]:
    answer = call(url, "POST", f"/v1/topics/{topic}/events", json=list(events))
    assert answer.status_code == 202, answer.text
    ids: list[str] = answer.json()["ids"]
    return ids


@pytest.fixture(scope="module", autouse=True)
def level(network: Network) -> None:
    def ready() -> bool:
        listed = [call(url, "GET", "/v1/dispatchers").json()["dispatchers"] for url in network.urls]
        return all(one["ready"] for seen in listed for one in seen)

    until("both dispatchers to be ready", ready)


def test_topics_and_subscriptions_that_are_made_at_once_at_both_find_each_other(
    network: Network, receiver: Receiver
) -> None:
    first, second = network.urls
    count = 8
    failures: list[str] = []

    def make(url: str, method: str, paths: list[tuple[str, dict[str, Any]]]) -> None:
        for path, body in paths:
            answer = call(url, method, path, json=body)
            if answer.status_code != 201:
                failures.append(answer.text)

    topics = [(f"/v1/topics/t.n{n}", {"attributes": {"n": "integer"}}) for n in range(count)]
    subscriptions = [
        ("/v1/subscriptions", {"id": f"w{n}", "topic": "t.**", "sink": {"url": receiver.address(f"w{n}")}})
        for n in range(count)
    ]
    threads = [
        threading.Thread(target=make, args=(first, "PUT", topics)),
        threading.Thread(target=make, args=(second, "POST", subscriptions)),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    events = [
        id
        for url in network.urls
        for n in range(count)
        for id in publish(url, f"t.n{n}", {"$id": f"{url[-5:]}-{n}", "n": n})
    ]
    settle(network)
    wanted = {(f"w{n}", event) for n in range(count) for event in events}
    names = {f"w{n}" for n in range(count)}
    found = {pair: hooks for pair, hooks in receiver.webhook_ids().items() if pair[0] in names}
    assert_exactly(found, wanted)
    for url in network.urls:
        listed = call(url, "GET", "/v1/subscriptions?topic=t.**").json()["subscriptions"]
        assert {one["id"] for one in listed} == names
        assert len(call(url, "GET", "/v1/subscriptions/w0").json()["topics"]) == count


def test_the_death_of_the_one_that_carries_out_changes_leaves_subtrees_whole(
    network: Network, receiver: Receiver
) -> None:
    call(network.url, "PUT", "/v1/topics/k.a", json={"attributes": {"n": "integer"}})
    body = {"id": "kept", "topic": "k.**", "sink": {"url": receiver.address("kept")}}
    assert call(network.url, "POST", "/v1/subscriptions", json=body).status_code == 201
    listed = call(network.url, "GET", "/v1/dispatchers").json()["dispatchers"]
    leader = next(one["url"] for one in listed if one["leader"])
    dead = network.urls.index(leader)
    other = network.urls[1 - dead]
    network.dispatchers[dead].kill()
    made = call(other, "PUT", "/v1/topics/k.b", json={"attributes": {"n": "integer"}})
    assert made.status_code == 201, made.text
    wanted = [*publish(other, "k.a", {"n": 1}), *publish(other, "k.b", {"n": 2})]
    network.dispatchers[dead].start()
    network.dispatchers[dead].await_ready()
    until(
        "the other to know of the topic",
        lambda: httpx.get(f"{leader}/v1/topics/k.b").status_code == 200,
    )
    wanted += publish(leader, "k.b", {"n": 3})
    network.await_servers("ready", "s1", "s2")
    settle(network)
    found = {pair: hooks for pair, hooks in receiver.webhook_ids().items() if pair[0] == "kept"}
    assert_exactly(found, {("kept", event) for event in wanted})
