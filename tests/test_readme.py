"""The README's code, executed as it stands against a real network, on ports that are free."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from edn import Client
from edn.tools import demo
from tests.network import until
from tests.network.processes import free_port

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()
#: what the page says where, and the test puts elsewhere
NETWORK, LISTENER = "http://127.0.0.1:8080", "9000"


@dataclass(frozen=True, slots=True)
class Block:
    language: str
    code: str


BLOCKS = [Block(*found) for found in re.findall(r"^```(\w+)\n(.*?)^```$", README, re.M | re.S)]
TERMINALS = [block.code for block in BLOCKS if block.code.startswith("# terminal")]


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a network that `edn up` started."""
    folder = tmp_path_factory.mktemp("network")
    command = ["up", "--port", "0", "--servers", "2", "--data", str(folder / "data")]
    with (folder / "stderr").open("ab") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", "edn.cli", *command, "--json-ready", "--with-stdin"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
    assert process.stdin is not None
    assert process.stdout is not None
    with process.stdin, process.stdout:
        line = process.stdout.readline()
        assert line, (folder / "stderr").read_text()
        try:
            yield json.loads(line)["url"]
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0, (folder / "stderr").read_text()


@pytest.fixture
def environment(network: str) -> dict[str, str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "EDN_URL": network, "PYTHONUNBUFFERED": "1"}


def run_pair(
    first: str, second: str, said: str, environment: dict[str, str], folder: Path
) -> tuple[str, str]:
    """Run the block of terminal 1, that of terminal 2 once the first one has `said` so; what both printed."""
    errors = folder / "terminal-1"
    with errors.open("ab") as stderr:
        listening = subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", first],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            start_new_session=True,
        )
    try:
        until("the listener", lambda: said in errors.read_text() or listening.poll() is not None)
        assert listening.poll() is None, errors.read_text()
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", second],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        printed, _ = listening.communicate(timeout=30)
    except BaseException:
        os.killpg(listening.pid, signal.SIGKILL)
        listening.communicate()
        raise
    assert listening.returncode == 0, errors.read_text()
    return printed, done.stdout


def test_the_command_line_example_prints_the_notification(
    environment: dict[str, str], tmp_path: Path
) -> None:
    first, second = TERMINALS[:2]
    printed, ids = run_pair(first, second, "subscribed to trades", environment, tmp_path)
    notification = printed.splitlines()[-1]
    shown = next(block.code for block in BLOCKS if block.language == "text").strip()
    shape = re.compile(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z trades: symbol=GE price=32\.5  → [0-9a-f-]{36}"
    )
    assert shape.fullmatch(shown), "the page shows what is printed"
    assert shape.fullmatch(notification), printed
    assert len(ids.split()) == 3


def test_the_curl_example_prints_the_notification(
    environment: dict[str, str], network: str, tmp_path: Path
) -> None:
    port = str(free_port())
    first, second = (
        code.replace(NETWORK, network)
        .replace(f":{LISTENER}/", f":{port}/")
        .replace(f"--port {LISTENER}", f"--port {port}")
        for code in TERMINALS[2:]
    )
    printed, answers = run_pair(first, second, f"listening on http://127.0.0.1:{port}", environment, tmp_path)
    notification = json.loads(printed)
    assert notification["event"]["attributes"] == {"symbol": "GE", "price": 32.5}
    assert notification["matches"] == [{"subscription": "ann-ge", "recipient": "ann"}]
    assert '"accepted":2' in answers


def test_the_python_example_prints_what_the_page_says(
    environment: dict[str, str], network: str, tmp_path: Path
) -> None:
    (code,) = (block.code for block in BLOCKS if block.language == "python")
    script = tmp_path / "example.py"
    script.write_text(code.replace(NETWORK, network))
    done = subprocess.run(
        [sys.executable, "-W", "error", str(script)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    expected = [block.code for block in BLOCKS if block.language == "text"][1]
    assert (done.stdout, done.returncode) == (expected, 0), done.stderr


def test_every_filter_of_the_table_is_accepted_and_both_forms_mean_the_same(network: str) -> None:
    table = README.partition("## The filter language")[2].partition("\n## ")[0]
    pairs = re.findall(r"^\|[^|]+\| `(\{[^`…]+\})`[^|]*\| `([^`…]+)` \|$", table, re.M)
    assert len(pairs) == 8
    with Client(network) as client:
        client.create_topic("page", {"symbol": "string", "price": "number", "venue": "string"})
        for as_json, as_text in pairs:
            both = [
                client.subscribe("page", filter, url="http://127.0.0.1:9/").filter
                for filter in (json.loads(as_json), as_text)
            ]
            assert both[0] == both[1], as_text


def test_the_commands_of_the_quick_start_are_targets_of_the_makefile() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    named = set(re.findall(r"`?\bmake ([a-z-]+)", README))
    assert {"run", "test"} <= named <= targets


def test_every_block_of_code_is_one_that_is_executed() -> None:
    (makes,) = (block.code for block in BLOCKS if block.language == "bash" and block.code not in TERMINALS)
    assert all(line.startswith("make ") for line in makes.splitlines())
    assert len(TERMINALS) == 4
    assert {block.language for block in BLOCKS} == {"bash", "python", "text"}


def test_links_of_the_page_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", README):
        assert (ROOT / target).exists(), target


def test_the_sample_traffic_of_make_run_arrives_and_leaves_nothing_behind(
    network: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "LINE_SECONDS", 0.2)
    arrived = re.compile(r"[1-9][\d,]* notifications arrived \(")
    shown = ""

    async def run() -> None:
        nonlocal shown
        running = asyncio.create_task(demo.run_demo(network, plain=True))
        async with asyncio.timeout(60):
            while not arrived.search(shown):
                await asyncio.sleep(0.1)
                shown += capsys.readouterr().err
                assert not running.done(), shown
        running.cancel()
        await asyncio.wait([running])

    asyncio.run(run())
    assert f"{len(demo.sample_subscriptions(''))} subscriptions" in shown
    with Client(network) as client:
        assert list(client.subscriptions(owner=demo.OWNER)) == []
