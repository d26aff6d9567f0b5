"""Texts of the commands that need no network: traces in order, counts, durations, plans without a gain."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edn.cli import explain, trace
from edn.formats import duration
from edn.formats.counts import counted
from edn.tools.console import compact
from partitioning.repartitioning import is_gain
from partitioning.report import Report, State


def attempt(time: str, seconds: float = 0.001) -> dict[str, Any]:
    return {"time": time, "status": 204, "reason": None, "seconds": seconds, "outcome": "delivered"}


def test_a_trace_is_in_the_order_of_time_over_all_servers() -> None:
    day = "2026-01-01T00:00:00"
    servers = [
        {"server": "s1", "taken": f"{day}.030Z", "failure": None,
         "matches": [{"subscription": "late", "attempts": [attempt(f"{day}.040Z", 1.017)]},
                     {"subscription": "never", "attempts": []}]},
        {"server": "s2", "taken": f"{day}.010Z", "failure": None,
         "matches": [{"subscription": "early", "attempts": [attempt(f"{day}.020Z")]}]},
    ]  # fmt: skip
    shown = trace._lines(
        {"id": "e", "topic": "t", "accepted": f"{day}Z", "traceparent": None, "offset": 1, "not_sent_to": [],
         "servers": servers}
    )  # fmt: skip
    assert [line.split("ms  ")[-1].split()[0] for line in shown[1:]] == [
        "dispatcher",
        "s2",
        "s2",
        "s1",
        "s1",
        "s1",
    ]
    assert shown[-1].split() == ["s1", "never:", "waiting", "or", "paused"], "what has no time comes last"
    assert "1017.0 ms)" in shown[-2]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"matches": False, "clauses": ["price > 30"]}, "ge does not match: price > 30 is false"),
        ({"matches": True, "clauses": ["a > 1", "b"]}, "ge matches: a > 1 and b"),
        ({"matches": True, "clauses": []}, "ge matches: it has no filter"),
        ({"matches": True, "clauses": ["a"], "paused": True}, "ge matches: a; it is paused"),
        ({"matches": False, "clauses": [], "failure": "another topic"}, "ge does not match: another topic"),
    ],
)
def test_the_answer_for_one_subscription_is_a_sentence(asked: dict[str, Any], said: str) -> None:
    assert explain._asked_lines({"id": "ge", "paused": False, "failure": None, **asked}) == [said]


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 events"), (1, "1 event"), (2, "2 events"), (1000, "1,000 events")]
)
def test_counts_have_the_right_number(count: int, text: str) -> None:
    assert counted(count, "event") == text


def test_a_plural_can_be_given() -> None:
    assert counted(2, "address", "addresses") == "2 addresses"


UNITS = {"w": 604_800, "d": 86_400, "h": 3_600, "m": 60, "s": 1}


@given(
    st.lists(
        st.tuples(st.sampled_from(list(UNITS)), st.integers(0, 9999)), min_size=1, unique_by=lambda p: p[0]
    )
)
def test_both_forms_of_a_duration_are_the_sum_of_their_parts(parts: list[tuple[str, int]]) -> None:
    parts.sort(key=lambda part: list(UNITS).index(part[0]))
    total = sum(UNITS[unit] * count for unit, count in parts)
    short = "".join(f"{count}{unit}" for unit, count in parts)
    dates = "".join(f"{count}{unit.upper()}" for unit, count in parts if unit in "wd")
    times = "".join(f"{count}{unit.upper()}" for unit, count in parts if unit in "hms")
    assert duration.microseconds(short) == total * 1_000_000
    assert duration.microseconds(f"P{dates}" + (f"T{times}" if times else "")) == total * 1_000_000


@pytest.mark.parametrize(
    "text",
    ["", "P", "PT", "1", "h", "1x", "1 h", "-1h", "1h-", "1m1h", "P1Y", "PT1.5H", "1e3s", "٣s", "1h\n"],
)
def test_other_texts_are_no_durations(text: str) -> None:
    assert duration.microseconds(text) is None


@pytest.mark.parametrize(
    ("text", "seconds"), [("5", 5.0), ("0.5", 0.5), ("1m", 60.0), ("x", None), ("", None)]
)
def test_a_plain_number_is_seconds_where_that_is_allowed(text: str, seconds: float | None) -> None:
    assert duration.seconds(text) == seconds


def test_whole_numbers_are_shown_without_a_fraction() -> None:
    assert compact({"a": [33.0, 0.5, True, None, "33.0"], "b": 1e300}) == (
        '{"a": [33, 0.5, true, null, "33.0"], "b": 1e+300}'
    )


@pytest.mark.parametrize(
    ("before", "after", "gain"),
    [
        ((1.0, 1.0), (1.0, 1.0), False),
        ((0.9, 1.0), (0.95, 1.0), False),
        ((0.9, 1.0), (0.5, 1.0), True),
        ((1.0, 2.0), (1.0, 1.0), True),
        ((0.5, 2.0), (0.9, 1.0), False),
    ],
)
def test_a_plan_that_improves_neither_hit_ratio_nor_balance_is_no_gain(
    before: tuple[float, float], after: tuple[float, float], gain: bool
) -> None:
    def state(ratio: float, imbalance: float) -> State:
        return State(servers=[], hit_ratio=ratio, imbalance=imbalance, volume=1.0)

    report = Report("rtree", 6, 2, 3, 10, False, 6, state(*before), state(*after), 1.0)
    assert is_gain(report) == gain
