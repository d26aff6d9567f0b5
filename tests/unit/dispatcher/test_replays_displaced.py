"""The past of subscriptions that began while a dispatcher was dead, or that only that one knew of."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import numpy as np
import pytest
from corekit import Core, make_ready, page_after

from dispatcher.store.interface import Transaction
from dispatcher.store.replays import NOTHING
from dispatcher.subscriptions.replay import Replayer
from edn import protocol

Row = tuple[str, int, int]


async def publish(core: Core, value: float) -> int:
    """An event that stays available; its offset."""

    def operation(transaction: Transaction) -> int:
        topic, line = core.topics.get("t").uid, b'{"own": %g}\n' % value
        transaction.append_events(topic, [None], [None], line, np.array([[value]]), np.array([3600.0]))
        return transaction.head

    return await core.log.submit(operation)


@contextlib.asynccontextmanager
async def dispatchers(folder: Path) -> AsyncIterator[tuple[Core, Core]]:
    """Two that know the same topic, and each a server of its own."""
    first = Core(folder / "first", ("s1",), shared=True)
    second = Core(folder / "second", ("s2",), shared=True)
    for core in (first, second):
        core.log.start()
    await first.put("t")
    await second.learn_from(first)
    try:
        yield first, second
    finally:
        for core in (first, second):
            await core.network.stop()


async def come_back(died: Core, other: Core) -> None:
    """And learn what the other has done meanwhile, on its server."""
    make_ready(died.network, "s2")
    await died.learn_from(other)


def noted(core: Core) -> list[Row]:
    """Of all replays, the oldest first: server, up to where, since when."""
    return core.log._reader.execute("SELECT server, upto, since FROM replays ORDER BY version").fetchall()


def test_what_the_displaced_one_was_told_live_is_not_of_the_new_ones_past(tmp_path: Path) -> None:
    async def run() -> None:
        async with dispatchers(tmp_path) as (died, other):
            await publish(died, 1)
            await died.subscribe("a", "t", {"own": {"gt": 0}})
            [(_, began, _)] = noted(died)
            await publish(died, 2)
            await other.subscribe("a", "t", {"own": {"gt": 0}})

            await come_back(died, other)
            assert noted(died) == [("s1", began, NOTHING), ("s2", began, 0)]
            assert died.controls(began + 1) == [("deactivate", "s1", ["a"]), ("activate", "s2", ["a"])]

    asyncio.run(run())


def test_with_another_filter_it_is_told_everything(tmp_path: Path) -> None:
    async def run() -> None:
        async with dispatchers(tmp_path) as (died, other):
            await publish(died, 1)
            await died.subscribe("a", "t", {"own": {"gt": 0}})
            [(_, began, _)] = noted(died)
            last = await publish(died, 2)
            await other.subscribe("a", "t", {"own": {"gt": 1}})

            await come_back(died, other)
            (_, new) = noted(died)
            assert noted(died)[0] == ("s1", began, NOTHING)
            assert new[0] == "s2"
            assert new[1] > last

    asyncio.run(run())


def test_one_whose_past_was_told_is_followed_by_one_that_is_told_it_anew(tmp_path: Path) -> None:
    """It was ended and made again, as far as anybody can tell."""

    async def run() -> None:
        async with dispatchers(tmp_path) as (died, other):
            await publish(died, 1)
            await died.subscribe("a", "t")
            await died.log.submit(lambda transaction: transaction.connection.execute("DELETE FROM replays"))
            last = await publish(died, 2)
            await other.subscribe("a", "t")

            await come_back(died, other)
            [(server, upto, since)] = noted(died)
            assert (server, since) == ("s2", 0)
            assert upto > last

    asyncio.run(run())


def test_a_replay_waits_for_the_others_and_is_what_it_is_by_then(tmp_path: Path) -> None:
    async def run() -> None:
        async with dispatchers(tmp_path) as (died, other):
            await publish(died, 1)
            await died.subscribe("a", "t")
            pages: dict[str, protocol.ReplayPage] = {}

            async def tell(server: str, path: str, message: msgspec.Struct) -> bytes:
                assert isinstance(message, protocol.ReplayPage)
                pages[server] = message
                return protocol.encode(protocol.ReplayAck(position=message.upto, done=message.final))

            died.network.calls.send = tell  # type: ignore[method-assign]  # no server is there
            level = asyncio.Event()

            async def until_level() -> None:
                await level.wait()

            parts = died.network
            replayer = Replayer(
                parts.log,
                died.topics,
                parts.members,
                parts.calls,
                parts.pipeline,
                parts.backup_gate,
                parts.tasks,
                until_level,
            )
            replayer.start()  # as after a return
            await asyncio.sleep(0.1)
            assert pages == {}
            assert replayer.running == 1

            await publish(died, 2)
            await other.subscribe("a", "t")
            died.merger._on_replay = replayer.begin
            await come_back(died, other)
            level.set()
            async with asyncio.timeout(10):
                while replayer.running:  # noqa: ASYNC110  nobody tells
                    await asyncio.sleep(0.01)

            assert pages["s1"].segment is None
            assert pages["s1"].final
            told = pages["s2"].segment
            assert told is not None
            assert told.lines == b'{"own": 1}\n'
            assert noted(died) == []
            replayer.stop()

    asyncio.run(run())


def test_one_that_came_and_went_meanwhile_is_told_what_was_available(tmp_path: Path) -> None:
    async def run() -> None:
        async with dispatchers(tmp_path) as (died, other):
            last = await publish(died, 1)
            made = await other.subscribe("a", "t", {"own": {"gt": 0}})
            await other.subscriptions.delete("a")

            await come_back(died, other)
            assert noted(died) == [("s2", last, 0)]
            assert died.controls(last) == [("activate", "s2", ["a"]), ("deactivate", "s2", ["a"])]
            [row] = died.log._reader.execute("SELECT version, topic, filter FROM replays").fetchall()
            assert row == (made.version, made.topic, '{"own": {"gt": 0}}')
            # What it has learnt a third would learn from it.
            [gone] = [end for end in page_after(died.log, 0).gone if end.name == "a"]
            assert (gone.since, gone.topic, gone.filter) == (0, made.topic, made.filter)

    asyncio.run(run())


@pytest.mark.parametrize("why", ["nothing is available", "it began with what is new", "it was paused"])
def test_one_that_came_and_went_meanwhile_only_ends_where(why: str, tmp_path: Path) -> None:
    async def run() -> None:
        async with dispatchers(tmp_path) as (died, other):
            if why != "nothing is available":
                await publish(died, 1)
            last = died.log.head
            await other.subscribe("a", "t", since=None if why == "it began with what is new" else 0)
            if why == "it was paused":
                await other.subscriptions.pause("a", True)
            await other.subscriptions.delete("a")

            await come_back(died, other)
            assert noted(died) == []
            assert died.controls(last) == [("deactivate", "s2", ["a"])]

    asyncio.run(run())
