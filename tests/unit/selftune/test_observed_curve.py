"""Observed costs outweigh probed costs and correct them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selftune.observed_curve import LASTS, ObservedCurve
from selftune.throughput import OperatingPoint

PROBED = {
    0.0: OperatingPoint(routing=0.0, hit_ratio=1.0),
    0.2: OperatingPoint(routing=20e-6, hit_ratio=0.8),
    0.5: OperatingPoint(routing=50e-6, hit_ratio=0.4),
    1.0: OperatingPoint(routing=90e-6, hit_ratio=0.2),
}


def test_without_experience_the_survey_is_all_there_is() -> None:
    assert ObservedCurve().curve(PROBED) == PROBED


def test_what_was_observed_counts_there_and_corrects_what_is_near() -> None:
    observed = ObservedCurve()
    observed.add(0.5, OperatingPoint(routing=60e-6, hit_ratio=0.44))
    curve = observed.curve(PROBED)
    assert curve[0.5] == OperatingPoint(routing=60e-6, hit_ratio=0.44)
    assert curve[0.2].routing == pytest.approx(30e-6)
    assert curve[0.2].hit_ratio == pytest.approx(0.88)
    assert curve[1.0].hit_ratio == pytest.approx(0.22)
    assert curve[0.0].hit_ratio == 1.0


def test_each_is_corrected_by_the_nearest_that_is_known_in_both_ways() -> None:
    observed = ObservedCurve()
    observed.add(1.0, OperatingPoint(routing=100e-6, hit_ratio=0.2))
    observed.add(0.2, OperatingPoint(routing=21e-6, hit_ratio=0.8))
    assert observed.curve(PROBED)[0.0].routing == pytest.approx(1e-6)
    assert observed.curve(PROBED)[0.5].routing == pytest.approx(51e-6)


def test_another_hit_ratio_at_the_same_precision_is_another_situation() -> None:
    observed = ObservedCurve()
    for precision in (1.0, 0.5):
        observed.add(precision, OperatingPoint(routing=7e-6, hit_ratio=0.3))
    observed.add(0.5, OperatingPoint(routing=9e-6, hit_ratio=0.31))
    assert set(observed.curve({})) == {0.5, 1.0}
    assert observed.curve({})[0.5].routing == pytest.approx(8e-6)
    observed.add(0.5, OperatingPoint(routing=9e-6, hit_ratio=0.6))
    assert observed.curve({}) == {0.5: OperatingPoint(routing=9e-6, hit_ratio=0.6)}


def test_what_was_observed_long_ago_is_forgotten() -> None:
    observed = ObservedCurve()
    observed.add(1.0, PROBED[1.0])
    for _ in range(LASTS - 1):
        observed.add(0.5, PROBED[0.5])
    assert set(observed.curve({})) == {0.5, 1.0}
    observed.add(0.5, PROBED[0.5])
    assert set(observed.curve({})) == {0.5}


cells = st.builds(OperatingPoint, routing=st.floats(0, 1e-3), hit_ratio=st.floats(0, 1))
precisions = st.sampled_from([0.0, 0.1, 0.3, 0.5, 0.9, 1.0])


@given(st.dictionaries(precisions, cells, max_size=3), st.dictionaries(precisions, cells))
def test_what_is_probed_lies_between_what_was_observed(
    observed: dict[float, OperatingPoint], probed: dict[float, OperatingPoint]
) -> None:
    finer_costs_more = sorted(observed.values(), key=lambda one: one.routing)
    lets_less_through = sorted(observed.values(), key=lambda one: -one.hit_ratio)
    consistent = {
        at: OperatingPoint(routing=cost.routing, hit_ratio=through.hit_ratio)
        for at, cost, through in zip(sorted(observed), finer_costs_more, lets_less_through, strict=True)
    }
    memory = ObservedCurve()
    for at, one in consistent.items():
        memory.add(at, one)
    curve = memory.curve(probed)
    assert set(curve) == set(observed) | set(probed)
    for at, one in curve.items():
        assert 0 <= one.hit_ratio <= 1
        for near, known in consistent.items():
            if near <= at:
                assert one.routing >= known.routing
                assert one.hit_ratio <= known.hit_ratio
            if near >= at:
                assert one.routing <= known.routing
                assert one.hit_ratio >= known.hit_ratio
