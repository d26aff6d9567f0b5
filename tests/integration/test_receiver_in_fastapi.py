"""The FastAPI program of docs/howto.md: against a running network, and by hand with curl."""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from edn import Client
from edn.client.receiver import new_secret
from tests.network import Network, until
from tests.network.processes import die_with_parent, free_port

SERVERS = 1
SERVER_OPTIONS = ("--retry-steps", "0.1")
SECTION = (Path(__file__).parents[2] / "docs/howto.md").read_text().partition("web application\n")[2]
PROGRAM, BY_HAND = (
    next(iter(re.findall(rf"^```{language}\n(.*?)^```$", SECTION, re.M | re.S)))
    for language in ("python", "bash")
)
#: raises at the first notification of a price, which the page's program does not
FAILING = """
    if len(attempts := globals().setdefault("attempts", [])) < 1:
        attempts.append(notification)
        raise RuntimeError("once")
"""


def serve(folder: Path, program: str, secret: str) -> Iterator[str]:
    (folder / "alerts.py").write_text(program)
    port = free_port()
    with (folder / "stderr").open("wb") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", "uvicorn", "--port", str(port), "alerts:app"],
            cwd=folder,
            env={**os.environ, "WEBHOOK_SECRET": secret},
            stderr=stderr,
            stdout=subprocess.DEVNULL,
            preexec_fn=die_with_parent,
        )
    url = f"http://127.0.0.1:{port}"

    def is_up() -> bool:
        assert process.poll() is None, (folder / "stderr").read_text()
        try:
            return httpx.get(f"{url}/alerts").status_code == 200
        except httpx.TransportError:
            return False

    try:
        until("the program", is_up)
        yield url
    finally:
        process.terminate()
        process.wait(20)


@pytest.mark.parametrize("raises_once", [False, True])
def test_the_program_receives_each_event_once_also_after_an_exception(
    network: Network, tmp_path: Path, raises_once: bool
) -> None:
    topic = f"alerts{int(raises_once)}"
    secret = new_secret()
    begin = "def on_notification(notification: Notification) -> None:\n"
    assert begin in PROGRAM
    program = PROGRAM.replace(begin, begin + FAILING.lstrip("\n")) if raises_once else PROGRAM
    with Client(network.url) as client:
        client.create_topic(topic, {"price": "number"})
        for url in serve(tmp_path, program, secret):
            made = client.subscribe(topic, "price > 30", url=f"{url}/notifications", secret=secret)
            for price in (29.0, 31.0, 32.0):
                client.publish(topic, {"price": price})

            def alerts(url: str = url) -> Any:
                return httpx.get(f"{url}/alerts").json()

            until("both alerts", lambda: len(alerts()) >= 2)
            assert alerts() == [{"price": 31.0}, {"price": 32.0}]
            attempts = client.attempts(made.id)
            assert [one.outcome for one in attempts].count("again") == int(raises_once)
            if raises_once:
                assert "the receiver's function raised RuntimeError" in attempts[-1].answer


def test_a_wrong_secret_is_named_in_the_attempts(network: Network, tmp_path: Path) -> None:
    with Client(network.url) as client:
        client.create_topic("secrets", {"price": "number"})
        for url in serve(tmp_path, PROGRAM, new_secret()):
            made = client.subscribe("secrets", url=f"{url}/notifications", secret=new_secret())
            client.publish("secrets", {"price": 1.0})
            attempts = until("an attempt", functools.partial(client.attempts, made.id))
            assert attempts[-1].status == 401
            assert "fits none of the receiver's secrets" in attempts[-1].answer
            assert httpx.get(f"{url}/alerts").json() == []


def test_the_commands_of_the_page_send_a_signed_notification(tmp_path: Path) -> None:
    (tmp_path / "alerts.py").write_text(PROGRAM)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    commands = BY_HAND.replace("8000", str(free_port()))
    assert "curl" in commands
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", f"trap 'kill %1' EXIT\n{commands}"],
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == '[][{"symbol":"GE","price":32.5}]', done.stderr
