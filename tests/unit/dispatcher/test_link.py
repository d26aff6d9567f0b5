"""The cap on what leaves, and publishers that wait for servers, in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from dispatcher.servers.client import BURST_SECONDS, Link
from dispatcher.servers.pipeline import Backpressure
from edn.errors import Overloaded
from tests.unit.dispatcher.virtual_time import VirtualLoop, run


async def _send(link: Link, sizes: list[int], loop: VirtualLoop, left: list[float]) -> None:
    for size in sizes:
        await link.acquire(size)
        left.append(loop.time())


@pytest.mark.parametrize("streams", [1, 5])
def test_the_mean_rate_holds_whatever_the_sizes_and_however_many_streams(streams: int) -> None:
    loop = VirtualLoop()
    link = Link(1000.0, clock=loop.time)
    sizes = [10, 5000, 300, 1, 2000, 700] * 5
    left: list[float] = []

    async def work() -> None:
        await asyncio.gather(*(_send(link, sizes, loop, left) for _ in range(streams)))

    run(work(), loop)
    before_last = streams * sum(sizes) - sizes[-1]
    # what was sent before the last message has been paid for, but for what the bucket holds
    assert max(left) == pytest.approx(before_last / 1000.0, abs=BURST_SECONDS + 0.01)


def test_streams_take_turns() -> None:
    loop = VirtualLoop()
    link = Link(100.0, clock=loop.time)
    order: list[str] = []

    async def stream(name: str) -> None:
        for _ in range(20):
            await link.acquire(100)
            order.append(name)

    async def work() -> None:
        await asyncio.gather(stream("a"), stream("b"))

    run(work(), loop)
    # the first to come goes at once, and again before the other has come
    ahead = [order[:sent].count("a") - order[:sent].count("b") for sent in range(len(order) + 1)]
    assert max(ahead) <= 2
    assert min(ahead) >= 0


def test_without_a_limit_nothing_waits() -> None:
    loop = VirtualLoop()
    link = Link(None, clock=loop.time)
    run(link.acquire(1 << 40), loop)
    assert loop.now == 0.0


@pytest.mark.parametrize(("rate", "expected"), [(10_000.0, 1.9), (None, 1.0)])
def test_another_limit_counts_for_those_who_wait_already(rate: float | None, expected: float) -> None:
    loop = VirtualLoop()
    link = Link(1000.0, clock=loop.time)
    left: list[float] = []

    async def work() -> None:
        waiting = asyncio.ensure_future(_send(link, [10_000, 1], loop, left))
        await asyncio.sleep(1.0)
        link.limit(rate)  # 9000 bytes are still owed
        await waiting

    run(work(), loop)
    assert left[-1] == pytest.approx(expected, abs=0.02)


def test_a_quiet_time_earns_no_more_than_the_bucket_holds() -> None:
    loop = VirtualLoop()
    link = Link(1000.0, clock=loop.time)
    left: list[float] = []

    async def work() -> None:
        await asyncio.sleep(3600.0)
        await _send(link, [100] * 20, loop, left)

    run(work(), loop)
    assert left[-1] - left[0] == pytest.approx(1.9 - BURST_SECONDS - 0.1, abs=0.15)


def test_publishers_wait_while_a_server_is_too_far_behind() -> None:
    loop = VirtualLoop()
    lag = 100
    backpressure = Backpressure(lambda: lag, limit=50)
    backpressure.update()
    passed: list[float] = []

    async def publisher() -> None:
        if backpressure.full:
            await backpressure.wait()
        passed.append(loop.time())

    async def work() -> None:
        nonlocal lag
        waiting = asyncio.ensure_future(publisher())
        await asyncio.sleep(2.0)
        assert not passed
        lag = 50
        backpressure.update()
        await waiting

    run(work(), loop)
    assert passed == [2.0]
    assert backpressure.held == 1


def test_a_publisher_that_waited_long_is_told_to_come_again() -> None:
    loop = VirtualLoop()
    backpressure = Backpressure(lambda: 100, limit=50)
    backpressure.update()
    with pytest.raises(Overloaded, match="50 records") as caught:
        run(backpressure.wait(), loop)
    assert caught.value.retry_after == 1


def test_lifting_the_limit_lets_everybody_pass() -> None:
    backpressure = Backpressure(lambda: 100, limit=50)
    backpressure.update()
    assert backpressure.full
    backpressure.set_limit(None)
    assert not backpressure.full
