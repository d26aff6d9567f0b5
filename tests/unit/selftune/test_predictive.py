"""The policy that predicts: when it moves, what it makes of a prediction that fails, what it learns."""

from __future__ import annotations

from dataclasses import replace

import pytest

from selftune.predictive import PredictiveRule, State, begin, decide
from selftune.reading import Reading
from selftune.throughput import Model, OperatingPoint, Parameters

PARAMETERS = Parameters(servers=10, fixed=1.6e-3, message_bytes=3000, bandwidth=10e6)
#: precision → T_d in µs, R; with the parameters above TP is 333, 410, 431, 393, 334
CURVE = {
    at: OperatingPoint(routing=us * 1e-6, hit_ratio=hits)
    for at, us, hits in [(0.0, 0, 1.0), (0.3, 51, 0.81), (0.4, 72, 0.72), (0.5, 94, 0.63), (1.0, 139, 0.44)]
}
MODEL = Model(PARAMETERS, CURVE)


def reading(
    at: float, *, model: Model | None = MODEL, truth: Model = MODEL, saturated: bool = True
) -> Reading:
    """What a network that is as `truth` says shows at a precision."""
    parts = truth.at(at)
    return Reading(
        cpu=parts.throughput / parts.dispatcher, throughput=parts.throughput, saturated=saturated, model=model
    )


@pytest.mark.parametrize("start", [0.0, 0.3, 0.5, 1.0])
def test_it_goes_to_the_best_precision_and_stays(start: float) -> None:
    state, why = decide(begin(start), reading(start), PredictiveRule())
    assert state.precision == 0.4
    assert why is not None
    assert "0.4" in why
    for _ in range(20):
        state, why = decide(state, reading(state.precision), PredictiveRule())
        assert (state.precision, why) == (0.4, None)


def test_a_gain_within_the_margin_is_no_reason_to_move() -> None:
    state, why = decide(begin(0.3), reading(0.3), PredictiveRule(margin=0.06))
    assert (state.precision, why) == (0.3, None)


def test_a_full_cpu_that_routing_does_not_fill_is_no_reason_to_send_more() -> None:
    sending = Model(replace(PARAMETERS, bandwidth=1e9, per_copy=0.5e-3), CURVE)
    state = begin(1.0)
    for _ in range(10):
        now = reading(state.precision, model=sending, truth=sending)
        assert now.cpu == pytest.approx(1.0)
        state, _ = decide(state, now, PredictiveRule())
    assert state.precision == 1.0


@pytest.mark.parametrize("model", [None, Model(PARAMETERS, {0.9: CURVE[1.0]})])
def test_without_a_measurement_of_the_present_precision_nothing_moves(model: Model | None) -> None:
    assert decide(begin(0.4), reading(0.4, model=model), PredictiveRule())[0].precision == 0.4


def lying(at: float, factor: float) -> Model:
    """A model that promises so many times the truth at one precision."""
    one = CURVE[at]
    return Model(
        PARAMETERS,
        {**CURVE, at: OperatingPoint(routing=one.routing / factor, hit_ratio=one.hit_ratio / factor)},
    )


def drive(state: State, model: Model, intervals: int, rule: PredictiveRule) -> tuple[State, list[float]]:
    seen = []
    for _ in range(intervals):
        state, _ = decide(state, reading(state.precision, model=model), rule)
        seen.append(state.precision)
    return state, seen


def test_a_prediction_that_fails_is_taken_back_and_not_repeated_at_once() -> None:
    rule = PredictiveRule(cooldown=8)
    state, seen = drive(begin(0.4), lying(1.0, 4.0), 3, rule)
    # moves, gives it an interval to settle, then finds 334 where more than 431 was promised
    assert seen == [1.0, 1.0, 0.4]
    assert state.cooldowns == {1.0: 8}
    state, seen = drive(state, lying(1.0, 4.0), 7, rule)
    assert seen == [0.4] * 7


def test_the_bar_is_longer_each_time_the_same_precision_disappoints() -> None:
    rule = PredictiveRule(cooldown=2, longest_cooldown=8)
    state, seen = drive(begin(0.4), lying(1.0, 8.0), 60, rule)
    waits = [len(run) for run in "".join("x" if at == 1.0 else "." for at in seen).split("xx") if run]
    # the last interval of a bar is already free to move in
    assert waits == sorted(waits)
    assert waits[-2:] == [waits[-1]] * 2
    assert state.last_cooldowns == {1.0: 8}


def test_a_new_situation_lifts_the_bars() -> None:
    state, _ = drive(begin(0.4), lying(1.0, 4.0), 4, PredictiveRule(cooldown=100))
    assert state.cooldowns
    calm, _ = decide(state, replace(reading(0.4), throughput=430.0), PredictiveRule())
    assert calm.cooldowns
    changed, _ = decide(state, replace(reading(0.4), throughput=900.0), PredictiveRule())
    assert not changed.cooldowns


def test_what_cannot_be_checked_is_not_taken_back() -> None:
    state, _ = decide(begin(1.0), reading(1.0, saturated=False), PredictiveRule())
    assert state.precision == 0.4
    for _ in range(3):  # demand fell, which is no fault of the move
        state, why = decide(
            state, Reading(cpu=0.12, throughput=50.0, saturated=False, model=MODEL), PredictiveRule()
        )
        assert (state.precision, why) == (0.4, None)


def test_the_cpu_tells_what_the_dispatcher_really_can() -> None:
    # T_f is taken for twice what it is: TP_D at 0.4 looks like 256 instead of 431, and 0.0 like 312
    wrong = Model(replace(PARAMETERS, fixed=3.2e-3), CURVE)
    assert wrong.best() == 0.0
    state = begin(0.3)
    for _ in range(10):
        state, _ = decide(state, reading(state.precision, model=wrong), PredictiveRule())
    assert state.precision in (0.3, 0.4)
    # 410 events/s at 0.3 while the CPU is 87 % full
    assert state.predict(wrong, 0.3).dispatcher == pytest.approx(MODEL.at(0.3).dispatcher, rel=0.05)


def test_a_saturated_network_with_an_idle_cpu_tells_what_its_link_really_carries() -> None:
    narrow = Model(replace(PARAMETERS, bandwidth=5e6), CURVE)
    state = begin(0.3)
    for _ in range(6):
        # the model believes in 10 MB/s, and the network carries half of that
        state, _ = decide(state, reading(state.precision, model=MODEL, truth=narrow), PredictiveRule())
    assert state.precision == narrow.best() == 1.0
    assert state.factors["TP_OL"] == pytest.approx(0.5, rel=0.05)


@pytest.mark.parametrize(("link", "learnt"), [(0.4, False), (0.95, True), (None, True)])
def test_a_link_that_was_not_full_is_not_blamed(link: float | None, learnt: bool) -> None:
    # saturated, the CPU at 90 %: something else than link and CPU slows it
    now = Reading(cpu=0.9, throughput=200.0, saturated=True, link=link, model=MODEL)
    state, _ = decide(begin(0.3), now, PredictiveRule())
    assert ("TP_OL" in state.factors) is learnt


def test_a_link_that_is_nearly_full_tells_what_it_carries_when_it_is_full() -> None:
    # where CPU and link cross neither is quite full: 90 % of the link at 0.9 of what it carries
    now = Reading(cpu=0.9, throughput=0.9 * 412.0, saturated=True, link=0.9, model=MODEL)
    state, _ = decide(begin(0.3), now, PredictiveRule())
    assert state.predict(MODEL, 0.3).outgoing == pytest.approx(412.0)


@pytest.mark.parametrize("truth", [100.0, 20.0, 3.0])
def test_no_part_is_narrower_than_what_passed(truth: float) -> None:
    # the servers' time was measured while they did something else: TP_S looks like a part of what passes
    wrong = Model(replace(PARAMETERS, serving=truth / MODEL.at(0.4).throughput), CURVE)
    assert wrong.best() == 1.0
    state = begin(0.4)
    for _ in range(20):
        now = replace(reading(state.precision, model=wrong), server=0.1, link=1.0)
        state, why = decide(state, now, PredictiveRule())
        assert (state.precision, why) == (0.4, None)


def test_a_cpu_that_never_gets_quite_full_is_not_taken_to_have_room() -> None:
    # bounded by the dispatcher, whose loop waits for other threads 7 % of the time
    real = Model(replace(PARAMETERS, core=0.93), CURVE)
    now = replace(reading(1.0, truth=real), cpu=0.93, link=0.5, server=0.1)
    state, _ = decide(begin(1.0), now, PredictiveRule())
    assert state.predict(MODEL, 1.0).dispatcher == pytest.approx(real.at(1.0).throughput)
    assert state.predict(MODEL, 0.4).dispatcher == pytest.approx(real.at(0.4).dispatcher)


def test_a_cpu_that_the_link_keeps_from_filling_says_nothing_of_how_full_it_gets() -> None:
    now = Reading(cpu=0.88, throughput=300.0, saturated=True, link=0.97, server=0.1, model=MODEL)
    assert decide(begin(0.3), now, PredictiveRule())[0].ceiling is None
