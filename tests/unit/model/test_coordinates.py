"""Domains: keys, order, successors, and the coordinates that stand for them."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from edn.model.coordinates import DOMAINS, Domain, String, instant, rfc3339
from edn.model.rect import LOWEST

STRING = DOMAINS["string"]
assert isinstance(STRING, String)

INSTANTS = {
    "1970-01-01T00:00:00Z": 0,
    "1970-01-01t00:00:00.000001z": 1,
    "1970-01-01T01:00:00+01:00": 0,
    "1969-12-31T23:00:00-01:00": 0,
    "1969-12-31T23:59:59.999999Z": -1,
    "1970-01-01T00:00:00.1234567899Z": 123456,
    "1970-01-01T00:00:00.5Z": 500_000,
    "2016-12-31T23:59:60Z": 1_483_228_800_000_000,
    "2017-01-01T00:00:00Z": 1_483_228_800_000_000,
    "2000-02-29T00:00:00-00:00": 951_782_400_000_000,
    "0001-01-01T00:00:00+23:59": -62_135_596_800_000_000 - (23 * 60 + 59) * 60_000_000,
    "9999-12-31T23:59:59.999999-23:59": 253_402_300_799_999_999 + (23 * 60 + 59) * 60_000_000,
}


@pytest.mark.parametrize(("text", "microseconds"), INSTANTS.items())
def test_times_are_microseconds_since_1970(text: str, microseconds: int) -> None:
    assert instant(text) == microseconds


@pytest.mark.parametrize(
    "text",
    [
        "2024-05-01T12:00:00",
        "2024-05-01",
        "2024-05-01 12:00:00Z",
        "2024-02-30T00:00:00Z",
        "1900-02-29T00:00:00Z",
        "0000-01-01T00:00:00Z",
        "2024-13-01T00:00:00Z",
        "2024-05-01T24:00:00Z",
        "2024-05-01T12:60:00Z",
        "2024-05-01T12:00:61Z",
        "2024-05-01T12:00:00.Z",
        "2024-05-01T12:00:00,5Z",
        "2024-05-01T12:00:00+24:00",
        "2024-05-01T12:00:00+0100",
        "2024-05-01T12:00:00+01",
        "2024-05-01T12:00Z",
        "20240501T120000Z",
        "２024-05-01T12:00:00Z",
        "2024-05-01T12:00:00Z\n",
        " 2024-05-01T12:00:00Z",
        "",
    ],
)
def test_what_is_no_rfc_3339_time_with_an_offset_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        instant(text)


@given(
    st.datetimes(min_value=datetime(2, 1, 1), max_value=datetime(9998, 12, 31)),
    st.integers(-(23 * 60 + 59), 23 * 60 + 59),
)
def test_times_agree_with_the_standard_library(moment: datetime, offset: int) -> None:
    local = moment.replace(tzinfo=timezone(timedelta(minutes=offset)))
    elapsed = local - datetime(1970, 1, 1, tzinfo=UTC)
    assert instant(local.isoformat()) == elapsed // timedelta(microseconds=1)


CORNERS: dict[str, list[Any]] = {
    "number": [0.0, 5e-324, -5e-324, 1.0, 2.0**53, 2.0**53 + 2, 1e308, -1e308, LOWEST, -LOWEST],
    "integer": [0, 1, 2**53 - 1, 2**53, 2**53 + 1, -(2**53) - 1, 2**62, 2**63 - 1, -(2**63), -(2**63) + 1],
    "boolean": [False, True],
    "time": [0, 1, -1, 2**53, 2**53 + 1, 253_402_300_799_999_999],
    "string": [
        "", "\0", "\0\0", "a", "a\0", "abcde", "abcdef", "abcdef\0", "abcdefg", "abcdeg", "ab\U0010ffff",
        "\U0010ffff", "\ud7ff", "\ue000", "é", "ééé", "éééx", "\U00010000", "\uffff",
    ],
}  # fmt: skip

texts = st.text(st.sampled_from("\0\x01aé\ud7ff\ue000\uffff\U00010000\U0010ffff"), max_size=8)
KEYS: dict[str, st.SearchStrategy[Any]] = {
    "number": st.sampled_from(CORNERS["number"])
    | st.floats(allow_nan=False, allow_infinity=False).map(lambda x: x + 0.0),
    "integer": st.sampled_from(CORNERS["integer"]) | st.integers(-(2**63), 2**63 - 1),
    "boolean": st.booleans(),
    "time": st.sampled_from(CORNERS["time"]) | st.integers(-62_000_000_000_000_000, 253_000_000_000_000_000),
    "string": st.sampled_from(CORNERS["string"]) | texts,
}
pairs = st.sampled_from(sorted(KEYS)).flatmap(
    lambda name: st.tuples(st.just(DOMAINS[name]), KEYS[name], KEYS[name], KEYS[name])
)


@given(pairs)
def test_marks_and_coordinates_keep_the_order(drawn: tuple[Domain, Any, Any, Any]) -> None:
    domain, one, other, _ = drawn
    assert (domain.mark(one) < domain.mark(other)) == (one < other)
    if one <= other:
        assert domain.coordinate(one) <= domain.coordinate(other)
    assert math.isfinite(domain.coordinate(one))
    assert domain.least <= domain.mark(one) < domain.end


@given(pairs)
def test_nothing_lies_between_a_mark_and_its_successor(drawn: tuple[Domain, Any, Any, Any]) -> None:
    domain, one, other, _ = drawn
    mark, after = domain.mark(one), domain.after(domain.mark(one))
    assert mark < after
    assert not mark < domain.mark(other) < after


@given(pairs)
@example((STRING, "abcdef", "abcdeg", "abcdef\0"))
@example((STRING, "abc", "abc\0", "abc"))
@example((DOMAINS["integer"], 2**53 + 1, 2**53 + 5, 2**53))
@example((DOMAINS["integer"], 0, 2**53 + 1, 2**53 + 1))
def test_closed_coordinates_contain_the_interval_and_nothing_else_if_exact(
    drawn: tuple[Domain, Any, Any, Any],
) -> None:
    domain, lo, hi, probe = drawn
    if not domain.mark(lo) < domain.mark(hi):
        return
    low, high, exact = domain.closed(domain.mark(lo), domain.mark(hi))
    within = lo <= probe < hi
    seen = low <= domain.coordinate(probe) <= high
    assert seen or not within
    assert not (exact and seen and not within)


@given(texts, texts)
@example("a\ud7ff", "a\ue000")
@example("b\U0010ffff", "b\U0010ffff\U0010ffff")
@example("\U0010ffff", "\U0010ffff")
def test_a_prefix_is_the_interval_up_to_its_last_character_grown(prefix: str, probe: str) -> None:
    within = STRING.mark(prefix) <= STRING.mark(probe) < STRING.after_prefix(prefix)
    assert within == probe.startswith(prefix)


@pytest.mark.parametrize(
    ("value", "exact"),
    [("", True), ("abcde", True), ("abcdef", False), ("éé", True), ("ééé", False), ("abcd\0", True)],
)
def test_a_string_of_up_to_five_bytes_has_a_coordinate_of_its_own(value: str, exact: bool) -> None:
    low, high, told = STRING.closed(STRING.mark(value), STRING.after(STRING.mark(value)))
    assert low == high == STRING.coordinate(value)
    assert told is exact


def test_minus_zero_is_zero() -> None:
    assert math.copysign(1, DOMAINS["number"].key(-0.0)) == 1  # type: ignore[arg-type]  # a float, as for every number


REFUSED: list[tuple[str, Any]] = [
    ("number", True), ("number", "1"), ("number", math.nan), ("number", math.inf),
    ("number", 10**400), ("number", None),
    ("integer", 1.5), ("integer", 2**63), ("integer", -(2**63) - 1), ("integer", False), ("integer", 1e300),
    ("integer", math.inf), ("integer", math.nan), ("boolean", 1), ("boolean", "true"), ("string", 1),
    ("string", "\ud800"),
    ("string", None), ("time", 0), ("time", "now"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), REFUSED)
def test_values_of_another_type_are_refused(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=r"^got "):
        DOMAINS[name].key(value)


@pytest.mark.parametrize(
    ("name", "value", "key"),
    [("number", 2**53 + 1, 2.0**53), ("integer", 5.0, 5), ("integer", -0.0, 0), ("integer", 1e18, 10**18)],
)
def test_numbers_become_what_the_type_compares(name: str, value: Any, key: Any) -> None:
    assert DOMAINS[name].key(value) == key
    assert type(DOMAINS[name].key(value)) is type(key)


TIME = DOMAINS["time"]


@given(st.integers(TIME.least, TIME.end - 1))
@example(TIME.least)
@example(TIME.end - 1)
@example(instant("0001-01-01T00:00:00Z"))
@example(instant("0001-01-01T00:00:00Z") - 1)
@example(instant("9999-12-31T23:59:59.999999Z"))
@example(instant("9999-12-31T23:59:59.999999Z") + 1)
@example(instant("9999-12-31T23:59:59.999999-23:59"))
@example(instant("9999-12-31T23:59:60-23:59"))
def test_every_time_can_be_written_and_read_back(microseconds: int) -> None:
    assert instant(rfc3339(microseconds)) == microseconds


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("1970-01-01T01:00:00+01:00", "1970-01-01T00:00:00Z"),
        ("1970-01-01T00:00:00.5Z", "1970-01-01T00:00:00.500000Z"),
        ("0001-01-01T00:00:00+01:00", "0001-01-01T22:59:00+23:59"),
        ("9999-12-31T23:59:59-01:00", "9999-12-31T01:00:59-23:59"),
        ("9999-12-31T23:59:60-23:59", "9999-12-31T23:59:60-23:59"),
    ],
)
def test_times_are_written_in_utc_where_they_lie_in_a_year_that_has_a_number(text: str, written: str) -> None:
    assert rfc3339(instant(text)) == written
