"""The rule that judges: every verdict of every kind of claim, and how seeds become one number."""

from __future__ import annotations

import pytest

from evaluation.claims import (
    Claim,
    Number,
    Order,
    Reading,
    Span,
    Verdict,
    falls,
    judge,
    number,
    rises,
    verdict,
)
from evaluation.outcome import Outcome, Series, mean

UP = Number(2.0, "it rises", lambda ours: ours > 1)


@pytest.mark.parametrize(
    ("paper", "ours", "expected"),
    [
        (UP, [2.0], "reproduced"),
        (UP, [1.7], "reproduced"),  # 15 % below
        (UP, [2.3], "reproduced"),  # 15 % above
        (UP, [1.69], "partly"),
        (UP, [9.0], "partly"),
        (UP, [0.9], "not"),
        (Number(2.0), [2.31], "not"),  # no direction is known
        (Number(-0.2), [-0.23], "reproduced"),
        (Number(-0.2), [0.2], "not"),
        (Number(0.0), [0.0], "reproduced"),
        (Number(0.0), [0.01], "not"),  # 15 % of nothing
        (Span(0.2, 0.6), [0.2, 0.4, 0.6], "reproduced"),
        (Span(0.2, 0.6), [0.17, 0.69], "reproduced"),  # within 15 % of the ends
        (Span(0.2, 0.6), [0.16, 0.4], "partly"),  # half of them inside
        (Span(0.2, 0.6), [0.1, 0.1, 0.4], "not"),
        (Span(0.2, 0.6, "above", lambda ours: ours > 0), [0.1, 0.1, 0.4], "partly"),
        (Span(0.2, 0.6, "above", lambda ours: ours > 0), [-0.1, 0.1, 0.1], "not"),
        (Span(-0.1, 0.1), [-0.1, 0.114], "reproduced"),
        (Order(), [1.0], "reproduced"),
        (Order(), [0.99], "partly"),
        (Order(), [0.5], "partly"),
        (Order(), [0.49], "not"),
    ],
)
def test_a_verdict_follows_from_the_numbers_alone(
    paper: Number | Span | Order, ours: list[float], expected: Verdict
) -> None:
    assert verdict(paper, ours) == expected


def outcome(value: float, *y: float) -> Outcome:
    return Outcome({"v": value}, {"s": Series([float(x) for x in range(len(y))], list(y))})


def test_ours_is_the_mean_over_the_seeds_with_their_standard_deviation() -> None:
    claim = Claim(text="", paper=Number(2.0), readings=(Reading("only", number(lambda o: o["v"])),))
    [judged] = judge(claim, [outcome(1.0), outcome(2.0), outcome(3.0)])
    assert (judged.ours, judged.spread, judged.verdict) == ([2.0], [1.0], "reproduced")


def test_an_order_is_looked_for_in_the_mean_curve_and_not_in_each() -> None:
    claim = Claim(
        text="", paper=Order(), readings=(Reading("only", lambda o: [float(all(falls(o.series["s"].y)))]),)
    )
    noisy = [outcome(0, 5.0, 4.0, 4.5), outcome(0, 5.0, 4.0, 1.5)]
    assert judge(claim, noisy)[0].verdict == "reproduced"
    assert judge(claim, noisy[:1])[0].verdict == "not"


def test_every_reading_is_judged_and_the_first_comes_first() -> None:
    claim = Claim(
        text="",
        paper=Number(2.0),
        readings=(Reading("one", number(lambda o: o["v"])), Reading("other", number(lambda o: 2.0))),
    )
    assert [(one.reading, one.verdict) for one in judge(claim, [outcome(9.0)])] == [
        ("one", "not"),
        ("other", "reproduced"),
    ]


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
