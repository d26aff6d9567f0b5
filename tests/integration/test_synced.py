"""What is acknowledged has been synced: seen from outside, in the system calls of the processes.

A killed process cannot show this, because the kernel keeps what it wrote: only a machine that loses its power
forgets what was not synced. So `strace` watches a request come in, its bytes go into the write-ahead log,
that file being synced, and then the answer go out.
"""

from __future__ import annotations

import contextlib
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.network import Network, Receiver, until
from tests.programs import require

SERVERS = 1

# The system calls of processes on their own files.
pytestmark = pytest.mark.engines("sqlite")
TOPIC = "stocks.synced"

_CALLS = "read,recvfrom,recvmsg,write,writev,sendto,sendmsg,pwrite64,fsync,fdatasync"
_RECEIVING = {"read", "recvfrom", "recvmsg"}
_SENDING = {"write", "writev", "sendto", "sendmsg"}
_SYNCING = {"fsync", "fdatasync"}
_LINE = re.compile(r"(\d+)\s+(?:<\.\.\. )?(\w+)(?: resumed>|\()(.*)")
_RESULT = re.compile(r"= (-?\d+)[^=]*$")


@dataclass(frozen=True, slots=True)
class Call:
    """One system call; `begin` and `end` are lines of the trace, in which time runs downwards."""

    name: str
    arguments: str
    result: int | None
    begin: int
    end: int


def read_trace(text: str) -> list[Call]:
    calls: list[Call] = []
    open_calls: dict[tuple[str, str], tuple[int, str]] = {}
    for number, line in enumerate(text.splitlines()):
        found = _LINE.match(line)
        if found is None:
            continue
        thread, name, rest = found.groups()
        if rest.endswith("<unfinished ...>"):
            open_calls[thread, name] = (number, rest)
            continue
        begin, before = open_calls.pop((thread, name), (number, ""))
        result = _RESULT.search(rest)
        calls.append(Call(name, before + rest, int(result.group(1)) if result else None, begin, number))
    return calls


@contextlib.contextmanager
def traced(pid: int, file: Path) -> Iterator[None]:
    """Trace a running process with all its threads; skips where that is not allowed."""
    require("strace")
    said = file.with_suffix(".said")
    with said.open("wb") as errors:
        command = [
            "strace",
            "-f",
            "-y",
            "-s",
            "6000",
            "-e",
            f"trace={_CALLS}",
            "-o",
            str(file),
            "-p",
            str(pid),
        ]
        tracer = subprocess.Popen(command, stderr=errors, stdin=subprocess.DEVNULL)
    try:
        until("strace to attach or to give up", lambda: said.read_bytes() or tracer.poll() is not None)
        if "attached" not in said.read_text():
            pytest.skip(f"strace may not watch a process here: {said.read_text().strip()}")
        yield
    finally:
        tracer.terminate()
        tracer.wait(20)


def assert_synced(calls: list[Call], marker: str, wal: str, status: int) -> None:
    """The marker comes in, is written to the log, the log is synced, the answer goes out: in this order."""
    arrival = next(call for call in calls if call.name in _RECEIVING and marker in call.arguments)
    answer = next(
        call
        for call in calls
        if call.name in _SENDING and call.begin > arrival.end and f"HTTP/1.1 {status} " in call.arguments
    )
    written = [
        call
        for call in calls
        if call.name == "pwrite64"
        and wal in call.arguments
        and marker in call.arguments
        and arrival.end < call.begin
        and call.end < answer.begin
    ]
    assert written, f"nothing with {marker} was written to {wal} between the request and its answer"
    synced = [
        call
        for call in calls
        if call.name in _SYNCING
        and wal in call.arguments
        and call.result == 0
        and written[-1].end < call.begin
        and call.end < answer.begin
    ]
    assert synced, f"{wal} was not synced between its last write and the answer {status}"


@pytest.fixture(scope="module")
def topic(network: Network) -> str:
    answer = network.http.put(f"/v1/topics/{TOPIC}", json={"attributes": {"symbol": "string"}})
    assert answer.status_code == 201, answer.text
    return TOPIC


def test_an_acknowledged_event_was_synced(network: Network, topic: str, tmp_path: Path) -> None:
    trace = tmp_path / "dispatcher"
    with traced(network.dispatcher.pid, trace):
        answer = network.http.post(f"/v1/topics/{topic}/events", json={"$id": "marked-event", "symbol": "GE"})
    assert answer.status_code == 202, answer.text
    assert_synced(read_trace(trace.read_text()), "marked-event", "dispatcher.db-wal", 202)


def test_an_acknowledged_subscription_was_synced_by_its_server_and_by_the_dispatcher(
    network: Network, receiver: Receiver, topic: str, tmp_path: Path
) -> None:
    at_dispatcher, at_server = tmp_path / "dispatcher", tmp_path / "server"
    with traced(network.dispatcher.pid, at_dispatcher), traced(network.servers["s1"].pid, at_server):
        answer = network.http.post(
            "/v1/subscriptions",
            json={"id": "marked-subscription", "topic": topic, "sink": {"url": receiver.address("a")}},
        )
    assert answer.status_code == 201, answer.text
    assert_synced(read_trace(at_server.read_text()), "marked-subscription", "server.db-wal", 200)
    assert_synced(read_trace(at_dispatcher.read_text()), "marked-subscription", "dispatcher.db-wal", 201)


def test_a_frame_that_is_acknowledged_was_synced_with_its_notifications(
    network: Network, receiver: Receiver, topic: str, tmp_path: Path
) -> None:
    body = {"id": "hears", "topic": topic, "sink": {"url": receiver.address("b")}}
    assert network.http.post("/v1/subscriptions", json=body).status_code == 201
    trace = tmp_path / "server"
    with traced(network.servers["s1"].pid, trace):
        event = {"$id": "marked-frame", "symbol": "GE"}
        assert network.http.post(f"/v1/topics/{topic}/events", json=event).status_code == 202
        until(
            "the notification",
            lambda: any("marked-frame" in str(delivery.body) for delivery in receiver.deliveries()),
        )
        until("the frame's answer", lambda: _lag(network) == 0)
    assert_synced(read_trace(trace.read_text()), "marked-frame", "server.db-wal", 200)


def _lag(network: Network) -> int:
    lag: int = network.http.get("/v1/servers").json()["servers"][0]["lag"]
    return lag


CALM = """\
11 read(7<socket:[1]>, "POST x marker", 65536) = 13
12 pwrite64(9</d/dispatcher.db-wal>, "..marker..", 4096, 32) = 4096
12 fdatasync(9</d/dispatcher.db-wal>) = 0
11 write(7<socket:[1]>, "HTTP/1.1 202 Accepted", 21) = 21
"""
INTERLEAVED = """\
11 read(7<socket:[1]>, "POST x marker", 65536) = 13
12 pwrite64(9</d/dispatcher.db-wal>, "..marker..", 4096, 32) = 4096
12 fdatasync(9</d/dispatcher.db-wal> <unfinished ...>
11 read(8<pipe:[2]>, "1", 1) = 1
12 <... fdatasync resumed>) = 0
11 write(7<socket:[1]>, "HTTP/1.1 202 Accepted", 21) = 21
"""
TOO_EARLY = INTERLEAVED.replace(
    "11 read(8<pipe:[2]>", '11 write(7<socket:[1]>, "HTTP/1.1 202 Accepted", 21) = 21\n11 read(8'
)
FAILED = CALM.replace("db-wal>) = 0", "db-wal>) = -1 EIO (Input/output error)")
OTHER_FILE = CALM.replace("fdatasync(9</d/dispatcher.db-wal>", "fdatasync(9</d/dispatcher.db>")
BEFORE_THE_WRITE = "\n".join(CALM.splitlines()[place] for place in (0, 2, 1, 3))


@pytest.mark.parametrize("trace", [CALM, INTERLEAVED])
def test_a_trace_with_the_sync_in_its_place_is_accepted(trace: str) -> None:
    assert_synced(read_trace(trace), "marker", "dispatcher.db-wal", 202)


@pytest.mark.parametrize("trace", [TOO_EARLY, FAILED, OTHER_FILE, BEFORE_THE_WRITE])
def test_a_trace_without_it_is_refused(trace: str) -> None:
    with pytest.raises(AssertionError):
        assert_synced(read_trace(trace), "marker", "dispatcher.db-wal", 202)
