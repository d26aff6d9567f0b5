"""A network moves from its data folder to PostgreSQL and back, and is backed up and restored there."""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.scenario import publish, settle
from tests.network import Network, Receiver, until
from tests.network.processes import ROOT
from tests.postgres import Cluster, cluster

TOPIC = "quotes"
SUBSCRIPTIONS = 6


def edn(*arguments: object, code: int = 0) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "edn.cli", *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return json.loads(done.stdout) if "--json" in arguments else done.stdout + done.stderr


@pytest.fixture(scope="module")
def database() -> Iterator[Cluster]:
    with cluster() as running:
        yield running


def layout(network: Network, data: Path) -> Path:
    """Give the folders of a stopped network the layout of `edn up`."""
    (data / "servers").mkdir(parents=True)
    (network.folder / "dispatcher").rename(data / "dispatcher")
    for name in network.servers:
        (network.folder / name).rename(data / "servers" / name)
    return data


def spread(network: Network, data: Path) -> None:
    """The reverse of `layout`."""
    (data / "dispatcher").rename(network.folder / "dispatcher")
    for name in network.servers:
        (data / "servers" / name).rename(network.folder / name)


def on_database(network: Network, options: list[str]) -> Network:
    """The same network with its store in PostgreSQL."""
    folder = network.folder / f"on-{secrets.token_hex(4)}"
    folder.mkdir()
    return Network(folder, 2, server_options=["--retry-steps", "0.2"], database=options)


def prepare(network: Network, receiver: Receiver) -> list[str]:
    """Subscribe, publish and leave notifications undelivered."""
    answer = network.http.put(
        f"/v1/topics/{TOPIC}", json={"attributes": {"n": "integer"}, "availability": 3600}
    )
    assert answer.status_code == 201, answer.text
    bodies = [
        {"id": f"sub-{n}", "topic": TOPIC, "sink": {"url": receiver.address(f"a{n}")}}
        for n in range(SUBSCRIPTIONS)
    ]
    answer = network.http.post("/v1/subscriptions", json=bodies)
    assert answer.status_code == 201, answer.text
    ids = publish(network.http, TOPIC, [{"n": n} for n in range(20)])
    settle(network)
    receiver.refuses = True
    ids += publish(network.http, TOPIC, [{"n": n} for n in range(20, 40)])

    def attempted() -> bool:
        return sum(one.status == 503 for one in receiver.deliveries()) >= SUBSCRIPTIONS

    until("attempts at every address", attempted)
    return ids


def check(network: Network, receiver: Receiver, ids: list[str]) -> None:
    """Everything arrives once, and every webhook-id stands for one body."""
    receiver.refuses = False
    network.await_servers("ready", *network.servers)
    settle(network)
    found = receiver.webhook_ids()
    assert {pair: len(hooks) for pair, hooks in found.items()} == {
        (f"sub-{n}", id): 1 for n in range(SUBSCRIPTIONS) for id in ids
    }
    bodies: dict[str, set[str]] = {}
    for delivery in receiver.deliveries():
        bodies.setdefault(delivery.webhook_id, set()).add(json.dumps(delivery.body))
    assert all(len(different) == 1 for different in bodies.values())


@pytest.mark.slow
def test_a_network_moves_to_postgresql_and_back(
    database: Cluster, receiver: Receiver, tmp_path: Path
) -> None:
    schema = f"edn_{secrets.token_hex(4)}"
    options = ["--database", database.url, "--database-schema", schema, "--allow-single-database"]
    network = Network(tmp_path, 2, server_options=["--retry-steps", "0.2"])
    moved = back = None
    try:
        network.start()
        ids = prepare(network, receiver)
        refused = edn("move-to", database.url, "--data", tmp_path / "none", code=2)
        assert "must be the data folder of a network" in refused
        network.close()
        data = layout(network, tmp_path / "data")

        said = edn("move-to", database.url, "--data", data, "--database-schema", schema, "--json")
        parts = {part["id"]: part for part in said["parts"]}
        assert {"s1", "s2"} < parts.keys()
        assert sum(part["rows"].get("outbox", 0) for part in parts.values()) >= SUBSCRIPTIONS
        again = edn("move-to", database.url, "--data", data, "--database-schema", schema, code=1)
        assert "must be empty, but it has tables" in again

        moved = on_database(network, options)
        moved.start()
        listed = moved.http.get(f"/v1/topics/{TOPIC}").json()
        assert listed["availability"] == 3600
        ids += publish(moved.http, TOPIC, {"n": 40})
        check(moved, receiver, ids)
        running = edn(
            "move-to", tmp_path / "back", "--database", database.url, "--database-schema", schema, code=1
        )
        assert "the network must be stopped" in running
        assert not (tmp_path / "back").exists()
        receiver.refuses = True
        ids += publish(moved.http, TOPIC, {"n": 41})
        moved.close()

        edn("move-to", tmp_path / "back", "--database", database.url, "--database-schema", schema)
        folder = tmp_path / "again"
        folder.mkdir()
        back = Network(folder, 2, server_options=["--retry-steps", "0.2"])
        spread(back, tmp_path / "back")
        back.start()
        ids += publish(back.http, TOPIC, {"n": 42})
        check(back, receiver, ids)
    except AssertionError:
        print(*(one.report() for one in (network, moved, back) if one is not None), sep="\n")
        raise
    finally:
        for one in (network, moved, back):
            if one is not None:
                one.close()


@pytest.mark.slow
def test_a_backup_of_postgresql_is_restored_with_new_webhook_ids(
    database: Cluster, receiver: Receiver, tmp_path: Path
) -> None:
    schema, restored_schema = (f"edn_{secrets.token_hex(4)}" for _ in range(2))
    single = "--allow-single-database"
    network = on_database_at(tmp_path / "first", database, schema, single)
    restored = None
    try:
        network.start()
        ids = prepare(network, receiver)
        backup = tmp_path / "backup"
        said = edn("backup", backup, "--database", database.url, "--database-schema", schema, "--json")
        assert said["rows"]["subscriptions"] == SUBSCRIPTIONS
        assert "give --database, and no folder" in edn("restore", backup, tmp_path / "x", code=2)
        # The old network goes on, and dies for good.
        receiver.refuses = False
        later = publish(network.http, TOPIC, [{"n": n} for n in range(100, 110)])
        settle(network)
        network.close()

        edn("restore", backup, "--database", database.url, "--database-schema", restored_schema)
        restored = on_database_at(tmp_path / "second", database, restored_schema, single)
        restored.start()
        new = publish(restored.http, TOPIC, [{"n": n} for n in range(200, 210)])
        restored.await_servers("ready", "s1", "s2")
        settle(restored)
        bodies: dict[str, set[str]] = {}
        for delivery in receiver.deliveries():
            bodies.setdefault(delivery.webhook_id, set()).add(json.dumps(delivery.body))
        assert all(len(different) == 1 for different in bodies.values()), "an id stands for one body"
        arrived = {pair for pair, _ in receiver.webhook_ids().items()}
        assert {(f"sub-{n}", id) for n in range(SUBSCRIPTIONS) for id in [*ids, *later, *new]} <= arrived
        (backup / "topics.copy").write_bytes(b"")
        damaged = edn("restore", backup, "--database", database.url, "--database-schema", "edn_x", code=2)
        assert "topics.copy is damaged" in damaged
    except AssertionError:
        print(network.report(), restored.report() if restored is not None else "")
        raise
    finally:
        network.close()
        if restored is not None:
            restored.close()


def on_database_at(folder: Path, database: Cluster, schema: str, *options: str) -> Network:
    folder.mkdir()
    where = ["--database", database.url, "--database-schema", schema, *options]
    return Network(folder, 2, server_options=["--retry-steps", "0.2"], database=where)
