"""Steps that the integration tests share: subscribe, publish, come to rest, compare with the oracle."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
import numpy as np

from tests.network import Network, Receiver, until
from tests.oracle.meaning import Events
from tests.oracle.values import read_event
from tests.workload import quotes

Pair = tuple[str, str]
TOPIC = "stocks.quotes"


@dataclass
class Market:
    """The subscriptions that were acknowledged and what the oracle expects of the events that were."""

    network: Network
    receiver: Receiver
    chance: random.Random
    filters: dict[str, dict[str, Any]] = field(default_factory=dict)
    _published: int = 0

    def open(self) -> None:
        answer = self.network.http.put(f"/v1/topics/{TOPIC}", json={"attributes": quotes.ATTRIBUTES})
        assert answer.status_code == 201, answer.text

    def subscribe(self, count: int, addresses: int) -> None:
        """Subscriptions in arrays of 500, spread over the addresses."""
        numbers = range(len(self.filters), len(self.filters) + count)
        bodies: list[dict[str, Any]] = [
            {
                "id": f"watch-{number}",
                "topic": TOPIC,
                "filter": quotes.filter(self.chance),
                "sink": {"url": self.receiver.address(f"a{number % addresses}"), "recipient": f"r{number}"},
            }
            for number in numbers
        ]
        for start in range(0, count, 500):
            chunk = bodies[start : start + 500]
            answer = self.network.http.post("/v1/subscriptions", json=chunk, timeout=60)
            assert answer.status_code == 201, answer.text
            assert [one["id"] for one in answer.json()["subscriptions"]] == [one["id"] for one in chunk]
        self.filters |= {body["id"]: body["filter"] for body in bodies}

    def events(self, count: int) -> list[dict[str, Any]]:
        """New events with ids of their own."""
        numbers = range(self._published, self._published + count)
        self._published += count
        return [{"$id": f"event-{number}", **quotes.event(self.chance)} for number in numbers]

    def publish(self, events: Sequence[dict[str, Any]], batch: int = 100) -> None:
        for start in range(0, len(events), batch):
            publish(self.network.http, TOPIC, list(events[start : start + batch]))

    def expected(self, events: Sequence[dict[str, Any]]) -> set[Pair]:
        """Every (subscription, event) that the oracle says must be notified."""
        asked = Events([read_event(event, quotes.ATTRIBUTES) for event in events], quotes.ATTRIBUTES)
        return {
            (subscription, events[place]["$id"])
            for subscription, written in self.filters.items()
            for place in np.flatnonzero(asked.matching(written)).tolist()
        }

    def check(self, events: Sequence[dict[str, Any]], *, expected: set[Pair] | None = None) -> int:
        """Waits until nothing is under way any more; then nothing is missing, too much, or there twice."""
        wanted = self.expected(events) if expected is None else expected
        settle(self.network)
        ids = {event["$id"] for event in events}
        arrived = {pair: hooks for pair, hooks in self.receiver.webhook_ids().items() if pair[1] in ids}
        assert_exactly(arrived, wanted)
        return len(wanted)


def assert_exactly(arrived: dict[Pair, set[str]], wanted: set[Pair]) -> None:
    missing, extra = wanted - arrived.keys(), arrived.keys() - wanted
    twice = {pair: hooks for pair, hooks in arrived.items() if len(hooks) > 1}
    examples = [sorted(pairs)[:3] for pairs in (missing, extra, twice)]
    counts = f"{len(missing)} missing, {len(extra)} extra, {len(twice)} twice of {len(wanted)}: {examples}"
    assert not missing, counts
    assert not extra, counts
    assert not twice, counts


def publish(http: httpx.Client, topic: str, events: Any) -> list[str]:
    answer = http.post(f"/v1/topics/{topic}/events", json=events)
    assert answer.status_code == 202, answer.text
    ids: list[str] = answer.json()["ids"]
    return ids


def settle(network: Network, *, seconds: float = 120.0) -> None:
    """Waits until every server has read the whole log and delivered all that it found."""
    secret = {"authorization": f"Bearer {network.secret}"}

    def unread() -> dict[str, Any]:
        there = zip(network.urls, network.dispatchers, strict=True)
        listed = [
            one
            for url, dispatcher in there
            if dispatcher.alive()
            for one in network.http.get(f"{url}/v1/servers").json()["servers"]
        ]
        return {one["id"]: one["lag"] for one in listed if one["lag"] != 0}

    def undelivered(servers: Iterable[str]) -> dict[str, int]:
        backlogs = {
            name: httpx.get(f"{network.servers[name].url}/internal/stats", headers=secret).json()["backlog"]
            for name in servers
        }
        return {name: backlog for name, backlog in backlogs.items() if backlog}

    under_way: dict[str, Any] = {}

    def quiet() -> bool:
        nonlocal under_way
        # The log first: what is not read yet may still become a notification.
        under_way = unread() or undelivered(network.servers)
        return not under_way

    try:
        until("the network to come to rest", quiet, seconds=seconds, every=0.1)
    except AssertionError as waited:
        raise AssertionError(f"{waited}; still under way: {under_way}") from None
