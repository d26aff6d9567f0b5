"""Secrets at rest in a running network: nobody reads them in its files, and its key can be replaced."""

from __future__ import annotations

import base64
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from standardwebhooks import Webhook

from tests.integration.scenario import publish, settle
from tests.network import Engine, Hook, Network, until

TOPIC = "quotes"
OLD, NEW = "0d" * 32, "4e" * 32


@pytest.fixture
def network(engine: Engine, tmp_path: Path) -> Iterator[Network]:
    running = engine.network(tmp_path, 1)
    try:
        set_keys(running, OLD)
        running.start()
        running.http.put(f"/v1/topics/{TOPIC}", json={"attributes": {"n": "integer"}}).raise_for_status()
        yield running
    finally:
        running.close()


def set_keys(network: Network, *keys: str) -> None:
    (network.folder / "secret-keys").write_text("\n".join(keys))


def restart(network: Network) -> None:
    for process in network.processes():
        assert process.stop() == 0
        process.start()
    network.http.close()  # connections of the earlier life
    network.http = network._client()
    for process in network.processes():
        process.await_ready()
    network.await_servers("ready", *network.servers)


def edn(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "edn.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def subscribe(network: Network, name: str, url: str, secret: str | None = None) -> str:
    sink = {"url": url} if secret is None else {"url": url, "secret": secret}
    answer = network.http.post("/v1/subscriptions", json={"id": name, "topic": TOPIC, "sink": sink})
    assert answer.status_code == 201, answer.text
    found: str = secret or answer.json()["sink"]["secret"]
    return found


@pytest.mark.slow
def test_secrets_are_sealed_everywhere_and_their_key_is_replaced(engine: Engine, network: Network) -> None:
    with Hook() as hook:
        given = "whsec_" + base64.b64encode(b"a secret of a subscriber, long").decode()
        subscribe(network, "given", hook.url("/given"), given)
        generated = subscribe(network, "generated", hook.url("/generated"))
        rotated = network.http.post("/v1/subscriptions/generated/rotate-secret").json()["secret"]
        key = network.http.post("/v1/keys", json={"name": "ann", "scopes": ["publish"]}).json()
        publish(network.http, TOPIC, {"n": 1})
        settle(network)

        # Nothing in the files, WAL and logs included, nor in a backup; the listing shows the public id only.
        files = {
            place: content
            for place, content in engine.contents(network).items()
            if Path(place).name not in ("secret", "secret-keys", "reserve")
        }
        assert any(b"generated" in content for content in files.values())
        secrets = [given, generated, rotated, key["key"], network.secret]
        for path, content in files.items():
            for secret in secrets:
                assert secret.removeprefix("whsec_").encode() not in content, path
                if secret.startswith("whsec_"):
                    assert base64.b64decode(secret[6:]) not in content, path
        [listed] = network.http.get("/v1/keys").json()["keys"]
        assert "key" not in listed
        assert key["key"].startswith(f"edn_{listed['id']}_")

        # Without the old key, the processes refuse to start, in one line.
        set_keys(network, NEW)
        for process in network.processes():
            process.stop()
            process.start()
            until("its end", lambda process=process: not process.alive())
            assert process.exit_code() == 1
            assert re.search(r"has \d secrets that are sealed with key [0-9a-f]{8}, which", process.tail(1))
            process.stop()

        set_keys(network, NEW, OLD)
        restart(network)
        shown = json.loads(edn("secrets", "show", "--url", network.url, "--json").stdout)
        assert [one["left"] for one in shown["processes"]] == [3, 4], shown
        assert not shown["done"]
        done = edn("secrets", "reseal", "--url", network.url, "--json")
        assert done.returncode == 0, done.stderr
        report = json.loads(done.stdout)
        assert (report["resealed"], report["left"], report["done"]) == (7, 0, True)
        assert json.loads(edn("secrets", "reseal", "--url", network.url, "--json").stdout) == {
            **report,
            "resealed": 0,
            "processes": [{**one, "resealed": 0} for one in report["processes"]],
        }

        set_keys(network, NEW)
        restart(network)
        publish(network.http, TOPIC, {"n": 2})
        for path, secret in (("/given", given), ("/generated", rotated), ("/generated", generated)):
            headers, body = until("a notification", lambda path=path: hook.at(path)[1:2])[0]
            Webhook(secret).verify(body, headers)
