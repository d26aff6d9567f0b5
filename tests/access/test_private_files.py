"""Files that a network writes: nobody but its owner reads them, and no log holds a sink's token."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.network import Hook, Network, until
from tests.network.processes import ROOT

TOKEN = "t0ken-in-a-url"


@pytest.fixture
def careless(tmp_path: Path) -> Iterator[Network]:
    """A network that was started with the umask 0, on folders that anybody may read."""
    running = Network(tmp_path, 1, server_options=("--retry-steps", "0.1"))
    for name in ("dispatcher", "s1"):
        (tmp_path / name).mkdir(mode=0o755)
        (tmp_path / name / "left behind").write_text("by an earlier version")
        (tmp_path / name / "left behind").chmod(0o644)
    before = os.umask(0)
    try:
        running.start()
        yield running
    finally:
        os.umask(before)
        running.close()


def open_to_others(folder: Path) -> list[str]:
    paths = [folder, *folder.rglob("*")]
    return [f"{path} {stat.filemode(path.stat().st_mode)}" for path in paths if path.stat().st_mode & 0o077]


def test_files_are_private_and_logs_hold_no_tokens(careless: Network, hook: Hook, tmp_path: Path) -> None:
    http = careless.http
    http.put("/v1/topics/t", json={"attributes": {"n": "number"}}).raise_for_status()
    for number, status in enumerate((500, 410, 404)):
        path = f"/{TOKEN}/{number}?key={TOKEN}"
        hook.status[path] = status
        userinfo = hook.url(path).replace("//", f"//user:{TOKEN}@")
        for url in (hook.url(path), userinfo, f"cloudevents:?mode=batch&to={hook.url(path)}"):
            http.post("/v1/subscriptions", json={"topic": "t", "sink": {"url": url}})
    http.post("/v1/topics/t/events", json={"n": 1}).raise_for_status()
    until("attempts that failed", lambda: len(hook.posts) >= 8)
    folders = [tmp_path / "dispatcher", tmp_path / "s1"]
    names = {path.name for folder in folders for path in folder.iterdir()}
    assert {"dispatcher.db", "dispatcher.db-wal", "server.db", "server.db-wal", "audit.jsonl"} <= names
    copy = tmp_path / "copy"
    command = [sys.executable, "-m", "edn.cli", "backup", str(copy), "--url", careless.url]
    subprocess.run(command, cwd=ROOT, check=True, timeout=60, capture_output=True)
    restored = tmp_path / "restored"
    command = [sys.executable, "-m", "edn.cli", "restore", str(copy), str(restored)]
    subprocess.run(command, cwd=ROOT, check=True, timeout=60, capture_output=True)
    for folder in (*folders, copy, restored):
        assert open_to_others(folder) == []
    logs = "".join((tmp_path / f"{name}.stderr").read_text() for name in ("dispatcher", "s1"))
    assert "attempt_failed" in logs
    assert "127.0.0.1" in logs
    assert TOKEN not in logs
