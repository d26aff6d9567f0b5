"""`edn up`: a whole network from one command, end to end, and nothing left behind when it goes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.network import Process, Receiver, until
from tests.network.processes import ROOT


class Up(Process):
    def __init__(self, folder: Path) -> None:
        options = ["up", "--servers", "2", "--port", "0", "--data", str(folder / "data"), "--json-ready"]
        super().__init__("edn-up", ["edn.cli", *options], folder)
        self.data = folder / "data"

    def children(self) -> list[psutil.Process]:
        return psutil.Process(self.pid).children(recursive=True)


def edn(url: str, *arguments: str) -> Any:
    """One command of the CLI, its answer as JSON."""
    done = subprocess.run(
        [sys.executable, "-m", "edn.cli", *arguments, "--url", url, "--json"],
        cwd=ROOT, capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    running = Up(tmp_path)
    running.start()
    try:
        running.await_ready()
        yield running
    finally:
        running.stop(30)


def gone(processes: list[psutil.Process]) -> bool:
    return not any(one.is_running() and one.status() != psutil.STATUS_ZOMBIE for one in processes)


def servers(url: str) -> dict[str, str]:
    return {one["id"]: one["state"] for one in httpx.get(f"{url}/v1/servers").json()["servers"]}


def test_from_the_command_to_the_notification_and_back(up: Up, receiver: Receiver) -> None:
    assert set(servers(up.url).values()) == {"ready"}
    assert len(servers(up.url)) == 2
    edn(up.url, "topic", "create", "stocks", "symbol:string", "price:number")
    edn(
        up.url, "subscribe", "stocks", 'symbol == "GE" and price > 30',
        "--to", receiver.address("up"), "--id", "mine", "--recipient", "me",
    )  # fmt: skip
    edn(up.url, "publish", "stocks", "symbol=GE", "price=31.5")
    edn(up.url, "publish", "stocks", '{"symbol": "GE", "price": 29}')
    until("the notification", lambda: [pair for pair in receiver.webhook_ids() if pair[0] == "mine"])
    (delivery,) = [one for one in receiver.deliveries() if one.path == "/up"]
    (entry,) = delivery.body["notifications"]
    assert entry["topic"] == "stocks"
    assert entry["event"]["attributes"] == {"symbol": "GE", "price": 31.5}
    assert entry["matches"] == [{"subscription": "mine", "recipient": "me"}]
    family = up.children()
    assert up.stop(30) == 0
    assert gone(family)


def test_a_child_that_dies_is_started_again(up: Up) -> None:
    def addresses() -> dict[str, str]:
        listed = httpx.get(f"{up.url}/v1/servers").json()["servers"]
        return {server["id"]: server["url"] for server in listed if server["state"] == "ready"}

    before = addresses()
    victim = next(child for child in up.children() if "edn_server" in child.cmdline())
    victim.kill()
    # It listens elsewhere in its next life; it may be back before anybody has noticed that it was gone.
    until("the server to be back", lambda: addresses() not in ({}, before), seconds=60)
    until("all to be ready", lambda: set(servers(up.url).values()) == {"ready"}, seconds=60)
    assert addresses().keys() == before.keys()


def test_no_child_outlives_a_killed_supervisor(up: Up) -> None:
    family = up.children()
    assert len(family) >= 3
    up.kill()
    until("the children to end", lambda: gone(family))


def test_what_was_acknowledged_survives_a_kill_of_everything(up: Up, receiver: Receiver) -> None:
    body = {"attributes": {"n": "integer"}}
    assert httpx.put(f"{up.url}/v1/topics/t", json=body).status_code == 201
    subscription = {"id": "survivor", "topic": "t", "sink": {"url": receiver.address("survivor")}}
    assert httpx.post(f"{up.url}/v1/subscriptions", json=subscription).status_code == 201
    answer = httpx.post(f"{up.url}/v1/topics/t/events", json=[{"n": number} for number in range(100)])
    assert answer.status_code == 202
    family = [psutil.Process(up.pid), *up.children()]
    for process in family:
        process.kill()
    up.kill()
    until("everything to be gone", lambda: gone(family))
    up.start()
    up.await_ready()
    wanted = {("survivor", event) for event in answer.json()["ids"]}
    until("all notifications", lambda: wanted <= receiver.webhook_ids().keys())
    arrived = {pair: hooks for pair, hooks in receiver.webhook_ids().items() if pair[0] == "survivor"}
    assert arrived.keys() == wanted
    assert all(len(hooks) == 1 for hooks in arrived.values())
