"""Servers that start their streams."""

from __future__ import annotations

import asyncio
from pathlib import Path

from dispatcher.config import Settings
from dispatcher.services import Services
from edn import protocol
from edn.errors import Conflict


def request(key: str = "k" * 16) -> protocol.Register:
    return protocol.Register(id="s1", key=key, epoch=1, url="http://127.0.0.1:1", cursors={}, subscriptions=0)


def streams() -> list[str]:
    """The tasks that send, but for those that were told to end."""
    return [
        task.get_name()
        for task in asyncio.all_tasks()
        if task.get_name().startswith("forward to") and not task.cancelling()
    ]


def test_a_new_server_that_asks_twice_at_once_gets_one_stream(tmp_path: Path) -> None:
    async def run() -> None:
        network = Services(Settings(data=tmp_path, secret="s" * 16))
        network.log.start()
        await asyncio.gather(
            network.registration.register(request()), network.registration.register(request())
        )
        assert streams() == ["forward to s1"]
        member = network.members.get("s1")
        assert member is not None
        assert member.task is not None
        assert not member.task.cancelling()
        await network.stop()

    asyncio.run(run())


def test_of_two_new_servers_with_one_id_the_second_is_refused(tmp_path: Path) -> None:
    async def run() -> None:
        network = Services(Settings(data=tmp_path, secret="s" * 16))
        network.log.start()
        both = (
            network.registration.register(request()),
            network.registration.register(request("another" * 4)),
        )
        first, second = await asyncio.gather(*both, return_exceptions=True)
        assert isinstance(first, protocol.Registered)
        assert isinstance(second, Conflict)
        assert streams() == ["forward to s1"]
        await network.stop()

    asyncio.run(run())
