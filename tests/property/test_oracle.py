"""The oracle against examples worked out by hand."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.oracle import cells, ranges, samples
from tests.oracle.meaning import Events, matches
from tests.oracle.values import Schema, flatten, microseconds, read, read_event
from tests.workload import adversarial, quotes
from tests.workload.literals import BY_TYPE, write

SCHEMA: Schema = {
    "n": "number",
    "i": "integer",
    "s": "string",
    "b": "boolean",
    "t": "time",
    "a.b": "string",
    "tags": ["string"],
    "marks.n": ["integer"],
}


@pytest.mark.parametrize(
    ("written", "event", "expected"),
    [
        (None, {}, True),
        ({"n": 1}, {"n": 1.0}, True),
        ({"n": 1}, {}, False),
        ({"n": {"ne": 1}}, {"n": 2}, True),
        ({"n": {"ne": 1}}, {}, False),
        ({"n": {"not": 1}}, {}, False),
        ({"n": {"not": {"exists": False}}}, {}, False),
        ({"n": {"not": {"exists": False}}}, {"n": 3}, True),
        ({"$not": {"n": 1}}, {}, True),
        ({"$not": {"n": 1}}, {"n": 1}, False),
        ({"n": {"exists": False}}, {"n": None}, True),
        ({"n": {"exists": False}}, {"n": 0}, False),
        ({"n": {"exists": False, "gt": 1}}, {}, False),
        ({"n": {"between": [1, 2]}}, {"n": 2}, True),
        ({"n": {"between": [1, 2]}}, {"n": 2.0000000000000004}, False),
        ({"i": {"gt": 2**53}}, {"i": 2**53 + 1}, True),
        ({"n": {"gt": 2**53}}, {"n": 2**53 + 1}, False),
        ({"s": ["x", "y"]}, {"s": "y"}, True),
        ({"s": {"in": ["x", "y"]}}, {"s": "z"}, False),
        ({"s": {"prefix": "NY"}}, {"s": "NYSE"}, True),
        ({"s": {"suffix": "SE"}}, {"s": "NYSE"}, True),
        ({"s": {"suffix": ""}}, {"s": ""}, True),
        ({"s": {"suffix": "NYSE!"}}, {"s": "NYSE"}, False),
        ({"s": {"contains": "YS"}}, {"s": "NYSE"}, True),
        ({"s": {"lt": "\U00010000"}}, {"s": "\uffff"}, True),
        ({"b": {"ne": True}}, {"b": False}, True),
        ({"t": "2016-12-31T23:59:60Z"}, {"t": "2017-01-01T01:00:00+01:00"}, True),
        ({"t": {"lt": "2024-01-01T00:00:00.0000019Z"}}, {"t": "2024-01-01T00:00:00.0000011Z"}, False),
        ({"a.b": "x"}, {"a": {"b": "x"}}, True),
        ({"a.b": "x"}, {"a.b": "x"}, True),
        ({"$any": [{"n": 1}, {"s": "x"}]}, {"s": "x"}, True),
        ({"$all": [{"n": 1}, {"s": "x"}]}, {"s": "x"}, False),
        ({"$any": [{"n": 1}, {"n": 2}], "s": "x"}, {"n": 2, "s": "y"}, False),
        ({"tags": {"any": "x"}}, {"tags": ["y", "x"]}, True),
        ({"tags": {"any": "x"}}, {"tags": []}, False),
        ({"tags": {"any": "x"}}, {}, False),
        ({"tags": {"all": {"prefix": "x"}}}, {"tags": ["xa", "xb"]}, True),
        ({"tags": {"all": {"prefix": "x"}}}, {"tags": ["xa", "b"]}, False),
        ({"tags": {"all": "x"}}, {"tags": []}, True),
        ({"tags": {"all": "x"}}, {}, False),
        ({"tags": {"not": {"any": "x"}}}, {"tags": ["y"]}, True),
        ({"tags": {"not": {"any": "x"}}}, {}, False),
        ({"$not": {"tags": {"any": "x"}}}, {}, True),
        ({"tags": {"exists": True}}, {"tags": []}, True),
        ({"tags": {"exists": False}}, {"tags": None}, True),
        ({"marks.n": {"any": {"gt": 3, "lt": 5}}}, {"marks": {"n": [3, 4, 5]}}, True),
        ({"marks.n": {"any": {"gt": 3, "lt": 5}}}, {"marks": {"n": [3, 5]}}, False),
        ({"marks.n": {"any": {"$any": [{"lt": 0}, {"gt": 9}]}}}, {"marks": {"n": [3, 10]}}, True),
        ({"marks.n": {"any": {"not": {"gt": 3, "lt": 5}}}}, {"marks": {"n": [4]}}, False),
        ({"n": 1}, {"n": 1, "other": {"n": [2]}}, True),
    ],
)
def test_worked_examples(written: Any, event: dict[str, Any], expected: bool) -> None:
    values = read_event(event, SCHEMA)
    assert matches(written, values, SCHEMA) is expected
    assert Events([values], SCHEMA).matching(written).tolist() == [expected]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01t00:00:00.5z", 500_000),
        ("1970-01-01T00:00:00.1234569+00:00", 123_456),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1969-12-31T23:59:59.999999-00:00", -1),
        ("0001-01-01T00:00:00+23:59", -62_135_596_800_000_000 - 1439 * 60_000_000),
        ("2016-12-31T23:59:60Z", 1_483_228_800_000_000),
    ],
)
def test_times_are_microseconds(text: str, expected: int) -> None:
    assert microseconds(text) == expected


@pytest.mark.parametrize("text", ["2024-01-01", "2024-01-01T00:00:00", "2024-02-30T00:00:00Z", "now", ""])
def test_what_is_no_rfc_3339_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        microseconds(text)


def test_a_written_value_reads_as_itself() -> None:
    chance = random.Random(3)
    for kind, values in BY_TYPE.items():
        for value in values * 20:
            assert read(kind, write(kind, value, chance)) == value


def test_flattening_looks_at_the_attributes_only() -> None:
    event = {"$id": "x", "a": {"b": 1, "c": None, "d": {"e": "f"}}, "g": None, "x.y": 2, "other": [1]}
    schema: Schema = dict.fromkeys(["a.b", "a.c", "a.d.e", "a.d.f", "g", "g.h.i", "x.y", "none"], "string")
    assert flatten(event, schema) == {"a.b": 1, "a.d.e": "f", "x.y": 2}


@pytest.mark.parametrize("event", [{"a": 1}, {"a": []}, {"a": {"b": "x"}, "a.b": "y"}])
def test_a_path_through_a_scalar_and_a_value_given_twice_are_refused(event: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        flatten(event, SCHEMA)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ({"n": {"gt": 1}}, {"n": {"gte": 1}}, False),
        ({"n": {"gte": 1}}, {"n": {"gt": 1}}, True),
        ({"i": {"gt": 1}}, {"i": {"gte": 2}}, True),
        ({"n": {"gt": 1}}, {"n": {"gte": 2}, "s": "x"}, True),
        ({"n": {"gt": 1}, "s": "x"}, {"n": {"gte": 2}}, False),
        ({"s": {"prefix": "ab"}}, {"s": {"prefix": "abc"}}, True),
        ({"s": {"gte": "ab", "lt": "ac"}}, {"s": {"prefix": "ab"}}, True),
        ({"s": {"prefix": "ab"}}, {"s": {"gte": "ab", "lt": "ac"}}, True),
        ({"s": {"prefix": "ab"}}, {"s": {"gte": "ab", "lte": "ac"}}, False),
        ({"s": {"gt": "a"}}, {"s": {"gte": "a\0"}}, True),
        ({"s": {"gte": "\ue000"}}, {"s": {"gt": "\ud7ff\U0010ffff"}}, False),
        (None, {"n": 1}, True),
        ({"n": {"exists": True}}, {"n": 1}, None),
    ],
)
def test_covering_of_ranges_by_hand(first: Any, second: Any, expected: bool | None) -> None:
    one, other = ranges.intervals(first, SCHEMA), ranges.intervals(second, SCHEMA)
    assert (None if one is None or other is None else ranges.covers(one, other)) is expected


def test_the_two_exact_ways_to_decide_covering_agree() -> None:
    chance = random.Random(13)
    decided = covering = 0
    for _ in range(60):
        space = adversarial.Space(chance, adversarial.schema(chance, width=3))
        filters = [space.simple_filter() for _ in range(8)]
        sets = [ranges.intervals(written, space.attributes) for written in filters]
        for first, first_set in zip(filters, sets, strict=True):
            for second, second_set in zip(filters, sets, strict=True):
                assert first_set is not None
                assert second_set is not None
                expected = ranges.covers(first_set, second_set)
                assert cells.covers(first, second, space.attributes) == expected, (first, second)
                decided += 1
                covering += expected
    assert decided == 60 * 64
    assert covering > 600


def test_exact_covering_and_the_search_for_counterexamples_never_contradict() -> None:
    chance = random.Random(5)
    agreed = 0
    for _ in range(40):
        space = adversarial.Space(chance)
        filters = [space.simple_filter() for _ in range(12)]
        sets = [ranges.intervals(written, space.attributes) for written in filters]
        for first, first_set in zip(filters, sets, strict=True):
            for second, second_set in zip(filters, sets, strict=True):
                assert first_set is not None
                assert second_set is not None
                found = samples.counterexample(first, second, space.attributes, chance, tries=60)
                assert not (ranges.covers(first_set, second_set) and found), (first, second, found)
                agreed += bool(found)
    assert agreed > 1000  # the search finds what is there to be found


def test_every_operator_is_in_one_filter_in_a_hundred() -> None:
    chance = random.Random(7)
    hostile = [adversarial.Space(chance).filter() for _ in range(2000)]
    plausible = [quotes.filter(chance) for _ in range(2000)]
    for filters in (hostile, plausible):
        operator, share = adversarial.rarest_share(filters)
        assert share >= 0.01, f"{operator} is in {share:.2%} of the filters"


def test_one_seed_gives_one_workload() -> None:
    assert quotes.filter(random.Random(1)) == quotes.filter(random.Random(1))
    assert adversarial.Space(random.Random(2)).filter() == adversarial.Space(random.Random(2)).filter()
