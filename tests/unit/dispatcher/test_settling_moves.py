"""Moves are settled, whatever stands in the way for a while."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from corekit import make_ready

from dispatcher.config import Settings
from dispatcher.rebalance.handover import Handover
from dispatcher.services import Services
from dispatcher.store.interface import Transaction
from edn.errors import Unavailable


def test_a_log_that_cannot_be_written_for_a_while_delays_settling_only(tmp_path: Path) -> None:
    async def run() -> None:
        network = Services(Settings(data=tmp_path, secret="s" * 16))
        network.log.start()
        make_ready(network, "there")

        def move(transaction: Transaction) -> None:
            # Its former server is no part of the network any more: there is nothing to wait for.
            transaction.connection.execute("INSERT INTO moves VALUES ('sub', 2, 'gone', 'there', 0)")

        await network.log.submit(move)

        async def tell(server: str, path: str, message: msgspec.Struct) -> bytes:
            return b""

        network.calls.send = tell  # type: ignore[method-assign]  # no server is there
        submit, failed = network.log.submit, asyncio.Event()

        def fail_once(operation: Callable[[Transaction], Any], size: int = 0) -> asyncio.Future[Any]:
            network.log.submit = submit  # type: ignore[method-assign]  # as it was
            failed.set()
            future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            future.set_exception(Unavailable("the log could not be written"))
            return future

        network.log.submit = fail_once  # type: ignore[method-assign]  # a disk that is full
        handover = Handover(network.log, network.members, network.calls, network.backup_gate, lambda: True)
        work = asyncio.create_task(handover.run())
        await failed.wait()
        async with asyncio.timeout(10):
            while await handover.count_unfinished() and not work.done():  # noqa: ASYNC110  nobody tells
                await asyncio.sleep(0.01)
        assert await handover.count_unfinished() == 0
        work.cancel()
        await network.stop()

    asyncio.run(run())
