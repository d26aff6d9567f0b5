"""Slots: bounded, fair between tenants, and within a tenant between hosts and standings."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edn_server.sinks.concurrency import PARTS, Slots, Standing


async def settle() -> None:
    """Let every task run as far as it can without waiting."""
    for _ in range(5):
        await asyncio.sleep(0)


class Attempts:
    """Attempts that hang until they are told to end."""

    def __init__(self, slots: Slots) -> None:
        self.slots = slots
        self.started: list[str] = []
        self._ends: dict[str, asyncio.Event] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}

    def begin(self, name: str, tenant: str, standing: Standing = "new", host: str = "") -> None:
        end = self._ends[name] = asyncio.Event()

        async def attempt() -> None:
            async with self.slots.slot(tenant, standing, host):
                self.started.append(name)
                await end.wait()

        self.tasks[name] = asyncio.create_task(attempt())

    async def end(self, name: str) -> None:
        self._ends[name].set()
        await self.tasks.pop(name)
        await settle()

    async def stop(self) -> None:
        for task in self.tasks.values():
            task.cancel()
        await asyncio.gather(*self.tasks.values(), return_exceptions=True)


@pytest.mark.parametrize("standing", PARTS)
def test_an_attempt_of_one_tenant_starts_while_600_of_another_hang(standing: Standing) -> None:
    async def main() -> None:
        slots = Slots(512)
        attempts = Attempts(slots)
        for number in range(600):
            attempts.begin(f"noisy {number}", "noisy", standing, f"host {number}")
        await settle()
        assert 0 < len(attempts.started) <= slots.bound
        hanging = len(attempts.started)
        for each in PARTS:
            attempts.begin(f"quiet {each}", "quiet", each)
        await settle()
        assert attempts.started[hanging:] == [f"quiet {each}" for each in PARTS]
        await attempts.stop()
        assert slots.free == 512

    asyncio.run(main())


def test_attempts_of_all_standings_together_stay_within_the_bound_of_their_tenant() -> None:
    async def main() -> None:
        slots = Slots(64)
        attempts = Attempts(slots)
        for standing in PARTS:
            for number in range(64):
                attempts.begin(f"{standing} {number}", "noisy", standing)
        await settle()
        assert slots.running("noisy") == slots.bound == 32
        await attempts.stop()

    asyncio.run(main())


def test_attempts_that_hang_leave_slots_to_quick_and_slow_addresses_of_the_same_tenant() -> None:
    async def main() -> None:
        attempts = Attempts(Slots(512))
        for number in range(600):
            attempts.begin(f"new {number}", "one", "new", "dead")
            attempts.begin(f"failing {number}", "one", "failing", "dead")
        await settle()
        hanging = len(attempts.started)
        for number in range(20):
            attempts.begin(f"quick {number}", "one", "quick")
            attempts.begin(f"slow {number}", "one", "slow")
        await settle()
        assert len(attempts.started) == hanging + 40
        await attempts.stop()

    asyncio.run(main())


def test_hosts_take_turns_so_a_dead_one_with_many_addresses_delays_another_by_one_turn() -> None:
    async def main() -> None:
        attempts = Attempts(Slots(16))
        for number in range(50):
            attempts.begin(f"dead {number}", "one", "new", "dead")
        await settle()
        attempts.begin("healthy", "one", "new", "healthy")
        await settle()
        running = list(attempts.started)
        assert "healthy" not in running
        await attempts.end(running[0])
        await attempts.end(running[1])
        assert "healthy" in attempts.started
        await attempts.stop()

    asyncio.run(main())


def test_a_scarce_slot_goes_to_the_tenant_that_holds_the_fewest() -> None:
    async def main() -> None:
        slots = Slots(4, bound=4)
        attempts = Attempts(slots)
        for number in range(9):
            attempts.begin(f"a{number}", "a", "quick")
        await settle()
        assert attempts.started == ["a0", "a1", "a2"]  # one is reserved for others
        attempts.begin("b0", "b", "quick")
        attempts.begin("c0", "c", "quick")
        await settle()
        assert attempts.started[3:] == ["b0"]
        await attempts.end("a0")
        assert attempts.started[4:] == ["c0"]
        await attempts.end("b0")
        await attempts.end("c0")
        assert attempts.started[5:] == ["a3"]
        await attempts.stop()
        assert slots.free == 4

    asyncio.run(main())


def test_attempts_that_are_cancelled_take_no_slot_with_them() -> None:
    async def main() -> None:
        slots = Slots(1)
        attempts = Attempts(slots)
        for name in ("first", "second", "third"):
            attempts.begin(name, name)
        await settle()
        assert attempts.started == ["first"]
        attempts.tasks["second"].cancel()  # while it waits
        await attempts.end("first")
        attempts.tasks["third"].cancel()  # its turn may have come in the same moment
        await attempts.stop()
        assert slots.free == 1
        assert slots.running("third") == 0
        async with slots.slot("fourth"):
            assert slots.free == 0

    asyncio.run(main())


def test_a_turn_that_comes_while_its_attempt_is_being_cancelled_is_given_on() -> None:
    async def main() -> None:
        slots = Slots(1)
        async with AsyncExitStack() as held:
            await held.enter_async_context(slots.slot("a"))
            waiting = asyncio.create_task(slots.take("b", "quick", ""))
            await settle()
            await held.aclose()  # sets the turn of b
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        assert slots.free == 1

    asyncio.run(main())


@settings(max_examples=60, deadline=None)
@given(
    total=st.integers(1, 40),
    steps=st.lists(
        st.tuples(st.sampled_from("abcd"), st.sampled_from(list(PARTS)), st.integers(0, 30)), max_size=80
    ),
)
def test_slots_are_neither_lost_nor_exceeded_and_nobody_waits_for_nothing(
    total: int, steps: list[tuple[str, Standing, int]]
) -> None:
    async def main() -> None:
        slots = Slots(total)
        attempts = Attempts(slots)
        for number, (tenant, standing, act) in enumerate(steps):
            if act < 15:
                attempts.begin(str(number), tenant, standing, str(act % 3))
            elif attempts.tasks:
                names = list(attempts.tasks)
                name = names[act % len(names)]
                if name in attempts.started:
                    await attempts.end(name)
                else:
                    attempts.tasks.pop(name).cancel()
            await settle()
            running = [name for name in attempts.tasks if name in attempts.started]
            assert slots.free == total - len(running)
            assert all(slots.running(one) <= slots.bound for one in "abcd")
            # A tenant that holds nothing waits only if every slot is taken.
            if slots.free:
                holders = {steps[int(name)][0] for name in running}
                waiters = {steps[int(name)][0] for name in attempts.tasks if name not in attempts.started}
                assert waiters <= holders
        for name in list(attempts.started):
            if name in attempts.tasks:
                await attempts.end(name)
        while attempts.tasks:  # each end lets others start, until none waits
            ready = [name for name in attempts.tasks if name in attempts.started]
            assert ready
            await attempts.end(ready[0])
        assert slots.free == total

    asyncio.run(main())
