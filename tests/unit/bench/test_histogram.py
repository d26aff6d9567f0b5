"""Distributions hold every value in one bucket, with round bounds, and are drawn to scale."""

from __future__ import annotations

import io
import json
from dataclasses import asdict
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.console import Console

from edn.tools.bench.histogram import MOST, Distribution

VALUES = st.lists(st.one_of(st.just(0.0), st.floats(1e-6, 1e9)), min_size=1, max_size=200)


@given(VALUES)
@example([0.1, 0.2, 0.3])  # 3 × 0.1 is above 0.3 in floats
@example([0.3] * 5)
@example([0.0])
@example([1e-6, 1e9])
def test_every_value_is_in_the_bucket_that_says_so(values: list[float]) -> None:
    told = Distribution.of("x", "s", values)
    assert 1 <= len(told.buckets) <= MOST
    for bucket in told.buckets:
        assert bucket.low < bucket.high
        assert bucket.count == sum(bucket.low <= value < bucket.high for value in values)
    assert sum(bucket.count for bucket in told.buckets) == told.count == len(values)
    assert all(one.high == other.low for one, other in pairwise(told.buckets))
    assert told.buckets[0].count > 0
    assert told.buckets[-1].count > 0


@given(VALUES)
def test_percentiles_are_values_that_enough_others_do_not_exceed(values: list[float]) -> None:
    told = Distribution.of("x", "s", values)
    for share, value in [(0.5, told.p50), (0.9, told.p90), (0.99, told.p99)]:
        assert value == np.percentile(values, 100 * share, method="inverted_cdf")
    assert (told.least, told.most) == (min(values), max(values))


@pytest.mark.parametrize(
    ("values", "bounds"),
    [
        ([21.3, 21.4, 21.35, 22.0], [21, 21.5, 22, 22.5]),  # close together: equal widths
        ([1.0, 3.0, 40.0, 900.0], [1, 10, 100, 1000]),  # over decades: equal ratios
        ([5.0], [4, 6]),
    ],
)
def test_bounds_are_round(values: list[float], bounds: list[float]) -> None:
    buckets = Distribution.of("x", "s", values).buckets
    assert [buckets[0].low, *(bucket.high for bucket in buckets)] == bounds


@pytest.mark.parametrize("values", [[], [-1.0], [float("nan")], [float("inf")]])
def test_what_has_no_buckets_is_refused(values: list[float]) -> None:
    with pytest.raises(ValueError, match="answers: needs at least one value"):
        Distribution.of("answers", "ms", values)


def test_people_see_a_bar_a_bucket_and_programs_the_buckets() -> None:
    told = Distribution.of("answers", "ms", [1.0] * 30 + [1.6] * 15 + [2.1])
    console = Console(file=io.StringIO(), width=100)
    console.print(told)
    head, *lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]  # a StringIO
    assert head == "answers, ms: 46 values, p50 1, p90 1.6, p99 2.1, from 1 to 2.1"
    drawn = {line.split("–")[0].strip(): line.count("█") for line in lines}
    assert drawn["1"] == 40, "the highest bar has the whole width"
    assert drawn["1.6"] == 20, "half as many, half as long"
    assert json.loads(json.dumps(asdict(told)))["buckets"][0] == {"low": 1.0, "high": 1.2, "count": 30}
