"""`edn up` as a process: start, readiness, restart, stop, and what happens when it is killed.

The services are stand-ins of a few lines, found before the real ones as the command runs in their folder:
what is tested here is the supervisor. The real services run under it in the README's test.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from edn.cli.supervisor import BoundedLog, restart_delay
from tests.network import until

SERVICE = """
import argparse, json, os, pathlib, signal, sys, threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

parser = argparse.ArgumentParser()
parser.add_argument("--data", type=pathlib.Path)
parser.add_argument("--port", type=int)
parser.add_argument("--id", default="dispatcher")
arguments, others = parser.parse_known_args()
assert "--secret-file" in others and "--allow-loopback-sinks" in others
if arguments.data:
    arguments.data.mkdir(exist_ok=True, parents=True)
here = pathlib.Path.cwd()
with (here / "starts").open("a") as starts:
    starts.write(f"{arguments.id} {os.getpid()}\\n")
if (here / f"broken-{arguments.id}").exists():
    print("the disk is made of cheese", file=sys.stderr)
    sys.exit(7)

if (here / f"slow-{arguments.id}").exists():
    signal.pause()


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        names = [line.split()[0] for line in (here / "starts").read_text().splitlines()]
        servers = [{"id": name, "state": "ready"} for name in dict.fromkeys(names) if name != "dispatcher"]
        body = json.dumps({"servers": servers}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    allow_reuse_address = True


server = Server(("127.0.0.1", arguments.port), Handler)
signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
url = f"http://127.0.0.1:{server.server_address[1]}"
print("hello from", arguments.id, file=sys.stderr, flush=True)
print(json.dumps({"ready": True, "role": "x", "url": url}), flush=True)
server.serve_forever(0.02)
with (here / "stops").open("a") as stops:
    stops.write(arguments.id + "\\n")
"""


class Up:
    """One `edn up` in a folder of stand-ins."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        data = [] if "--database" in options else ["--data", "data"]
        command = ["up", "--port", "0", *data, "--json-ready", "--with-stdin", *options]
        with (folder / "stderr").open("ab") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "edn.cli", *command],
                cwd=folder,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            )

    def ready(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.said()
        said: dict[str, Any] = json.loads(line)
        return said

    def said(self) -> str:
        return (self.folder / "stderr").read_text()

    def starts(self) -> list[tuple[str, int]]:
        lines = (self.folder / "starts").read_text().splitlines()
        return [(name, int(pid)) for name, pid in (line.split() for line in lines)]

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.terminate()
        code = self.process.wait(30)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()
        return code


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


Start = Callable[..., Up]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    for module in ("dispatcher", "edn_server"):
        (tmp_path / f"{module}.py").write_text(SERVICE)
    made: list[Up] = []

    def start_one(*options: str) -> Up:
        made.append(Up(tmp_path, *options))
        return made[-1]

    yield start_one
    for one in made:
        one.stop()


def test_it_says_when_it_is_ready_and_stops_everything_on_sigterm(start: Start, tmp_path: Path) -> None:
    network = start("--servers", "2")
    ready = network.ready()
    assert ready["ready"] is True
    assert [server["id"] for server in ready["servers"]] == ["s1", "s2"]
    processes = network.starts()
    assert sorted(name for name, _ in processes) == ["dispatcher", "s1", "s2"]
    assert network.stop() == 0
    assert not any(alive(pid) for _, pid in processes)
    # the dispatcher first, so that nothing new comes in while the servers finish
    stops = (tmp_path / "stops").read_text().split()
    assert stops[0] == "dispatcher"
    assert sorted(stops[1:]) == ["s1", "s2"]
    assert "hello from s2" in (tmp_path / "data/logs/s2.log").read_text()


def test_several_dispatchers_share_a_database_and_the_servers_know_all(start: Start) -> None:
    database = ("--database", "postgresql://nobody@127.0.0.1:1/edn")
    network = start("--servers", "1", "--dispatchers", "2", *database)
    ready = network.ready()
    urls = ready["url"].split(",")
    given = {name: psutil.Process(pid).cmdline() for name, pid in network.starts() if name != "dispatcher"}
    fronts = [psutil.Process(pid).cmdline() for name, pid in network.starts() if name == "dispatcher"]
    assert len(urls) == len(set(urls)) == len(fronts) == 2
    assert {_values(front, "--name") for front in fronts} == {("dispatcher",), ("dispatcher2",)}
    assert {_values(front, "--database") for front in fronts} == {database[1:]}
    assert _values(given["s1"], "--dispatcher") == tuple(urls)
    assert network.stop() == 0
    # As many again as there were.
    assert len(start("--servers", "1", *database).ready()["url"].split(",")) == 2


def test_several_dispatchers_need_a_database(start: Start) -> None:
    refused = start("--dispatchers", "2")
    assert refused.process.wait(30) == 2
    assert "--dispatchers must be 1 without --database, which they share, got 2" in refused.said()


def test_a_settings_file_is_passed_to_every_process(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "edn.toml"
    file.write_text("[server]\n")
    network = start("--servers", "1", "--config-file", str(file))
    network.ready()
    commands = [psutil.Process(pid).cmdline() for _, pid in network.starts()]
    assert [_values(command, "--config-file") for command in commands] == [(str(file),)] * 2
    missing = start("--config-file", str(tmp_path / "missing.toml"))
    assert missing.process.wait(30) == 2
    assert "--config-file must be a file" in missing.said()


def _values(command: list[str], flag: str) -> tuple[str, ...]:
    return tuple(value for name, value in itertools.pairwise(command) if name == flag)


def test_it_stops_when_the_program_that_holds_its_standard_input_is_gone(start: Start) -> None:
    network = start("--servers", "1")
    network.ready()
    processes = network.starts()
    assert network.process.stdin is not None
    network.process.stdin.close()
    assert network.process.wait(30) == 0
    assert not any(alive(pid) for _, pid in processes)


def test_a_stop_during_the_start_does_not_wait_for_it(start: Start, tmp_path: Path) -> None:
    (tmp_path / "slow-s1").touch()
    network = start("--servers", "1")
    until(
        "the processes to be started", lambda: (tmp_path / "starts").exists() and len(network.starts()) == 2
    )
    assert network.stop() == 0
    assert not any(alive(pid) for _, pid in network.starts())


def test_the_secret_is_for_its_owner_only_and_stays(start: Start, tmp_path: Path) -> None:
    secret = tmp_path / "data" / "secret"
    first = start("--servers", "1")
    first.ready()
    written = secret.read_text()
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    assert len(written.strip()) >= 32
    first.stop()
    second = start("--servers", "1")
    second.ready()
    assert secret.read_text() == written


def test_nothing_outlives_a_supervisor_that_is_killed_and_the_folder_is_free_again(start: Start) -> None:
    killed = start("--servers", "2")
    killed.ready()
    processes = killed.starts()
    killed.process.kill()
    killed.process.wait()
    until("the children to end", lambda: not any(alive(pid) for _, pid in processes))
    assert start("--servers", "2").ready()["ready"]


def test_a_process_that_dies_is_started_again_where_it_was(start: Start) -> None:
    network = start("--servers", "1")
    url = network.ready()["url"]
    for name in ("s1", "dispatcher"):
        before = len(network.starts())
        os.kill(dict(network.starts())[name], signal.SIGKILL)
        until(f"{name} to be started again", lambda before=before: len(network.starts()) > before)
        until(f"{name} to be ready again", lambda name=name: f"{name} is ready again" in network.said())
        assert f"{name} was ended by SIGKILL; restarting" in network.said()
    port = int(url.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=10):
        pass


def test_a_second_network_on_the_same_folder_is_refused(start: Start) -> None:
    first = start("--servers", "1")
    first.ready()
    second = start("--servers", "1")
    assert second.process.wait(30) == 2
    assert f"already running on {first.folder / 'data'} (process {first.process.pid})" in second.said()


def test_a_port_in_use_is_told_before_anything_is_started(start: Start, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        network = start("--port", str(port))
        assert network.process.wait(30) == 2
    assert f"cannot use port {port} on 127.0.0.1" in network.said()
    assert not (tmp_path / "starts").exists()


@pytest.mark.parametrize("broken", ["dispatcher", "s2"])
def test_a_process_that_cannot_start_ends_the_start_with_its_last_words(
    start: Start, tmp_path: Path, broken: str
) -> None:
    (tmp_path / f"broken-{broken}").touch()
    network = start("--servers", "2")
    assert network.process.wait(30) == 1
    assert f"{broken} ended with code 7 before it was ready" in network.said()
    assert "the disk is made of cheese" in network.said()
    assert not any(alive(pid) for _, pid in network.starts())


def test_all_servers_that_the_folder_holds_are_started(start: Start) -> None:
    first = start("--servers", "3")
    first.ready()
    first.stop()
    second = start("--servers", "1")
    assert len(second.ready()["servers"]) == 3
    assert "starting all of them" in second.said()


@pytest.mark.parametrize(
    ("deaths", "seconds"), [(1, 0.5), (2, 1.0), (3, 2.0), (6, 16.0), (7, 30.0), (50, 30.0)]
)
def test_the_pause_before_a_restart_doubles_up_to_a_limit(deaths: int, seconds: float) -> None:
    assert restart_delay(deaths) == seconds


def test_a_log_keeps_to_its_size_and_its_newest_lines(tmp_path: Path) -> None:
    log = BoundedLog(tmp_path / "x.log", limit=100)
    for number in range(50):
        log.write(f"line {number}\n".encode())
    log.close()
    sizes = [path.stat().st_size for path in sorted(tmp_path.iterdir())]
    assert len(sizes) == 2
    assert max(sizes) <= 100
    assert (tmp_path / "x.log").read_text().endswith("line 49\n")
    assert list(log.tail)[-1] == "line 49"
