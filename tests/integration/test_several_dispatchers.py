"""Two dispatchers, each with its own log: any of them takes any call, and the death of one loses nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.integration.scenario import assert_exactly, settle
from tests.network import Network, Receiver, until

SERVERS = 2
DISPATCHERS = 2
TOPIC = "several"


class Door:
    """One dispatcher as a client that tries again when it is told to."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._http = httpx.Client(base_url=url, timeout=30)

    def call(self, method: str, path: str, *, seconds: float = 30.0, **given: Any) -> httpx.Response:
        def answer() -> httpx.Response | None:
            found = self._http.request(method, path, **given)
            return None if found.status_code in (429, 503) else found

        return until(f"{method} {self.url}{path}", answer, seconds=seconds, every=0.1)

    def subscribe(
        self, receiver: Receiver, name: str, filter: Any = None, topic: str = TOPIC
    ) -> dict[str, Any]:
        body = {"id": name, "topic": topic, "sink": {"url": receiver.address(name)}}
        if filter is not None:
            body["filter"] = filter
        answer = self.call("POST", "/v1/subscriptions", json=body)
        assert answer.status_code == 201, answer.text
        made: dict[str, Any] = answer.json()
        return made

    def publish(self, *events: dict[str, Any], topic: str = TOPIC) -> list[str]:
        answer = self.call("POST", f"/v1/topics/{topic}/events", json=list(events))
        assert answer.status_code == 202, answer.text
        ids: list[str] = answer.json()["ids"]
        return ids

    def ids(self) -> set[str]:
        return {one["id"] for one in self.call("GET", "/v1/subscriptions").json()["subscriptions"]}

    def close(self) -> None:
        self._http.close()


@pytest.fixture(scope="module")
def doors(network: Network) -> Iterator[list[Door]]:
    doors = [Door(url) for url in network.urls]
    answer = doors[1].call("PUT", f"/v1/topics/{TOPIC}", json={"attributes": {"n": "integer"}})
    assert answer.status_code == 201, answer.text
    yield doors
    for door in doors:
        door.close()


def arrived(receiver: Receiver, *names: str) -> dict[tuple[str, str], set[str]]:
    return {pair: hooks for pair, hooks in receiver.webhook_ids().items() if pair[0] in names}


def everybody_ready(doors: list[Door]) -> None:
    def ready() -> bool:
        listed = [door.call("GET", "/v1/dispatchers").json()["dispatchers"] for door in doors]
        return all(one["ready"] for seen in listed for one in seen)

    until("all dispatchers to be ready", ready)


def test_what_was_subscribed_at_one_hears_what_is_published_at_any(
    network: Network, receiver: Receiver, doors: list[Door]
) -> None:
    first, second = doors
    first.subscribe(receiver, "at-first", "n > 0")
    second.subscribe(receiver, "at-second", "n > 1")
    assert first.ids() >= {"at-first", "at-second"} <= second.ids()
    both = [*first.publish({"n": 2}), *second.publish({"n": 3})]
    one = [*first.publish({"n": 1}), *second.publish({"n": 1})]
    changed = second.call(
        "PUT", "/v1/subscriptions/at-first", json={"filter": "n > 5", "sink": {"url": receiver.address("x")}}
    )
    assert changed.status_code == 200, changed.text
    assert first.call("DELETE", "/v1/subscriptions/at-second").status_code == 204
    more = [*first.publish({"n": 6}, {"n": 5}), *second.publish({"n": 7}, {"n": 4})]
    settle(network)
    wanted = {("at-first", id) for id in both + one + [more[0], more[2]]} | {("at-second", id) for id in both}
    assert_exactly(arrived(receiver, "at-first", "at-second"), wanted)
    assert second.call("GET", "/v1/subscriptions/at-second").status_code == 404


def test_an_event_that_is_sent_to_both_under_one_id_is_told_once(
    network: Network, receiver: Receiver, doors: list[Door]
) -> None:
    first, second = doors
    first.subscribe(receiver, "early")
    events = [{"$id": f"same-{n}", "n": n} for n in range(20)]
    first.publish(*events)
    second.subscribe(receiver, "late")
    # For who came in between the second sending is the first.
    second.publish(*events)
    first.publish(*events)
    settle(network)
    wanted = {(name, event["$id"]) for event in events for name in ("early", "late")}
    assert_exactly(arrived(receiver, "early", "late"), wanted)


def test_a_pause_at_one_holds_what_both_bring_until_the_other_resumes(
    network: Network, receiver: Receiver, doors: list[Door]
) -> None:
    first, second = doors
    first.subscribe(receiver, "paused")
    before = first.publish({"n": 1})
    settle(network)
    assert first.call("POST", "/v1/subscriptions/paused/pause").json()["state"] == "paused"
    assert second.call("GET", "/v1/subscriptions/paused").json()["state"] == "paused"
    during = [*first.publish({"n": 2}), *second.publish({"n": 3})]
    until("both logs to be read", lambda: _read(doors))
    assert {event for _, event in arrived(receiver, "paused")} == set(before)
    assert second.call("POST", "/v1/subscriptions/paused/resume").json()["state"] == "active"
    after = [*first.publish({"n": 4}), *second.publish({"n": 5})]
    settle(network)
    assert_exactly(arrived(receiver, "paused"), {("paused", id) for id in [*before, *during, *after]})


def test_the_past_is_told_from_both_logs_and_then_what_is_new(
    network: Network, receiver: Receiver, doors: list[Door]
) -> None:
    first, second = doors
    schema = {"attributes": {"n": "integer"}, "availability": "forever"}
    assert first.call("PUT", "/v1/topics/kept", json=schema).status_code == 201
    before = [
        *first.publish(*({"n": n} for n in range(5)), topic="kept"),
        *second.publish(*({"n": n} for n in range(5)), topic="kept"),
        *first.publish({"$id": "kept by both", "n": 1}, topic="kept"),
    ]
    second.publish({"$id": "kept by both", "n": 1}, topic="kept")
    second.subscribe(receiver, "curious", "n > 0", topic="kept")
    after = [*first.publish({"n": 6}, topic="kept"), *second.publish({"n": 7}, topic="kept")]
    wanted = {("curious", id) for id in [*before[1:5], *before[6:], *after]}
    until("the past and the present", lambda: len(arrived(receiver, "curious")) >= len(wanted))
    settle(network)
    assert_exactly(arrived(receiver, "curious"), wanted)


def test_who_comes_and_goes_while_one_is_dead_is_told_what_that_one_kept(
    network: Network, receiver: Receiver, doors: list[Door]
) -> None:
    first, second = doors
    schema = {"attributes": {"n": "integer"}, "availability": "forever"}
    assert first.call("PUT", "/v1/topics/brief", json=schema).status_code == 201
    kept = second.publish(*({"n": n} for n in range(3)), topic="brief")
    everybody_ready(doors)
    network.dispatchers[1].kill()
    first.subscribe(receiver, "brief", "n > 0", topic="brief")
    assert first.call("DELETE", "/v1/subscriptions/brief").status_code == 204
    network.dispatchers[1].start()
    network.dispatchers[1].await_ready()
    everybody_ready(doors)
    second.publish({"n": 5}, topic="brief")
    wanted = {("brief", id) for id in kept[1:]}
    until("the past", lambda: len(arrived(receiver, "brief")) >= len(wanted))
    settle(network)
    assert_exactly(arrived(receiver, "brief"), wanted)


def _read(doors: list[Door]) -> bool:
    listed = [one for door in doors for one in door.call("GET", "/v1/servers").json()["servers"]]
    return all(one["lag"] == 0 for one in listed)


class Publisher(threading.Thread):
    """Publishes to one dispatcher until told to stop, and goes on trying; every event has its own id."""

    def __init__(self, url: str, name: str) -> None:
        super().__init__(daemon=True)
        self._url = url
        self._name = name
        self._ending = threading.Event()
        #: ids that were acknowledged
        self.accepted: list[str] = []

    def run(self) -> None:
        with httpx.Client(base_url=self._url, timeout=10) as http:
            number = 0
            while not self._ending.is_set():
                id = f"{self._name}-{number}"
                try:
                    answer = http.post(f"/v1/topics/{TOPIC}/events", json={"$id": id, "n": number})
                except httpx.TransportError:
                    self._ending.wait(0.05)
                    continue
                if answer.status_code == 202:
                    self.accepted.append(id)
                    number += 1
                else:
                    self._ending.wait(0.05)

    def finish(self) -> list[str]:
        self._ending.set()
        self.join(20)
        return self.accepted


@pytest.mark.parametrize("victim", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_one_is_killed_under_load_and_comes_back(
    victim: int, network: Network, receiver: Receiver, doors: list[Door]
) -> None:
    everybody_ready(doors)
    living = doors[1 - victim]
    tag = f"kill{victim}"
    living.subscribe(receiver, f"{tag}-stays")
    living.subscribe(receiver, f"{tag}-ends")
    living.subscribe(receiver, f"{tag}-changes", "n < 0")
    publishers = [Publisher(door.url, f"{tag}-{number}") for number, door in enumerate(doors)]
    for publisher in publishers:
        publisher.start()
    until("events from both", lambda: all(len(each.accepted) > 5 for each in publishers))
    network.dispatchers[victim].kill()
    alone = len(publishers[1 - victim].accepted)
    # The other one goes on with everything.
    assert living.call("DELETE", f"/v1/subscriptions/{tag}-ends").status_code == 204
    living.subscribe(receiver, f"{tag}-new")
    living.subscribe(receiver, f"{tag}-brief")
    assert living.call("DELETE", f"/v1/subscriptions/{tag}-brief").status_code == 204
    sink = {"url": receiver.address(f"{tag}-changes")}
    changed = living.call(
        "PUT", f"/v1/subscriptions/{tag}-changes", json={"filter": {"n": {"gte": 100_000}}, "sink": sink}
    )
    assert changed.status_code == 200, changed.text
    until("events while it is dead", lambda: len(publishers[1 - victim].accepted) > alone + 20)
    back = len(publishers[victim].accepted)
    network.dispatchers[victim].start()
    network.dispatchers[victim].await_ready()
    until("events after its return", lambda: len(publishers[victim].accepted) > back + 5)
    accepted = [id for publisher in publishers for id in publisher.finish()]
    marks = [*doors[0].publish({"n": 200_000}), *doors[1].publish({"n": 100_000})]
    network.await_servers("ready", *network.servers)
    settle(network)
    assert doors[0].ids() == doors[1].ids() >= {f"{tag}-stays", f"{tag}-new", f"{tag}-changes"}
    found = arrived(receiver, f"{tag}-stays", f"{tag}-changes")
    wanted = {(f"{tag}-stays", id) for id in accepted + marks} | {(f"{tag}-changes", id) for id in marks}
    assert_exactly(found, wanted)
    # What was made while it was dead hears of events of after its return, and what ended does not.
    new = {event for _, event in arrived(receiver, f"{tag}-new")}
    # The first of them may have been in its log, unanswered, when it was killed.
    later = {*publishers[victim].accepted[back + 1 :], *marks}
    assert new >= later
    ended = {event for _, event in arrived(receiver, f"{tag}-ends", f"{tag}-brief")}
    assert not ended & later
    assert all(len(hooks) == 1 for hooks in receiver.webhook_ids().values())
