"""A network on PostgreSQL: publishes, notifies, restarts, dies; nothing is lost, nothing is twice."""

from __future__ import annotations

import json
import secrets
import signal
import time
from collections.abc import Iterator

import pytest

from edn.runtime.postgres.writer import EXIT_FENCED
from tests.faults import leases
from tests.integration.scenario import publish, settle
from tests.network import Network, Receiver, until
from tests.network.processes import Process
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
    running = Network(
        tmp_path_factory.mktemp("network"),
        2,
        server_options=["--retry-steps", "0.2"],
        database=[*options, "--allow-single-database"],
        environment={leases.VARIABLE: "2"},
    )
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


def undelivered(network: Network, receiver: Receiver, subscriptions: int, events: int) -> tuple[str, str]:
    """Publish events that the receiver refuses; the prefix of the subscriptions, and their server."""
    receiver.refuses = True
    prefix = f"spare-{secrets.token_hex(3)}"
    bodies = [
        {"id": f"{prefix}-{n}", "topic": TOPIC, "sink": {"url": receiver.address(f"{prefix}-{n}")}}
        for n in range(subscriptions)
    ]
    answer = network.http.post("/v1/subscriptions", json=bodies)
    assert answer.status_code == 201, answer.text
    hosts = {one["id"]: one["server"] for one in answer.json()["subscriptions"]}
    ids = []
    for _ in range(0, events, 100):
        ids += publish(network.http, TOPIC, [{"n": n} for n in range(min(100, events))])
    victim = max(set(hosts.values()), key=list(hosts.values()).count)
    until("all notifications to be in the outboxes", lambda: backlog(network) >= subscriptions * events)
    until("an attempt at every address", lambda: attempted(receiver, prefix) >= set(hosts))
    return prefix, victim


def backlog(network: Network) -> int:
    answer = network.http.get("/v1/servers")
    return sum(one["backlog"] or 0 for one in answer.json()["servers"] if not one["lag"])


def attempted(receiver: Receiver, prefix: str) -> set[str]:
    return {one.path[1:] for one in receiver.deliveries() if one.path.startswith(f"/{prefix}")}


def check_takeover(network: Network, receiver: Receiver, prefix: str, victim: str, spare: Process) -> None:
    """All notifications arrive, every POST under the id and with the body of its first attempt."""
    assert spare.ready["id"] == victim
    until("the new address", lambda: state(network, victim) == "ready", seconds=30)
    receiver.refuses = False
    settle(network)
    bodies: dict[str, set[str]] = {}
    for delivery in receiver.deliveries():
        if delivery.path.startswith(f"/{prefix}"):
            bodies.setdefault(delivery.webhook_id, set()).add(json.dumps(delivery.body))
    assert all(len(found) == 1 for found in bodies.values()), "a webhook-id stands for one body"
    assert len({name.rsplit("_", 1)[0] for name in bodies}) <= 2, "each server keeps its identity"


def state(network: Network, server: str) -> str:
    return network.states()[server]


@pytest.mark.slow
def test_a_spare_delivers_the_notifications_of_a_dead_server(network: Network, receiver: Receiver) -> None:
    spare = network.new_spare("spare")
    spare.start()
    try:
        prefix, victim = undelivered(network, receiver, 8, 50)
        network.servers[victim].kill()
        spare.await_ready()
        network.servers[victim], dead = spare, network.servers[victim]
        check_takeover(network, receiver, prefix, victim, spare)
        for number in range(8):
            assert len(arrived(receiver, f"{prefix}-{number}")) == 50
        # The id has a living owner now.
        dead.start()
        until("the second process of the server to end", lambda: not dead.alive())
        assert dead.exit_code() == 1
        assert f'server "{victim}" must not run twice' in dead.tail()
        dead.stop()
    finally:
        if spare not in network.servers.values():
            spare.stop()


@pytest.mark.slow
@pytest.mark.parametrize("how", ["dead", "paused", "same id elsewhere"])
def test_a_new_owner_delivers_ten_thousand_notifications(
    network: Network, receiver: Receiver, how: str
) -> None:
    """A paused server that goes on after its replacement has delivered everything posts nothing."""
    prefix, victim = undelivered(network, receiver, 20, 500)
    former = network.servers[victim]
    if how == "paused":
        former.freeze()
    else:
        former.kill()
    taker = network.new_server(victim) if how == "same id elsewhere" else network.new_spare(f"spare-{how}")
    network.servers[victim] = taker
    try:
        taker.start()
        taker.await_ready()
        check_takeover(network, receiver, prefix, victim, taker)
        for number in range(20):
            assert len(arrived(receiver, f"{prefix}-{number}")) == 500
        if how == "paused":
            before = len(receiver.deliveries())
            former.thaw()
            until("the former owner to end", lambda: not former.alive())
            assert former.exit_code() == EXIT_FENCED
            assert len(receiver.deliveries()) == before
    finally:
        receiver.refuses = False
        former.stop()


@pytest.mark.slow
def test_a_spare_leaves_a_restarting_server_alone_and_refuses_unknown_ones(
    network: Network, receiver: Receiver
) -> None:
    unknown = network.new_spare("unknown", "--spare-for", "s1,nobody")
    unknown.start()
    until("the process to end", lambda: not unknown.alive())
    assert unknown.exit_code() == 1
    assert '--spare-for must name servers of the network (s1, s2), got "nobody"' in unknown.tail()
    unknown.stop()

    spare = network.new_spare("patient", "--spare-after-stop", "8")
    spare.start()
    try:
        victim = network.servers["s1"]
        assert victim.stop() == 0
        victim.start()
        victim.await_ready()
        network.await_servers("ready", "s1", "s2")
        assert victim.stop() == 0
        assert spare.await_ready()["id"] == "s1"
        network.servers["s1"] = spare
        network.await_servers("ready", "s1", "s2")
    finally:
        if network.servers["s1"] is not spare:
            spare.stop()


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
