"""A network on PostgreSQL: publishes, notifies, restarts, dies; nothing is lost, nothing is twice."""

from __future__ import annotations

import secrets
import signal
import time
from collections.abc import Iterator

import pytest

from tests.integration.scenario import publish, settle
from tests.network import Network, Receiver, until
from tests.postgres import Cluster, cluster

TOPIC = "quotes"


@pytest.fixture(scope="module")
def database() -> Iterator[Cluster]:
    """Its own server: a test ends it."""
    with cluster() as running:
        yield running


@pytest.fixture(scope="module")
def network(database: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    options = ["--database", database.url, "--database-schema", f"edn_{secrets.token_hex(4)}"]
    running = Network(tmp_path_factory.mktemp("network"), 2, database=[*options, "--allow-single-database"])
    try:
        running.start()
        answer = running.http.put(f"/v1/topics/{TOPIC}", json={"attributes": {"n": "integer"}})
        assert answer.status_code == 201, answer.text
        yield running
    except AssertionError:
        print(running.report())
        raise
    finally:
        running.close()


def subscribe(network: Network, receiver: Receiver, name: str) -> str:
    body = {"id": name, "topic": TOPIC, "sink": {"url": receiver.address(name)}}
    answer = network.http.post("/v1/subscriptions", json=body)
    assert answer.status_code == 201, answer.text
    server: str = answer.json()["server"]
    return server


def arrived(receiver: Receiver, name: str) -> list[str]:
    """Event ids of a subscription; a repeat of a POST under its own webhook-id counts once."""
    hooks = {pair: found for pair, found in receiver.webhook_ids().items() if pair[0] == name}
    assert all(len(found) == 1 for found in hooks.values()), hooks
    return sorted(event for _, event in hooks)


def test_events_reach_subscribers_over_restarts_and_crashes(network: Network, receiver: Receiver) -> None:
    hosts = {name: subscribe(network, receiver, name) for name in ("ann", "bob", "cy")}
    events = publish(network.http, TOPIC, [{"n": n} for n in range(50)])
    settle(network)

    network.dispatcher.kill()
    network.restart_dispatcher()
    events += publish(network.http, TOPIC, [{"n": n} for n in range(50, 100)])
    victim = network.servers[hosts["ann"]]
    victim.kill()
    events += publish(network.http, TOPIC, [{"n": n} for n in range(100, 150)])
    victim.start()
    victim.await_ready()
    network.await_servers("ready", *network.servers)
    assert network.dispatcher.stop() == 0
    network.restart_dispatcher()
    network.await_servers("ready", *network.servers)
    events += publish(network.http, TOPIC, [{"n": 150}])
    settle(network)
    for name in hosts:
        assert arrived(receiver, name) == sorted(events)


@pytest.mark.slow
def test_without_the_database_nothing_is_acknowledged_and_the_network_recovers(
    network: Network, receiver: Receiver, database: Cluster
) -> None:
    name = "later"
    subscribe(network, receiver, name)
    events = publish(network.http, TOPIC, {"n": 1})
    settle(network)
    database.stop(signal.SIGQUIT)

    def refuses() -> bool:
        answer = network.http.post(f"/v1/topics/{TOPIC}/events", json={"n": 2})
        assert answer.status_code == 503, answer.text
        assert int(answer.headers["retry-after"]) >= 1
        return network.http.get("/readyz").status_code == 503

    until("the dispatcher to be unready", refuses)
    database.start()
    deadline = time.monotonic() + 60
    while network.http.get("/readyz").status_code != 200:
        assert time.monotonic() < deadline, network.report()
        time.sleep(0.1)
    network.await_servers("ready", *network.servers, seconds=60)
    events += publish(network.http, TOPIC, {"n": 3})
    settle(network)
    assert arrived(receiver, name) == sorted(events)
