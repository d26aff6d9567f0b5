"""The two forms of a filter: errors and their places, limits, round trips."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edn.errors import InvalidFilter, TooLarge
from edn.model.filter import Filter
from edn.model.schema import Schema

SCHEMA = Schema.parse(
    {
        "price": "number",
        "volume": "integer",
        "symbol": "string",
        "up": "boolean",
        "at": "time",
        "x.y": "number",
    }
)
EARLY, LATE = "2024-01-01T00:00:00Z", "2024-06-01T00:00:00Z"

REFUSED_JSON: list[tuple[Any, str, str]] = [
    ({}, "", "empty"),
    ([], "", "an array"),
    (5, "", "the number 5"),
    (True, "", "true"),
    ({"": 1}, "", "non-empty"),
    ({5: 1}, "", "non-empty"),
    ({"a\ud800": 1}, "", "non-empty"),
    ({"a": None}, "/a", "exists: false"),
    ({"a": {}}, "/a", "must have at least one operator of eq, ne"),
    ({"a": []}, "/a", "empty"),
    ({"a": [1, None]}, "/a/1", "null"),
    ({"a": [[1]]}, "/a/0", "an array"),
    ({"a": [{"gt": 1}]}, "/a/0", "an object"),
    ({"a": float("nan")}, "/a", "range"),
    ({"a": 10**400}, "/a", "range"),
    ({"a": "\ud800"}, "/a", "surrogate"),
    ({"a": b"x"}, "/a", "bytes"),
    ({"a": {"b": 5}}, "/a/b", 'a nested attribute is written "a.b"'),
    ({"a": {"b": {"gt": 5}}}, "/a/b", '"a.b"'),
    ({"a": {"gtt": 5}}, "/a/gtt", 'did you mean "gt"'),
    ({"a": {"gt": None}}, "/a/gt", "null"),
    ({"a": {"gt": [1]}}, "/a/gt", "an array"),
    ({"a": {"exists": 1}}, "/a/exists", "exists must be true or false, got the number 1"),
    ({"a": {"in": 1}}, "/a/in", "in must be a list of literals, got the number 1"),
    ({"a": {"in": []}}, "/a/in", "empty"),
    ({"a": {"in": [1, {}]}}, "/a/in/1", "an object"),
    ({"a": {"between": [1]}}, "/a/between", "[lo, hi]"),
    ({"a": {"between": [1, None]}}, "/a/between/1", "null"),
    ({"a": {"between": [2, 1]}}, "/a/between", "must have lo <= hi, got 2 > 1"),
    ({"a": {"gt": 2, "lt": 1}}, "/a", "gt must be below lt, got gt 2 and lt 1"),
    ({"a": {"gt": 1, "lte": 1}}, "/a", "gt must be below lte, got gt 1 and lte 1"),
    ({"a": {"gte": 1, "lt": 1.0}}, "/a", "gte must be below lt, got gte 1 and lt 1.0"),
    ({"a": {"not": {"gte": 2, "lte": 1}}}, "/a/not", "gte must be at most lte, got gte 2 and lte 1"),
    ({"a": {"prefix": 5}}, "/a/prefix", "prefix must be a string, got the number 5"),
    ({"a": {"not": {}}}, "/a/not", "must have at least one operator of eq, ne"),
    ({"a": {"not": None}}, "/a/not", "null"),
    ({"$any": []}, "/$any", "non-empty"),
    ({"$all": {}}, "/$all", "non-empty"),
    ({"$any": [{"a": 1}, {}]}, "/$any/1", "empty"),
    ({"$any": ["a > 1"]}, "/$any/0", "the string"),
    ({"$not": []}, "/$not", "an array"),
    ({"$not": {"$all": [{"a/b": {"~": 1}}]}}, "/$not/$all/0/a~1b/~0", "is not an operator"),
    ({"$or": [{"a": 1}]}, "/$or", "must be one of $any, $all, $not, $xpath, got"),
]  # fmt: skip


@pytest.mark.parametrize(("given_", "pointer", "said"), REFUSED_JSON, ids=lambda value: str(value)[:50])
def test_json_that_is_no_filter_is_refused_at_its_pointer(given_: Any, pointer: str, said: str) -> None:
    with pytest.raises(InvalidFilter) as caught:
        Filter.parse(given_)
    assert (caught.value.pointer, caught.value.column) == (pointer, None)
    assert said in caught.value.detail


REFUSED_TEXT: list[tuple[str, int, str]] = [
    ("", 1, "empty"),
    ("  ", 1, "empty"),
    ("a", 2, "expected an operator"),
    ("a 5", 3, "expected an operator"),
    ("a not", 6, "expected an operator"),
    ("a not not == 5", 7, "expected an operator"),
    ("a ==", 5, "expected a string, a number, true or false"),
    ("a == b", 6, "write a string in quotes"),
    ("a == null", 6, "name not exists"),
    ("5 == a", 1, "expected the name of an attribute"),
    ('"a" == 5', 1, "expected the name of an attribute"),
    ("in == 5", 1, "backticks"),
    ("`` == 5", 1, "non-empty"),
    ("`$x` == 5", 1, "must not begin with $"),
    ("$any == 5", 1, "unexpected character '$'"),
    ("a == 1 and", 11, "expected the name of an attribute"),
    ("a == 1 b == 2", 8, "and, or, or the end"),
    ("(a == 1", 8, "closing parenthesis"),
    ("a == 1)", 7, "and, or, or the end"),
    ("a in 5", 6, "opening parenthesis"),
    ("a in ()", 7, "expected a string"),
    ("a in (1, 2", 11, "a comma or a closing"),
    ("a between 1", 12, "upper bound"),
    ("a between 2 and 1", 11, "must have lo <= hi, got 2 > 1"),
    ("a prefix 5", 10, "a string after prefix"),
    ('a == "x', 6, "no closing"),
    ("a == 'x", 6, "no closing"),
    ("`a == 1", 1, "backtick"),
    ('a == "\\x"', 6, "must be written as in JSON"),
    ('a == "\\ud800"', 6, "surrogate"),
    ("a == '\ud800'", 7, "surrogate"),
    ("a == 01", 6, "a number must be written as in JSON"),
    ("a == 1.", 6, "a number must be written as in JSON"),
    ("a == 1e999", 6, "range"),
    ("a == 1x", 6, "a number must be written as in JSON"),
    ("a == " + "1" * 5000, 6, "a number must be written as in JSON"),
    ("a == 1 & b == 2", 8, "unexpected character '&'"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "column", "said"), REFUSED_TEXT, ids=[text[:30] for text, _, _ in REFUSED_TEXT]
)
def test_text_that_is_no_filter_is_refused_at_its_column(text: str, column: int, said: str) -> None:
    with pytest.raises(InvalidFilter) as caught:
        Filter.parse(text)
    assert (caught.value.pointer, caught.value.column) == (None, column)
    assert said in caught.value.detail


UNFITTING: list[tuple[Any, str | int, str]] = [
    ({"pric": 1}, "/pric", 'did you mean "price"'),
    ({"x": 1}, "/x", "is not an attribute of this topic"),
    ({"$not": {"zzz": {"gt": 1}}}, "/$not/zzz", "its attributes are price, volume"),
    ({"zzz": {"not": {"gt": 1, "lt": 2}}}, "/zzz", "is not an attribute of this topic"),
    ({"price": "1"}, "/price", 'must be a number, got the string "1"'),
    ({"price": {"gt": True}}, "/price/gt", "got true"),
    ({"price": [1, "2"]}, "/price/1", "the string"),
    ({"price": {"in": [1, "2"]}}, "/price/in/1", "the string"),
    ({"price": {"between": [1, "2"]}}, "/price/between/1", "the string"),
    ({"price": {"prefix": "1"}}, "/price/prefix", "applies to strings only"),
    ({"price": {"not": {"suffix": "1"}}}, "/price/not/suffix", "applies to strings only"),
    ({"at": {"contains": "1"}}, "/at/contains", "applies to strings only"),
    ({"up": {"lt": True}}, "/up/lt", "no order"),
    ({"up": {"between": [False, True]}}, "/up/between", "no order"),
    ({"up": 1}, "/up", "a boolean"),
    ({"volume": 1.5}, "/volume", "must be an integer, got the number"),
    ({"volume": {"lt": 2**63}}, "/volume/lt", "64 bits"),
    ({"volume": {"gt": 1e300}}, "/volume/gt", "64 bits"),
    ({"symbol": 5}, "/symbol", "a string"),
    ({"at": 5}, "/at", "a time"),
    ({"at": {"gt": "2024-01-01"}}, "/at/gt", "RFC 3339"),
    ({"at": {"between": [LATE, EARLY]}}, "/at/between", "must have lo <= hi, got"),
    ({"at": {"gt": LATE, "lt": EARLY}}, "/at", "gt must be below lt, got gt"),
    ({"symbol": {"gte": "b", "lt": "b"}}, "/symbol", "gte must be below lt, got gte"),
    ("price > 1 and pric < 2", 15, "did you mean"),
    ("price > 'x'", 9, "a number"),
    ("volume in (1, 2, 2.5)", 18, "must be an integer, got the number"),
    ("price prefix 'x'", 14, "applies to strings only"),
    ("symbol between 'b' and 'a'", 16, "must have lo <= hi"),
]  # fmt: skip


@pytest.mark.parametrize(("given_", "place", "said"), UNFITTING, ids=lambda value: str(value)[:50])
def test_a_filter_that_does_not_fit_the_schema_is_refused_at_its_place(
    given_: Any, place: str | int, said: str
) -> None:
    filter_ = Filter.parse(given_)
    with pytest.raises(InvalidFilter) as caught:
        filter_.bind(SCHEMA)
    assert (caught.value.column if isinstance(place, int) else caught.value.pointer) == place
    assert said in caught.value.detail


@pytest.mark.parametrize(
    "given_",
    [
        {"at": {"gte": "2024-01-01T00:00:00+05:00", "lte": "2023-12-31T23:00:00Z"}},  # as strings lo > hi
        "symbol > 'b' and symbol < 'a'",
        "price > 2 and price < 1",
        "at > '2024-01-01T00:00:00-05:00' and at < '2024-01-01T01:00:00Z'",  # lo < hi as strings only
        {"$all": [{"at": {"gt": LATE}}, {"at": {"lt": EARLY}}]},
        {"volume": {"gt": 2**53, "lt": 2**53 + 1}},
    ],
)
def test_what_is_not_plainly_contradictory_binds_and_still_does_after_a_round_trip(given_: Any) -> None:
    filter_ = Filter.parse(given_)
    for form in (filter_.to_json(), filter_.to_text()):
        assert Filter.parse(form) == filter_
        Filter.parse(form).bind(SCHEMA)


@pytest.mark.parametrize("big", [10**20, -(10**30), 2**63])
def test_integers_beyond_64_bits_are_doubles_that_every_message_can_carry(big: int) -> None:
    filter_ = Filter.parse({"price": {"gt": big}})
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(filter_.to_json())) == {"price": {"gt": float(big)}}
    assert Filter.parse(f"price > {big}") == filter_


def test_an_operators_name_may_be_an_attribute() -> None:
    names = ["eq", "not", "in", "exists", "and", "true", "null", "between"]
    filter_ = Filter.parse(dict.fromkeys(names, 1))
    assert filter_.attributes == set(names)
    assert Filter.parse(filter_.to_text()) == filter_
    filter_.bind(Schema.parse(dict.fromkeys(names, "number")))


def nested(depth: int, wrap: str) -> Any:
    filter_: Any = {"a": 1}
    for _ in range(depth):
        filter_ = {wrap: filter_} if wrap == "$not" else {wrap: [filter_]}
    return filter_


@pytest.mark.parametrize("wrap", ["$not", "$any", "$all"])
def test_json_may_be_nested_32_deep_and_no_deeper(wrap: str) -> None:
    Filter.parse(nested(32, wrap))
    for depth in (33, 40, 5_000):
        with pytest.raises(TooLarge):
            Filter.parse(nested(depth, wrap))


def test_not_inside_an_attribute_counts_as_nesting() -> None:
    condition: Any = {"gt": 1}
    for _ in range(40):
        condition = {"not": condition}
    with pytest.raises(TooLarge):
        Filter.parse({"a": condition})


@pytest.mark.parametrize(("before", "after"), [("(", ")"), ("not ", ""), ("not (", ")")])
def test_text_nested_too_deep_is_too_large(before: str, after: str) -> None:
    Filter.parse(before * 16 + "a == 1" + after * 16)
    for depth in (40, 5_000):
        with pytest.raises(TooLarge):
            Filter.parse(before * depth + "a == 1" + after * depth)


def test_an_object_that_contains_itself_is_too_large() -> None:
    loop: dict[str, Any] = {}
    loop["$not"] = loop
    with pytest.raises(TooLarge):
        Filter.parse(loop)


def test_a_thousand_predicates_are_taken_and_no_more() -> None:
    Filter.parse({"a": list(range(1_000))})
    Filter.parse(" or ".join(["a > 1"] * 1_000))
    for too_many in (
        {"a": list(range(1_001))},
        {"a": {"in": list(range(999)), "gt": 1, "lt": 5}},
        {"$any": [{"a": 1}] * 10_000},
        " or ".join(["a > 1"] * 1_001),
        f"a in ({', '.join(map(str, range(1_001)))})",
    ):
        with pytest.raises(TooLarge):
            Filter.parse(too_many)


def test_text_beyond_64_kib_is_too_large() -> None:
    Filter.parse(f'a == "{"x" * 65_000}"')
    with pytest.raises(TooLarge):
        Filter.parse(f'a == "{"é" * 33_000}"')


literals = (
    st.booleans() | st.integers(-(10**20), 10**20) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.sampled_from("ab'\"\\`\0\n\u2028é\U0010ffff"), max_size=4) | st.sampled_from([EARLY, LATE])
)  # fmt: skip
numbers = st.integers(-5, 5) | st.floats(-5, 5)
conditions = st.recursive(
    literals
    | st.lists(literals, min_size=1, max_size=3)
    | st.fixed_dictionaries(
        {}, optional={"gt": numbers, "ne": literals, "contains": st.text("ab", max_size=2)}
    ).filter(bool)
    | st.fixed_dictionaries({}, optional={"lt": literals, "gte": st.sampled_from([EARLY, LATE, "a"])}).filter(
        bool
    )
    | st.tuples(numbers, numbers).map(lambda pair: {"between": sorted(pair)})
    | st.booleans().map(lambda there: {"exists": there}),
    lambda inner: inner.map(lambda condition: {"not": condition}),
    max_leaves=3,
)
names = st.sampled_from(["a", "b.c", "and", "not", "1x", "we`ird", "$".join("xy"), "ä", "a b"])
filters = st.recursive(
    st.dictionaries(names, conditions, min_size=1, max_size=3),
    lambda inner: (
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: {"$any": parts})
        | st.lists(inner, min_size=1, max_size=3).map(lambda parts: {"$all": parts})
        | st.tuples(inner, st.dictionaries(names, conditions, max_size=2)).map(
            lambda pair: {**pair[1], "$not": pair[0]}
        )
    ),
    max_leaves=6,
)


@settings(max_examples=300)
@given(filters)
def test_both_forms_round_trip(written: dict[str, Any]) -> None:
    filter_ = Filter.parse(written)
    assert Filter.parse(filter_.to_json()) == filter_
    assert Filter.parse(filter_.to_text()) == filter_
    assert Filter.parse(filter_.to_json()).to_json() == filter_.to_json()


@given(
    st.text(st.sampled_from("ab1 ().,<>=!'\"`\\-andortin"), max_size=30)
    | st.lists(
        st.sampled_from(
            [
                "a",
                "not",
                "and",
                "or",
                "(",
                ")",
                "in",
                "between",
                "1",
                "'x'",
                "==",
                "<",
                ",",
                "exists",
                "prefix",
                "`b`",
            ]
        ),
        max_size=12,
    ).map(" ".join)
)
def test_any_text_is_read_or_refused_with_a_column_inside_it(text: str) -> None:
    try:
        filter_ = Filter.parse(text)
    except InvalidFilter as error:
        column = error.column
    else:
        assert Filter.parse(filter_.to_text()) == filter_
        return
    assert column is not None
    assert 1 <= column <= len(text) + 1
