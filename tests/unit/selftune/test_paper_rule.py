"""The published self-tuning rule: its pseudo-code case by case, as a trace, and against a transcript."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selftune.paper import Rule, State, begin, decide, update_t
from selftune.reading import Reading

FULL, IDLE = 1.0, 0.5


def reading(cpu: float, throughput: float = 100.0) -> Reading:
    return Reading(cpu=cpu, throughput=throughput)


@pytest.mark.parametrize(
    ("case", "precisions", "index", "timeout", "oscillations", "expected"),
    [
        # (timeout, oscillations) after update_t, with n = 2 and maxT = 8
        ("p < 3: t = 1", (0.4, 0.5), 1, 4, 2, (1, 2)),
        ("p < 3, though it looks like an oscillation", (0.4, 0.5, 0.4), 2, 4, 2, (1, 2)),
        ("an oscillation, going up: counted", (0.4, 0.5, 0.4, 0.5), 3, 1, 0, (1, 1)),
        ("an oscillation, going down: not counted", (0.5, 0.4, 0.5, 0.4), 3, 1, 1, (1, 1)),
        ("the third one: t doubles, the count begins anew", (0.4, 0.5, 0.4, 0.5), 9, 1, 2, (2, 0)),
        ("again: 2 becomes 4", (0.4, 0.5, 0.4, 0.5), 15, 2, 2, (4, 0)),
        ("n t = maxT is allowed", (0.4, 0.5, 0.4, 0.5), 21, 4, 2, (8, 0)),
        ("n t beyond maxT: t stays, and so does the count", (0.4, 0.5, 0.4, 0.5), 27, 8, 2, (8, 3)),
        ("beyond it for long", (0.4, 0.5, 0.4, 0.5), 29, 8, 7, (8, 8)),
        ("a count of three is acted upon on the way down, too", (0.5, 0.4, 0.5, 0.4), 28, 4, 3, (8, 0)),
        ("precision[p] differs from p-2: all begins anew", (0.4, 0.5, 0.4, 0.3), 5, 4, 2, (1, 0)),
        ("precision[p-1] differs from p-3: all begins anew", (0.3, 0.5, 0.4, 0.5), 5, 4, 2, (1, 0)),
        ("standing at an end is no way up: nothing is counted", (1.0, 1.0, 1.0, 1.0), 9, 2, 1, (2, 1)),
    ],
)
def test_each_branch_of_update_t(
    case: str,
    precisions: tuple[float, ...],
    index: int,
    timeout: float,
    oscillations: int,
    expected: tuple[float, int],
) -> None:
    state = State(precisions=precisions, index=index, timeout=timeout, oscillations=oscillations)
    after = update_t(state, Rule(damping=2.0, longest=8.0))
    assert (after.timeout, after.oscillations) == expected, case


@pytest.mark.parametrize(
    ("cpu", "start", "expected"),
    [
        (0.96, 0.5, 0.4),  # at the threshold: CPU-bound
        (0.9599, 0.5, 0.6),
        (1.0, 0.05, 0.0),  # kept within 0 …
        (0.1, 0.95, 1.0),  # … and 1
        (1.0, 0.3, 0.2),  # and not 0.19999999999999998
    ],
)
def test_a_step_goes_down_when_the_cpu_is_full_and_up_otherwise(
    cpu: float, start: float, expected: float
) -> None:
    state, why = decide(begin(start), reading(cpu), Rule())
    assert state.precision == expected
    assert why is not None
    assert f"{cpu:.0%}" in why


#: (CPU, throughput) of one interval, then what the rule makes of it: precision, t, oscillations. n = 2.
RECORDED = [
    ((0.70, 340), (0.2, 1, 0)),
    ((0.75, 366), (0.3, 1, 0)),
    ((0.87, 411), (0.4, 1, 0)),
    ((1.00, 431), (0.3, 1, 0)),
    ((0.87, 411), (0.4, 1, 1)),  # 0.3 0.4 0.3 0.4: first oscillation
    ((1.00, 431), (0.3, 1, 1)),
    ((0.87, 411), (0.4, 1, 2)),
    ((1.00, 431), (0.3, 1, 2)),
    ((0.87, 411), (0.4, 2, 0)),  # the third: t = 2
    ((1.00, 431), (0.4, 2, 0)),  # waits
    ((1.00, 433), (0.3, 2, 0)),
    ((0.87, 411), (0.3, 2, 0)),  # waits
    ((0.87, 412), (0.4, 2, 1)),
    ((1.00, 431), (0.4, 2, 1)),  # waits
    ((1.00, 600), (0.3, 2, 1)),  # due anyway, and the throughput has changed
    ((0.87, 411), (0.3, 2, 1)),  # waits
    ((0.80, 260), (0.4, 2, 2)),
    ((1.00, 400), (0.4, 2, 2)),  # waits
    ((0.50, 390), (0.5, 1, 0)),  # no oscillation any more
]


def test_the_trace_of_a_recorded_series_is_reproduced() -> None:
    state = begin(0.1)
    for number, ((cpu, throughput), expected) in enumerate(RECORDED):
        state, _ = decide(state, reading(cpu, throughput), Rule(damping=2.0))
        assert (state.precision, state.timeout, state.oscillations) == expected, f"interval {number}"


def test_a_change_of_the_throughput_does_not_wait_for_the_timeout() -> None:
    waiting = State(precisions=(0.4, 0.5, 0.4, 0.5), index=9, timeout=8.0, settled=400.0)
    calm, why = decide(waiting, reading(FULL, 480.0), Rule())
    assert (calm.precision, why) == (0.5, None)
    stepped, why = decide(waiting, reading(FULL, 520.0), Rule())
    assert stepped.precision == 0.4
    assert why is not None
    assert "400" in why
    assert "520" in why


def test_what_a_step_itself_changes_is_no_trigger() -> None:
    state, _ = decide(begin(0.5), reading(FULL, 100.0), Rule(damping=2.0))
    state = State(precisions=state.precisions, index=state.index, timeout=4.0)
    for _ in range(3):
        state, why = decide(state, reading(IDLE, 900.0), Rule())
        assert why is None


def test_variable_steps_double_in_one_direction_and_fall_back_when_it_turns() -> None:
    rule = Rule(step=0.1, largest_step=0.4)
    state = begin(0.0)
    seen = []
    for cpu in (IDLE, IDLE, IDLE, FULL, FULL, IDLE):
        state, _ = decide(state, reading(cpu), rule)
        seen.append(state.precision)
    # +0.1, +0.2, +0.4, then -0.1, -0.2, then +0.1
    assert seen == [0.1, 0.3, 0.7, 0.6, 0.4, 0.5]


@dataclass
class Transcript:
    """The pseudo-code as it was printed: arrays, globals, no state to pass on."""

    precision: list[float]
    n: float
    max_t: float
    p: int = 0
    t: float = 1
    oscillations: int = 0
    history: list[tuple[float, float, int]] = field(default_factory=list)

    def step(self, bound: bool) -> None:
        self.p += 1
        moved = self.precision[self.p - 1] + (-0.1 if bound else 0.1)
        self.precision.append(round(max(0.0, min(1.0, moved)), 6))
        precision, p = self.precision, self.p
        if p < 3:
            self.t = 1
        elif precision[p] == precision[p - 2] and precision[p - 1] == precision[p - 3]:
            if precision[p] > precision[p - 1]:
                self.oscillations += 1
            if self.oscillations >= 3 and self.n * self.t <= self.max_t:
                self.t = self.n * self.t
                self.oscillations = 0
        else:
            self.oscillations = 0
            self.t = 1


@given(
    start=st.integers(0, 10),
    n=st.sampled_from([1.0, 1.5, 2.0, 4.0]),
    bounds=st.lists(st.booleans(), max_size=60)
    | st.lists(st.just(True), max_size=3).map(lambda x: [*x, *[True, False] * 30]),
)
def test_the_rule_is_the_pseudo_code(start: int, n: float, bounds: list[bool]) -> None:
    transcript = Transcript([start / 10], n, 16.0)
    rule = Rule(damping=n, longest=16.0)
    state = begin(start / 10)
    waited = 0
    for bound in bounds:
        # The same throughput in all intervals, so that only the timeout counts.
        state, _ = decide(state, reading(FULL if bound else IDLE), rule)
        waited += 1
        if waited >= transcript.t:
            transcript.step(bound)
            waited = 0
        assert state.precision == transcript.precision[-1]
        assert (state.index, state.timeout) == (transcript.p, transcript.t)
        assert state.oscillations == transcript.oscillations
