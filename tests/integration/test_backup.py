"""A backup under traffic, restored elsewhere: the checker holds over what was acknowledged before it."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest

from edn.checker import Recorder, check_recording
from edn.checker.verdicts import Verdict
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
        #: in the order in which they were sent: an id, and whether it is an event's
        self.sent: list[tuple[str, bool]] = []
        #: how many of the first of them are acknowledged; the last may have no answer
        self.acknowledged = 0

    def run(self) -> None:
        with httpx.Client(base_url=self._url, timeout=10) as http:
            number = 0
            while not self.enough.is_set():
                number += 1
                event = number % 10 != 0
                id = f"e{number}" if event else f"sub{number}"
                self.sent.append((id, event))
                try:
                    if event:
                        answer = http.post(f"/v1/topics/{TOPIC}/events", json={"$id": id, "n": number})
                    else:
                        body = {"id": id, "topic": TOPIC, "sink": {"url": self._receiver.address(id)}}
                        answer = http.post("/v1/subscriptions", json=body)
                except httpx.TransportError:
                    return
                assert answer.is_success, answer.text
                self.acknowledged += 1


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
        until("some traffic", lambda: clients.acknowledged > 200, seconds=60)
        owed, heard_first = clients.acknowledged, len(receiver.deliveries())
        made = edn("backup", str(tmp_path / "backup"), "--url", network.url)
        assert made.returncode == 0, made.stderr
        until("more traffic", lambda: clients.acknowledged > owed + 20, seconds=60)
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
        _record(tmp_path / "run.jsonl", receiver, clients.sent, owed, (heard_first, heard_before))
        report = check_recording(tmp_path / "run.jsonl")
        assert report.verdict is Verdict.HOLDS, report.text()
        assert report.counts.due > owed
    except AssertionError:
        print(elsewhere.report())
        raise
    finally:
        elsewhere.close()


def _record(
    path: Path, receiver: Receiver, sent: list[tuple[str, bool]], owed: int, heard: tuple[int, int]
) -> None:
    """What the clients saw, as the checker reads it. Of what is not owed, nobody knows what became of it.

    `heard`: how many POSTs had come before the backup, and before the new network.
    """
    clock = itertools.count(1_000_000, 1_000_000)
    before, after = heard
    deliveries = receiver.deliveries()
    told = {pair for delivery in deliveries[after:] for pair in delivery.pairs()}
    with Recorder(path, clock=lambda: next(clock), wall_clock=lambda: 1_700_000_000 * 10**9) as recorder:
        recorder.topic(TOPIC, {"n": "integer"})

        def subscribe(id: str, ok: bool) -> None:
            address = receiver.address(id)
            recorder.listening(address)
            with recorder.operation("subscribe", subscription=id, topic=TOPIC, address=address) as operation:
                if ok:
                    operation.ok()

        def publish(id: str, number: int, ok: bool) -> None:
            event = {"$id": id, "n": number}
            with recorder.operation("publish", topic=TOPIC, events=[event]) as operation:
                if ok:
                    operation.ok(ids=[id])

        subscribe("paused", True)
        with recorder.operation("pause", subscription="paused") as operation:
            operation.ok()
        for place, (id, event) in enumerate(sent):
            if event:
                publish(id, place + 1, place < owed)
            else:
                subscribe(id, place < owed)
        with recorder.operation("resume", subscription="paused") as operation:
            operation.ok()
        publish("fresh", 0, True)
        known = {id for id, _ in sent[:owed]} | {event for _, event in told}
        for place, delivery in enumerate(deliveries):
            entries = delivery.body["notifications"]
            if before <= place < after:
                # What the lost machine told since its backup began the new one may not know: it tells it once
                # more, or, of what came after the backup, never. Each of these has an address of its own.
                [name] = {subscription for subscription, _ in delivery.pairs()}
                ids = [entry["event"]["id"] for entry in entries]
                entries = [
                    entry
                    for id, entry in zip(ids, entries, strict=True)
                    if id in known and (name, id) not in told
                ]
            if entries:
                address, body = receiver.address(delivery.path), json.dumps({"notifications": entries})
                recorder.notification(address, delivery.webhook_id, body.encode(), status=delivery.status)
        recorder.quiet()


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
