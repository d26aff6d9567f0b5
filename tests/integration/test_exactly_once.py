"""Ten servers, ten thousand subscriptions: what arrives is what the oracle says, through crashes too.

The tests share one network and run in the order in which they stand: the crashes come after the calm.
"""

from __future__ import annotations

import random
import threading
from typing import Any

import httpx
import pytest

from tests.integration.scenario import TOPIC, Market, publish, settle
from tests.network import Network, Receiver, until
from tests.workload import adversarial

SERVERS = 10
SUBSCRIPTIONS = 10_000
ADDRESSES = 50
EVENTS = 2_000


@pytest.fixture(scope="module")
def market(network: Network, receiver: Receiver) -> Market:
    trading = Market(network, receiver, random.Random(11))
    trading.open()
    trading.subscribe(SUBSCRIPTIONS, ADDRESSES)
    return trading


def test_all_servers_host_some_of_the_subscriptions(market: Market) -> None:
    operator, share = adversarial.rarest_share(list(market.filters.values()))
    assert share >= 0.01, f"{operator} is in {share:.2%} of the filters"

    def hosted() -> list[int]:  # a server reports its number with its next heartbeat
        listed = market.network.http.get("/v1/servers").json()["servers"]
        return [one["subscriptions"] for one in listed]

    until("every subscription to be counted", lambda: sum(hosted()) == SUBSCRIPTIONS)
    assert min(hosted()) > 0


def test_what_arrives_is_what_the_oracle_says(market: Market) -> None:
    events = market.events(EVENTS)
    market.publish(events[:20], batch=1)
    market.publish(events[20:], batch=180)
    assert market.check(events) >= 100_000


def test_a_killed_server_misses_nothing(market: Market) -> None:
    victim = market.network.servers["s3"]
    before, amid, during, after = (market.events(100) for _ in range(4))
    market.publish(before)
    settle(market.network)
    market.publish(amid)  # no pause: the frames and the POSTs of these are cut off at any point
    victim.kill()
    market.publish(during)
    market.network.await_servers("away", "s3")
    victim.start()
    victim.await_ready()
    market.publish(after)
    market.network.await_servers("ready", "s3")
    market.check([*before, *amid, *during, *after])


@pytest.mark.slow
def test_a_server_killed_again_and_again_delivers_each_pair_once(market: Market) -> None:
    victim = market.network.servers["s7"]
    everything: list[dict[str, Any]] = []
    for _ in range(2):
        events = market.events(100)
        everything += events
        market.publish(events, batch=20)
        victim.kill()
        victim.start()
        victim.await_ready()
    market.check(everything)


def test_a_killed_dispatcher_keeps_what_it_acknowledged(market: Market) -> None:
    network = market.network
    events = market.events(600)
    acknowledged: list[dict[str, Any]] = []
    unsure: list[list[dict[str, Any]]] = []
    enough = threading.Event()

    def publisher() -> None:
        with httpx.Client(base_url=network.url, timeout=10) as http:
            for start in range(0, len(events), 10):
                chunk = events[start : start + 10]
                try:
                    publish(http, TOPIC, chunk)
                    acknowledged.extend(chunk)
                except httpx.TransportError:
                    unsure.append(chunk)
                if len(acknowledged) >= 200:
                    enough.set()

    publishing = threading.Thread(target=publisher)
    publishing.start()
    assert enough.wait(30)
    network.dispatcher.kill()  # in the middle of it
    publishing.join(60)
    assert unsure, "the publisher was done before the dispatcher was killed"
    network.restart_dispatcher()
    network.await_servers("ready", *network.servers)
    for chunk in unsure:  # whether it was stored or not: the same ids again make it stored once
        assert publish(network.http, TOPIC, chunk) == [event["$id"] for event in chunk]
    market.check(events)


def test_topics_and_subscriptions_survive_the_dispatcher(market: Market) -> None:
    http = market.network.http
    assert http.get(f"/v1/topics/{TOPIC}").status_code == 200
    found: dict[str, Any] = {}
    cursor: str | None = None
    while True:
        query = {"limit": "1000"} | ({"cursor": cursor} if cursor else {})
        page = http.get("/v1/subscriptions", params=query).json()
        found |= {one["id"]: one["filter"] for one in page["subscriptions"]}
        cursor = page["next"]
        if cursor is None:
            break
    assert found.keys() == market.filters.keys()
    events = market.events(100)
    market.publish(events)
    market.check(events)


def test_everything_killed_at_once_comes_back(market: Market) -> None:
    network = market.network
    before, after = market.events(100), market.events(100)
    market.publish(before)
    for process in network.processes():
        process.kill()
    network.dispatcher.start()
    for server in network.servers.values():
        server.start()
    network.dispatcher.await_ready()
    for server in network.servers.values():
        server.await_ready()
    network.await_servers("ready", *network.servers, seconds=60)
    market.publish(after)
    market.check([*before, *after])
