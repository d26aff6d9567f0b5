"""Advertisements: SIENA's published examples, the oracle, and bad input."""

from __future__ import annotations

import random
from typing import Any

import pytest

from edn.errors import EdnError
from edn.model.coordinates import DOMAINS
from edn.model.filter import Filter
from edn.model.filter.advertisement import Advertisement, BoundAdvertisement
from edn.model.schema import Schema
from tests.oracle import advertising
from tests.oracle.cells import NotDecided
from tests.oracle.values import read_event
from tests.workload.advertisements import Drawing

SIENA = Schema.parse(
    {"what": "string", "date": "time", "level": "integer", "username": "string", "user": "string"}
)
DATE = "2001-08-01T02:40:03Z"


def values(schema: Schema, event: dict[str, Any]) -> dict[str, Any]:
    """Read an event as predicates see it."""
    import msgspec

    return schema.values(msgspec.json.encode(event))


# -- the published tables -----------------------------------------------------------------------------------

TABLE_II: list[tuple[dict[str, Any], dict[str, Any], bool]] = [
    ({"what": "alarm", "date": DATE}, {"what": "alarm"}, True),
    ({"what": "alarm", "date": DATE}, {"what": "alarm", "level": {"gt": 3}}, False),
    ({"what": "alarm", "level": 10}, {"what": "alarm", "level": {"gt": 3, "lt": 7}}, False),
    ({"what": "alarm", "level": 5}, {"what": "alarm", "level": {"gt": 3, "lt": 7}}, True),
]


@pytest.mark.parametrize(("event", "filter", "expected"), TABLE_II, ids=["1", "2", "3", "4"])
def test_table_ii_of_siena_says_which_filters_match_an_event(
    event: dict[str, Any], filter: dict[str, Any], expected: bool
) -> None:
    assert Filter.parse(filter).bind(SIENA).matches(values(SIENA, event)) is expected


_ALARM_OR_LOGIN = {"what": ["alarm", "login"], "username": "any"}
TABLE_III: list[tuple[dict[str, Any], bool]] = [
    ({"what": "alarm"}, True),
    ({"what": "alarm", "date": DATE}, False),
    ({"what": "login", "username": "carzanig"}, True),
    ({"what": "logout", "username": "carzanig"}, False),
]


@pytest.mark.parametrize(("event", "expected"), TABLE_III, ids=["1", "2", "3", "4"])
def test_table_iii_of_siena_says_which_events_an_advertisement_covers(
    event: dict[str, Any], expected: bool
) -> None:
    advertisement = Advertisement.parse(_ALARM_OR_LOGIN).bind(SIENA)
    assert advertisement.matches(values(SIENA, event)) is expected


_LEVELS = {"what": ["alarm"], "date": "any", "level": [{"gt": 0}]}
#: subscription, what formula 3.2 gives, what the table of the thesis says
TABLE_3_3: list[tuple[dict[str, Any], bool, bool]] = [
    ({"what": "alarm", "level": {"gt": 3}}, True, True),
    ({"what": "alarm", "level": {"gt": 3}, "user": {"exists": True}}, False, False),
    ({"level": {"gt": 5}}, True, True),
    ({"level": {"exists": True}}, True, False),
]


@pytest.mark.parametrize(("filter", "expected", "_"), TABLE_3_3, ids=["1", "2", "3", "4"])
def test_table_3_3_of_the_thesis_says_which_filters_an_advertisement_concerns(
    filter: dict[str, Any], expected: bool, _: bool
) -> None:
    advertisement = Advertisement.parse(_LEVELS).bind(SIENA)
    assert advertisement.overlaps(Filter.parse(filter).bind(SIENA)) is expected


def test_the_fourth_row_of_table_3_3_contradicts_formula_3_2() -> None:
    """The row says "no", but an event exists that the advertisement covers and the subscription matches."""
    filter, by_formula, printed = TABLE_3_3[3]
    event = values(SIENA, {"what": "alarm", "level": 5})
    assert Advertisement.parse(_LEVELS).bind(SIENA).matches(event)
    assert Filter.parse(filter).bind(SIENA).matches(event)
    assert (by_formula, printed) == (True, False)


#: 003 §3.5.1: x = V ⇒ x = V' iff V = V'; x ▷ V ⇒ x ▷ V' iff V ▷ V'; x = V ⇒ x ▷ V' iff V ▷ V'
RULES: list[tuple[str, str, Any, str, Any, bool]] = [
    ("equal implies equal", "eq", 5, "eq", 5, True),
    ("equal implies equal", "eq", 5, "eq", 6, False),
    ("order implies order", "gte", 5, "gte", 4, True),
    ("order implies order", "gte", 4, "gte", 5, False),
    ("order implies order", "lte", 4, "lte", 5, True),
    ("order implies order", "lte", 5, "lte", 4, False),
    ("order implies order", "prefix", "alarm", "prefix", "al", True),
    ("order implies order", "prefix", "al", "prefix", "alarm", False),
    ("order implies order", "suffix", "alarm", "suffix", "arm", True),
    ("order implies order", "suffix", "arm", "suffix", "alarm", False),
    ("equal implies order", "eq", 5, "gte", 4, True),
    ("equal implies order", "eq", 4, "gte", 5, False),
    ("equal implies order", "eq", 4, "lte", 5, True),
    ("equal implies order", "eq", "alarm", "prefix", "al", True),
    ("equal implies order", "eq", "alarm", "prefix", "b", False),
    ("equal implies order", "eq", "alarm", "suffix", "arm", True),
    ("equal implies order", "eq", "alarm", "suffix", "x", False),
]


@pytest.mark.parametrize(("rule", "one", "value", "other", "bound", "expected"), RULES)
def test_the_three_rules_of_implication_between_constraints(
    rule: str, one: str, value: Any, other: str, bound: Any, expected: bool
) -> None:
    name = "what" if isinstance(value, str) else "level"
    narrow = Filter.parse({name: {one: value}}).bind(SIENA)
    assert Filter.parse({name: {other: bound}}).bind(SIENA).covers(narrow) is expected, rule


# -- the oracle ---------------------------------------------------------------------------------------------


def _bound(written: dict[str, Any], schema: Schema) -> BoundAdvertisement | None:
    """Bind a random advertisement; None if its bounds happen to leave nothing."""
    try:
        return Advertisement.parse(written).bind(schema)
    except EdnError:
        return None


def compare_events(seed: int, advertisements: int, events: int) -> tuple[int, int]:
    """Compare `matches` with the oracle; return the number of pairs and of pairs that match."""
    drawing = Drawing(random.Random(seed))
    schema = Schema.parse(drawing.schema)
    drawn = [drawing.event() for _ in range(events)]
    ours = [values(schema, event) for event in drawn]
    theirs = [read_event(event, drawing.schema) for event in drawn]
    pairs = found = 0
    while advertisements:
        written = drawing.advertisement()
        bound = _bound(written, schema)
        if bound is None:
            continue
        advertisements -= 1
        for mine, his in zip(ours, theirs, strict=True):
            expected = advertising.covers_event(written, his, drawing.schema)
            assert bound.matches(mine) is expected, (written, his)
            assert bool(bound.uncovered(mine)) is not expected, (written, his)
            pairs, found = pairs + 1, found + expected
    return pairs, found


def compare_relations(seed: int, pairs: int, *, patterns: bool) -> dict[str, list[int]]:
    """Compare `overlaps` and `covers` with the oracle; return how many are true, and how many were found."""
    chance = random.Random(seed)
    drawing = Drawing(chance, patterns=patterns, arrays=False)
    schema = Schema.parse(drawing.schema)
    counts = {"no overlap": [0, 0], "covers": [0, 0], "pairs": [0, 0]}
    while counts["pairs"][0] < pairs:
        # Few attributes, or the oracle has too many events to try.
        names = chance.sample(list(drawing.schema), 3)
        small = {name: drawing.schema[name] for name in names}
        here = Drawing(chance, patterns=patterns, arrays=False)
        here.schema = small
        one, other, filter = here.advertisement(most=2), here.advertisement(most=2), here.filter(most=2)
        schema = Schema.parse(small)
        first, second = _bound(one, schema), _bound(other, schema)
        if first is None or second is None:
            continue
        try:
            wanted = Filter.parse(filter).bind(schema)
            does_overlap = advertising.overlaps(one, filter, small)
            does_cover = advertising.covers(one, other, small)
        except (EdnError, NotDecided):
            continue
        counts["pairs"][0] += 1
        claimed = not first.overlaps(wanted)
        assert not (claimed and does_overlap), (one, filter)
        counts["no overlap"][0] += not does_overlap
        counts["no overlap"][1] += claimed
        claimed = first.covers(second)
        assert not (claimed and not does_cover), (one, other)
        counts["covers"][0] += does_cover
        counts["covers"][1] += claimed
    return counts


def test_advertisements_cover_the_events_that_the_oracle_says() -> None:
    pairs, found = compare_events(1, 60, 100)
    assert 0.02 * pairs < found < 0.9 * pairs


def test_relations_of_advertisements_are_never_wrong_and_nearly_complete() -> None:
    counts = compare_relations(2, 400, patterns=False)
    for relation in ("no overlap", "covers"):
        true, found = counts[relation]
        assert true > 10
        assert found >= 0.99 * true, (relation, true, found)


@pytest.mark.slow
def test_100_000_pairs_of_advertisement_and_event() -> None:
    pairs, found = compare_events(3, 400, 250)
    print(f"{pairs} pairs of advertisement and event, {found} covered, 0 differences")
    assert pairs >= 100_000


@pytest.mark.slow
def test_20_000_pairs_of_advertisement_and_filter() -> None:
    counts = compare_relations(4, 20_000, patterns=False)
    print(f"relations: (true, found) {counts}")
    for relation in ("no overlap", "covers"):
        true, found = counts[relation]
        assert found >= 0.99 * true


# -- bad input ----------------------------------------------------------------------------------------------

BAD = Schema.parse(
    {"what": "string", "level": "integer", "price": "number", "tags": ["string"], "on": "time"}
)


@pytest.mark.parametrize(
    ("given", "pointer", "words"),
    [
        ({"nope": ["x"]}, "/nope", "not an attribute of this topic"),
        ({"others": "any"}, "/others", '"$others": "any"'),
        ({"level": ["x"]}, "/level/0", "must be an integer"),
        ({"level": [{"gt": "x"}]}, "/level/0/gt", "must be an integer"),
        ({"tags": ["x"]}, "/tags/0", "an array of strings"),
        ({"what": []}, "/what", "must not be empty"),
        ({}, "", "at least one attribute"),
        ({"what": ["any", "alarm"]}, "/what/0", "must stand alone"),
        ({"level": [{"gt": 7, "lt": 3}]}, "/level/0", "gt must be below lt"),
        ({"level": [{"gt": 3, "lt": 4}]}, "/level/0", "at least one value"),
        ({"on": [{"gt": "2030-01-01T00:00:00Z", "lt": "2024-01-01T00:00:00Z"}]}, "/on/0", "must be below"),
        ({"what": "alarm"}, "/what", "the form of a filter"),
        ({"level": {"gt": 3}}, "/level", "the form of a filter"),
        ('what == "alarm"', "", "no text form"),
        ({"$any": [{"what": "alarm"}]}, "/$any", "the form of a filter"),
        ({"$xpath": "level > 3"}, "/$xpath", "cannot contain an XPath"),
        ({"$others": "some"}, "/$others", '$others must be "any"'),
        ({"what": [{"exists": True}]}, "/what/0/exists", "exists"),
        ({"what": [["alarm"]]}, "/what/0", "got an array"),
        ({"what": [None]}, "/what/0", "null"),
        ({"what": None}, "/what", "got null"),
        ([{"what": ["alarm"]}], "", "must be an object"),
        ({"what": [{"like": "a"}]}, "/what/0/like", "not an operator"),
    ],
)
def test_an_invalid_advertisement_is_refused_at_its_place(given: Any, pointer: str, words: str) -> None:
    with pytest.raises(EdnError) as caught:
        Advertisement.parse(given).bind(BAD)
    assert caught.value.status == 422
    assert caught.value.pointer == pointer
    assert words in caught.value.detail


def test_an_advertisement_with_too_many_predicates_is_refused() -> None:
    with pytest.raises(EdnError, match="an advertisement must have at most 1000 predicates") as caught:
        Advertisement.parse({"level": list(range(1001))})
    assert caught.value.status == 413


# -- what follows from the schema ---------------------------------------------------------------------------


def test_a_new_attribute_is_covered_only_by_an_advertisement_that_leaves_others_free() -> None:
    closed = Advertisement.parse({"what": ["alarm"]})
    free = Advertisement.parse({"what": ["alarm"], "$others": "any"})
    wider = BAD.evolve({**BAD.attributes, "room": "string"})
    event = values(wider, {"what": "alarm", "room": "A"})
    assert not closed.bind(wider).matches(event)
    assert closed.bind(wider).uncovered(event) == ["room"]
    assert free.bind(wider).matches(event)


def test_advertisements_are_equal_if_their_alternatives_are() -> None:
    one = Advertisement.parse({"what": ["a", "b"], "level": [1]})
    assert one == Advertisement.parse({"level": [1], "what": ["b", "a"]})
    assert one != Advertisement.parse({"what": ["a", "b"], "level": [True]})
    assert one != Advertisement.parse({"what": ["a", "b"], "level": [1], "$others": "any"})
    assert Advertisement.parse(one.to_json()) == one


def test_the_string_any_can_be_advertised() -> None:
    bound = Advertisement.parse({"what": [{"eq": "any"}]}).bind(BAD)
    assert bound.matches({"what": "any"})
    assert not bound.matches({"what": "other"})


def test_alternatives_of_an_array_are_conditions_on_its_elements() -> None:
    bound = Advertisement.parse({"tags": [{"all": {"prefix": "a"}}, {"any": "b"}]}).bind(BAD)
    assert bound.matches({"tags": ("a", "ab")})
    assert bound.matches({"tags": ("x", "b")})
    assert not bound.matches({"tags": ("a", "x")})
    assert bound.matches({})


def test_every_type_can_be_advertised() -> None:
    assert {"string", "integer", "number", "boolean", "time", "bytes"} <= set(DOMAINS)
