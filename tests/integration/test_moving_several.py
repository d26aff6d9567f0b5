"""Moves with two dispatchers: still complete and minimal; and the defect that a move invites is noticed."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.faults import defects
from tests.integration.scenario import assert_exactly, settle
from tests.network import Network, Receiver, until
from tests.network.moving import await_moves, begin_moves

#: many processes, each several times
pytestmark = pytest.mark.slow

SERVERS = 3
DISPATCHERS = 2
TOPIC = "moving.several"
SUBSCRIPTIONS = 30


def insist(http: httpx.Client, method: str, path: str, **given: Any) -> httpx.Response:
    """The first answer that is no request to come back later."""

    def answer() -> httpx.Response | None:
        found = http.request(method, path, **given)
        return None if found.status_code in (429, 503) else found

    return until(f"{method} {path}", answer, every=0.05)


class Publisher(threading.Thread):
    """Sends events to one dispatcher and, now and then, the same ones to the other, too."""

    def __init__(self, urls: list[str], label: str, seed: int) -> None:
        super().__init__()
        self._urls = urls
        self._label = label
        self._chance = random.Random(seed)
        self.enough = threading.Event()
        self.events: dict[str, int] = {}

    def run(self) -> None:
        with httpx.Client(timeout=30) as http:
            while not self.enough.is_set():
                number = self._chance.randrange(SUBSCRIPTIONS)
                id = f"{self._label}-{len(self.events)}"
                body = {"$id": id, "n": number}
                again = self._chance.random() < 0.3
                for url in self._urls if again else self._urls[:1]:
                    answer = insist(http, "POST", f"{url}/v1/topics/{TOPIC}/events", json=body)
                    assert answer.status_code == 202, answer.text
                self.events[id] = number


def test_moves_with_two_dispatchers_lose_and_repeat_nothing(network: Network, receiver: Receiver) -> None:
    http = network.http
    answer = insist(http, "PUT", f"/v1/topics/{TOPIC}", json={"attributes": {"n": "integer"}})
    assert answer.status_code == 201, answer.text
    names = [f"sub-{number}" for number in range(SUBSCRIPTIONS)]
    for number, name in enumerate(names):
        sink = {"url": receiver.address(name)}
        body = {"id": name, "topic": TOPIC, "filter": f"n >= {number - 3} and n <= {number}", "sink": sink}
        made = insist(http, "POST", "/v1/subscriptions", json=body)
        assert made.status_code == 201, made.text
    for name in names[:3]:
        assert insist(http, "POST", f"/v1/subscriptions/{name}/pause").status_code == 200
    publishers = [Publisher(network.urls, "a", 1), Publisher(network.urls[::-1], "b", 2)]
    for publisher in publishers:
        publisher.start()
    chance = random.Random(3)
    try:
        for _ in range(5):
            assignments = {name: chance.choice(sorted(network.servers)) for name in names}
            await_moves(http, begin_moves(http, assignments))
        for url in network.urls:  # both know where everything is
            found = httpx.get(f"{url}/v1/subscriptions").json()["subscriptions"]
            assert {one["id"]: one["server"] for one in found} == assignments
    finally:
        for publisher in publishers:
            publisher.enough.set()
            publisher.join()
    for name in names[:3]:
        assert insist(http, "POST", f"/v1/subscriptions/{name}/resume").status_code == 200
    settle(network)
    events = {id: number for publisher in publishers for id, number in publisher.events.items()}
    wanted = {
        (name, id)
        for place, name in enumerate(names)
        for id, number in events.items()
        if place - 3 <= number <= place
    }
    assert len(wanted) > 200
    assert_exactly(receiver.webhook_ids(), wanted)


def test_a_move_before_the_widening_is_noticed(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(defects.VARIABLE, "move-before-widening")
    network = Network(tmp_path, 2)
    try:
        network.start()
        http = network.http
        http.put(f"/v1/topics/{TOPIC}", json={"attributes": {"n": "integer"}})
        body = {
            "id": "planted",
            "topic": TOPIC,
            "filter": {"n": 7},
            "sink": {"url": receiver.address("planted")},
        }
        made = http.post("/v1/subscriptions", json=body).json()
        there = next(name for name in network.servers if name != made["server"])
        # While nothing is known of a server everything goes there, and no defect shows.
        until("its summary", lambda: http.get(f"/v1/servers/{there}/summary").json()["everything"] is False)
        running = begin_moves(http, {"planted": there})
        until(
            "the move", lambda: http.get("/v1/subscriptions/planted").json()["server"] == there, every=0.001
        )
        ids = http.post(f"/v1/topics/{TOPIC}/events", json=[{"n": 7}] * 20).json()["ids"]
        await_moves(http, running)
        settle(network)
        arrived = {pair: hooks for pair, hooks in receiver.webhook_ids().items() if pair[0] == "planted"}
        with pytest.raises(AssertionError, match="20 missing, 0 extra, 0 twice"):
            assert_exactly(arrived, {("planted", id) for id in ids})
    finally:
        network.close()
