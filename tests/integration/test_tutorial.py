"""The commands of docs/tutorial.md print the output that the page shows."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from tests.network import Network, until

SERVERS = 3
PAGE = (Path(__file__).parents[2] / "docs/tutorial.md").read_text()
#: commands and shown outputs, in the order of the page
BLOCKS = re.findall(r"^```(bash|text)\n(.*?)^```$", PAGE, re.M | re.S)


def commands_of(terminal: int) -> list[str]:
    """Returns the `edn` commands of a terminal; the set-up in front of them is for people."""
    return [
        line
        for language, code in BLOCKS
        if language == "bash" and code.startswith(f"# terminal {terminal}\n")
        for line in code.splitlines()
        if line.startswith("edn ")
    ]


def shown_after(command: str) -> str:
    """Returns the first output block after the block of a command."""
    position = next(number for number, (_, code) in enumerate(BLOCKS) if command in code)
    return str(next(code for language, code in BLOCKS[position:] if language == "text"))


def shape(text: str) -> str:
    """Replaces ids, times, offsets and the choice of the server, which differ from run to run."""
    for pattern, name in (
        (r"[0-9a-f]{8}-[0-9a-f-]{27}", "SUBSCRIPTION"),
        (r"[0-9a-f]{32}/\d+", "EVENT"),
        (r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME"),
        (r" *[+-]?\d+\.\d ms", " N ms"),
        (r"offset \d+", "offset N"),
        (r"\bs[123]\b", "SERVER"),
    ):
        text = re.sub(pattern, name, text)
    return text


def test_the_tutorial_leads_to_the_alert_that_it_shows(network: Network, tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "EDN_URL": network.url, "PYTHONUNBUFFERED": "1"}

    def run(command: str) -> str:
        done = subprocess.run(
            ["bash", "-c", command], env=environment, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    create, listen = commands_of(2)
    *publish, explain, trace = commands_of(3)
    assert shape(run(create)) == shape(shown_after(create))

    said = tmp_path / "listen"
    with said.open("w") as output:
        listening = subprocess.Popen(
            ["bash", "-c", f"exec {listen}"], env=environment, stdout=output, stderr=subprocess.STDOUT
        )
    try:
        until("the subscription", lambda: "subscribed to stocks" in said.read_text())
        ids = "".join(run(command) for command in publish)
        assert shape(ids) == shape(shown_after(publish[0]))
        alert = next(code for language, code in BLOCKS if language == "text" and "stocks: symbol=GE" in code)
        until("the alert", lambda: "price=32.5" in said.read_text())
        assert shape(alert) == shape("".join(said.read_text().splitlines(keepends=True)[2:]))

        assert run(explain).splitlines()[0] == shown_after(explain).splitlines()[0]
        shown = next(
            code for language, code in BLOCKS if language == "text" and "dispatcher   offset" in code
        )
        assert shape(run(trace)) == shape(shown)
    finally:
        listening.send_signal(signal.SIGINT)
        listening.wait(30)
    assert network.http.get("/v1/subscriptions").json()["subscriptions"] == []


def test_the_sequence_of_the_tutorial_is_complete(network: Network) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "EDN_URL": network.url}
    network.http.put(
        "/v1/topics/stocks", json={"attributes": {"symbol": "string", "price": "number", "volume": "integer"}}
    )
    subscribe, *publish, show = commands_of(4)

    def run(command: str) -> str:
        done = subprocess.run(
            ["bash", "-c", command], env=environment, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert run(subscribe) == "drop\n"
    run(publish[0])
    until("the half match", lambda: "waits for step 2, since" in run(show))
    run(publish[1])
    until("the sequence", lambda: "waits for step 1; 0 half matches" in run(show))
    assert network.http.get("/v1/subscriptions/drop").json()["delivery"]["matched"] == 1
    assert network.http.delete("/v1/subscriptions/drop").status_code == 204
