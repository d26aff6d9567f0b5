"""The semantics of filters: every operator on every type, on missing attributes, negated in both ways."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from edn.errors import InvalidFilter
from edn.model.filter import Filter
from edn.model.schema import Schema

SCHEMA = Schema.parse(
    {"n": "number", "i": "integer", "s": "string", "b": "boolean", "t": "time", "deep.n": "number"}
)
NOON, ONE, TWO = "2024-05-01T12:00:00Z", "2024-05-01T13:00:00Z", "2024-05-01T14:00:00Z"
#: the same instant as ONE, and after it as a string
ONE_ELSEWHERE = "2024-05-01T15:00:00+02:00"
BIG = 2**53


def matches(filter_: Any, event: dict[str, Any]) -> bool:
    batch = SCHEMA.decode_events(json.dumps(event).encode())
    return Filter.parse(filter_).bind(SCHEMA).matches(SCHEMA.values(batch.bodies[0]))


#: attribute, what is said about it, values of which that holds, values of which it does not
TABLE: list[tuple[str, Any, list[Any], list[Any]]] = [
    # number
    ("n", 1, [1, 1.0], [0, 1.0000000000000002, -1]),
    ("n", 0, [0, -0.0, 0.0], [5e-324, -5e-324]),
    ("n", BIG + 1, [BIG, BIG + 1], [BIG + 2]),
    ("n", [1, 2.5], [1, 2.5], [2]),
    ("n", {"eq": 1}, [1], [2]),
    ("n", {"ne": 1}, [2, 0.5], [1.0]),
    ("n", {"lt": 1}, [0.9999999999999999, -1e308], [1, 2]),
    ("n", {"lte": 1}, [1, 0], [1.0000000000000002]),
    ("n", {"gt": 1}, [1.0000000000000002, 1e308], [1, 0]),
    ("n", {"gte": 1}, [1, 2], [0.9999999999999999]),
    ("n", {"gt": -5e-324}, [0, -0.0], [-5e-324]),
    ("n", {"between": [1, 2]}, [1, 1.5, 2], [0.9999999999999999, 2.0000000000000004]),
    ("n", {"between": [1, 1]}, [1], [2]),
    ("n", {"in": [1, 3]}, [1, 3], [2]),
    ("n", {"exists": True}, [0, 1], []),
    ("n", {"exists": False}, [], [0, 1]),
    ("n", {"gt": 1, "lt": 2, "ne": 1.5}, [1.25], [1, 2, 1.5]),
    ("n", {"not": 1}, [2], [1]),
    ("n", {"not": [1, 2]}, [3], [1, 2]),
    ("n", {"not": {"gt": 1}}, [1, 0], [2]),
    ("n", {"not": {"gt": 1, "lt": 3}}, [1, 3], [2]),
    ("n", {"not": {"not": {"gt": 1}}}, [2], [1]),
    ("n", {"not": {"exists": False}}, [0], []),
    ("n", {"not": {"exists": True}}, [], [0]),
    # integer
    ("i", BIG + 1, [BIG + 1], [BIG, BIG + 2]),
    ("i", 5.0, [5], [4]),
    ("i", {"gt": BIG}, [BIG + 1], [BIG, BIG - 1]),
    ("i", {"gte": BIG + 1}, [BIG + 1], [BIG]),
    ("i", {"lt": -BIG}, [-BIG - 1], [-BIG]),
    ("i", {"lte": 2**63 - 1}, [2**63 - 1, -(2**63)], []),
    ("i", {"between": [BIG, BIG + 1]}, [BIG, BIG + 1], [BIG - 1, BIG + 2]),
    ("i", {"ne": BIG}, [BIG + 1], [BIG]),
    ("i", {"in": [1, BIG + 1]}, [1, BIG + 1], [BIG]),
    ("i", {"not": {"between": [1, 3]}}, [0, 4], [1, 2, 3]),
    # string
    ("s", "GE", ["GE"], ["G", "GE\0", "ge", "GEX"]),
    ("s", "", [""], ["\0", "a"]),
    ("s", ["a", "abcdefgh"], ["a", "abcdefgh"], ["abcdefg", "abcdefgi"]),
    ("s", {"ne": "abcdefgh"}, ["abcdefg"], ["abcdefgh"]),
    ("s", {"lt": "b"}, ["", "a", "azzzzzzzz"], ["b", "b\0"]),
    ("s", {"lte": "b"}, ["b"], ["b\0", "ba"]),
    ("s", {"gt": "abcdef"}, ["abcdef\0", "abcdeg"], ["abcdef", "abcdee"]),
    ("s", {"gte": "\uffff"}, ["\U00010000", "\uffff"], ["\ue000"]),
    ("s", {"between": ["b", "d"]}, ["b", "c", "d"], ["a", "d\0"]),
    ("s", {"prefix": "NY"}, ["NY", "NYSE", "NY\U0010ffff"], ["N", "NZ", "ny"]),
    ("s", {"prefix": ""}, ["", "x"], []),
    ("s", {"prefix": "a\U0010ffff"}, ["a\U0010ffff", "a\U0010ffffb"], ["a", "b"]),
    ("s", {"suffix": "SE"}, ["SE", "NYSE"], ["SEX", "se"]),
    ("s", {"contains": "YS"}, ["NYSE", "YS"], ["NSYE", ""]),
    ("s", {"contains": ""}, ["", "x"], []),
    ("s", {"not": {"prefix": "NY"}}, ["NASDAQ", ""], ["NYSE"]),
    ("s", {"not": {"suffix": "SE"}}, ["NASDAQ"], ["NYSE"]),
    ("s", {"not": {"contains": "Y"}}, ["NASDAQ"], ["NYSE"]),
    ("s", {"prefix": "N", "suffix": "E", "contains": "S"}, ["NYSE"], ["NYE", "SE"]),
    # boolean
    ("b", True, [True], [False]),
    ("b", {"ne": True}, [False], [True]),
    ("b", [True, False], [True, False], []),
    ("b", {"not": False}, [True], [False]),
    # time
    ("t", ONE, [ONE, ONE_ELSEWHERE, "2024-05-01T13:00:00.0000009Z"], [NOON, "2024-05-01T13:00:00.000001Z"]),
    ("t", {"ne": ONE}, [NOON], [ONE_ELSEWHERE]),
    ("t", {"lt": ONE}, [NOON], [ONE, ONE_ELSEWHERE]),
    ("t", {"gte": ONE}, [ONE_ELSEWHERE, TWO], [NOON]),
    ("t", {"between": [NOON, ONE]}, [NOON, ONE_ELSEWHERE], [TWO]),
    ("t", {"between": [ONE_ELSEWHERE, TWO]}, [ONE, TWO], [NOON]),
    ("t", {"in": [NOON, TWO]}, [NOON], [ONE]),
    ("t", {"not": {"gt": ONE}}, [NOON, ONE_ELSEWHERE], [TWO]),
    ("t", {"gt": "9999-12-31T23:59:59Z"}, ["9999-12-31T23:59:59-01:00"], [TWO]),
    # dotted
    ("deep.n", {"gt": 1}, [2], [1]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "condition", "fitting", "others"), TABLE, ids=lambda value: str(value)[:60])
def test_each_operator_holds_of_what_it_says(
    name: str, condition: Any, fitting: list[Any], others: list[Any]
) -> None:
    for expected, values in ((True, fitting), (False, others)):
        for value in values:
            assert matches({name: condition}, {name: value}) is expected, value
            assert matches({"$not": {name: condition}}, {name: value}) is not expected, value
            assert matches({name: {"not": condition}}, {name: value}) is not expected, value


@pytest.mark.parametrize(("name", "condition"), [row[:2] for row in TABLE], ids=lambda value: str(value)[:60])
def test_on_a_missing_attribute_only_exists_false_holds(name: str, condition: Any) -> None:
    expected = condition == {"exists": False}
    for event in ({}, {name: None}):
        assert matches({name: condition}, event) is expected
        assert matches({"$not": {name: condition}}, event) is not expected
        assert matches({name: {"not": condition}}, event) is False


ONE_OF_TWO = {"$any": [{"n": 1}, {"i": 1}]}
COMBINED: list[tuple[Any, list[dict[str, Any]], list[dict[str, Any]]]] = [
    (None, [{}, {"n": 1}], []),
    ({"n": 1, "i": 2}, [{"n": 1, "i": 2}], [{"n": 1}, {"i": 2}, {"n": 1, "i": 3}]),
    (ONE_OF_TWO, [{"n": 1}, {"i": 1}, {"n": 1, "i": 1}], [{}, {"n": 2, "i": 2}]),
    ({"$not": ONE_OF_TWO}, [{}, {"n": 2}], [{"n": 1}, {"i": 1, "n": 2}]),
    ({**ONE_OF_TWO, "b": True}, [{"n": 1, "b": True}], [{"n": 1}, {"b": True}]),
    ({"$all": [{"n": {"gt": 1}}, {"n": {"lt": 3}}]}, [{"n": 2}], [{"n": 1}, {"n": 3}]),
    ({"$all": [ONE_OF_TWO], "$any": [{"b": True}, {"s": "x"}], "$not": {"n": 2}},
     [{"i": 1, "s": "x"}, {"n": 1, "b": True}], [{"i": 1, "n": 2, "b": True}, {"i": 1}]),
    ({"$not": {"$not": {"n": 1}}}, [{"n": 1}], [{}, {"n": 2}]),
    ({"$any": [{"n": {"exists": False}}, {"n": {"lt": 0}}]}, [{}, {"n": -1}], [{"n": 0}]),
]  # fmt: skip


@pytest.mark.parametrize(("filter_", "fitting", "others"), COMBINED)
def test_combinators_are_those_of_logic(
    filter_: Any, fitting: list[dict[str, Any]], others: list[dict[str, Any]]
) -> None:
    assert all(matches(filter_, event) for event in fitting)
    assert not any(matches(filter_, event) for event in others)


TEXTS: list[tuple[str, Any]] = [
    ("n = 1", {"n": 1}),
    ("n == 1.5e3", {"n": 1500.0}),
    ("n != -1", {"n": {"ne": -1}}),
    ("n <> 1", {"n": {"ne": 1}}),
    ("n < 1 AND n >= 0", {"n": {"lt": 1, "gte": 0}}),
    ("n <= 1 or n > 3", {"$any": [{"n": {"lte": 1}}, {"n": {"gt": 3}}]}),
    ("n between 1 and 5 and i in (1, 2)", {"n": {"between": [1, 5]}, "i": [1, 2]}),
    ("s prefix \"NY\" and s suffix 'SE' and s contains 'Y'",
     {"s": {"prefix": "NY", "suffix": "SE", "contains": "Y"}}),
    ("s exists and n Not Exists", {"s": {"exists": True}, "n": {"exists": False}}),
    ("not n == 1", {"$not": {"n": 1}}),
    ("not not n == 1", {"$not": {"$not": {"n": 1}}}),
    ("n not == 1", {"n": {"not": 1}}),
    ("n not in (1, 2)", {"n": {"not": [1, 2]}}),
    ("s not prefix 'x'", {"s": {"not": {"prefix": "x"}}}),
    ("n not between 1 and 2", {"n": {"not": {"between": [1, 2]}}}),
    ("n exists and not (n > 1 and n < 3)", {"n": {"not": {"gt": 1, "lt": 3}}}),
    ("b == true or b == FALSE", {"$any": [{"b": True}, {"b": False}]}),
    ("n == 1 or n == 2 and i == 3", {"$any": [{"n": 1}, {"n": 2, "i": 3}]}),
    ("(n == 1 or n == 2) and i == 3", {"$any": [{"n": 1}, {"n": 2}], "i": 3}),
    ("not (n == 1 or i == 2)", {"$not": {"$any": [{"n": 1}, {"i": 2}]}}),
    ("((deep.n > 1))", {"deep.n": {"gt": 1}}),
    (r"""s == "a\"\u0041\n" or s == 'it\'s "so"'""", {"$any": [{"s": 'a"A\n'}, {"s": 'it\'s "so"'}]}),
    ("`n`==1 and`and` == 2 and `we``ird name`<-3", {"n": 1, "and": 2, "we`ird name": {"lt": -3}}),
    ("a-b_1.c-2 > 1", {"a-b_1.c-2": {"gt": 1}}),
    ("n > 1 and n > 2", {"$all": [{"n": {"gt": 1}}, {"n": {"gt": 2}}]}),
]  # fmt: skip


@pytest.mark.parametrize(("text", "same"), TEXTS, ids=[text for text, _ in TEXTS])
def test_text_and_json_say_the_same(text: str, same: Any) -> None:
    assert Filter.parse(text) == Filter.parse(same)
    assert Filter.parse(Filter.parse(same).to_text()) == Filter.parse(text)
    assert Filter.parse(Filter.parse(text).to_json()) == Filter.parse(same)


def test_filters_are_equal_whatever_the_order_and_repetition() -> None:
    one = Filter.parse("n == 1 and s in ('a', 'b') and (i > 1 or i < 0)")
    either = {"$any": [{"i": {"lt": 0}}, {"i": {"gt": 1}}]}
    other = Filter.parse({"$all": [either, {"s": ["b", "a"]}, {"n": 1.0}, {"n": 1}]})
    assert one == other
    assert hash(one) == hash(other)
    assert len({one, other}) == 1
    assert Filter.parse({"b": True}) != Filter.parse({"b": 1})
    assert Filter.parse({"n": 1}) != Filter.parse({"n": [1]})
    assert Filter.parse("n > 1") != Filter.parse("n >= 1")
    assert Filter.parse(None) == Filter.parse(None) != Filter.parse("n > 1")
    assert Filter.parse(None) != None  # noqa: E711  # the comparison is the point


def test_a_filter_names_its_attributes() -> None:
    filter_ = Filter.parse("n > 1 and not (s exists or n < 0)")
    assert filter_.attributes == filter_.bind(SCHEMA).attributes == {"n", "s"}
    assert Filter.parse(None).attributes == frozenset()


@pytest.mark.parametrize(
    ("expression", "value", "expected"),
    [
        ("^G", "GE", True),
        ("^G", "AGE", False),
        ("g", "GE", False),
        ("(?i)^ge$", "Ge", True),
        ("", "", True),
        (r"^\pL+$", "Übergröße", True),
        ("a.c", "a\nc", False),
        ("(?s)a.c", "a\nc", True),
        ("(x+x+)+y", "x" * 5000, False),
    ],
)
def test_matches_searches_a_part_of_the_string(expression: str, value: str, expected: bool) -> None:
    schema = Schema.parse({"s": "string"})
    for form in ({"s": {"matches": expression}}, f"s matches {json.dumps(expression)}"):
        bound = Filter.parse(form).bind(schema)
        assert bound.matches({"s": value}) is expected
        assert bound.matches({}) is False


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("(", "a regular expression in the syntax of RE2: missing"),
        ("(?=a)", "a regular expression in the syntax of RE2: invalid perl operator"),
        (r"(a)\1", "a regular expression in the syntax of RE2: invalid escape sequence"),
        ("a" * 1001, "at most 1000 characters, got 1001"),
        (".{900}", "at most 1500 steps"),
    ],
)
def test_an_expression_that_is_none_is_refused_with_its_place(expression: str, problem: str) -> None:
    schema = Schema.parse({"s": "string", "n": "number"})
    with pytest.raises(InvalidFilter, match=re.escape(problem)) as refused:
        Filter.parse({"s": {"matches": expression}}).bind(schema)
    assert refused.value.pointer == "/s/matches"
    with pytest.raises(InvalidFilter, match="matches applies to strings only"):
        Filter.parse({"n": {"matches": "a"}}).bind(schema)
