"""Calls to servers that fail."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from dispatcher.channel import Channel
from dispatcher.config import Settings
from dispatcher.members import Member
from dispatcher.network import Network
from edn import wire
from edn.errors import Unavailable
from tests.network import Process


def test_a_store_that_nobody_answers_is_unavailable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        network = Network(Settings(data=tmp_path, secret="s" * 16))
        network.members.add(Member("s1", "http://127.0.0.1:1", "key", 1, 0))
        monkeypatch.setattr(network.members, "state", lambda _: "ready")
        await network.start()
        request = wire.Store("log", 1, wire.TopicInfo(1, "", "t", [], "bitmap"), [])
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
    assert "cannot be opened" in said
    assert "Traceback" not in said


class _ClosedWriter:
    """What uvloop, which the services run on, makes of a connection that was reset while it was kept."""

    def writelines(self, _: object) -> None:
        raise RuntimeError("unable to perform operation on <TCPTransport closed=True>; the handler is closed")

    def close(self) -> None:
        pass


def test_a_kept_connection_that_was_reset_is_opened_again() -> None:
    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
        writer.close()

    async def run() -> None:
        server = await asyncio.start_server(once, "127.0.0.1", 0)
        channel = Channel(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", "secret")
        channel._streams = (asyncio.StreamReader(), _ClosedWriter())  # type: ignore[assignment]  # a stand-in
        assert await channel.post("/x", b"", "text/plain") == (200, b"ok")
        channel.close()
        server.close()
        await server.wait_closed()

    asyncio.run(run())
