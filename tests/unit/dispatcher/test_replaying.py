"""Replays of several servers beside each other."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
from corekit import make_ready

from dispatcher.config import Settings
from dispatcher.services import Services
from dispatcher.store import replays
from dispatcher.store.replays import Replay
from dispatcher.subscriptions.replay import CONCURRENCY
from edn import protocol
from edn.errors import Unavailable


def replay(number: int, server: str) -> Replay:
    return Replay(f"sub{number}", 1, server, topic=1, filter=None, upto=0, time=0, since=None)


def test_replays_that_wait_for_a_server_keep_no_other_from_theirs(tmp_path: Path) -> None:
    async def run() -> None:
        network = Services(Settings(data=tmp_path, secret="s" * 16))
        network.log.start()
        make_ready(network, "away", "there")
        told = asyncio.Event()

        async def tell(server: str, path: str, message: msgspec.Struct) -> bytes:
            if server == "away":
                raise Unavailable("server away is away")
            told.set()
            return protocol.encode(protocol.ReplayAck(position=0, done=True))

        network.calls.send = tell  # type: ignore[method-assign]  # no server is there
        replayer = network.replayer
        replayer.start()
        noted = [replay(number, "away") for number in range(2 * CONCURRENCY)] + [replay(100, "there")]
        for one in noted:
            await network.log.submit(lambda transaction, one=one: replays.insert(transaction, one))
        for one in noted:
            replayer.begin(one)
            await asyncio.sleep(0)
        async with asyncio.timeout(10):
            await told.wait()
        await network.stop()

    asyncio.run(run())
