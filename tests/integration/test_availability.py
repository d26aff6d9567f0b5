"""The three classes of availability on real processes, and what happens to the past when processes die.

The examples are those of the literature: stock quotes expire at once, an issue of the daily news lasts a day,
the catalogue of a library lasts for ever.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.wall_clock import VARIABLE, set_clock
from tests.network import Engine, Network, Receiver, until

SERVERS = 2
DAY = 86_400


class Clock:
    """The wall clock of all processes, to be stepped."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._ahead = 0.0
        self.step(0.0)

    def step(self, seconds: float) -> None:
        self._ahead += seconds
        set_clock(self.file, self._ahead)

    def pass_by(self, network: Network, seconds: float) -> None:
        """Step it, and have an operator say that so much time has passed."""
        self.step(seconds)
        answer = network.http.post("/v1/clock/confirm")
        assert answer.json()["suspect"] is None, answer.text


@pytest.fixture(scope="module")
def clock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clock]:
    clock = Clock(tmp_path_factory.mktemp("clock") / "clock")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, str(clock.file))
        yield clock


@pytest.fixture(scope="module")
def network(engine: Engine, tmp_path_factory: pytest.TempPathFactory, clock: Clock) -> Iterator[Network]:
    network = engine.network(tmp_path_factory.mktemp("network"), SERVERS)
    try:
        network.start()
        yield network
    finally:
        network.close()


def topic(network: Network, name: str, **fields: Any) -> None:
    answer = network.http.put(
        f"/v1/topics/{name}", json={"attributes": {"title": "string", "n": "integer"}, **fields}
    )
    assert answer.status_code == 201, answer.text
    assert answer.json()["availability"] == fields.get("availability", 0)


def publish(network: Network, name: str, *events: dict[str, Any]) -> None:
    answer = network.http.post(f"/v1/topics/{name}/events", json=list(events))
    assert answer.status_code == 202, answer.text


def subscribe(network: Network, receiver: Receiver, id: str, name: str, **fields: Any) -> None:
    body = {"id": id, "topic": name, "sink": {"url": receiver.address(id)}, **fields}
    answer = network.http.post("/v1/subscriptions", json=body)
    assert answer.status_code == 201, answer.text


def heard(receiver: Receiver, id: str) -> list[str]:
    """The events that a subscription was told of, in the order of their coming; repeats stay visible."""
    seen: dict[str, list[str]] = {}
    for delivery in receiver.deliveries():
        told = [
            entry["event"]["id"]
            for entry in delivery.body["notifications"]
            if any(match["subscription"] == id for match in entry["matches"])
        ]
        if told:
            seen.setdefault(delivery.webhook_id, told)
    return [event for told in seen.values() for event in told]


def test_quotes_news_and_a_catalogue(network: Network, receiver: Receiver, clock: Clock) -> None:
    topic(network, "quotes", availability=0)
    topic(network, "news", availability=DAY)
    topic(network, "catalogue", availability="forever")
    for name in ("quotes", "news", "catalogue"):
        publish(network, name, {"$id": f"{name} of yesterday", "title": "a"})
    clock.pass_by(network, DAY + 60)
    for name in ("quotes", "news", "catalogue"):
        publish(network, name, {"$id": f"{name} of today", "title": "b"})
    clock.pass_by(network, 3600)
    for name in ("quotes", "news", "catalogue"):
        subscribe(network, receiver, name, name)
        publish(network, name, {"$id": f"{name} of now", "title": "c"})
    expected = {
        "quotes": ["quotes of now"],
        "news": ["news of today", "news of now"],
        "catalogue": ["catalogue of yesterday", "catalogue of today", "catalogue of now"],
    }
    until("all notifications", lambda: all(len(heard(receiver, k)) >= len(v) for k, v in expected.items()))
    assert {name: heard(receiver, name) for name in expected} == expected


def test_a_publisher_may_choose_and_a_subscriber_may_say_where_it_begins(
    network: Network, receiver: Receiver, clock: Clock
) -> None:
    topic(network, "offers")
    publish(network, "offers", {"$id": "short", "n": 1}, {"$id": "long", "n": 1, "$availability": 10 * DAY})
    clock.pass_by(network, 2 * 3600)
    publish(network, "offers", {"$id": "kept", "n": 1, "$availability": "forever"})
    subscribe(network, receiver, "all", "offers")
    subscribe(network, receiver, "late", "offers", **{"from": "PT1H"})
    subscribe(network, receiver, "none", "offers", **{"from": "now"})
    subscribe(network, receiver, "other", "offers", filter={"n": 2})
    publish(network, "offers", {"$id": "live", "n": 1}, {"$id": "live 2", "n": 2})
    expected = {
        "all": ["long", "kept", "live", "live 2"],
        "late": ["kept", "live", "live 2"],
        "none": ["live", "live 2"],
        "other": ["live 2"],
    }
    until("all notifications", lambda: all(len(heard(receiver, k)) >= len(v) for k, v in expected.items()))
    assert {name: heard(receiver, name) for name in expected} == expected
    body = {"topic": "offers", "sink": {"url": receiver.address("x")}}
    for text, said in (
        ("P30D", "must not be before"),
        ("2999-01-01T00:00:00Z", "future"),
        ("soon", "a duration such as 1h"),
    ):
        refused = network.http.post("/v1/subscriptions", json={**body, "from": text})
        assert refused.status_code == 422
        assert said in refused.json()["detail"]


def test_the_past_is_told_once_and_in_order_whoever_dies_meanwhile(
    network: Network, receiver: Receiver
) -> None:
    topic(network, "library", availability="forever")
    for start in range(0, 6000, 500):
        publish(network, "library", *({"$id": f"b{n}", "n": n} for n in range(start, start + 500)))
    subscribe(network, receiver, "reader", "library", filter={"n": {"gte": 1000}})
    host = network.http.get("/v1/subscriptions/reader").json()["server"]
    network.servers[host].kill()
    publish(network, "library", {"$id": "b6000", "n": 6000})
    network.dispatcher.kill()
    network.servers[host].start()
    network.restart_dispatcher()
    network.await_servers("ready", host)
    publish(network, "library", {"$id": "b6001", "n": 6001})
    until("everything", lambda: len(heard(receiver, "reader")) >= 5002, seconds=60)
    assert heard(receiver, "reader") == [f"b{n}" for n in range(1000, 6002)]


def test_a_subscriber_moves_away_and_resumes_elsewhere(network: Network, receiver: Receiver) -> None:
    topic(network, "roaming")
    subscribe(network, receiver, "mobile", "roaming")
    publish(network, "roaming", {"$id": "at home"})
    assert network.http.post("/v1/subscriptions/mobile/pause").json()["state"] == "paused"
    publish(network, "roaming", *({"$id": f"away {n}"} for n in range(50)))
    host = network.http.get("/v1/subscriptions/mobile").json()["server"]
    network.servers[host].kill()
    network.servers[host].start()
    network.servers[host].await_ready()
    publish(network, "roaming", {"$id": "away 50"})
    until(
        "its stream", lambda: network.http.get("/v1/servers").json()["servers"][int(host[1:]) - 1]["lag"] == 0
    )
    elsewhere = {"sink": {"url": receiver.address("elsewhere"), "recipient": "at work"}}
    answer = network.http.post("/v1/subscriptions/mobile/resume", json=elsewhere)
    assert (answer.status_code, answer.json()["state"]) == (200, "active"), answer.text
    publish(network, "roaming", {"$id": "at work"})
    expected = ["at home", *(f"away {n}" for n in range(51)), "at work"]
    until("everything", lambda: len(heard(receiver, "mobile")) >= len(expected))
    assert heard(receiver, "mobile") == expected
    paths = {
        entry["event"]["id"]: delivery.path
        for delivery in receiver.deliveries()
        for entry in delivery.body["notifications"]
        if any(match["subscription"] == "mobile" for match in entry["matches"])
    }
    assert paths["at home"].endswith("mobile")
    assert all(path.endswith("elsewhere") for event, path in paths.items() if event != "at home")
