"""Tuning and the link of a running network, through its door."""

from __future__ import annotations

import httpx
import pytest

from tests.network import Network, until

SERVERS = 2
#: a network of its own, and intervals to wait for
pytestmark = pytest.mark.slow
TOPIC = "tuned"


@pytest.fixture(scope="module")
def door(network: Network) -> httpx.Client:
    http = network.http
    assert http.put(f"/v1/topics/{TOPIC}", json={"attributes": {"a": "number"}}).status_code == 201
    bodies = [
        {
            "topic": TOPIC,
            "filter": {"a": {"between": [low, low + 0.5]}},
            "sink": {"url": "http://127.0.0.1:9/"},
        }
        for low in range(40)
    ]
    assert http.post("/v1/subscriptions", json=bodies).status_code == 201
    return http


def publish(http: httpx.Client, count: int) -> None:
    # Every one of them lies in a filter, so at least one server needs it.
    events = [{"a": number % 40} for number in range(count)]
    assert http.post(f"/v1/topics/{TOPIC}/events", json=events).status_code == 202


def test_modes_are_chosen_live_and_the_history_says_who_did(door: httpx.Client) -> None:
    began = door.get("/v1/tuning").json()
    assert began["mode"] == "model"
    for body in (
        {"mode": "paper", "precision": 0.5},
        {"mode": "fixed"},
        {"precision": 0.2},
        {"mode": "model"},
    ):
        told = door.put("/v1/tuning", json=body).json()
        assert told["mode"] == body.get("mode", "fixed")
        assert told["precision"] == body.get("precision", began["precision"])
        assert told["history"][-1]["reason"] == "set by an operator"
        precisions = {server["precision"] for server in door.get("/v1/servers").json()["servers"]}
        assert precisions == {told["precision"]}
        began = told
    assert door.put("/v1/tuning", json={"mode": "model", "precision": 1.0}).status_code == 200


def test_a_survey_tells_the_whole_curve_once_events_have_come(door: httpx.Client) -> None:
    assert door.post("/v1/tuning/survey").status_code == 409
    publish(door, 300)
    told = door.post("/v1/tuning/survey").json()
    assert [point["precision"] for point in told["curve"]] == [step / 10 for step in range(11)]
    assert told["curve"][0]["hit_ratio"] == 1.0
    assert told["parameters"]["servers"] == SERVERS
    assert told["parameters"]["fixed"] > 0


def test_the_links_limits_are_set_and_lifted_live(door: httpx.Client) -> None:
    limits = {"bytes_per_second": 50_000.0, "lag_limit": 5000}
    told = door.put("/v1/link", json=limits).json()
    assert {name: told[name] for name in limits} == limits
    before = door.get("/v1/link").json()["copies"]
    publish(door, 500)
    lifted = door.put("/v1/link", json={}).json()
    assert lifted["bytes_per_second"] is None
    assert lifted["lag_limit"] is None
    publish(door, 10)
    until("what was held", lambda: door.get("/v1/link").json()["copies"] >= before + 500)
