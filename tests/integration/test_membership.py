"""Servers that go and come back, and what the dispatcher says of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.scenario import publish, settle
from tests.network import Engine, Network, Receiver, until

SERVERS = 2


@pytest.fixture(scope="module", autouse=True)
def topic(network: Network) -> None:
    network.http.put("/v1/topics/t", json={"attributes": {"n": "integer"}}).raise_for_status()


def server_state(network: Network, name: str) -> str:
    return network.states()[name]


def test_a_server_that_dies_is_away_and_one_that_returns_is_ready(network: Network) -> None:
    victim = network.servers["s2"]
    for _ in range(2):
        victim.kill()
        network.await_servers("away", "s2")
        assert server_state(network, "s1") == "ready"
        victim.start()
        victim.await_ready()
        network.await_servers("ready", "s2")


def test_a_server_that_hangs_is_away_until_it_answers_again(network: Network) -> None:
    victim = network.servers["s2"]
    victim.freeze()
    try:
        network.await_servers("away", "s2")
    finally:
        victim.thaw()
    network.await_servers("ready", "s2")


def test_subscriptions_go_to_those_who_are_there(network: Network, receiver: Receiver) -> None:
    victim = network.servers["s2"]
    victim.kill()
    network.await_servers("away", "s2")
    body = {"topic": "t", "sink": {"url": receiver.address("there")}}
    made = [network.http.post("/v1/subscriptions", json=body) for _ in range(4)]
    assert [(answer.status_code, answer.json().get("server")) for answer in made] == [(201, "s1")] * 4
    victim.start()
    victim.await_ready()
    network.await_servers("ready", "s2")


def test_nobody_there_is_said_with_when_to_try_again(network: Network, receiver: Receiver) -> None:
    body = {"id": "somebody", "topic": "t", "sink": {"url": receiver.address("somebody")}}
    assert network.http.post("/v1/subscriptions", json=body).status_code == 201
    for server in network.servers.values():
        server.kill()
    network.await_servers("away", *network.servers)
    body = {"id": "nobody", "topic": "t", "sink": {"url": receiver.address("nobody")}}
    answer = network.http.post("/v1/subscriptions", json=body)
    assert answer.status_code == 503, answer.text
    assert int(answer.headers["retry-after"]) >= 1
    assert network.http.get("/v1/subscriptions/nobody").status_code == 404
    kept = publish(network.http, "t", [{"n": 1}])  # events need no server to be accepted
    for server in network.servers.values():
        server.start()
    for server in network.servers.values():
        server.await_ready()
    network.await_servers("ready", *network.servers)
    settle(network)
    assert {("somebody", event) for event in kept} <= receiver.webhook_ids().keys()


def test_a_second_server_of_the_same_id_is_refused(engine: Engine, network: Network, tmp_path: Path) -> None:
    other = network.new_server("s1", data=tmp_path / "other")
    other.start()
    until("the impostor to give up", lambda: not other.alive())
    # The dispatcher refuses it; in PostgreSQL the living owner of the shard is reason enough not to start.
    assert other.exit_code() == (3 if engine.name == "sqlite" else 1)
    assert "s1" in other.tail()
    other.stop()
    assert server_state(network, "s1") == "ready"


def test_a_data_folder_in_use_is_refused(network: Network) -> None:
    other = network.new_server("s1")
    other.start()
    until("the second process to give up", lambda: not other.alive())
    assert other.exit_code() not in (0, None)
    other.stop()
    network.await_servers("ready", "s1")


def test_processes_stop_cleanly_when_asked_to(network: Network) -> None:
    assert network.servers["s2"].stop() == 0
    network.servers["s2"].start()
    network.servers["s2"].await_ready()
    assert network.dispatcher.stop() == 0
    network.restart_dispatcher()
    network.await_servers("ready", *network.servers)
