"""Half matches of a network on PostgreSQL: across a kill, a migration, and a takeover by a spare."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from typing import Any

import pytest

from tests.faults import leases
from tests.network import Hook, Network, until
from tests.network.moving import move
from tests.postgres import Cluster

TOPIC = "steps"
STEPS = [{"filter": {"kind": "a"}}, {"filter": {"kind": "b"}}]
KEYS = 100


@pytest.fixture(scope="module")
def network(postgres: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    options = ["--database", postgres.url, "--database-schema", f"edn_{secrets.token_hex(4)}"]
    running = Network(
        tmp_path_factory.mktemp("network"),
        2,
        database=[*options, "--allow-single-database"],
        environment={leases.VARIABLE: "2"},
    )
    try:
        running.start()
        attributes = {"kind": "string", "user": "integer"}
        answer = running.http.put(f"/v1/topics/{TOPIC}", json={"attributes": attributes})
        assert answer.status_code == 201, answer.text
        yield running
    except AssertionError:
        print(running.report())
        raise
    finally:
        running.close()


def publish(network: Network, kind: str, first: int) -> None:
    events = [{"kind": kind, "user": first + key} for key in range(KEYS)]
    answer = network.http.post(f"/v1/topics/{TOPIC}/events", json=events)
    assert answer.status_code == 202, answer.text


def half_matches(network: Network, name: str) -> int | None:
    found = network.http.get(f"/v1/subscriptions/{name}").json().get("sequence_state")
    return None if found is None else int(found["half_matches"])


def heard(hook: Hook, name: str) -> list[tuple[int, ...]]:
    bodies = {headers["webhook-id"]: body for headers, body in hook.at(f"/{name}", 200)}
    return [
        tuple(event["attributes"]["user"] for event in entry["events"])
        for body in bodies.values()
        for entry in json.loads(body)["notifications"]
    ]


def begin(network: Network, hook: Hook, name: str, first: int) -> dict[str, Any]:
    body = {
        "id": name,
        "topic": TOPIC,
        "sequence": STEPS,
        "by": ["user"],
        "sink": {"url": hook.url(f"/{name}")},
    }
    answer = network.http.post("/v1/subscriptions", json=body)
    assert answer.status_code == 201, answer.text
    publish(network, "a", first)
    until("the half matches", lambda: half_matches(network, name) == KEYS)
    made: dict[str, Any] = answer.json()
    return made


def finish(network: Network, hook: Hook, name: str, first: int) -> None:
    """The next event of each user completes its sequence; the one after that completes nothing."""
    for _ in range(2):
        publish(network, "b", first)
    until("all sequences", lambda: len(heard(hook, name)) >= KEYS, seconds=60)
    until("no half match to be left", lambda: half_matches(network, name) == 0, seconds=60)
    assert sorted(heard(hook, name)) == [(key, key) for key in range(first, first + KEYS)]
    assert network.http.delete(f"/v1/subscriptions/{name}").status_code == 204


@pytest.mark.slow
def test_half_matches_survive_a_kill(network: Network, hook: Hook) -> None:
    victim = network.servers[begin(network, hook, "killed", 0)["server"]]
    victim.kill()
    victim.start()
    victim.await_ready()
    network.await_servers("ready", *network.servers)
    finish(network, hook, "killed", 0)


@pytest.mark.slow
def test_half_matches_move(network: Network, hook: Hook) -> None:
    server = begin(network, hook, "moved", 1000)["server"]
    elsewhere = next(name for name in network.servers if name != server)
    assert move(network.http, {"moved": elsewhere})["moved"] == 1
    finish(network, hook, "moved", 1000)


@pytest.mark.slow
def test_a_spare_takes_half_matches_over(network: Network, hook: Hook) -> None:
    spare = network.new_spare("spare")
    spare.start()
    victim = begin(network, hook, "taken", 2000)["server"]
    dead = network.servers[victim]
    dead.kill()
    spare.await_ready()
    assert spare.ready["id"] == victim
    network.servers[victim] = spare
    network.await_servers("ready", *network.servers)
    finish(network, hook, "taken", 2000)
    dead.stop()
