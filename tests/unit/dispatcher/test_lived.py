"""What was lived counts more than what was surveyed, and corrects it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.tuning.observed_curve import LASTS, Lived
from selftune.throughput import Operating

SURVEYED = {
    0.0: Operating(routing=0.0, hit_ratio=1.0),
    0.2: Operating(routing=20e-6, hit_ratio=0.8),
    0.5: Operating(routing=50e-6, hit_ratio=0.4),
    1.0: Operating(routing=90e-6, hit_ratio=0.2),
}


def test_without_experience_the_survey_is_all_there_is() -> None:
    assert Lived().curve(SURVEYED) == SURVEYED


def test_what_was_lived_counts_there_and_corrects_what_is_near() -> None:
    lived = Lived()
    lived.add(0.5, Operating(routing=60e-6, hit_ratio=0.44))
    curve = lived.curve(SURVEYED)
    assert curve[0.5] == Operating(routing=60e-6, hit_ratio=0.44)
    assert curve[0.2].routing == pytest.approx(30e-6)
    assert curve[0.2].hit_ratio == pytest.approx(0.88)
    assert curve[1.0].hit_ratio == pytest.approx(0.22)
    assert curve[0.0].hit_ratio == 1.0


def test_each_is_corrected_by_the_nearest_that_is_known_in_both_ways() -> None:
    lived = Lived()
    lived.add(1.0, Operating(routing=100e-6, hit_ratio=0.2))
    lived.add(0.2, Operating(routing=21e-6, hit_ratio=0.8))
    assert lived.curve(SURVEYED)[0.0].routing == pytest.approx(1e-6)
    assert lived.curve(SURVEYED)[0.5].routing == pytest.approx(51e-6)


def test_another_hit_ratio_at_the_same_precision_is_another_situation() -> None:
    lived = Lived()
    for precision in (1.0, 0.5):
        lived.add(precision, Operating(routing=7e-6, hit_ratio=0.3))
    lived.add(0.5, Operating(routing=9e-6, hit_ratio=0.31))
    assert set(lived.curve({})) == {0.5, 1.0}
    assert lived.curve({})[0.5].routing == pytest.approx(8e-6)
    lived.add(0.5, Operating(routing=9e-6, hit_ratio=0.6))
    assert lived.curve({}) == {0.5: Operating(routing=9e-6, hit_ratio=0.6)}


def test_what_was_lived_long_ago_is_forgotten() -> None:
    lived = Lived()
    lived.add(1.0, SURVEYED[1.0])
    for _ in range(LASTS - 1):
        lived.add(0.5, SURVEYED[0.5])
    assert set(lived.curve({})) == {0.5, 1.0}
    lived.add(0.5, SURVEYED[0.5])
    assert set(lived.curve({})) == {0.5}


cells = st.builds(Operating, routing=st.floats(0, 1e-3), hit_ratio=st.floats(0, 1))
precisions = st.sampled_from([0.0, 0.1, 0.3, 0.5, 0.9, 1.0])


@given(st.dictionaries(precisions, cells, max_size=3), st.dictionaries(precisions, cells))
def test_what_is_surveyed_lies_between_what_was_lived(
    lived: dict[float, Operating], surveyed: dict[float, Operating]
) -> None:
    finer_costs_more = sorted(lived.values(), key=lambda one: one.routing)
    lets_less_through = sorted(lived.values(), key=lambda one: -one.hit_ratio)
    consistent = {
        at: Operating(routing=cost.routing, hit_ratio=through.hit_ratio)
        for at, cost, through in zip(sorted(lived), finer_costs_more, lets_less_through, strict=True)
    }
    memory = Lived()
    for at, one in consistent.items():
        memory.add(at, one)
    curve = memory.curve(surveyed)
    assert set(curve) == set(lived) | set(surveyed)
    for at, one in curve.items():
        assert 0 <= one.hit_ratio <= 1
        for near, known in consistent.items():
            if near <= at:
                assert one.routing >= known.routing
                assert one.hit_ratio <= known.hit_ratio
            if near >= at:
                assert one.routing <= known.routing
                assert one.hit_ratio >= known.hit_ratio
