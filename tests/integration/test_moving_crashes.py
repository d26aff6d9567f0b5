"""Processes killed in every phase of an apply, a drain and a replacement: it goes on, and nothing is lost.

The dispatcher drives all phases, so it is stopped at a checkpoint of the phase (`tests.faults.checkpoints`);
then the victim is killed, and comes back.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import httpx
import pytest

from tests.faults import checkpoints
from tests.integration.scenario import settle
from tests.network import Engine, Network, Receiver, until
from tests.network.moving import await_moves, begin_moves

#: many processes, each several times
pytestmark = pytest.mark.slow

SERVERS = 3
TOPIC = "phases"
_NUMBERS = count()

#: what has happened when the dispatcher stops there
PHASES = {
    "stored": "the new server has stored it, nothing is in the log",
    "recorded": "the move records are committed, no server need have read them",
    "asked": "the old server has answered what is left",
    "handed-over": "the new server has what was kept, the old one has not forgotten it",
    "delivered": "the old server has delivered, the new one does not know",
    "arrived": "the new server lets go, the dispatcher has not written that down",
}
VICTIMS = ("source", "destination", "dispatcher")
ROWS = [(kind, phase, victim) for kind in ("apply", "drain") for phase in PHASES for victim in VICTIMS]
#: of a server whose disk is lost
LOST = [("replace", phase, victim) for phase in ("stored", "recorded") for victim in VICTIMS[1:]]


@pytest.fixture(scope="module")
def stops(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where checkpoints are armed."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("checkpoints")
        patch.setenv(checkpoints.VARIABLE, str(folder))
        yield folder


@pytest.fixture(scope="module")
def network(engine: Engine, stops: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    running = engine.network(tmp_path_factory.mktemp("network"), SERVERS)
    try:
        running.start()
        answer = running.http.put(f"/v1/topics/{TOPIC}", json={"attributes": {"n": "integer", "s": "string"}})
        assert answer.status_code == 201, answer.text
        yield running
    finally:
        running.close()


@dataclass
class Publisher:
    """Events under ids of its own, each until it is acknowledged, whoever dies meanwhile."""

    url: str
    label: str
    ids: list[str] = field(default_factory=list)
    failure: BaseException | None = None

    def __post_init__(self) -> None:
        self._enough = threading.Event()
        self.allowed = threading.Event()
        self.allowed.set()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            with httpx.Client(base_url=self.url, timeout=10) as http:
                while self.allowed.wait() and not self._enough.is_set():
                    self._publish(http, f"{self.label}-{len(self.ids)}")
                    self._enough.wait(0.005)
        except BaseException as error:
            self.failure = error

    def _publish(self, http: httpx.Client, id: str) -> None:
        while True:
            try:
                answer = http.post(f"/v1/topics/{TOPIC}/events", json={"$id": id, "s": self.label})
            except httpx.TransportError:
                self._enough.wait(0.05)
                continue
            assert answer.status_code in (202, 503), answer.text
            if answer.status_code == 202:
                self.ids.append(id)
                return
            self._enough.wait(0.05)

    def some_more(self) -> None:
        before = len(self.ids)
        until("some traffic", lambda: self.failure or len(self.ids) > before + 10, seconds=60)

    def stop(self) -> None:
        self._enough.set()
        self.allowed.set()
        self._thread.join(60)
        assert self.failure is None, self.failure


def subscribe(network: Network, receiver: Receiver, label: str, *, pause: bool) -> tuple[list[str], str]:
    """Six subscriptions, all on one server; one of them may be paused, and have something kept."""
    names = [f"{label}-sub{number}" for number in range(6)]
    for name in names:
        body = {"id": name, "topic": TOPIC, "filter": {"s": label}, "sink": {"url": receiver.address(name)}}
        answer = network.http.post("/v1/subscriptions", json=body)
        assert answer.status_code == 201, answer.text
    source = "s1"
    here = [name for name in names if host(network, name) != source]
    if here:
        await_moves(network.http, begin_moves(network.http, dict.fromkeys(here, source)))
    if pause:
        assert network.http.post(f"/v1/subscriptions/{names[-1]}/pause").status_code == 200
    return names, source


def host(network: Network, name: str) -> str:
    server: str = network.http.get(f"/v1/subscriptions/{name}").json()["server"]
    return server


def restart(network: Network, victim: str) -> None:
    if victim == "dispatcher":
        network.restart_dispatcher()
    else:
        network.servers[victim].start()
        network.servers[victim].await_ready()
    network.await_servers("ready", *(name for name, one in network.servers.items() if one.alive()))


def start(network: Network, kind: str, names: list[str], source: str) -> int:
    if kind == "apply":
        return begin_moves(network.http, dict.fromkeys(names, "s2"))
    answer = network.http.post(f"/v1/servers/{source}/{kind}")
    assert answer.status_code == 202, answer.text
    id: int = answer.json()["id"]
    return id


def bring_back(network: Network, kind: str, source: str) -> None:
    """As it was before: the server hosts again, or a new one of its name does."""
    if kind == "replace":
        assert network.http.delete(f"/v1/servers/{source}").status_code == 204
        shutil.rmtree(network.folder / source)
        network.servers[source].start()
        network.servers[source].await_ready()
        network.await_servers("ready", source)
    elif kind == "drain":
        answer = network.http.post(f"/v1/servers/{source}/fill")
        assert answer.status_code == 202, answer.text
        await_moves(network.http, answer.json()["id"])


@pytest.mark.parametrize(("kind", "phase", "victim"), ROWS, ids=map("-".join, ROWS))
def test_a_process_that_is_killed_in_a_phase_costs_nothing(
    network: Network, receiver: Receiver, stops: Path, kind: str, phase: str, victim: str
) -> None:
    _kill_in_phase(network, receiver, stops, kind, phase, victim)


# In PostgreSQL the state of a server is not lost with its machine.
@pytest.mark.engines("sqlite")
@pytest.mark.parametrize(("kind", "phase", "victim"), LOST, ids=map("-".join, LOST))
def test_a_process_that_is_killed_while_a_lost_server_is_replaced_costs_nothing(
    network: Network, receiver: Receiver, stops: Path, kind: str, phase: str, victim: str
) -> None:
    _kill_in_phase(network, receiver, stops, kind, phase, victim)


def _kill_in_phase(
    network: Network, receiver: Receiver, stops: Path, kind: str, phase: str, victim: str
) -> None:
    label = f"row{next(_NUMBERS)}"
    # What a lost server kept is lost with it.
    names, source = subscribe(network, receiver, label, pause=kind != "replace")
    publisher = Publisher(network.url, label)
    try:
        publisher.some_more()
        if kind == "replace":
            publisher.allowed.clear()  # so is what it had matched and not delivered
            settle(network)
            network.servers[source].kill()
            publisher.allowed.set()
            network.await_servers("away", source)
        (stops / phase).touch()
        running = start(network, kind, names, source)
        reached = stops / f"{phase}.reached"
        until(f"the dispatcher to stop at {phase}", reached.exists, seconds=30)
        killed = {"source": source, "destination": "s2", "dispatcher": "dispatcher"}[victim]
        process = network.dispatcher if killed == "dispatcher" else network.servers[killed]
        process.kill()
        reached.unlink()
        publisher.some_more() if victim != "dispatcher" else None
        restart(network, killed)
        await_moves(network.http, running, seconds=90)
        publisher.some_more()
    finally:
        for left in stops.iterdir():
            left.unlink()
        publisher.stop()
    assert source not in {host(network, name) for name in names}
    assert network.http.post(f"/v1/subscriptions/{names[-1]}/resume").status_code == 200
    bring_back(network, kind, source)
    settle(network)
    hooks = receiver.webhook_ids()
    for name in names:
        heard: dict[str, None] = {}
        for delivery in receiver.deliveries():
            if delivery.path == f"/{name}" and delivery.status < 300:
                heard |= {event: None for _, event in delivery.pairs()}
        assert list(heard) == publisher.ids, name
        twice = {event: hooks[name, event] for event in publisher.ids if len(hooks[name, event]) > 1}
        assert not twice, f"under two webhook-ids: {twice}"
    for name in names:
        assert network.http.delete(f"/v1/subscriptions/{name}").status_code == 204
