"""Rectangles contain all matches; exact ones contain nothing else; their number is limited."""

from __future__ import annotations

import itertools
import math
from random import Random
from typing import Any

import numpy as np
import pytest

from edn.model.coordinates import DOMAINS
from edn.model.filter import Filter
from edn.model.rect import LOWEST, MISSING, Rects
from edn.model.schema import Schema
from tests.unit.model.filter_cases import (
    CORNERS,
    SCHEMA,
    TYPES,
    decoded,
    draw_condition,
    draw_event,
    draw_filter,
)

INF = math.inf
CODE = DOMAINS["string"].coordinate


def rects(filter_: Any) -> Rects:
    return Filter.parse(filter_).bind(SCHEMA).rects()


def sides(filter_: Any, name: str) -> list[tuple[float, float, bool]]:
    """The rectangles on one axis."""
    found = rects(filter_)
    column = SCHEMA.column_of(name)
    return sorted(
        zip(found.lo[:, column].tolist(), found.hi[:, column].tolist(), found.exact.tolist(), strict=True)
    )


UP, DOWN = math.nextafter(1.0, INF), math.nextafter(1.0, -INF)
BIG = 2**53
TABLE: list[tuple[str, Any, list[tuple[float, float, bool]]]] = [
    ("n", {"exists": True}, [(LOWEST, INF, True)]),
    ("n", {"exists": False}, [(MISSING, MISSING, True)]),
    ("n", 1, [(1.0, 1.0, True)]),
    ("n", {"gt": 1}, [(UP, INF, True)]),
    ("n", {"gte": 1}, [(1.0, INF, True)]),
    ("n", {"lt": 1}, [(LOWEST, DOWN, True)]),
    ("n", {"lte": 1}, [(LOWEST, 1.0, True)]),
    ("n", {"ne": 1}, [(LOWEST, DOWN, True), (UP, INF, True)]),
    ("n", {"between": [1, 2]}, [(1.0, 2.0, True)]),
    ("n", [1, 3], [(1.0, 1.0, True), (3.0, 3.0, True)]),
    ("n", {"gt": -LOWEST}, []),
    ("i", BIG - 1, [(float(BIG - 1), float(BIG - 1), True)]),
    ("i", BIG, [(float(BIG), float(BIG), False)]),
    ("i", BIG + 1, [(float(BIG), float(BIG), False)]),
    ("i", {"gt": 1}, [(2.0, INF, True)]),
    ("i", {"gt": BIG}, [(float(BIG), INF, False)]),
    ("i", {"gt": 1, "lt": 2}, []),
    ("i", {"gte": -(2**63)}, [(LOWEST, INF, True)]),
    ("b", True, [(1.0, INF, True)]),
    ("b", False, [(LOWEST, 0.0, True)]),
    ("b", [True, False], [(LOWEST, INF, True)]),
    ("s", "abcde", [(CODE("abcde"), CODE("abcde"), True)]),
    ("s", "abcdef", [(CODE("abcdef"), CODE("abcdef"), False)]),
    ("s", "abcdefgh", [(CODE("abcdef"), CODE("abcdef"), False)]),
    ("s", ["abcdefgh", "abcdefgi"], [(CODE("abcdef"), CODE("abcdef"), False)]),
    ("s", {"prefix": "ab"}, [(CODE("ab"), CODE("ac") - 1, True)]),
    ("s", {"prefix": "abcdef"}, [(CODE("abcdef"), CODE("abcdeg") - 1, True)]),
    ("s", {"prefix": "abcdefg"}, [(CODE("abcdef"), CODE("abcdef"), False)]),
    ("s", {"prefix": "\U0010ffff"}, [(CODE("\U0010ffff"), INF, True)]),
    ("s", {"prefix": ""}, [(LOWEST, INF, True)]),
    ("s", {"suffix": "x"}, [(LOWEST, INF, False)]),
    ("s", {"contains": ""}, [(LOWEST, INF, True)]),
    ("s", {"in": ["ax", "by"], "suffix": "x"}, [(CODE("ax"), CODE("ax"), True)]),
    ("s", {"prefix": "ab", "contains": "b"}, [(CODE("ab"), CODE("ac") - 1, True)]),
    ("s", {"suffix": "ab", "not": {"contains": "b"}}, []),
    ("t", "1970-01-01T00:00:00.000001Z", [(1.0, 1.0, True)]),
    ("t", "9999-12-31T23:59:59.999999Z", [(253402300800000000.0, 253402300800000000.0, False)]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "condition", "expected"), TABLE, ids=lambda value: str(value)[:50])
def test_conditions_become_closed_intervals_of_coordinates(
    name: str, condition: Any, expected: list[tuple[float, float, bool]]
) -> None:
    assert sides({name: condition}, name) == expected
    found = rects({name: condition})
    other = [column for column in range(SCHEMA.width) if column != SCHEMA.column_of(name)]
    assert (found.lo[:, other] == MISSING).all()
    assert (found.hi[:, other] == INF).all()


def test_a_complement_reaches_down_to_missing_in_one_rectangle() -> None:
    assert sides({"$not": {"n": {"gt": 1}}}, "n") == [(MISSING, 1.0, True)]
    assert sides({"$not": {"n": 1}}, "n") == [(MISSING, DOWN, True), (UP, INF, True)]
    assert sides({"$any": [{"n": {"exists": True}}, {"n": {"exists": False}}]}, "n") == [(MISSING, INF, True)]


def test_everything_is_one_unbounded_rectangle() -> None:
    found = rects(None)
    assert (found.lo.tolist(), found.hi.tolist()) == ([[MISSING] * 5], [[INF] * 5])
    assert found.exact.tolist() == [True]


def test_alternatives_of_one_attribute_keep_their_own_rectangles_while_there_is_room() -> None:
    found = sides({"n": [float(value) for value in range(64)]}, "n")
    assert found == [(float(value), float(value), True) for value in range(64)]


def test_beyond_64_the_narrowest_gaps_are_closed_and_the_rectangles_say_so() -> None:
    values = [float(value) for value in range(70)] + [1e6, 2e6]
    found = sides({"n": values}, "n")
    assert len(found) == 64
    assert (1e6, 1e6, True) in found
    assert (2e6, 2e6, True) in found
    assert any(not exact for _, _, exact in found)


def test_joined_boxes_are_exact_only_if_nothing_came_in_between() -> None:
    diagonal = Filter.parse({"$any": [{"n": value, "i": value} for value in range(200)]}).bind(SCHEMA)
    values = [{"n": float(n), "i": i} for n in range(0, 200, 3) for i in range(0, 200, 7)]
    points, _ = decoded(values)
    contained = diagonal.rects().contain(points)
    assert len(diagonal.rects()) == 64
    for row, event in enumerate(values):
        assert contained[row].any() or event["n"] != event["i"]
        assert event["n"] == event["i"] or not (contained[row] & diagonal.rects().exact).any()


def test_joined_boxes_with_different_patterns_are_not_exact() -> None:
    alternatives = [{"s": {"prefix": f"p{n:03}", "contains": f"c{n}"}} for n in range(100)]
    found = rects({"$any": alternatives})
    assert len(found) <= 64
    assert not found.exact.any()


def test_an_exact_rectangle_stays_beside_an_inexact_one_around_it() -> None:
    found = sides({"$any": [{"s": "a"}, {"s": {"suffix": "x"}}]}, "s")
    assert found == [(LOWEST, INF, False), (CODE("a"), CODE("a"), True)]


def test_conjuncts_left_out_for_their_cost_make_the_rectangles_inexact() -> None:
    schema = Schema.parse({f"a{number}": "number" for number in range(250)})
    idle = {"$any": [{"a0": {"lt": 5}}, {"a1": {"lt": -1}}]}
    last = {"$any": [{"a0": {"lt": 3}}, {"a1": {"lt": -1}}, {"a2": {"lt": -1}}]}
    present = {f"a{number}": {"gte": 0} for number in range(250)}
    bound = Filter.parse({**present, "$all": [*[idle] * 300, last]}).bind(schema)
    point = np.full((1, 250), 4.0)
    assert not bound.matches({f"a{number}": 4.0 for number in range(250)})
    assert not (bound.rects().contain(point) & bound.rects().exact).any()
    assert bound.rects().contain(point - 2.0).any()


WIDE = Schema.parse({f"a{number}": "number" for number in range(40)})
EITHER = [{"$any": [{f"a{one}": 1}, {f"a{other}": 2}]} for one, other in itertools.combinations(range(32), 2)]
EXPLOSIVE: dict[str, Any] = {
    "many ne": {f"a{number}": {"ne": 0} for number in range(40)},
    "products of in": {f"a{number}": list(range(25)) for number in range(40)},
    "and of ors": {"$all": EITHER},
    "or of ands": {"$any": [{f"a{n % 40}": n % 3, f"a{(n + 1) % 40}": {"gt": n % 5}} for n in range(500)]},
    "not of or of ands": {"$not": {"$any": [{f"a{n}": 1, f"a{n + 1}": 2} for n in range(39)] * 12}},
}


@pytest.mark.parametrize("filter_", EXPLOSIVE.values(), ids=EXPLOSIVE.keys())
def test_no_filter_explodes_and_none_loses_an_event(filter_: Any) -> None:
    bound = Filter.parse(filter_).bind(WIDE)
    found = bound.rects()
    assert 1 <= len(found) <= 64
    random = np.random.default_rng(7)
    points = random.integers(0, 3, size=(2_000, 40)).astype(np.float64)
    points[random.random(points.shape) < 0.1] = MISSING
    contained = found.contain(points)
    matched = np.array(
        [bound.matches({f"a{c}": v for c, v in enumerate(row) if v != MISSING}) for row in points.tolist()]
    )
    assert not (matched & ~contained.any(axis=1)).any()
    assert not (~matched & (contained & found.exact[None]).any(axis=1)).any()


def check(filter_: Any, given_events: list[dict[str, Any]]) -> None:
    bound = Filter.parse(filter_).bind(SCHEMA)
    found = bound.rects()
    points, values = decoded(given_events)
    contained = found.contain(points)
    for row, event in enumerate(values):
        matched = bound.matches(event)
        assert contained[row].any() or not matched, (filter_, event)
        assert matched or not (contained[row] & found.exact).any(), (filter_, event)


@pytest.mark.parametrize("seed", range(4))
def test_rectangles_contain_what_matches_and_exact_ones_nothing_else(seed: int) -> None:
    random = Random(seed)
    given_events = [draw_event(random) for _ in range(40)]
    for _ in range(150):
        check(draw_filter(random), given_events)


@pytest.mark.parametrize("name", sorted(TYPES))
def test_rectangles_of_one_attribute_are_right_at_every_corner(name: str) -> None:
    random = Random(name)
    for _ in range(150):
        condition = draw_condition(random, name)
        for filter_ in ({name: condition}, {"$not": {name: condition}}):
            check(filter_, [{}, *({name: value} for value in CORNERS[name])])
