"""A network whose doors are locked: two dispatchers that share their keys, a server, the commands."""

from __future__ import annotations

import functools
import os
import subprocess
import sys

import httpx
import pytest

from edn.client import Client, Key, ProblemError
from tests.network import Network, Receiver
from tests.network.processes import ROOT

SERVERS = 1
DISPATCHERS = 2
LOCKED = True

#: every whole key that was made, to look for in what the processes wrote
made: list[str] = []


def remember(key: Key) -> str:
    assert key.key is not None
    made.append(key.key)
    return key.key


@pytest.fixture(scope="module")
def admin(network: Network) -> str:
    with Client(network.urls, key=network.secret) as operator:
        return remember(operator.create_key("boss", ["admin"], tenant="acme"))


def test_a_key_made_at_one_dispatcher_opens_all_and_is_revoked_at_all(network: Network) -> None:
    for maker in network.urls:
        with Client(maker, key=network.secret) as operator:
            key = operator.create_key("ann", ["subscribe"])
            for url in network.urls:
                with Client(url, key=remember(key)) as client:
                    assert client.topics() == []
            operator.revoke_key(key.id)
            for url in network.urls:
                with Client(url, key=key.key) as client, pytest.raises(ProblemError, match="revoked"):
                    client.topics()


def test_a_tenant_publishes_and_is_notified_whichever_dispatcher_is_asked(
    network: Network, receiver: Receiver, admin: str
) -> None:
    for number, url in enumerate(network.urls):
        with Client(url, key=admin) as client:
            name = f"stocks{number}"
            client.create_topic(name, {"price": "number"})
            client.subscribe(name, {"price": {"gt": 1}}, url=receiver.address(name))
    for number in range(len(network.urls)):
        for url in network.urls:
            with Client(url, key=admin) as client:
                client.publish(f"stocks{number}", {"price": 2})
    receiver.await_quiet(len(network.urls) ** 2)
    for delivery in receiver.deliveries():
        assert {entry["topic"] for entry in delivery.body["notifications"]} == {delivery.path.lstrip("/")}


def test_a_server_passes_on_the_clients_key_and_never_its_own_secret(
    network: Network, receiver: Receiver, admin: str
) -> None:
    with Client(network.url, key=admin) as client:
        client.create_topic("passed", {"price": "number"})
        weak = remember(client.create_key("weak", ["publish"], tenant="acme"))
    url = network.servers["s1"].url
    body = {"topic": "passed", "sink": {"url": receiver.address("passed")}, "id": "passed"}
    for key, status in ((None, 401), ("wrong", 401), (weak, 403), (admin, 201)):
        headers = {} if key is None else {"authorization": f"Bearer {key}"}
        assert httpx.post(f"{url}/v1/subscriptions", json=body, headers=headers).status_code == status
        seen = httpx.get(f"{url}/v1/subscriptions/passed", headers=headers)
        assert seen.status_code == (200 if status == 201 else status)


def run(network: Network, *arguments: str, key: str | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "EDN_URL": network.url, "NO_COLOR": "1", **({"EDN_KEY": key} if key else {})}
    command = [sys.executable, "-m", "edn.cli", *arguments]
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False
    )


def test_the_calculator_asks_with_the_key(network: Network) -> None:
    refused = run(network, "capacity")
    assert refused.returncode == 1
    assert "Unauthorized" in refused.stderr
    asked = run(network, "capacity", key=network.secret)
    assert asked.returncode == 1
    assert "nothing has been measured yet" in asked.stderr


def test_the_command_makes_uses_and_revokes_a_key(network: Network) -> None:
    edn = functools.partial(run, network)
    secret = str(network.folder / "secret")
    created = edn("--key-file", secret, "key", "create", "carol", "--scope", "admin", "--tenant", "shop")
    assert created.returncode == 0, created.stderr
    key = created.stdout.strip()
    made.append(key)
    assert edn("topic", "create", "sold", "price:number", key=key).returncode == 0
    refused = edn("topic", "list")
    assert refused.returncode == 1
    assert "Unauthorized" in refused.stderr
    listed = edn("key", "list", key=key)
    assert "carol" in listed.stdout
    assert "boss" not in listed.stdout
    id = key.split("_")[1]
    assert edn("--key", key, "key", "revoke", id).returncode == 0
    assert edn("topic", "list", key=key).returncode == 1


def test_no_secret_is_in_what_the_processes_wrote(network: Network) -> None:
    assert made
    secrets = [network.secret.encode(), *(key.split("_", 2)[2].encode() for key in made)]
    written = [file for file in network.folder.rglob("*") if file.is_file() and file.name != "secret"]
    assert any(b'"what":"called"' in file.read_bytes() for file in written), "the audit"
    for file in written:
        content = file.read_bytes()
        assert not any(secret in content for secret in secrets), file
