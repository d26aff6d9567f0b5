"""The checker's reading of filters, against a second one that shares no code with it."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edn.tools.checker.columns import Columns
from edn.tools.checker.values import duration, microseconds, read, read_event
from tests.oracle import meaning
from tests.oracle import values as oracle

SCHEMA: dict[str, str | list[str]] = {
    "n": "integer",
    "x": "number",
    "s": "string",
    "b": "boolean",
    "at": "time",
    "deep.n": "integer",
    "tags": ["string"],
    "deep.er.x": ["number"],
}
TIMES = (
    "2024-01-01T00:00:00Z",
    "2024-01-01T01:00:00+01:00",
    "2023-12-31T23:59:60Z",
    "2030-06-01T12:00:00.5Z",
)
LITERALS: dict[str, tuple[Any, ...]] = {
    "integer": (0, 1, -1, 5, 2**53, 2**53 + 1, 2**63 - 1, -(2**63), 3.0),
    "number": (0, -0.0, 0.5, 1, 2**53 + 1, 1e300, -1e-300, 5),
    "string": ("", "a", "ab", "abc", "b", "ba", "a\x00", "é", "\U0010ffff", "\ud7ff", "\ue000"),
    "boolean": (True, False),
    "time": TIMES,
}
COMPARISONS = ("eq", "ne", "lt", "lte", "gt", "gte")


def an_array_condition(chance: Random, kind: str, depth: int = 0) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for operator in chance.sample(["any", "all", "exists", "not"], chance.randrange(1, 3)):
        if operator == "exists":
            made[operator] = chance.random() < 0.5
        elif operator == "not":
            made[operator] = an_array_condition(chance, kind, depth + 1) if depth < 2 else {"any": []}
        else:
            made[operator] = an_element_condition(chance, kind)
    return {"any": LITERALS[kind][0]} if made.get("not") == {"any": []} else made


def an_element_condition(chance: Random, kind: str, depth: int = 0) -> Any:
    made = a_condition(chance, kind, 2)
    if isinstance(made, dict):
        made.pop("exists", None)
        for combinator in ("$any", "$all"):
            if depth < 2 and chance.random() < 0.3:
                made[combinator] = [
                    an_element_condition(chance, kind, depth + 1) for _ in range(chance.randrange(1, 3))
                ]
    return made or chance.choice(LITERALS[kind])


def a_condition(chance: Random, kind: str | list[str], depth: int = 0) -> Any:
    if isinstance(kind, list):
        return an_array_condition(chance, kind[0])
    literals = LITERALS[kind]
    operators = [
        *COMPARISONS,
        "in",
        "between",
        "exists",
        "not",
        *(["prefix", "suffix", "contains"] * (kind == "string")),
    ]
    shape = chance.random()
    if shape < 0.15:
        return chance.choice(literals)
    if shape < 0.25:
        return chance.choices(literals, k=chance.randrange(1, 4))
    made: dict[str, Any] = {}
    for operator in chance.sample(operators, chance.randrange(1, 3)):
        if operator == "not":
            made[operator] = a_condition(chance, kind, depth + 1) if depth < 2 else chance.choice(literals)
        elif operator == "exists":
            made[operator] = chance.random() < 0.5
        elif operator == "in":
            made[operator] = chance.choices(literals, k=chance.randrange(1, 4))
        elif operator == "between":
            made[operator] = chance.choices(literals, k=2)
        else:
            made[operator] = chance.choice(literals)
    return made


def a_filter(chance: Random, depth: int = 0) -> dict[str, Any]:
    made: dict[str, Any] = {
        name: a_condition(chance, SCHEMA[name])
        for name in chance.sample(list(SCHEMA), chance.randrange(1, 4))
    }
    if depth < 3 and chance.random() < 0.5:
        made["$not"] = a_filter(chance, depth + 1)
    for combinator in ("$any", "$all"):
        if depth < 3 and chance.random() < 0.4:
            made[combinator] = [a_filter(chance, depth + 1) for _ in range(chance.randrange(1, 3))]
    return made


def an_event(chance: Random) -> dict[str, Any]:
    event: dict[str, Any] = {
        name: chance.choices(LITERALS[kind[0]], k=chance.randrange(4))
        if isinstance(kind, list)
        else chance.choice(LITERALS[kind])
        for name, kind in SCHEMA.items()
        if chance.random() < 0.8
    }
    if "deep.n" in event and chance.random() < 0.5:
        event["deep"] = {"n": event.pop("deep.n"), "undeclared": [{"n": 7}]}
    if chance.random() < 0.3:
        event["other"] = {"tags": ["a"]}
    if chance.random() < 0.2:
        event["s"] = None
    return event


@settings(max_examples=400, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 12), st.integers(0, 12))
def test_events_are_matched_as_the_oracle_says(seed: int, begin: int, length: int) -> None:
    chance = Random(seed)
    events = [an_event(chance) for _ in range(24)]
    columns = Columns(SCHEMA, [read_event(event, SCHEMA) for event in events])
    read_by_oracle = [oracle.read_event(event, SCHEMA) for event in events]
    for _ in range(5):
        written = a_filter(chance)
        end = begin + length
        expected = [
            place for place in range(begin, end) if meaning.matches(written, read_by_oracle[place], SCHEMA)
        ]
        assert columns.matching(written, begin, end).tolist() == expected, written


def test_no_filter_matches_everything() -> None:
    assert Columns(SCHEMA, [{}, {}, {}]).matching(None, 1, 3).tolist() == [1, 2]


def test_a_selective_range_is_found_among_many_events() -> None:
    """The way through the sorted order, which few events never take."""
    chance = Random(3)
    events = [{"n": chance.randrange(1000), "s": chance.choice("abc")} for _ in range(5000)]
    columns = Columns({"n": "integer", "s": "string"}, events)
    written = {"n": {"gte": 10, "lt": 20}, "s": {"not": {"contains": "b"}}}
    expected = [
        place
        for place in range(100, 4900)
        if 10 <= events[place]["n"] < 20 and events[place]["s"] != "b"  # type: ignore[operator]  # n is an int
    ]
    assert columns.matching(written, 100, 4900).tolist() == expected
    assert len(expected) > 10


def test_a_fraction_beside_an_integer_is_compared_exactly() -> None:
    columns = Columns({"n": "integer"}, [{"n": 2**53}, {"n": 2**53 + 1}, {"n": 3}])
    assert columns.matching({"n": {"gt": float(2**53)}}, 0, 3).tolist() == [1]
    assert columns.matching({"n": {"lt": 3.5}}, 0, 3).tolist() == [2]


@pytest.mark.parametrize(
    "written",
    [
        {},
        {"n": {}},
        {"q": 1},
        {"n": {"like": 1}},
        {"n": "x"},
        {"n": {"prefix": "x"}},
        {"$any": []},
        {"n": {"between": [1]}},
        {"n": {"any": 1}},
        {"tags": "x"},
        {"tags": {"any": {}}},
        {"tags": {"any": {"exists": True}}},
        {"tags": {"contains": "x"}},
    ],
)
def test_what_is_no_filter_is_said(written: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        Columns({"n": "integer", "tags": ["string"]}, [{"n": 1, "tags": ("a",)}]).matching(written, 0, 1)


def test_a_closed_topic_has_no_other_fields() -> None:
    attributes = {"n": "integer", "a.b": "string"}
    event = {"$id": "x", "n": 1, "a": {"b": "y", "c": 2}}
    assert read_event(event, attributes) == {"n": 1, "a.b": "y"}
    with pytest.raises(ValueError, match=r'"a\.c" is not an attribute'):
        read_event(event, attributes, closed=True)
    assert read_event({"a": None, "a.b": "y"}, attributes, closed=True) == {"a.b": "y"}


@pytest.mark.parametrize("event", [{"a": 1}, {"a": {"b": "x"}, "a.b": "y"}, {"n": [1]}, {"tags": "x"}])
def test_what_does_not_fit_an_attribute_is_refused(event: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        read_event(event, {"n": "integer", "a.b": "string", "tags": ["string"]})


@pytest.mark.parametrize("text", TIMES)
def test_times_are_read_as_the_oracle_reads_them(text: str) -> None:
    assert microseconds(text) == oracle.microseconds(text)


@pytest.mark.parametrize(
    "text", ["2024-01-01", "2024-01-01T00:00:00", "2024-01-01T00:00:61Z", "2024-13-01T00:00:00Z"]
)
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        microseconds(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("PT1S", 1),
        ("PT0.5S", 0.5),
        ("P1DT1H1M1S", 90061),
        ("P2W", 1209600),
        ("1S", None),
        ("P", None),
        ("PT", None),
    ],
)
def test_durations(text: str, seconds: float | None) -> None:
    assert duration(text) == (None if seconds is None else round(seconds * 10**9))


@pytest.mark.parametrize(
    ("kind", "value"),
    [("integer", True), ("integer", 1.5), ("number", "1"), ("boolean", 1), ("string", 1), ("time", 1)],
)
def test_values_of_another_type_are_refused(kind: str, value: object) -> None:
    with pytest.raises(ValueError):
        read(kind, value)


def test_an_empty_topic_matches_nothing() -> None:
    columns = Columns(SCHEMA, [])
    assert columns.matching({"s": {"ne": "x", "suffix": "y"}}, 0, 0).dtype == np.intp
