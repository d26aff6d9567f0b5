"""Slots: bounded, in order, and the slow do not keep those of the others."""

from __future__ import annotations

import asyncio

import pytest
from deliverykit import eventually

from edn_server import lanes
from edn_server.lanes import Lane, Lanes


def test_no_more_than_the_slots_are_taken_and_turns_come_in_order() -> None:
    async def main() -> None:
        lane, order, most, inside = Lane(2), [], 0, 0

        async def work(name: int) -> None:
            nonlocal most, inside
            await lane.take()
            inside += 1
            most = max(most, inside)
            order.append(name)
            await asyncio.sleep(0)
            inside -= 1
            lane.give()

        await asyncio.gather(*(work(name) for name in range(9)))
        assert order == list(range(9))
        assert (most, lane.free) == (2, 2)

    asyncio.run(main())


def test_whoever_gives_up_waiting_takes_no_slot_with_it() -> None:
    async def main() -> None:
        lane = Lane(1)
        await lane.take()
        waiting = [asyncio.create_task(lane.take()) for _ in range(3)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        lane.give()  # to the second: the first has given up
        waiting[1].cancel()  # which gives up in the moment that its turn comes
        await asyncio.sleep(0)
        await asyncio.wait_for(waiting[2], 5)
        lane.give()
        assert lane.free == 1

    asyncio.run(main())


def test_an_attempt_that_takes_long_leaves_the_fast_lane_while_the_slow_one_has_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lanes, "SLOW_SECONDS", 0.01)

    async def main() -> None:
        both = Lanes(fast=2, slow=1)
        done = asyncio.Event()

        async def stuck() -> None:
            async with both.slot("fast"):
                await done.wait()

        tasks = [asyncio.create_task(stuck()) for _ in range(2)]
        async with asyncio.timeout(30):
            await eventually(lambda: not both.slow.free)
            assert both.fast.free == 1  # one has moved, for the other there is no room
            async with both.slot("fast"):
                pass
            done.set()
            await asyncio.gather(*tasks)
        assert (both.fast.free, both.slow.free) == (2, 1)

    asyncio.run(main())


def test_a_slot_that_is_given_while_one_who_waits_is_being_cancelled_is_not_lost() -> None:
    async def run() -> None:
        lane = Lane(1)
        await lane.take()
        waiting = asyncio.create_task(lane.take())
        await asyncio.sleep(0)
        waiting.cancel()
        lane.give()  # before the one who waits has heard of its end
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert lane.free == 1

    asyncio.run(run())
