"""Two dispatchers die by turns, at any moment, while clients go to whichever answers."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import httpx
import pytest

from tests.integration.scenario import settle
from tests.network import Network, Receiver, until

SERVERS = 2
DISPATCHERS = 2
TOPIC = "mortal"
SECONDS = 45.0


@dataclass
class Told:
    """When a call began for the first time, and when it was acknowledged."""

    began: float
    acknowledged: float = float("inf")


@dataclass
class Life:
    """A subscription."""

    made: Told
    ended: Told = field(default_factory=lambda: Told(float("inf")))


class Client(threading.Thread):
    """Does one thing after the other until told to stop; each until somebody has acknowledged it."""

    def __init__(self, network: Network, seed: int) -> None:
        super().__init__(daemon=True)
        self.chance = random.Random(seed)
        self.seed = seed
        self.ending = threading.Event()
        self.urls = list(network.urls)
        self.http = httpx.Client(timeout=10)
        self.refused: list[str] = []

    def insist(self, method: str, path: str, fine: set[int], **given: Any) -> Told:
        told = Told(time.monotonic())
        deadline = told.began + 60
        while time.monotonic() < deadline:
            try:
                answer = self.http.request(method, self.urls[0] + path, **given)
            except httpx.TransportError:
                self.urls.append(self.urls.pop(0))
                time.sleep(0.02)
                continue
            if answer.status_code in fine:
                told.acknowledged = time.monotonic()
                return told
            if answer.status_code not in (429, 503):
                self.refused.append(f"{method} {path}: {answer.status_code} {answer.text[:200]}")
                return told
            self.urls.append(self.urls.pop(0))
            time.sleep(0.02)
        self.refused.append(f"{method} {path}: nobody took it for a minute")
        return told

    def run(self) -> None:
        while not self.ending.is_set():
            self.step()
            self.chance.shuffle(self.urls)
            self.ending.wait(self.chance.random() * 0.03)
        self.http.close()

    def step(self) -> None:
        raise NotImplementedError


class Publisher(Client):
    def __init__(self, network: Network, seed: int) -> None:
        super().__init__(network, seed)
        self.events: dict[str, Told] = {}

    def step(self) -> None:
        id = f"e{self.seed}-{len(self.events)}"
        self.events[id] = self.insist(
            "POST", f"/v1/topics/{TOPIC}/events", {202}, json={"$id": id, "n": len(self.events)}
        )


class Subscriber(Client):
    def __init__(self, network: Network, receiver: Receiver, seed: int) -> None:
        super().__init__(network, seed)
        self.receiver = receiver
        self.lives: dict[str, Life] = {}
        self.open: list[str] = []

    def step(self) -> None:
        if len(self.open) > 8 or (self.open and self.chance.random() < 0.4):
            name = self.open.pop(self.chance.randrange(len(self.open)))
            # 404: an earlier try did it, and its answer got lost.
            self.lives[name].ended = self.insist("DELETE", f"/v1/subscriptions/{name}", {204, 404})
        else:
            name = f"sub{self.seed}-{len(self.lives)}"
            body = {"id": name, "topic": TOPIC, "sink": {"url": self.receiver.address(name)}}
            self.lives[name] = Life(self.insist("POST", "/v1/subscriptions", {200, 201}, json=body))
            self.open.append(name)
        self.ending.wait(self.chance.random() * 0.1)


def _judge(lives: dict[str, Life], events: dict[str, Told], pairs: set[tuple[str, str]]) -> tuple[Any, Any]:
    missing = {
        (name, id)
        for name, life in lives.items()
        for id, event in events.items()
        if event.began > life.made.acknowledged
        and event.acknowledged < life.ended.began
        and (name, id) not in pairs
    }
    extra = {
        (name, id)
        for name, id in pairs
        if name in lives
        and (
            events[id].began > lives[name].ended.acknowledged
            or events[id].acknowledged < lives[name].made.began
        )
    }
    return missing, extra


@pytest.fixture
def front() -> Iterator[httpx.Client]:
    with httpx.Client(timeout=10) as client:
        yield client


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("hang", [False, True], ids=["killed", "hung"])
def test_whoever_dies_and_whenever_nothing_is_lost_or_told_twice(
    hang: bool, network: Network, receiver: Receiver, front: httpx.Client
) -> None:
    seed = 20 + hang
    chance = random.Random(seed)

    def made() -> bool:
        body = {"attributes": {"n": "integer"}}
        return front.put(f"{network.url}/v1/topics/{TOPIC}", json=body).status_code in (200, 201)

    until("the topic", made)
    before = _ids(front, network.url)
    publishers = [Publisher(network, 100 * seed + number) for number in range(3)]
    subscribers = [Subscriber(network, receiver, 100 * seed + 50 + number) for number in range(3)]
    clients = [*publishers, *subscribers]
    for client in clients:
        client.start()
    deadline, deaths = time.monotonic() + SECONDS, 0
    while time.monotonic() < deadline:
        time.sleep(chance.uniform(0.5, 3.0))
        victim = chance.choice(network.dispatchers)
        deaths += 1
        if hang:
            victim.freeze()
            time.sleep(chance.choice([1.0, 4.0, 7.0, 9.0]))
            victim.thaw()
            continue
        victim.kill()
        time.sleep(chance.choice([0.0, 0.5, 2.0]))
        victim.start()
        victim.await_ready()
        until("it to be level", partial(_is_ready, front, victim.url))
    for client in clients:
        client.ending.set()
    for client in clients:
        client.join(90)
    assert [line for client in clients for line in client.refused] == []
    network.await_servers("ready", *network.servers)
    settle(network)
    lives = {name: life for client in subscribers for name, life in client.lives.items()}
    events = {id: told for client in publishers for id, told in client.events.items()}
    hooks = {pair: found for pair, found in receiver.webhook_ids().items() if pair[1] in events}
    missing, extra = _judge(lives, events, set(hooks))
    twice = {pair for pair, found in hooks.items() if len(found) > 1}
    found = f"{len(events)} events, {len(lives)} subscriptions, {deaths} deaths, {len(hooks)} pairs"
    print(found)
    assert (sorted(missing)[:5], sorted(extra)[:5], sorted(twice)[:5]) == ([], [], []), found
    assert len(hooks) > 1000, found
    listed = [_ids(front, url) for url in network.urls]
    assert listed[0] == listed[1] == before | {name for client in subscribers for name in client.open}


def _is_ready(front: httpx.Client, url: str) -> bool:
    return front.get(f"{url}/readyz").status_code == 200


def _ids(front: httpx.Client, url: str) -> set[str]:
    answer = front.get(f"{url}/v1/subscriptions", params={"limit": 1000, "topic": TOPIC})
    return {one["id"] for one in answer.json()["subscriptions"]}
