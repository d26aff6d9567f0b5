"""Advertisements on a running network: the guard, the stream of `wanted`, the command line."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from edn.client import Client, ProblemError
from tests.network import Engine, Network, until

pytestmark = pytest.mark.slow


@pytest.fixture
def running(engine: Engine, tmp_path: Path) -> Iterator[Network]:
    network = engine.network(tmp_path, 1)
    network.start()
    yield network
    network.close()


def edn(network: Network, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "edn.cli", *arguments, "--url", network.url]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_a_publisher_advertises_is_watched_and_is_guarded(running: Network) -> None:
    network = running
    made = edn(network, "topic", "create", "doors", "what:string", "level:integer", "--advertising", "guard")
    assert made.returncode == 0, made.stderr
    id = edn(network, "advertise", "doors", '{"what": ["alarm"], "level": [{"gt": 3}]}').stdout.strip()
    states: list[bool] = []
    with Client(network.url) as client, Client(network.url) as other:

        def watch() -> None:
            states.extend(other.wanted(id))

        watching = threading.Thread(target=watch, daemon=True)
        watching.start()
        until("the first state", lambda: bool(states))
        # Everything is routed to a server until its first summary.
        until("not wanted", lambda: states[-1] is False)
        stream = client.subscribe("doors", {"level": {"gt": 7}})
        assert client.advertisement(id).wanted is True
        until("wanted", lambda: states[-1] is True)
        dead = client.subscribe("doors", {"what": "login"})
        assert [one.id for one in client.subscriptions(dead=True)] == [dead.id]
        listed = edn(network, "subscriptions", "--dead", "--json").stdout
        assert json.loads(listed)["advertised"] is False
        accepted = client.publish("doors", {"what": "alarm", "level": 9})
        with pytest.raises(ProblemError, match="Unadvertised event") as refused:
            client.publish_many("doors", [{"level": 9}, {"what": "login"}])
        assert (refused.value.index, refused.value.pointer) == (1, "/1/what")
        notification = next(client.stream(stream.id))
        assert notification.event.id == accepted
        client.unsubscribe(stream.id)
        until("not wanted again", lambda: states[-1] is False)
        client.unadvertise(id)
        watching.join(30)
        assert not watching.is_alive()
    schema = json.loads(edn(network, "topic", "schema", "doors").stdout)
    assert "anyOf" not in schema
    assert json.loads(edn(network, "asyncapi").stdout)["asyncapi"] == "3.0.0"
