"""Settings of sinks through real processes: what is refused, shown, sent, kept over moves and restarts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.integration.sink_refusals import BEARER, TOKEN
from tests.network import Engine, Hook, Network, until
from tests.network.moving import move

SERVERS = 2

# The quick tests of settings are in test_delivery.py, which shares a network with others.
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def topic(network: Network) -> None:
    network.http.put("/v1/topics/t", json={"attributes": {"n": "integer", "to": "string"}}).raise_for_status()


def body(id: str, url: str, **sink: Any) -> dict[str, Any]:
    return {"id": id, "topic": "t", "filter": {"to": id}, "sink": {"url": url, **sink}}


def subscribe(network: Network, id: str, url: str, **sink: Any) -> dict[str, Any]:
    answer = network.http.post("/v1/subscriptions", json=body(id, url, **sink))
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


def publish(network: Network, id: str, *numbers: int) -> None:
    events = [{"to": id, "n": n} for n in numbers]
    network.http.post("/v1/topics/t/events", json=events).raise_for_status()


def get(network: Network, id: str) -> dict[str, Any]:
    found: dict[str, Any] = network.http.get(f"/v1/subscriptions/{id}").raise_for_status().json()
    return found


def edn(network: Network, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "edn.cli", *arguments, "--url", network.url]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_settings_survive_a_move_a_subtree_and_a_restart_of_everything(network: Network, hook: Hook) -> None:
    sink = {"headers": {"x": "kept"}, "credentials": BEARER}
    subscribe(network, "moved", hook.url("/moved"), **sink)
    answer = network.http.post(
        "/v1/subscriptions",
        json={**body("tree", hook.url("/tree"), **sink), "topic": "**", "filter": None},
    )
    assert answer.status_code == 201, answer.text
    old = get(network, "moved")["server"]
    [new] = set(network.servers) - {old}
    move(network.http, {"moved": new})
    assert get(network, "moved")["server"] == new
    publish(network, "moved", 1)
    until("the notification after the move", lambda: len(hook.at("/moved")) == 1)
    for process in network.processes():
        assert process.stop() == 0
        process.start()
    network.http.close()
    network.http = network._client()
    for process in network.processes():
        process.await_ready()
    network.await_servers("ready", *network.servers)
    publish(network, "moved", 2)
    until("the notification after the restart", lambda: len(hook.at("/moved")) == 2)
    until("both notifications of the tree", lambda: len(hook.at("/tree")) >= 2)
    for path in ("/moved", "/tree"):
        for headers, _ in hook.at(path):
            assert (headers["x"], headers["authorization"]) == ("kept", f"Bearer {TOKEN}")
    network.http.delete("/v1/subscriptions/tree").raise_for_status()


def test_no_file_of_the_network_has_a_credential_in_clear(
    engine: Engine, network: Network, hook: Hook
) -> None:
    subscribe(network, "sealed", hook.url("/sealed"), credentials=BEARER)
    contents = engine.contents(network)
    assert any(b"sealed" in content for content in contents.values())
    for place, content in contents.items():
        assert TOKEN.encode() not in content, place


def test_the_command_line_sets_shows_and_removes_settings(
    network: Network, hook: Hook, tmp_path: Path
) -> None:
    secret = tmp_path / "credentials.json"
    secret.write_text(json.dumps({"type": "api_key", "header": "X-Key", "value": "sesame"}))
    made = edn(
        network, "subscribe", "t", 'to == "cli"', "--to", hook.url("/cli"), "--id", "cli",
        "--header", "X-Environment: cli", "--credentials-file", str(secret), "--timeout", "5s",
        "--retry-schedule", "1s,1m", "--give-up", "1h", "--permanent-status", "404", "--rate", "50",
        "--unordered",
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    shown = edn(network, "subscription", "show", "cli")
    for line in ("x-environment", "api_key credentials", "5 s", "after 1, 60 s, for 3600 s, never after 404"):
        assert line in shown.stdout
    assert "sesame" not in made.stdout + made.stderr + shown.stdout
    changed = edn(network, "subscription", "change", "cli", "--rate", "70")
    assert changed.returncode == 0, changed.stderr
    sink = get(network, "cli")["sink"]
    assert (sink["rate"], sink["credentials"], sink["ordered"]) == (70.0, {"type": "api_key"}, False)
    publish(network, "cli", 1)
    [(headers, _)] = until("the notification", lambda: hook.at("/cli"))
    assert (headers["x-key"], headers["x-environment"]) == ("sesame", "cli")
    reset = edn(network, "subscription", "change", "cli", "--default-delivery", "--timeout", "7s")
    assert reset.returncode == 0, reset.stderr
    assert get(network, "cli")["sink"] == {"url": hook.url("/cli"), "recipient": None, "timeout": 7.0}
    for wrong in (["--header", "nocolon"], ["--retry-exponential", "1s,2"], ["--timeout", "soon"]):
        assert edn(network, "subscription", "change", "cli", *wrong).returncode == 2


def test_an_export_has_no_credentials_and_an_import_waits_for_them(
    network: Network, hook: Hook, tmp_path: Path
) -> None:
    retry = {"exponential": {"first": 1.0, "factor": 2.0, "longest": 60.0}, "give_up": 600.0}
    settings = {"headers": {"x": "1"}, "rate": 5.0, "retry": retry}
    given = {**settings, "headers": {"x": "1", "x-key": "sesame"}}
    subscribe(network, "exported", hook.url("/exported"), credentials=BEARER, **given)
    file, secret = tmp_path / "all.jsonl", tmp_path / "secret.json"
    assert edn(network, "export", str(file)).returncode == 0
    assert TOKEN not in file.read_text()
    assert "sesame" not in file.read_text()
    assert '"credentials":{"type":"bearer"}' in file.read_text()
    network.http.delete("/v1/subscriptions/exported").raise_for_status()
    mine = [line for line in file.read_text().splitlines() if '"id":"exported"' in line]
    file.write_text("\n".join(mine))
    imported = edn(network, "import", str(file))
    assert imported.returncode == 0, imported.stderr
    assert "exported" in imported.stdout + imported.stderr
    found = get(network, "exported")
    assert found["state"] == "paused"
    assert {name: found["sink"].get(name) for name in (*settings, "credentials")} == {
        **settings,
        "credentials": None,
    }
    publish(network, "exported", 1)
    secret.write_text(json.dumps(BEARER))
    assert (
        edn(network, "subscription", "change", "exported", "--credentials-file", str(secret)).returncode == 0
    )
    assert edn(network, "resume", "exported").returncode == 0
    [(headers, _)] = until("the buffered notification", lambda: hook.at("/exported"))
    assert headers["authorization"] == f"Bearer {TOKEN}"
