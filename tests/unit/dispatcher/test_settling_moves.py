"""Moves are settled, whatever stands in the way for a while."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from corekit import make_ready

from dispatcher.config import Settings
from dispatcher.rebalance.handover import Handover
from dispatcher.services import Services
from dispatcher.store.interface import Transaction
from edn.errors import Unavailable
from edn.runtime.sql import DatabaseUnavailable


async def _start(folder: Path) -> Services:
    """A network with one unfinished migration, whose former server is no part of it: nothing to wait for."""
    network = Services(Settings(data=folder, secret="s" * 16))
    network.log.start()
    make_ready(network, "there")

    async def tell(server: str, path: str, message: msgspec.Struct) -> bytes:
        return b""

    network.calls.send = tell  # type: ignore[method-assign]  # no server is there
    return network


async def _migrate(network: Services) -> None:
    def move(transaction: Transaction) -> None:
        transaction.connection.execute("INSERT INTO moves VALUES ('sub', 2, 'gone', 'there', 0)")

    await network.log.submit(move)


def _handover(network: Services, leads: Callable[[], bool] = lambda: True) -> Handover:
    return Handover(network.log, network.members, network.calls, network.backup_gate, leads)


async def _settled(network: Services, work: asyncio.Task[None]) -> None:
    count = _handover(network).count_unfinished
    async with asyncio.timeout(10):
        while await count() and not work.done():  # noqa: ASYNC110  nobody tells
            await asyncio.sleep(0.01)
    assert await count() == 0
    work.cancel()


def test_a_log_that_cannot_be_written_for_a_while_delays_settling_only(tmp_path: Path) -> None:
    async def run() -> None:
        network = await _start(tmp_path)
        await _migrate(network)
        submit, failed = network.log.submit, asyncio.Event()

        def fail_once(operation: Callable[[Transaction], Any], size: int = 0) -> asyncio.Future[Any]:
            network.log.submit = submit  # type: ignore[method-assign]  # as it was
            failed.set()
            future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            future.set_exception(Unavailable("the log could not be written"))
            return future

        network.log.submit = fail_once  # type: ignore[method-assign]  # a disk that is full
        work = asyncio.create_task(_handover(network).run())
        await failed.wait()
        await _settled(network, work)
        await network.stop()

    asyncio.run(run())


def _fail_reads(network: Services, times: int) -> asyncio.Event:
    """Has the next reads fail, as those of a database during a failover; the event follows the last one."""
    reading, over = network.log.reading, asyncio.Event()
    left = times

    async def fail(function: Callable[..., Any], *arguments: Any) -> Any:
        nonlocal left
        left -= 1
        if not left:
            network.log.reading = reading  # type: ignore[method-assign]  # as it was
            over.set()
        raise DatabaseUnavailable("the database does not answer", retry_after=1)

    network.log.reading = fail  # type: ignore[assignment]  # a failover
    return over


@pytest.mark.parametrize("times", [1, 3])
def test_a_database_that_cannot_be_read_for_a_while_delays_settling_only(tmp_path: Path, times: int) -> None:
    async def run() -> None:
        network = await _start(tmp_path)
        await _migrate(network)
        over = _fail_reads(network, times)
        work = asyncio.create_task(_handover(network).run())
        await asyncio.wait([work, asyncio.create_task(over.wait())], return_when=asyncio.FIRST_COMPLETED)
        await _settled(network, work)
        await network.stop()

    asyncio.run(run())


def test_a_repartition_goes_on_after_the_database_could_not_be_read(tmp_path: Path) -> None:
    async def run() -> None:
        network = await _start(tmp_path)
        opened = await network.runner.open()
        await network.runner.start(opened.id)
        over = _fail_reads(network, 1)
        work = asyncio.create_task(network.runner.run())
        await asyncio.wait([work, asyncio.create_task(over.wait())], return_when=asyncio.FIRST_COMPLETED)
        async with asyncio.timeout(10):
            while (  # noqa: ASYNC110  nobody tells
                await network.runner.get(opened.id)
            ).state != "done" and not work.done():
                await asyncio.sleep(0.01)
        assert (await network.runner.get(opened.id)).state == "done"
        work.cancel()
        await network.stop()

    asyncio.run(run())


def test_a_dispatcher_that_leads_again_settles_what_another_one_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It led before, when there was nothing to settle; then the other one led, migrated and died."""
    monkeypatch.setattr("dispatcher.rebalance.handover.MAX_DELAY", 0.05)

    async def run() -> None:
        network = await _start(tmp_path)
        network.log.shared = True
        leading, asked = True, 0

        def leads() -> bool:
            nonlocal asked
            asked += 1
            return leading

        work = asyncio.create_task(_handover(network, leads).run())
        while not asked:  # noqa: ASYNC110  nobody tells
            await asyncio.sleep(0)
        leading = False
        await _migrate(network)
        leading = True
        await _settled(network, work)
        await network.stop()

    asyncio.run(run())
