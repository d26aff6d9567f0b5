"""Subscriptions change servers while events are published: all of them are told, once, in order."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from tests.integration.scenario import publish, settle
from tests.network import Network, Receiver, until
from tests.network.moving import await_moves, begin_moves, move, repartition

SERVERS = 3
TOPIC = "moving"


@pytest.fixture(scope="module", autouse=True)
def topic(network: Network) -> None:
    attributes = {"n": "integer", "s": "string"}
    answer = network.http.put(f"/v1/topics/{TOPIC}", json={"attributes": attributes})
    assert answer.status_code == 201, answer.text


def subscribe(network: Network, receiver: Receiver, name: str, **more: Any) -> dict[str, Any]:
    body = {"id": name, "topic": TOPIC, "sink": {"url": receiver.address(name)}, **more}
    answer = network.http.post("/v1/subscriptions", json=body)
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


def another(network: Network, server: str) -> str:
    return next(name for name in sorted(network.servers) if name != server)


def host(network: Network, name: str) -> str:
    server: str = network.http.get(f"/v1/subscriptions/{name}").json()["server"]
    return server


def heard(receiver: Receiver, name: str) -> list[str]:
    """Event ids of a subscription in the order of their first arrival; no pair came under two ids."""
    hooks = {pair: found for pair, found in receiver.webhook_ids().items() if pair[0] == name}
    assert all(len(found) == 1 for found in hooks.values()), hooks
    order: dict[str, None] = {}
    for delivery in receiver.deliveries():
        if delivery.status < 300:
            order |= {event: None for subscription, event in delivery.pairs() if subscription == name}
    return list(order)


@contextmanager
def traffic(network: Network, **attributes: Any) -> Iterator[list[str]]:
    """Events one after the other, all the time; the ids of those that were acknowledged, in order."""
    ids: list[str] = []
    enough = threading.Event()

    def run() -> None:
        with httpx.Client(base_url=network.url, timeout=30) as http:
            while not enough.is_set():
                ids.extend(publish(http, TOPIC, [{"n": len(ids), **attributes}]))

    thread = threading.Thread(target=run)
    thread.start()
    try:
        until("some traffic", lambda: len(ids) > 5)
        yield ids
        before = len(ids)
        until("some more traffic", lambda: len(ids) > before + 5)
    finally:
        enough.set()
        thread.join()


def test_a_subscription_that_moves_under_traffic_hears_everything_once_and_in_order(
    network: Network, receiver: Receiver
) -> None:
    subscribe(network, receiver, "steady", filter={"s": "steady"})
    with traffic(network, s="steady") as ids:
        for _ in range(4):
            before = host(network, "steady")
            done = move(network.http, {"steady": another(network, before)})
            assert (done["moved"], done["skipped"]) == (1, 0)
            assert host(network, "steady") != before
    settle(network)
    assert heard(receiver, "steady") == ids


def test_what_was_found_here_is_held_until_the_former_server_has_delivered(
    network: Network, tmp_path: Any
) -> None:
    with Receiver(tmp_path) as slow:
        made = subscribe(network, slow, "held", filter={"s": "held"})
        slow.process.freeze()
        try:
            first = publish(network.http, TOPIC, [{"s": "held", "n": number} for number in range(20)])
            done = move(network.http, {"held": another(network, made["server"])}, settled=False)
            assert done["unsettled"] == 1
            again = begin_moves(network.http, {"held": made["server"]})  # it is not moved back meanwhile
            second = publish(network.http, TOPIC, [{"s": "held", "n": number} for number in range(20)])
            waiting = until("it to wait", lambda: repartition(network.http, again)["waiting"])
            assert "last migration" in waiting
        finally:
            slow.process.thaw()
        await_moves(network.http, again)
        settle(network)
        assert host(network, "held") == made["server"]
        assert heard(slow, "held") == first + second
        assert network.http.delete("/v1/subscriptions/held").status_code == 204


def test_what_was_kept_for_a_paused_subscription_goes_with_it(network: Network, receiver: Receiver) -> None:
    made = subscribe(network, receiver, "paused", filter={"s": "paused"})
    before = publish(network.http, TOPIC, {"s": "paused"})
    assert network.http.post("/v1/subscriptions/paused/pause").status_code == 200
    kept = publish(network.http, TOPIC, [{"s": "paused", "n": number} for number in range(50)])
    settled_moves = move(network.http, {"paused": another(network, made["server"])})
    assert settled_moves["moved"] == 1
    kept += publish(network.http, TOPIC, {"s": "paused"})
    move(network.http, {"paused": made["server"]})  # and back: nothing of the first stay is in the way
    kept += publish(network.http, TOPIC, {"s": "paused"})
    until("the first one", lambda: heard(receiver, "paused") == before)
    assert network.http.post("/v1/subscriptions/paused/resume").status_code == 200
    settle(network)
    assert heard(receiver, "paused") == before + kept


def test_a_paused_subscription_that_ends_after_a_move_leaves_nothing_behind(
    network: Network, receiver: Receiver
) -> None:
    made = subscribe(network, receiver, "dropped", filter={"s": "dropped"})
    network.http.post("/v1/subscriptions/dropped/pause")
    publish(network.http, TOPIC, {"s": "dropped"})
    move(network.http, {"dropped": another(network, made["server"])})
    assert network.http.delete("/v1/subscriptions/dropped").status_code == 204
    settle(network)
    assert heard(receiver, "dropped") == []


def test_the_past_is_told_though_the_subscription_moves_meanwhile(
    network: Network, receiver: Receiver
) -> None:
    past = publish(
        network.http, TOPIC, [{"s": "past", "n": n, "$availability": "forever"} for n in range(3000)]
    )
    made = subscribe(network, receiver, "late", filter={"s": "past"})
    running = begin_moves(network.http, {"late": another(network, made["server"])})
    after = publish(network.http, TOPIC, [{"s": "past"}, {"s": "past"}])
    await_moves(network.http, running)
    settle(network)
    assert heard(receiver, "late") == past + after


def test_changes_renewals_and_ends_hold_after_a_move(network: Network, receiver: Receiver) -> None:
    made = subscribe(network, receiver, "changed", filter={"s": "one"})
    move(network.http, {"changed": another(network, made["server"])})
    body = {"filter": {"s": "two"}, "sink": made["sink"]}
    assert network.http.put("/v1/subscriptions/changed", json=body).status_code == 200
    answer = network.http.post("/v1/subscriptions/changed/renew", json={"expires": "PT1H"})
    assert answer.status_code == 200, answer.text
    events = publish(network.http, TOPIC, [{"s": "one"}, {"s": "two"}])
    move(network.http, {"changed": made["server"]})
    events += publish(network.http, TOPIC, [{"s": "one"}, {"s": "two"}])
    assert network.http.get("/v1/subscriptions/changed").json()["expires"] == answer.json()["expires"]
    assert network.http.delete("/v1/subscriptions/changed").status_code == 204
    publish(network.http, TOPIC, {"s": "two"})
    settle(network)
    assert heard(receiver, "changed") == events[1::2]


def test_a_move_shorter_than_an_expiry_does_not_prolong_it(network: Network, receiver: Receiver) -> None:
    made = subscribe(network, receiver, "brief", filter={"s": "brief"}, expires="PT2S")
    move(network.http, {"brief": another(network, made["server"])})
    inside = publish(network.http, TOPIC, {"s": "brief"})
    until("its end", lambda: network.http.get("/v1/subscriptions/brief").status_code == 404)
    publish(network.http, TOPIC, {"s": "brief"})
    settle(network)
    assert heard(receiver, "brief") == inside


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        ({"assignments": {"steady": "s99"}}, 422, 'server must be one of s1, s2, s3, got "s99"'),
        ({"assignments": {"": "s1"}}, 422, ""),
        ({"assignments": []}, 422, ""),
    ],
)
def test_assignments_that_cannot_be_are_refused(network: Network, body: Any, status: int, says: str) -> None:
    id = network.http.post("/v1/repartitions", json={}).json()["id"]
    answer = network.http.post(f"/v1/repartitions/{id}/assignments", json=body)
    assert answer.status_code == status
    assert says in answer.json()["detail"]


def test_one_repartition_runs_at_a_time_and_can_be_cancelled(network: Network, receiver: Receiver) -> None:
    names = [f"many-{number}" for number in range(120)]
    bodies = [
        {"id": name, "topic": TOPIC, "filter": {"s": name}, "sink": {"url": receiver.address("many")}}
        for name in names
    ]
    made = network.http.post("/v1/subscriptions", json=bodies).json()["subscriptions"]
    wanted = {one["id"]: another(network, one["server"]) for one in made}
    late = network.http.post("/v1/repartitions", json={}).json()["id"]
    running = begin_moves(network.http, wanted, rate=1.0)
    for path in ("/v1/repartitions", f"/v1/repartitions/{late}/start", "/v1/servers/s1/drain"):
        refused = network.http.post(path, json={} if path == "/v1/repartitions" else None)
        assert refused.status_code == 409, refused.text
        assert f"repartition {running} (apply) is running" in refused.json()["detail"]
    until("some to have moved", lambda: repartition(network.http, running)["moved"])
    cancelled = network.http.post(f"/v1/repartitions/{running}/cancel").json()
    assert cancelled["state"] == "cancelled"
    assert 0 < cancelled["moved"] < len(names)
    assert network.http.post(f"/v1/repartitions/{running}/cancel").status_code == 409
    moved = [name for name in names if host(network, name) == wanted[name]]
    assert len(moved) == cancelled["moved"]
    events = publish(network.http, TOPIC, [{"s": name} for name in names])
    settle(network)
    for name, event in zip(names, events, strict=True):
        assert heard(receiver, name) == [event]


def test_a_preview_counts_what_would_happen(network: Network) -> None:
    id = network.http.post("/v1/repartitions", json={"expected_hit_ratio": 0.25}).json()["id"]
    stays = host(network, "many-0")
    goes, there = "many-1", another(network, host(network, "many-1"))
    body = {"assignments": {"many-0": stays, goes: there, "nobody": "s1"}}
    network.http.post(f"/v1/repartitions/{id}/assignments", json=body)
    seen = network.http.get(f"/v1/repartitions/{id}/preview").json()
    assert (seen["moves"], seen["stay"], seen["unknown"]) == (1, 1, 1)
    assert seen["after"][there] == seen["before"][there] + 1
    assert sum(seen["after"].values()) == sum(seen["before"].values())
    assert seen["expected_hit_ratio"] == 0.25
    assert network.http.post(f"/v1/repartitions/{id}/cancel").json()["state"] == "cancelled"
