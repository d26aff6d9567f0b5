"""Disks that fail under real processes: I/O errors, failed syncs, torn and lost pages.

After each fault the process that saw it has ended, was started again and recovered from its files. What was
acknowledged is delivered, each notification under one webhook-id.
"""

from __future__ import annotations

import itertools
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from edn.runtime.disk import EXIT_DISK_FAILED
from tests.network import Network, Process, Receiver, until
from tests.network.disk import FaultyDisk

TOPIC = "faults"
_numbers = itertools.count()


class Scene:
    """A network on a disk that fails on command, and what it has acknowledged."""

    def __init__(self, folder: Path, receiver: Receiver) -> None:
        data = folder / "data"
        data.mkdir()
        self.disk = FaultyDisk(data, folder / "work")
        self.network = Network(data, 1, environment=self.disk.environment)
        self.receiver = receiver
        self.acknowledged: set[str] = set()

    def begin(self) -> None:
        self.network.start()
        put = self.network.http.put(f"/v1/topics/{TOPIC}", json={"attributes": {"n": "integer"}})
        assert put.status_code == 201, put.text
        body = {"id": "all", "topic": TOPIC, "sink": {"url": self.receiver.address("faults")}}
        assert self.network.http.post("/v1/subscriptions", json=body).status_code == 201

    def publish(self, count: int = 1) -> bool:
        """Publish events one by one; whether all were acknowledged. A lost answer is none."""
        good = True
        for _ in range(count):
            id = f"e{next(_numbers)}"
            try:
                answer = httpx.post(
                    f"{self.network.url}/v1/topics/{TOPIC}/events", json={"$id": id, "n": 1}, timeout=10
                )
            except httpx.TransportError:
                good = False
                continue
            if answer.status_code == 202:
                self.acknowledged.add(id)
            else:
                assert answer.status_code == 503, answer.text
                good = False
        return good

    def delivered(self) -> dict[str, set[str]]:
        return {event: ids for (_, event), ids in self.receiver.webhook_ids().items()}

    def check(self) -> None:
        """Everything acknowledged arrives, and nothing under two webhook-ids."""
        until("every acknowledged event", lambda: self.acknowledged <= self.delivered().keys(), seconds=60)
        assert {event: ids for event, ids in self.delivered().items() if len(ids) > 1} == {}

    def ended(self, process: Process) -> int:
        until(f"{process.name} ends", lambda: not process.alive(), seconds=30)
        code = process.exit_code()
        assert code is not None
        process.stop()
        return code

    def again(self, process: Process) -> None:
        self.disk.heal()
        process.start()
        process.await_ready()
        self.network.await_servers("ready", "s1")


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory, receiver: Receiver) -> Iterator[Scene]:
    made = Scene(tmp_path_factory.mktemp("faults"), receiver)
    try:
        made.begin()
        yield made
    except AssertionError:
        print(made.network.report())
        raise
    finally:
        made.disk.heal()
        made.network.close()


@pytest.mark.parametrize("call", ["write", "sync"])
def test_a_log_that_cannot_be_written_or_synced_acknowledges_nothing_and_recovers(
    scene: Scene, call: str
) -> None:
    assert scene.publish(5)
    scene.disk.fail(call, "EIO", "dispatcher.db-wal")
    assert not scene.publish(3)
    assert scene.ended(scene.network.dispatcher) == EXIT_DISK_FAILED
    scene.again(scene.network.dispatcher)
    assert scene.publish(5)
    scene.check()


@pytest.mark.parametrize("call", ["write", "sync"])
def test_a_server_whose_database_fails_ends_and_catches_up(scene: Scene, call: str) -> None:
    server = scene.network.servers["s1"]
    scene.disk.fail(call, "EIO", "server.db-wal")
    assert scene.publish(5)
    assert scene.ended(server) == EXIT_DISK_FAILED
    assert scene.publish(5)
    scene.again(server)
    scene.check()


def test_a_disk_that_refuses_writes_for_a_while_ends_nothing(scene: Scene) -> None:
    scene.disk.fail("write", "ENOSPC", "dispatcher.db-wal")
    assert not scene.publish(3)
    scene.disk.heal()
    until("an event is accepted", lambda: scene.publish(), seconds=30)
    assert scene.network.dispatcher.alive()
    scene.check()


def _torn(scene: Scene, process: Process, call: str, action: str, skip: int) -> None:
    name = "dispatcher.db" if process is scene.network.dispatcher else "server.db"
    scene.disk.fail(call, action, f"{name}-wal", skip)
    for _ in range(50):
        scene.publish()
        if not process.alive():
            break
    assert scene.ended(process) == -signal.SIGKILL
    scene.again(process)
    assert scene.publish(2)
    scene.check()
    for database in scene.network.folder.rglob("*.db"):
        with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
            assert connection.execute("PRAGMA quick_check").fetchone() == ("ok",), database


@pytest.mark.parametrize(("call", "action", "skip"), [("write", "tear", 2), ("sync", "lose", 0)])
def test_a_page_that_was_torn_or_lost_when_the_dispatcher_died_is_not_believed(
    scene: Scene, call: str, action: str, skip: int
) -> None:
    _torn(scene, scene.network.dispatcher, call, action, skip)


@pytest.mark.slow
@pytest.mark.parametrize("skip", range(0, 12, 2))
@pytest.mark.parametrize(("call", "action"), [("write", "tear"), ("sync", "lose")])
@pytest.mark.parametrize("role", ["dispatcher", "server"])
def test_wherever_the_last_page_is_torn_or_lost_nothing_acknowledged_is(
    scene: Scene, role: str, call: str, action: str, skip: int
) -> None:
    process = scene.network.dispatcher if role == "dispatcher" else scene.network.servers["s1"]
    _torn(scene, process, call, action, skip)
