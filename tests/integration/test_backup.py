"""A backup under traffic, restored elsewhere: what was acknowledged before it is told, once."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.scenario import settle
from tests.network import Network, Receiver, until

SERVERS = 3
TOPIC = "kept"


def edn(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "edn.cli", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


class Clients(threading.Thread):
    """Subscribes and publishes until it is told to stop, or the network is gone."""

    def __init__(self, network: Network, receiver: Receiver) -> None:
        super().__init__()
        self._url = network.url
        self._receiver = receiver
        self.enough = threading.Event()
        #: in the order in which they were acknowledged: ("sub" or "event", id)
        self.acknowledged: list[tuple[str, str]] = []

    def run(self) -> None:
        with httpx.Client(base_url=self._url, timeout=10) as http:
            number = 0
            while not self.enough.is_set():
                number += 1
                try:
                    if number % 10 == 0:
                        name = f"sub{number}"
                        sink = {"url": self._receiver.address(name)}
                        answer = http.post(
                            "/v1/subscriptions", json={"id": name, "topic": TOPIC, "sink": sink}
                        )
                        done = ("sub", name)
                    else:
                        body = {"$id": f"e{number}", "n": number}
                        answer = http.post(f"/v1/topics/{TOPIC}/events", json=body)
                        done = ("event", f"e{number}")
                except httpx.TransportError:
                    return
                if answer.is_success:
                    self.acknowledged.append(done)


def test_what_was_acknowledged_before_a_backup_is_told_by_the_network_that_is_made_from_it(
    network: Network, receiver: Receiver, tmp_path: Path
) -> None:
    network.http.put(f"/v1/topics/{TOPIC}", json={"attributes": {"n": "integer"}})
    paused = {"id": "paused", "topic": TOPIC, "sink": {"url": receiver.address("paused")}}
    assert network.http.post("/v1/subscriptions", json=paused).status_code == 201
    assert network.http.post("/v1/subscriptions/paused/pause").status_code == 200
    clients = Clients(network, receiver)
    clients.start()
    try:
        until("some traffic", lambda: len(clients.acknowledged) > 200, seconds=60)
        owed = list(clients.acknowledged)
        made = edn("backup", str(tmp_path / "backup"), "--url", network.url)
        assert made.returncode == 0, made.stderr
        until("more traffic", lambda: len(clients.acknowledged) > len(owed) + 20, seconds=60)
        for process in network.processes():  # the machine is lost
            process.kill()
    finally:
        clients.enough.set()
        clients.join()
    heard_before = len(receiver.deliveries())
    data = tmp_path / "elsewhere"
    restored = edn("restore", str(tmp_path / "backup"), str(data))
    assert restored.returncode == 0, restored.stderr
    elsewhere = Network(data, 0)
    elsewhere.servers = {
        name: elsewhere.new_server(name, data=data / "servers" / name) for name in network.servers
    }
    try:
        elsewhere.start()
        assert elsewhere.http.post("/v1/subscriptions/paused/resume").status_code == 200
        fresh = elsewhere.http.post(f"/v1/topics/{TOPIC}/events", json={"$id": "fresh", "n": 0})
        assert fresh.status_code == 202, fresh.text
        settle(elsewhere)
        _judge(receiver, owed, heard_before)
    except AssertionError:
        print(elsewhere.report())
        raise
    finally:
        elsewhere.close()


def _judge(receiver: Receiver, owed: list[tuple[str, str]], heard_before: int) -> None:
    events = [id for kind, id in owed if kind == "event"]
    wanted = {("paused", id) for id in events}
    for place, (kind, name) in enumerate(owed):
        if kind == "sub":
            wanted |= {(name, id) for later, id in owed[place:] if later == "event"}
            wanted.add((name, "fresh"))
    pairs = receiver.webhook_ids()
    missing = wanted - pairs.keys()
    assert not missing, f"{len(missing)} of {len(wanted)} are missing: {sorted(missing)[:3]}"
    # Of the new network alone: what the old one told after the backup the new one cannot know.
    ids: dict[tuple[str, str], set[str]] = {}
    for delivery in receiver.deliveries()[heard_before:]:
        for pair in delivery.pairs():
            ids.setdefault(pair, set()).add(delivery.webhook_id)
    twice = {pair: found for pair, found in ids.items() if len(found) > 1}
    assert not twice, twice


@pytest.mark.parametrize(
    ("prepare", "says"),
    [
        (lambda folder: None, "is no backup"),
        (lambda folder: (folder / "manifest.json").write_text('{"version": 99}'), "another version"),
    ],
)
def test_what_is_no_backup_is_refused(tmp_path: Path, prepare: Any, says: str) -> None:
    source = tmp_path / "source"
    source.mkdir()
    prepare(source)
    ran = edn("restore", str(source), str(tmp_path / "data"))
    assert ran.returncode == 2
    assert says in ran.stderr
