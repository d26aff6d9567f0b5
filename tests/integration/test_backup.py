"""A backup under traffic, restored elsewhere: the checker holds over what was acknowledged before it."""

from __future__ import annotations

import contextlib
import itertools
import json
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import msgspec
import pytest
import typer

from dispatcher.store.sqlite.log import SqliteLog
from edn.cli import backup as backups
from edn.errors import Unavailable
from edn.runtime import disk
from edn.tools.checker import Recorder, check_recording
from edn.tools.checker.verdicts import Verdict
from edn_server.storage.database import SqliteStore
from tests.integration.scenario import settle
from tests.network import Network, Receiver, until

SERVERS = 3

# Copies of data folders; a network in PostgreSQL is backed up by `edn backup --database`.
pytestmark = pytest.mark.engines("sqlite")
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


class Publisher(threading.Thread):
    """Publishes to one network until it is gone, or enough."""

    def __init__(self, url: str, prefix: str) -> None:
        super().__init__()
        self._url = url
        self._prefix = prefix
        self.enough = threading.Event()
        self.acknowledged: list[str] = []

    def run(self) -> None:
        with httpx.Client(base_url=self._url, timeout=10) as http:
            for number in itertools.count():
                if self.enough.is_set():
                    return
                id = f"{self._prefix}-{number}"
                try:
                    answer = http.post(f"/v1/topics/{TOPIC}/events", json={"$id": id, "n": number})
                except httpx.TransportError:
                    return
                if answer.status_code == 202:
                    self.acknowledged.append(id)


@pytest.mark.slow
def test_backing_up_and_restoring_again_and_again_loses_nothing(receiver: Receiver, tmp_path: Path) -> None:
    """Under traffic, each network made from the backup of the one before."""
    (tmp_path / "first").mkdir()
    running, owed = Network(tmp_path / "first", 2), set[str]()
    names = list(running.servers)
    try:
        running.start()
        running.http.put(f"/v1/topics/{TOPIC}", json={"attributes": {"n": "integer"}})
        subscription = {"id": "rounds", "topic": TOPIC, "sink": {"url": receiver.address("rounds")}}
        assert running.http.post("/v1/subscriptions", json=subscription).status_code == 201
        for round in range(4):
            publisher = Publisher(running.url, f"r{round}")
            publisher.start()
            try:
                sent = publisher.acknowledged
                until("some traffic", lambda sent=sent: len(sent) > 50, seconds=60)  # type: ignore[misc]
                owed |= set(sent)
                made = edn("backup", str(tmp_path / f"backup{round}"), "--url", running.url)
                assert made.returncode == 0, made.stderr
            finally:
                for process in running.processes():  # the machine is lost
                    process.kill()
                publisher.enough.set()
                publisher.join()
            running.close()
            data = tmp_path / f"data{round}"
            restored = edn("restore", str(tmp_path / f"backup{round}"), str(data))
            assert restored.returncode == 0, restored.stderr
            running = Network(data, 0)
            running.servers = {name: running.new_server(name, data=data / "servers" / name) for name in names}
            running.start()
            settle(running)
            told = {event for name, event in receiver.webhook_ids() if name == "rounds"}
            assert owed <= told, sorted(owed - told)[:5]
    finally:
        running.close()


# -- backups that are not whole -----------------------------------------------------------------------------


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    """A backup of a network in which nothing has happened yet."""
    folder = tmp_path / "backup"
    log = SqliteLog(folder / "dispatcher", on_commit=lambda _: None)
    log._writer.connection.execute("INSERT INTO keys VALUES ('k', x'00', 'ann', '', '[]', '{}', 0, NULL)")
    log.close()
    SqliteStore(folder / "servers" / "s1").close()
    for left in [*folder.rglob("lock"), *folder.rglob("reserve")]:
        left.unlink()
    files = {
        name: msgspec.to_builtins(backups._describe(folder / name))
        for name in ("dispatcher/dispatcher.db", "servers/s1/server.db")
    }
    manifest = {
        "version": 2,
        "created": "x",
        "dispatchers": ["dispatcher"],
        "servers": ["s1"],
        "files": files,
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def test_a_whole_backup_is_restored_and_warns_of_keys_that_come_back(backup: Path, tmp_path: Path) -> None:
    ran = edn("restore", str(backup), str(tmp_path / "data"))
    assert ran.returncode == 0, ran.stderr
    assert "revoked since" in ran.stderr
    assert (tmp_path / "data" / "servers" / "s1" / "server.db").stat().st_mode & 0o777 == 0o600


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-4096])


def link(path: Path) -> None:
    path.rename(path.with_name("real"))
    path.symlink_to(path.with_name("real"))


def named(**changes: Any) -> Any:
    def change(path: Path) -> None:
        manifest = path.parents[2] / "manifest.json"
        manifest.write_text(json.dumps(json.loads(manifest.read_text()) | changes))

    return change


def unsound(path: Path) -> None:
    """Its digest is that of the manifest, but it was damaged before it was copied."""
    flip_header = bytearray(path.read_bytes())
    flip_header[100:120] = b"\xff" * 20
    path.write_bytes(flip_header)
    manifest = path.parents[2] / "manifest.json"
    content = json.loads(manifest.read_text())
    content["files"]["servers/s1/server.db"] = msgspec.to_builtins(backups._describe(path))
    manifest.write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (flip, "server.db is damaged"),
        (cut, "server.db is damaged"),
        (Path.unlink, "server.db is missing"),
        (link, "is a link"),
        (unsound, "not an intact database"),
        (named(servers=["../../etc"]), "is not a valid server name"),
        (named(servers=["/etc"]), "is not a valid server name"),
        (named(servers=[".."]), "is not a valid server name"),
        (named(dispatchers=["servers"]), "is not a valid dispatcher name"),
        (named(servers=["s1", "s2"]), "must describe exactly"),
        (named(servers=[]), "must describe exactly"),
        (named(files={}), "must describe exactly"),
        (named(version=1), "must be a backup of format 2, got format 1"),
    ],
)
def test_a_backup_that_is_not_whole_is_refused_by_name_and_nothing_is_written(
    backup: Path, tmp_path: Path, damage: Any, says: str
) -> None:
    damage(backup / "servers" / "s1" / "server.db")
    ran = edn("restore", str(backup), str(tmp_path / "data"))
    assert ran.returncode != 0
    assert says in ran.stderr
    assert "Traceback" not in ran.stderr
    assert not (tmp_path / "data").exists()


def test_a_database_that_arrives_damaged_makes_no_backup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def request(method: str, path: str, target: Path | None) -> None:
        if target is not None:
            backups._write(target, [b"SQLite format 3\0" + b"\xff" * 8176])

    network = SimpleNamespace(urls=["http://x"], servers=lambda: [SimpleNamespace(id="s1", leaving=None)])
    monkeypatch.setattr(backups, "connected", lambda _: contextlib.nullcontext(network))
    monkeypatch.setattr(backups, "_connect", lambda *_: request)
    monkeypatch.setattr(backups, "keep_private", lambda: None)
    with pytest.raises(typer.Exit):
        backups.backup(tmp_path / "backup", "http://x")
    assert "servers/s1/server.db is not an intact database" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_copy_that_would_reach_the_watermark_is_not_made(tmp_path: Path) -> None:
    with contextlib.closing(disk.connect(tmp_path / "x.db")) as connection:
        connection.execute("CREATE TABLE t (x)")
    with pytest.raises(Unavailable, match=r"disk: \d+ bytes free, \d+ needed"):
        disk.copy(tmp_path / "x.db", tmp_path / "copy.db", watermark=1 << 60)
    assert not (tmp_path / "copy.db").exists()
    disk.copy(tmp_path / "x.db", tmp_path / "copy.db", watermark=0)
    assert (tmp_path / "copy.db").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("prepare", "says"),
    [
        (lambda folder: None, "is not a backup"),
        (lambda folder: (folder / "manifest.json").write_text('{"version": 99}'), "got format 99"),
    ],
)
def test_what_is_no_backup_is_refused(tmp_path: Path, prepare: Any, says: str) -> None:
    source = tmp_path / "source"
    source.mkdir()
    prepare(source)
    ran = edn("restore", str(source), str(tmp_path / "data"))
    assert ran.returncode == 2
    assert says in ran.stderr
