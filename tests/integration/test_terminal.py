"""The commands that people watch, driven in a real terminal over a running network."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from typing import Any

import pytest

from tests.network import Hook, Network, until
from tests.network.terminal import Terminal

SERVERS = 2

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module", autouse=True)
def prepared(network: Network, hook: Hook) -> None:
    network.http.put("/v1/topics/stocks", json={"attributes": {"symbol": "string", "price": "number"}})
    for id, filter in [("ann", 'symbol == "GE" and price > 30'), ("ben", 'symbol == "KO"')]:
        body = {"id": id, "topic": "stocks", "filter": filter, "sink": {"url": hook.url(f"/{id}")}}
        assert network.http.post("/v1/subscriptions", json=body).status_code == 201


def edn(network: Network, *arguments: str, env: dict[str, str] | None = None) -> Terminal:
    return Terminal(*arguments, env={"EDN_URL": network.url, **(env or {})})


def test_top_is_live_and_ends_with_q(network: Network) -> None:
    with edn(network, "top", "--every", "0.3") as terminal:
        terminal.wait_for(r"s1\s+ready")
        published = network.http.post(
            "/v1/topics/stocks/events", json=[{"symbol": "KO", "price": n} for n in range(200)]
        )
        assert published.status_code == 202
        terminal.wait_for(r"matched [1-9][\d,]*/s")
        assert "\x1b[?1049h" in terminal.raw, "it takes the whole screen, and gives it back"
        terminal.press("q")
        assert terminal.exit_code() == 0
        assert "\x1b[?1049l" in terminal.raw


def test_top_into_a_pipe_is_json_without_colours(network: Network) -> None:
    done = run(network, "top", "--json", "--count", "2", "--every", "0.1")
    assert done.returncode == 0, done.stderr
    looks = [json.loads(line) for line in done.stdout.splitlines()]
    assert [{server["id"] for server in look["servers"]} for look in looks] == [{"s1", "s2"}] * 2
    plain = run(network, "top", "--count", "1", "--every", "0.1")
    assert "\x1b" not in plain.stdout


def run(network: Network, *arguments: str) -> subprocess.CompletedProcess[str]:
    return _run(*arguments, env={**os.environ, "EDN_URL": network.url})


def _run(*arguments: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "edn.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=env, timeout=60)


def test_trace_follows_an_event_to_its_attempts(network: Network) -> None:
    with edn(network, "trace", "stocks", "symbol=GE", "price=32.5") as terminal:
        terminal.wait_for(r"dispatcher\s+offset \d+, sent to s\d")
        found = terminal.wait_for(r"\+ *([\d.]+) ms\s+s\d\s+ann: delivered \(200, [\d.]+ ms\)")
        assert float(found[1]) < 30_000
        assert terminal.exit_code() == 0
    done = run(network, "trace", "stocks", "symbol=GE", "price=33", "--json")
    journey: dict[str, Any] = json.loads(done.stdout)
    [match] = [match for server in journey["servers"] for match in server["matches"]]
    assert match["subscription"] == "ann"
    assert [attempt["outcome"] for attempt in match["attempts"]] == ["delivered"]
    again = run(network, "trace", "stocks", journey["id"])
    assert "ann: delivered" in again.stdout


def test_trace_says_by_its_exit_code_that_somebody_was_not_told(network: Network, hook: Hook) -> None:
    hook.status["/ann"] = 500
    try:
        done = run(network, "trace", "stocks", "symbol=GE", "price=99", "--wait", "1")
        assert done.returncode == 1
        assert "ann: again (500" in done.stdout
        assert "not all deliveries ended" in done.stderr
    finally:
        hook.status["/ann"] = 200
    assert run(network, "trace", "stocks", "nobody-knows-this").returncode == 1
    assert run(network, "trace", "stocks", "a=1", "b").returncode == 2


def test_listen_forwards_what_arrives_with_its_headers(network: Network, hook: Hook) -> None:
    arguments = [
        "--topic",
        "stocks",
        "--filter",
        'symbol == "LISTEN"',
        "--forward-to",
        hook.url("/forwarded"),
    ]
    with edn(network, "listen", *arguments) as terminal:
        terminal.wait_for(r"subscribed to stocks as \S+")
        network.http.post("/v1/topics/stocks/events", json={"symbol": "LISTEN", "price": 7})
        terminal.wait_for(r"symbol=LISTEN price=7")
        terminal.press("\x03")
        assert terminal.exit_code() == 0
    [(headers, body)] = hook.at("/forwarded")
    assert headers["webhook-id"].startswith("msg_")
    assert "webhook-signature" in headers
    assert json.loads(body)["notifications"][0]["event"]["attributes"] == {"symbol": "LISTEN", "price": 7}


def test_what_is_forwarded_and_refused_has_not_arrived(network: Network, hook: Hook) -> None:
    hook.status["/flaky"] = 503
    arguments = ["--topic", "stocks", "--filter", 'symbol == "FLAKY"', "--forward-to", hook.url("/flaky")]
    with edn(network, "listen", *arguments, "--count", "1") as terminal:
        terminal.wait_for(r"subscribed to")
        network.http.post("/v1/topics/stocks/events", json={"symbol": "FLAKY", "price": 1})
        terminal.wait_for(r"flaky answered 503")
        hook.status["/flaky"] = 200
        terminal.wait_for(r"symbol=FLAKY")
        assert terminal.exit_code() == 0
    until("the repeat", lambda: len({headers["webhook-id"] for headers, _ in hook.at("/flaky")}) == 1)


def test_explain_is_readable_and_names_clauses(network: Network) -> None:
    done = run(network, "explain", "stocks", "symbol=GE", "price=31")
    assert done.returncode == 0, done.stderr
    assert re.search(r'ann: by symbol == "GE" and price > 30', done.stdout)
    done = run(network, "explain", "stocks", "--filter", 'symbol == "GE" and price > 40')
    assert "is covered by 1: ann" in done.stdout
    assert run(network, "explain", "stocks").returncode == 2


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_there_for_shells(shell: str) -> None:
    program = "from edn.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env={**os.environ, "_EDN_COMPLETE": f"source_{shell}"},
        timeout=60,
    )
    assert "_EDN_COMPLETE" in done.stdout
