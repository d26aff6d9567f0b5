"""The clock of a process: a table of wall-clock faults, and invariants for random ones."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edn.runtime import clock
from edn.runtime.timekeeper import AGREEMENT, SLEW, Limits, Saved, Timekeeper

DAY = 86_400.0
#: the civil time at the beginning of every test
START = 1_700_000_000.0
LIMITS = Limits(jump=300.0, trust=300.0)


@dataclass
class Machine:
    """Two clocks of the test's own: `elapsed` is real, `offset` is by how much the wall clock is wrong."""

    elapsed: float = 1000.0
    offset: float = 0.0
    boot: str = "first"
    #: the real civil time when `elapsed` was 0
    born: float = field(default=START - 1000.0)

    @property
    def real(self) -> float:
        return self.born + self.elapsed

    def timekeeper(self, limits: Limits = LIMITS) -> Timekeeper:
        return Timekeeper(
            monotonic=lambda: self.elapsed,
            wall=lambda: self.real + self.offset,
            boot=self.boot,
            limits=limits,
        )

    def restart(self, seconds: float) -> None:
        """Switch the machine off, for so long; a new boot counts from 0."""
        self.born = self.real + seconds
        self.elapsed, self.boot = 0.0, self.boot + "'"


def run(machine: Machine, keeper: Timekeeper, seconds: float, every: float = 1.0) -> list[str]:
    """Let time pass as a process sees it; what was found, adopting whatever has agreed."""
    found = []
    for _ in range(round(seconds / every)):
        machine.elapsed += every
        finding = keeper.observe()
        if finding is not None:
            found.append(str(finding))
        if finding == "agreed":
            keeper.adopt()
    return found


def close(reading: float, expected: float) -> bool:
    return abs(reading - expected) < 0.01


# -- one boot -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [5 * DAY, -5 * DAY, 500 * DAY, -500 * DAY, 301.0, -301.0])
def test_a_jump_that_passes_changes_no_reading(offset: float) -> None:
    machine = Machine()
    keeper = machine.timekeeper()
    steady = keeper.steady()
    machine.offset = offset
    assert run(machine, keeper, 4) == ["jumped"]
    assert close(keeper.now(), machine.real)
    assert close(keeper.estimate(), machine.real)
    machine.offset = 0.0
    assert run(machine, keeper, 10) == ["returned"]
    assert close(keeper.now(), machine.real)
    assert close(keeper.steady() - steady, 14)
    assert keeper.suspicion is None
    assert keeper.adoptions == 0


@pytest.mark.parametrize("offset", [5 * DAY, -5 * DAY])
def test_a_jump_that_stays_is_adopted_after_a_while_and_ages_nothing(offset: float) -> None:
    machine = Machine()
    keeper = machine.timekeeper()
    steady = keeper.steady()
    machine.offset = offset
    assert run(machine, keeper, 300) == ["jumped"]
    assert close(keeper.now(), machine.real)
    assert run(machine, keeper, 2) == ["agreed"]
    assert close(keeper.now(), machine.real + offset)
    assert close(keeper.steady() - steady, 302)
    assert close(keeper.adopted, offset)
    # A moment of before is shown by the clock that is believed now.
    assert abs(keeper.instant(steady) - (machine.real + offset - 302)) <= 1
    assert close(keeper.moment(keeper.instant(steady)), steady)


def test_a_clock_that_jumps_about_is_never_adopted() -> None:
    machine = Machine()
    keeper = machine.timekeeper()
    for days in range(1, 20):
        machine.offset = days * DAY
        assert run(machine, keeper, 250) == ["jumped"]
        assert close(keeper.now(), machine.real)
    assert keeper.adoptions == 0


def test_an_operator_confirms_at_once_what_is_suspect_and_nothing_else() -> None:
    machine = Machine()
    keeper = machine.timekeeper()
    assert keeper.adopt(confirmed=True) == 0.0
    machine.offset = 5 * DAY
    assert run(machine, keeper, 1) == ["jumped"]
    assert keeper.adopt() == 0.0, "it has not agreed for long enough"
    assert close(keeper.adopt(confirmed=True), 5 * DAY)
    assert close(keeper.now(), machine.real + 5 * DAY)
    assert keeper.suspicion is None
    assert run(machine, keeper, 2) == []


def test_what_agreed_and_returned_before_it_was_adopted_is_not_adopted() -> None:
    machine = Machine()
    keeper = machine.timekeeper()
    machine.offset = 5 * DAY
    for _ in range(302):
        machine.elapsed += 1
        finding = keeper.observe()
    assert finding == "agreed"
    machine.offset = 0.0
    assert keeper.adopt() == 0.0
    machine.offset = 6 * DAY
    assert keeper.adopt() == 0.0, "that one has not agreed"
    assert close(keeper.now(), machine.real)


@pytest.mark.parametrize("offset", [2.0, -2.0, 200.0, -200.0])
def test_a_small_step_is_followed_smoothly(offset: float) -> None:
    machine = Machine()
    keeper = machine.timekeeper()
    machine.offset = offset
    before = keeper.now()
    for _ in range(round(abs(offset) / SLEW)):
        assert run(machine, keeper, 1) == []
        assert (1 - SLEW) * 0.999 <= keeper.now() - before <= (1 + SLEW) * 1.001
        before = keeper.now()
    assert run(machine, keeper, 2) == []
    assert close(keeper.now(), machine.real + offset)


def test_a_suspended_machine_has_aged() -> None:
    """The elapsed time counts it (CLOCK_BOOTTIME), so the wall clock agrees."""
    machine = Machine()
    keeper = machine.timekeeper()
    steady = keeper.steady()
    machine.elapsed += 8 * 3600
    assert run(machine, keeper, 1) == []
    assert close(keeper.now(), machine.real)
    assert close(keeper.steady() - steady, 8 * 3600 + 1)


def test_elapsed_time_is_read_from_the_clock_that_counts_suspension(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        time, "clock_gettime", {time.CLOCK_BOOTTIME: 8 * 3600.0, time.CLOCK_MONOTONIC: 1.0}.get
    )
    assert clock.monotonic() == 8 * 3600.0


# -- restarts -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [5 * DAY, -5 * DAY, 500 * DAY])
def test_a_process_that_starts_during_a_glitch_goes_on_by_the_elapsed_time(offset: float) -> None:
    machine = Machine()
    first = machine.timekeeper()
    saved = first.save()
    machine.elapsed += 40
    machine.offset = offset
    second = machine.timekeeper()
    assert second.resume(saved) == "jumped"
    assert close(second.now(), machine.real)
    assert close(second.estimate(), machine.real)
    assert close(second.steady() - saved.steady, 40)
    machine.offset = 0.0
    assert run(machine, second, 2) == ["returned"]
    assert close(second.now(), machine.real)


def test_a_machine_that_was_off_for_a_minute_is_believed_at_once() -> None:
    machine = Machine()
    saved = machine.timekeeper().save()
    machine.restart(60)
    machine.elapsed += 20
    keeper = machine.timekeeper()
    assert keeper.resume(saved) is None
    assert close(keeper.now(), machine.real)
    assert close(keeper.steady() - saved.steady, 80)


def test_a_machine_that_was_off_for_a_month_ages_and_expires_nothing_before_its_clock_is_trusted() -> None:
    machine = Machine()
    saved = machine.timekeeper().save()
    machine.restart(30 * DAY)
    machine.elapsed += 20
    keeper = machine.timekeeper()
    assert keeper.resume(saved) == "jumped"
    assert close(keeper.now(), saved.time + 20)
    assert close(keeper.steady(), saved.steady + 20)
    assert close(keeper.estimate(), machine.real), "signatures and new expiries use the best guess"
    again = machine.timekeeper()
    assert again.resume(keeper.save()) == "jumped"
    assert close(again.estimate(), machine.real), "a restart of the process knows it, too"
    assert run(machine, keeper, 302) == ["agreed"]
    assert close(keeper.now(), machine.real)
    assert close(keeper.steady() - saved.steady, 30 * DAY + 322)


def test_a_machine_that_boots_into_the_past_goes_on_from_what_it_knew() -> None:
    """A dead battery: the wall clock is of 1970 until a time server answers."""
    machine = Machine()
    saved = machine.timekeeper().save()
    machine.restart(3600)
    machine.elapsed += 20
    machine.offset = -machine.real
    keeper = machine.timekeeper()
    assert keeper.resume(saved) == "jumped"
    assert close(keeper.now(), saved.time + 20)
    assert close(keeper.estimate(), keeper.now())
    machine.offset = 0.0
    assert run(machine, keeper, 2) == ["jumped"], "an hour is more than a few minutes"
    assert close(keeper.estimate(), machine.real)
    assert run(machine, keeper, 301) == ["agreed"]
    assert close(keeper.now(), machine.real)
    assert close(keeper.steady() - saved.steady, 3600 + 323)


def test_a_folder_without_a_saved_clock_is_not_older_than_its_last_record() -> None:
    machine = Machine()
    machine.offset = 500 * DAY
    keeper = machine.timekeeper()
    assert keeper.resume(None) is None
    assert keeper.resume(None, least=START - 60) == "jumped"
    assert close(keeper.now(), START - 60)
    machine.offset = 0.0
    assert run(machine, keeper, 1) == ["returned"]
    assert close(keeper.now(), machine.real)


def test_another_machine_goes_on_from_a_copied_folder() -> None:
    """A restored backup: boots are others, and the elapsed time means nothing there."""
    machine = Machine(elapsed=5.0, boot="another")
    saved = Saved(boot="first", monotonic=9e6, time=machine.real - 60, steady=3.0)
    keeper = machine.timekeeper()
    assert keeper.resume(saved) is None
    assert close(keeper.now(), machine.real)
    assert close(keeper.steady(), 63.0)


def test_without_boot_ids_a_restart_is_taken_for_one_of_the_machine() -> None:
    machine = Machine(boot="")
    saved = machine.timekeeper().save()
    machine.elapsed += 5
    keeper = machine.timekeeper()
    assert keeper.resume(saved) is None
    assert close(keeper.now(), machine.real)
    assert close(keeper.steady() - saved.steady, 5)


# -- whatever happens ---------------------------------------------------------------------------------------

STEPS = st.lists(
    st.tuples(
        # what the wall clock does, how long it lasts, how often it is looked at, whether the process restarts
        st.one_of(
            st.just(0.0),
            st.floats(-290.0, 290.0),
            st.floats(-600 * DAY, 600 * DAY),
        ),
        st.floats(0.5, 290.0),
        st.floats(0.2, 40.0),
        st.booleans(),
    ),
    max_size=25,
)


@settings(max_examples=150, deadline=None)
@given(STEPS)
def test_no_wall_clock_makes_an_age_negative_or_longer_than_the_time_that_passed(
    steps: list[tuple[float, float, float, bool]],
) -> None:
    machine = Machine()
    keeper = machine.timekeeper()
    for offset, seconds, every, restarts in steps:
        machine.offset = offset
        if restarts:
            fresh = machine.timekeeper()
            fresh.resume(keeper.save())
            keeper = fresh
        steady, elapsed = keeper.steady(), machine.elapsed
        run(machine, keeper, seconds, every)
        assert abs((keeper.steady() - steady) - (machine.elapsed - elapsed)) < 0.01


@settings(max_examples=150, deadline=None)
@given(STEPS)
def test_network_time_moves_on_and_runs_ahead_by_little_unless_something_is_adopted(
    steps: list[tuple[float, float, float, bool]],
) -> None:
    machine = Machine()
    keeper = machine.timekeeper(Limits(jump=300.0, trust=1e9))
    for offset, seconds, every, restarts in steps:
        machine.offset = offset
        if restarts:
            fresh = machine.timekeeper(keeper.limits)
            fresh.resume(keeper.save())
            keeper = fresh
        for _ in range(round(seconds / every)):
            before = keeper.now()
            machine.elapsed += every
            keeper.observe()
            assert (1 - SLEW) * every - 0.01 <= keeper.now() - before <= (1 + SLEW) * every + 0.01
            assert abs(keeper.now() - machine.real) <= 300 + every * SLEW + 0.01
            assert keeper.estimate() >= keeper.now() - 0.01
    assert keeper.adoptions == 0


@settings(max_examples=100, deadline=None)
@given(STEPS, st.floats(0.0, 400.0), st.floats(0.0, 600 * DAY))
def test_over_a_boot_nothing_is_older_than_the_clock_that_was_trusted(
    steps: list[tuple[float, float, float, bool]], uptime: float, off: float
) -> None:
    machine = Machine()
    saved = machine.timekeeper().save()
    machine.restart(off)
    machine.elapsed += uptime
    keeper = machine.timekeeper()
    keeper.resume(saved)
    for offset, seconds, every, _ in steps:
        machine.offset = offset
        run(machine, keeper, seconds, every)
    # What it was off, what has passed since, and what was adopted or believed in between.
    passed = machine.real - saved.time
    believed = max([abs(offset) for offset, *_ in steps], default=0.0)
    assert 0 <= keeper.steady() - saved.steady <= passed + believed + AGREEMENT
