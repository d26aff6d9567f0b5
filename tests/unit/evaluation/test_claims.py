"""Verdicts of every kind of claim, and means over seeds."""

from __future__ import annotations

import pytest

from evaluation.experiment import Claim, Outcome, Series, Verdict, falls, judge, mean, rises, verdict


def number(paper: float) -> Claim:
    return Claim("", {}, paper=paper)


def span(low: float, high: float) -> Claim:
    return Claim("", {}, paper=(low, high))


UP = Claim("", {}, paper=2.0, partly=lambda ours: ours > 1)
SPAN_ABOVE = Claim("", {}, paper=(0.2, 0.6), partly=lambda ours: ours > 0)
ORDER = Claim("", {})


@pytest.mark.parametrize(
    ("claim", "ours", "expected"),
    [
        (UP, [2.0], "reproduced"),
        (UP, [1.7], "reproduced"),  # 15 % below
        (UP, [2.3], "reproduced"),  # 15 % above
        (UP, [1.69], "partly"),
        (UP, [9.0], "partly"),
        (UP, [0.9], "not"),
        (number(2.0), [2.31], "not"),  # no direction is known
        (number(-0.2), [-0.23], "reproduced"),
        (number(-0.2), [0.2], "not"),
        (number(0.0), [0.0], "reproduced"),
        (number(0.0), [0.01], "not"),  # 15 % of nothing
        (span(0.2, 0.6), [0.2, 0.4, 0.6], "reproduced"),
        (span(0.2, 0.6), [0.17, 0.69], "reproduced"),  # within 15 % of the ends
        (span(0.2, 0.6), [0.16, 0.4], "partly"),  # half of them inside
        (span(0.2, 0.6), [0.1, 0.1, 0.4], "not"),
        (SPAN_ABOVE, [0.1, 0.1, 0.4], "partly"),
        (SPAN_ABOVE, [-0.1, 0.1, 0.1], "not"),
        (span(-0.1, 0.1), [-0.1, 0.114], "reproduced"),
        (ORDER, [1.0], "reproduced"),
        (ORDER, [0.99], "partly"),
        (ORDER, [0.5], "partly"),
        (ORDER, [0.49], "not"),
    ],
)
def test_a_verdict_follows_from_the_numbers_alone(claim: Claim, ours: list[float], expected: Verdict) -> None:
    assert verdict(claim, ours) == expected


def outcome(value: float, *y: float) -> Outcome:
    return Outcome({"v": value}, {"s": Series([float(x) for x in range(len(y))], list(y))})


def test_ours_is_the_mean_over_the_seeds_with_their_standard_deviation() -> None:
    claim = Claim("", {"only": lambda o: o["v"]}, paper=2.0)
    [judged] = judge(claim, [outcome(1.0), outcome(2.0), outcome(3.0)])
    assert (judged.ours, judged.spread, judged.verdict) == ([2.0], [1.0], "reproduced")


def test_an_order_is_looked_for_in_the_mean_curve_and_not_in_each() -> None:
    claim = Claim("", {"only": lambda o: all(falls(o.y("s")))})
    noisy = [outcome(0, 5.0, 4.0, 4.5), outcome(0, 5.0, 4.0, 1.5)]
    assert judge(claim, noisy)[0].verdict == "reproduced"
    assert judge(claim, noisy[:1])[0].verdict == "not"


def test_every_reading_is_judged_and_the_first_comes_first() -> None:
    claim = Claim("", {"one": lambda o: o["v"], "other": lambda o: 2.0}, paper=2.0)
    assert [(one.reading, one.verdict) for one in judge(claim, [outcome(9.0)])] == [
        ("one", "not"),
        ("other", "reproduced"),
    ]


def test_an_order_that_holds_at_some_points_is_their_share() -> None:
    claim = Claim("", {"only": lambda o: falls(o.y("s"))})
    [judged] = judge(claim, [outcome(0, 5.0, 4.0, 4.5)])
    assert (judged.ours, judged.verdict) == ([0.5], "partly")


def test_means_are_taken_number_by_number_and_point_by_point() -> None:
    assert mean([outcome(1.0, 2.0, 6.0), outcome(3.0, 4.0, 8.0)]) == outcome(2.0, 3.0, 7.0)


def test_a_mean_curve_can_be_asked_where_the_curves_can() -> None:
    # The mean of three times 0.1 is not 0.1.
    one = Outcome({}, {"s": Series([0.1], [2.0])})
    assert mean([one, one, one]).at("s", 0.1) == 2.0


def test_falls_and_rises_compare_neighbours_up_to_a_slack() -> None:
    assert falls([3.0, 2.0, 2.1]) == [True, False]
    assert falls([3.0, 2.0, 2.1], slack=0.2) == [True, True]
    assert rises([1.0, 2.0, 1.5], slack=0.2) == [True, False]


STRICT = Claim("", {"only": lambda o: o.y("s")}, strict=True)


@pytest.mark.parametrize(
    ("seeds", "expected", "noise"),
    [
        ([[1, 1], [1, 1]], "reproduced", 0.0),
        ([[1, 0], [1, 0]], "partly", 0.0),
        ([[0, 0], [0, 0]], "not", 0.0),
        ([[1, 0], [1, 1]], "undecided", 0.5),  # all of them, or half
        ([[0, 0, 1], [0, 0, 0]], "not", 1 / 3),  # not, whatever the third is
        ([[1, 1, 1, 0], [1, 1, 0, 0]], "partly", 0.25),  # a half or three quarters
    ],
)
def test_a_strict_order_has_no_verdict_inside_the_noise(
    seeds: list[list[float]], expected: Verdict, noise: float
) -> None:
    [judged] = judge(STRICT, [outcome(0, *seed) for seed in seeds])
    assert judged.verdict == expected
    assert judged.noise == pytest.approx(noise)


def test_a_strict_number_needs_the_same_verdict_at_every_seed() -> None:
    claim = Claim("", {"only": lambda o: o["v"]}, paper=2.0, partly=lambda ours: ours > 1, strict=True)
    for values, expected in (
        ([1.9, 2.1], "reproduced"),
        ([1.9, 1.2], "undecided"),  # the mean would not be within 15 %
        ([1.2, 3.0], "partly"),  # nor here, though the mean is
        ([0.5, 0.9], "not"),
    ):
        [judged] = judge(claim, [outcome(value) for value in values])
        assert judged.verdict == expected, values
