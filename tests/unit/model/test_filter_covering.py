"""Covering and overlap: never wrong in the unsafe direction, complete where promised."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from edn.model.filter import Filter
from edn.model.filter.cells import Pattern
from edn.model.schema import Schema
from tests.unit.model.filter_cases import SCHEMA, decoded, draw_event, draw_filter


def covers(one: Any, other: Any) -> bool:
    return Filter.parse(one).bind(SCHEMA).covers(Filter.parse(other).bind(SCHEMA))


COVERED: list[tuple[Any, Any]] = [
    (None, "n > 1"),
    (None, None),
    ("n exists or n not exists", None),
    ("n > 1", "n > 1"),
    ("n > 1", "n >= 1.0000000000000002"),
    ("n >= 1", "n > 1"),
    ("n > 1", "n > 2 and s == 'x'"),
    ("n > 1 and n < 5", "n between 2 and 3"),
    ("n != 3", "n > 3"),
    ("n != 3", "n not in (3, 4)"),
    ("n exists", "n != 3"),
    ("not n == 3", "n not exists"),
    ("not n == 3", "n != 3"),
    ("i > 1", "i >= 2"),
    ("i >= 9007199254740993", "i > 9007199254740992"),
    ("i in (1, 2, 3)", "i between 1 and 3"),
    ("b in (true, false)", "b exists"),
    ("b != false", "b == true"),
    ("s prefix 'N'", "s prefix 'NY'"),
    ("s prefix 'NY'", "s == 'NYSE'"),
    ("s prefix ''", "s suffix 'x'"),
    ("s >= 'a' and s < 'b'", "s prefix 'a'"),
    ("s prefix 'a'", "s >= 'a' and s < 'b'"),
    ("s prefix '\U0010ffff'", "s > '\U0010ffffa'"),
    ("s suffix 'c'", "s suffix 'bc'"),
    ("s suffix 'c'", "s == 'abc'"),
    ("s suffix 'c'", "s in ('c', 'xc')"),
    ("s contains 'b'", "s suffix 'abc'"),
    ("s contains 'b'", "s prefix 'abc'"),
    ("s contains 'b'", "s contains 'abc'"),
    ("s contains 'b'", "s >= 'ab' and s < 'ac'"),
    ("s not contains 'abc'", "s not contains 'b'"),
    ("s not suffix 'abc'", "s not suffix 'c'"),
    ("s not suffix 'abc'", "s suffix 'x'"),
    ("not s contains 'b'", "s not exists"),
    ("s != 'abc'", "s suffix 'x'"),
    ("t < '2024-01-02T00:00:00Z'", "t < '2024-01-02T00:00:00+01:00'"),
    ("n < 5 or n >= 5", "n exists"),
    ("n < 5 or n > 3", "n between 0 and 9"),
    ("n > 1 or s == 'x'", "s == 'x'"),
    ("(n > 1 and i > 1) or (n > 1 and i <= 1) or n <= 1", "n exists and i exists"),
    ("n > 1", "n > 2 or n == 1.5"),
    ("n > 1 and n < 0", "n > 1 and n < 0"),
    ("n == 1", "n > 1 and n < 0"),
]  # fmt: skip
NOT_COVERED: list[tuple[Any, Any]] = [
    ("n > 1", None),
    ("n exists", None),
    ("n > 1", "n >= 1"),
    ("n > 1", "s == 'x'"),
    ("n > 1 and s == 'x'", "n > 1"),
    ("n != 3", "not n == 3"),
    ("n == 3", "n != 3"),
    ("i > 9007199254740993", "i > 9007199254740992"),
    ("s prefix 'NY'", "s prefix 'N'"),
    ("s == 'abcdefg'", "s prefix 'abcdefg'"),
    ("s suffix 'bc'", "s suffix 'c'"),
    ("s suffix 'b'", "s contains 'b'"),
    ("s prefix 'b'", "s contains 'b'"),
    ("s contains 'abc'", "s contains 'b'"),
    ("s contains 'a'", "s >= 'ab' and s < 'c'"),
    ("s contains 'b'", "s prefix 'a' and s suffix 'c'"),
    ("n < 5 or n > 5", "n exists"),
    ("(n > 1 and i > 1) or (n <= 1 and i <= 1)", "n exists and i exists"),
]  # fmt: skip


@pytest.mark.parametrize(("one", "other"), COVERED)
def test_a_filter_covers_what_it_implies(one: Any, other: Any) -> None:
    assert covers(one, other)


@pytest.mark.parametrize(("one", "other"), NOT_COVERED)
def test_a_filter_does_not_cover_what_goes_beyond_it(one: Any, other: Any) -> None:
    assert not covers(one, other)


@pytest.mark.parametrize("seed", range(4))
def test_no_event_contradicts_covering_or_overlap(seed: int) -> None:
    random = Random(seed)
    _, values = decoded([draw_event(random) for _ in range(60)])
    bound = [Filter.parse(draw_filter(random, 2)).bind(SCHEMA) for _ in range(40)]
    matched = [[filter_.matches(event) for event in values] for filter_ in bound]
    claimed = 0
    for first, first_matched in zip(bound, matched, strict=True):
        for second, second_matched in zip(bound, matched, strict=True):
            covering, overlapping = first.covers(second), first.overlaps(second)
            claimed += covering and first is not second
            for event, one, other in zip(values, first_matched, second_matched, strict=True):
                assert one or not (covering and other), (first.filter, second.filter, event)
                assert overlapping or not (one and other), (first.filter, second.filter, event)
    assert claimed > 20


@pytest.mark.parametrize("seed", range(4))
def test_every_filter_covers_itself_and_its_conjunctions(seed: int) -> None:
    random = Random(seed)
    for _ in range(60):
        one, other = draw_filter(random, 2), draw_filter(random, 2)
        assert covers(one, {"$all": [one, other]}), (one, other)
        assert covers({"$any": [one, other]}, one), (one, other)


def test_many_small_boxes_cover_the_large_one_that_they_fill() -> None:
    tiles = [{"n": {"between": [x, x + 1]}, "i": [y]} for x in range(8) for y in range(8)]
    whole = {"n": {"between": [0, 8]}, "i": {"between": [0, 7]}}
    assert covers({"$any": tiles}, whole)
    assert not covers({"$any": tiles[1:]}, whole)


DISJOINT = [
    ("n > 1", "n < 1"),
    ("n > 1", "n not exists"),
    ("s prefix 'a'", "s == 'b'"),
    ("s suffix 'a'", "s suffix 'b'"),
    ("s suffix 'a'", "s not contains 'a'"),
    ("n > 1 and n < 0", None),
    ("b == true", "b == false and n > 1"),
]
MEETING = [
    ("n > 1", "s == 'x'"),
    ("n >= 1", "n <= 1"),
    (None, None),
    ("s suffix 'a'", "s suffix 'ba'"),
    ("s contains 'a'", "s contains 'b'"),
    ("not n > 1", "not i > 1"),
]


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [(*pair, False) for pair in DISJOINT] + [(*pair, True) for pair in MEETING],
)
def test_filters_overlap_if_an_event_can_match_both(one: Any, other: Any, expected: bool) -> None:
    first, second = Filter.parse(one).bind(SCHEMA), Filter.parse(other).bind(SCHEMA)
    assert first.overlaps(second) is expected
    assert second.overlaps(first) is expected


def test_filters_bound_before_and_after_a_schema_grew_are_compared() -> None:
    later = SCHEMA.evolve({**SCHEMA.attributes, "new": "number"})
    wide = Filter.parse("n > 1").bind(SCHEMA)
    narrow = Filter.parse("n > 2 and new exists").bind(later)
    assert wide.covers(narrow)
    assert not narrow.covers(wide)
    assert wide.rects().width + 1 == narrow.rects().width == later.width


def test_filters_of_different_topics_cover_nothing_of_each_other() -> None:
    here = Filter.parse("n > 1").bind(SCHEMA)
    elsewhere = Filter.parse("m > 1").bind(Schema.parse({"m": "number"}))
    assert not here.covers(elsewhere)
    assert here.overlaps(elsewhere)


def test_comparisons_that_would_take_too_much_work_answer_safely() -> None:
    schema = Schema.parse({f"a{number}": "number" for number in range(60)})
    wide = Filter.parse(
        {"$all": [{"$any": [{f"a{n}": 1}, {f"a{n + 1}": 2}, {f"a{n + 2}": 3}]} for n in range(58)]}
    ).bind(schema)
    narrow = Filter.parse({"$any": [{f"a{n}": {"gt": n}, f"a{n + 1}": {"lt": n}} for n in range(59)]}).bind(
        schema
    )
    assert not wide.covers(narrow)
    assert not narrow.covers(wide)
    assert wide.overlaps(narrow)


STRINGS = Schema.parse({"s": "string", "u": "string"})
APART = {"s": {"not": {"in": [f"v{number:04}" for number in range(500)]}}}
#: within the limit of predicates, each, and far beyond what could be multiplied out
LABORIOUS = [
    {"$all": [APART, *({"s": {"not": {"contains": f"x{number}"}}} for number in range(490))]},
    {
        "$all": [
            APART,
            *({"$any": [{"s": {"contains": f"x{n}"}}, {"s": {"suffix": f"y{n}"}}]} for n in range(240)),
        ]
    },
    {"$all": [{"s": [f"v{number}" for number in range(700)]}]
    + [{"s": {"not": {"contains": f"x{number}"}}} for number in range(290)]},
]  # fmt: skip


@pytest.mark.parametrize("written", LABORIOUS, ids=["one side", "alternatives", "a list"])
def test_many_patterns_on_many_values_are_not_compared_without_end(
    written: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared = 0

    def counted(original: Any) -> Any:
        def count(*arguments: Any) -> bool:
            nonlocal compared
            compared += 1
            return bool(original(*arguments))

        return count

    monkeypatch.setattr(Pattern, "implies_fit", counted(Pattern.implies_fit))
    monkeypatch.setattr(Pattern, "holds", counted(Pattern.holds))
    laborious = Filter.parse(written).bind(STRINGS)
    simple = Filter.parse({"s": {"prefix": "q"}}).bind(STRINGS)
    assert len(laborious.rects())
    assert compared < 1_000_000
    simple.covers(laborious)
    laborious.covers(simple)
    assert laborious.overlaps(simple) or written is LABORIOUS[2]
    assert compared < 4_000_000
