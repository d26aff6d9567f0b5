"""Calls to servers that fail."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from dispatcher.config import Settings
from dispatcher.servers.registry import Server
from dispatcher.services import Services
from edn import protocol
from edn.errors import Unavailable
from tests.network import Process


def test_a_store_that_nobody_answers_is_unavailable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        network = Services(Settings(data=tmp_path, secret="s" * 16))
        network.members.add(Server("s1", "http://127.0.0.1:1", "key", 1, 0))
        monkeypatch.setattr(network.members, "state", lambda _: "ready")
        network.log.start()
        request = protocol.Store("log", 1, protocol.TopicInfo(1, "", "t", [], "bitmap"), [])
        with pytest.raises(Unavailable, match="s1 did not answer"):
            await network.calls.store("s1", request)
        await network.stop()

    asyncio.run(run())


def test_a_log_that_cannot_be_opened_is_said_in_one_line(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s" * 16)
    data = tmp_path / "data"
    data.mkdir()
    (data / "dispatcher.db").write_bytes(b"this is no database " * 100)
    flags = ["--data", str(data), "--secret-file", str(secret), "--port", "0"]
    process = Process("dispatcher", ["dispatcher", *flags], tmp_path)
    process.start()
    with pytest.raises(AssertionError, match="ended with 1"):
        process.await_ready()
    assert process.stop() == 1
    said = process.tail()
    assert "cannot open the log" in said
    assert "Traceback" not in said
