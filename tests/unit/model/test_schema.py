"""Schemas: valid declarations, and columns that survive changes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edn.errors import InvalidSchema
from edn.model.schema import Column, Schema

QUOTES = {"symbol": "string", "price": "number", "book.bid": "number", "book.ask": "number", "at": "time"}


def test_a_schema_gives_each_attribute_a_column_in_order() -> None:
    schema = Schema.parse(QUOTES)
    assert schema.columns == tuple(Column(name, type_) for name, type_ in QUOTES.items())
    assert schema.width == 5
    assert schema.attributes == QUOTES
    assert schema.column_of("book.ask") == 3
    assert schema.column_of("book") is None


REFUSED: dict[str, tuple[Any, str, str]] = {
    "no object": (["a"], "", "object"),
    "nothing": ({}, "", "at least one"),
    "too many": ({f"a{number}": "number" for number in range(257)}, "", "256"),
    "empty name": ({"": "number"}, "/", "must be parts of letters, digits, _ and - joined by dots"),
    "long name": ({"a" * 129: "number"}, "/" + "a" * 129, "128"),
    "dollar": ({"$id": "string"}, "/$id", "$"),
    "empty part": ({"a..b": "number"}, "/a..b", "dots"),
    "dot at the end": ({"a.": "number"}, "/a.", "dots"),
    "space": ({"a b": "number"}, "/a b", "letters"),
    "slash": ({"a/b": "number"}, "/a~1b", "letters"),
    "newline": ({"a\n": "number"}, "/a\n", "letters"),
    "too many parts": ({".".join("a" * 31): "number"}, "/" + ".".join("a" * 31), "30 parts"),
    "unknown type": ({"a": "float"}, "/a", "number, integer, string, boolean, time"),
    "type that is none": ({"a": 5}, "/a", "the number 5"),
    "leaf and parent": ({"a.b": "number", "a": "number"}, "/a.b", "parent"),
    "leaf and grandparent": ({"a": "number", "a.b.c": "number"}, "/a.b.c", "parent"),
}


@pytest.mark.parametrize(("attributes", "pointer", "said"), REFUSED.values(), ids=REFUSED.keys())
def test_what_is_no_schema_is_refused_at_its_place(attributes: Any, pointer: str, said: str) -> None:
    with pytest.raises(InvalidSchema) as caught:
        Schema.parse(attributes)
    assert caught.value.pointer == pointer
    assert said in caught.value.detail


@pytest.mark.parametrize("name", ["a", "A-1_x", "1", "a.b.c", "-", "größe", "and", "a" * 128])
def test_names_of_letters_digits_dashes_and_dots_are_taken(name: str) -> None:
    assert Schema.parse({name: "number"}).column_of(name) == 0


def test_columns_keep_their_places_when_attributes_come_and_go() -> None:
    first = Schema.parse({"a": "number", "b": "string"})
    second = first.evolve({"b": "string", "c": "time"})
    assert second.columns == (Column("a", "number", True), Column("b", "string"), Column("c", "time"))
    third = second.evolve({"a": "number", "b": "integer"})
    assert third.columns == (
        Column("a", "number"),
        Column("b", "string", True),
        Column("c", "time", True),
        Column("b", "integer"),
    )
    assert third.column_of("b") == 3
    assert third.evolve({"b": "string"}).columns[-1] == Column("b", "string")
    assert third.evolve({"a": "number", "b": "integer"}) is third


def test_an_attribute_that_was_a_parent_in_between_gets_a_new_column() -> None:
    schema = Schema.parse({"a": "number"}).evolve({"a.b": "number"}).evolve({"a": "number"})
    assert [column.retired for column in schema.columns] == [True, True, False]


def test_removed_names_those_that_go_or_change_their_type() -> None:
    schema = Schema.parse({"a": "number", "b": "string", "c": "time"})
    assert schema.removed({"a": "number", "b": "integer", "d": "string"}) == ["b", "c"]
    assert schema.removed({"a": "number", "b": "string", "c": "time", "d": "string"}) == []


declarations = st.dictionaries(
    st.sampled_from(["a", "b", "c", "a.x", "a.y", "b.x.z"]),
    st.sampled_from(["number", "string", "time"]),
    min_size=1,
).filter(
    lambda names: not any(one != other and other.startswith(one + ".") for one in names for other in names)
)


@given(st.lists(declarations, min_size=1, max_size=6))
def test_the_wire_form_keeps_the_columns_of_every_live_attribute(history: list[dict[str, str]]) -> None:
    schema = Schema.parse(history[0])
    for attributes in history[1:]:
        later = schema.evolve(attributes)
        assert [(c.name, c.type) for c in later.columns[: schema.width]] == [
            (c.name, c.type) for c in schema.columns
        ]
        assert later.attributes == attributes
        schema = later
    received = Schema.from_wire(schema.to_wire())
    assert received.width == schema.width
    for name in schema.attributes:
        assert received.column_of(name) == schema.column_of(name)


def test_the_wire_form_of_an_unknown_type_is_refused() -> None:
    with pytest.raises(InvalidSchema):
        Schema.from_wire([("a", "complex")])


def clash(one: str, other: str) -> bool:
    """Whether two names cannot be attributes at the same time, by definition."""
    return one == other or one.startswith(other + ".") or other.startswith(one + ".")


NAMES = st.lists(st.sampled_from("ab"), min_size=1, max_size=3).map(".".join)
TYPES = st.sampled_from(["number", "string"])


@given(st.lists(st.tuples(NAMES, TYPES), max_size=10))
def test_a_column_is_retired_by_any_later_one_that_clashes(columns: list[tuple[str, str]]) -> None:
    schema = Schema.from_wire(columns)
    assert schema.to_wire() == columns
    assert [column.retired for column in schema.columns] == [
        any(clash(name, later) for later, _ in columns[place + 1 :])
        for place, (name, _) in enumerate(columns)
    ]


@given(st.lists(st.tuples(NAMES, TYPES), max_size=10), NAMES, TYPES)
def test_an_attribute_takes_up_the_last_column_that_clashes_if_it_is_its_own(
    columns: list[tuple[str, str]], name: str, type_: str
) -> None:
    last = max((place for place, (one, _) in enumerate(columns) if clash(one, name)), default=None)
    expected = last if last is not None and columns[last] == (name, type_) else None
    assert Schema.from_wire(columns)._reusable(name, type_) == expected
