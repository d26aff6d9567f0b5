"""A disk without room, on real processes: filled by the log itself, and by a file of somebody else.

Nothing that was acknowledged is lost, and the network accepts events again by itself when there is room.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from tests.network import Network, Process, Receiver, until
from tests.network.disk import SmallDisk, small_disk

CAPACITY = 72 << 20
RESERVE = 16 << 20
FLOOR = 4 << 20
TOPIC = "blobs"
#: one row of the log is about a megabyte
BLOB = "x" * 900_000


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "disk", CAPACITY) as found:
        yield found


@pytest.fixture
def crowded(disk: SmallDisk) -> Iterator[Network]:
    """A network on a small disk, with its logs there, too."""
    running = Network(
        disk.folder,
        1,
        dispatcher_options=["--disk-reserve", str(RESERVE)],
        server_options=["--disk-floor", str(FLOOR)],
        environment=disk.environment,
    )
    try:
        running.start()
        attributes = {"n": "integer", "blob": "string"}
        created = running.http.put(f"/v1/topics/{TOPIC}", json={"attributes": attributes})
        assert created.status_code == 201, created.text
        yield running
    finally:
        running.close()


def subscribe(network: Network, receiver: Receiver, path: str) -> None:
    body = {"id": path, "topic": TOPIC, "filter": "n >= 0", "sink": {"url": receiver.address(path)}}
    answer = network.http.post("/v1/subscriptions", json=body)
    assert answer.status_code == 201, answer.text


def publish(http: httpx.Client, number: int, blob: str = BLOB) -> httpx.Response:
    return http.post(f"/v1/topics/{TOPIC}/events", json={"$id": f"e{number}", "n": number, "blob": blob})


def publish_until_refused(http: httpx.Client) -> tuple[list[str], httpx.Response]:
    accepted: list[str] = []
    for number in range(200):
        answer = publish(http, number)
        if answer.status_code != 202:
            return accepted, answer
        accepted += answer.json()["ids"]
    raise AssertionError("200 MB fitted onto the small disk")


def delivered(receiver: Receiver, name: str) -> set[str]:
    return {event for subscription, event in receiver.webhook_ids() if subscription == name}


def test_a_disk_that_the_log_filled_has_room_again_when_the_servers_have_read_it(
    crowded: Network, disk: SmallDisk, receiver: Receiver
) -> None:
    subscribe(crowded, receiver, "own")
    processes = {process.name: process.pid for process in crowded.processes()}
    crowded.servers["s1"].freeze()
    accepted, refusal = publish_until_refused(crowded.http)
    assert refusal.status_code == 503
    assert "disk: " in refusal.json()["detail"]
    assert f"{RESERVE} needed" in refusal.json()["detail"]
    log = disk.folder / "dispatcher" / "dispatcher.db"
    full = log.stat().st_size
    ready = crowded.http.get("/readyz")
    assert ready.status_code == 503
    assert "disk: " in ready.json()["detail"]
    assert disk.free() > FLOOR, "the log must leave room for the servers"
    crowded.servers["s1"].thaw()
    until("an event is accepted", lambda: publish(crowded.http, 1000).status_code == 202, seconds=60)
    until(
        "every event is delivered",
        lambda: delivered(receiver, "own") >= {*accepted, "e1000"},
        seconds=60,
    )
    # The space goes back to the disk, too, not only to the log's free pages.
    until("the log's file is small", lambda: log.stat().st_size < full / 2, seconds=60)
    assert {process.name: process.pid for process in crowded.processes()} == processes
    assert all(process.alive() for process in crowded.processes())


def test_a_disk_that_a_foreign_file_filled_has_room_again_when_that_goes_away(
    crowded: Network, disk: SmallDisk, receiver: Receiver
) -> None:
    subscribe(crowded, receiver, "foreign")
    accepted = [publish(crowded.http, 0).json()["ids"][0]]
    until("the first event", lambda: delivered(receiver, "foreign") == set(accepted))
    disk.fill()
    until("publishing is refused", lambda: publish(crowded.http, 1).status_code == 503)
    disk.fill()  # what the processes freed meanwhile, too
    assert crowded.http.get("/readyz").status_code == 503
    disk.empty()
    until("an event is accepted", lambda: publish(crowded.http, 2).status_code == 202, seconds=60)
    until("it is delivered", lambda: "e2" in delivered(receiver, "foreign"), seconds=60)
    assert all(process.alive() for process in crowded.processes())


class Up(Process):
    """`edn up` with its data on the small disk; what it prints goes there, too."""

    def __init__(self, disk: SmallDisk) -> None:
        data = disk.folder / "data"
        options = ["up", "--servers", "1", "--port", "0", "--data", str(data), "--json-ready"]
        environment = {
            **disk.environment,
            "EDN_DISK_RESERVE": str(RESERVE),
            "EDN_SERVER_DISK_FLOOR": str(FLOOR),
        }
        super().__init__("edn-up", ["edn.cli", *options], disk.folder, environment)

    def children(self) -> list[psutil.Process]:
        return psutil.Process(self.pid).children()


@pytest.mark.slow
def test_edn_up_survives_a_full_disk_and_starts_on_one(disk: SmallDisk) -> None:
    up = Up(disk)
    up.start()
    try:
        up.await_ready()
        with httpx.Client(base_url=up.url, timeout=30) as http:
            attributes = {"n": "integer", "blob": "string"}
            assert http.put(f"/v1/topics/{TOPIC}", json={"attributes": attributes}).status_code == 201
            disk.fill()
            until("publishing is refused", lambda: publish(http, 0).status_code == 503)
            disk.fill()
            # A child that dies meanwhile comes back by itself, as soon as there is room.
            before = {child.pid for child in up.children()}
            for child in up.children():
                child.kill()
            until("other processes", lambda: {c.pid for c in up.children()} - before, seconds=30)
            disk.fill()
            assert up.alive()
            disk.empty()

            def accepts() -> bool:
                try:
                    return publish(http, 1, "small").status_code == 202
                except httpx.TransportError:
                    return False

            until("an event is accepted", accepts, seconds=60)
            assert up.alive()
        disk.fill()
        assert up.stop(30) == 0
        disk.fill()
        up.start()
        waiting = disk.folder / "edn-up.stderr"
        until("it waits", lambda: up.alive() and up.children(), seconds=30)
        disk.fill()
        disk.empty()
        up.await_ready()
        with httpx.Client(base_url=up.url, timeout=30) as http:
            until("an event is accepted", lambda: publish(http, 2, "small").status_code == 202, seconds=60)
        assert "Traceback" not in waiting.read_text()
    finally:
        up.stop(30)


def test_the_disk_is_really_small(disk: SmallDisk) -> None:
    """The tests above mean nothing where more can be written than they think."""
    big = str(disk.folder / "big")
    script = f"f = open({big!r}, 'wb', buffering=0); f.write(bytes({CAPACITY})); f.write(bytes(4096))"
    ran = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, **disk.environment},
        capture_output=True,
        check=False,
    )
    assert b"No space left" in ran.stderr
