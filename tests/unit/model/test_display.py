"""Coordinates converted back to values, and rectangles in readable form."""

from __future__ import annotations

from typing import Any

import pytest

from edn.model.coordinates import DOMAINS
from edn.model.display import shown_rect, value_at
from edn.model.filter import Filter
from edn.model.schema import Schema

SCHEMA = Schema.parse({"n": "number", "i": "integer", "s": "string", "b": "boolean", "t": "time"})


@pytest.mark.parametrize(
    ("kind", "value", "shown"),
    [
        ("number", -0.5, -0.5),
        ("number", 1.7976931348623157e308, 1.7976931348623157e308),
        ("integer", -(2**63), -(2**63)),
        ("integer", 2**53 - 1, 2**53 - 1),
        ("boolean", True, True),
        ("boolean", False, False),
        ("string", "", ""),
        ("string", "NYSE", "NYSE"),
        ("string", "NASDAQ", "NASDAQ…"),
        ("string", "NASDAQ OMX", "NASDAQ…"),
        ("time", "2024-05-01T12:00:00+02:00", "2024-05-01T10:00:00Z"),
        # A double holds no microseconds that far away; the next one is in the year 10000.
        ("time", "9999-12-31T23:59:59.9999999Z", "9999-12-31T00:01:00-23:59"),
        ("time", "9999-12-31T23:59:60.999999-23:59", "9999-12-31T23:59:60.999999-23:59"),
        ("time", "0001-01-01T00:00:00+23:59", "0001-01-01T00:00:00+23:59"),
    ],
)
def test_a_coordinate_is_shown_as_the_value_that_it_stands_for(kind: str, value: Any, shown: Any) -> None:
    domain = DOMAINS[kind]
    assert value_at(kind, domain.coordinate(domain.key(value))) == shown


@pytest.mark.parametrize(
    ("filter_", "shown"),
    [
        (None, {}),
        ("n > 1 and n <= 2.5", {"n": {"gte": 1.0000000000000002, "lte": 2.5}}),
        ("n exists", {"n": {"exists": True}}),
        ("n not exists and b == true", {"n": {"exists": False}, "b": True}),
        ("not n > 1", {"n": {"lte": 1.0, "or": "missing"}}),
        ("s == 'GE'", {"s": "GE"}),
        ("s prefix 'NY'", {"s": {"gte": "NY", "lte": "NY…"}}),
        ("s < 'b'", {"s": {"gte": "", "lte": "a…"}}),
        ("b == false and i >= 3", {"b": False, "i": {"gte": 3}}),
        ("not b == true", {"b": {"eq": False, "or": "missing"}}),
        ("t < '2024-01-01T00:00:00Z'", {"t": {"lte": "2023-12-31T23:59:59.999999Z"}}),
        ("t <= '9999-12-31T23:59:59.9999999Z'", {"t": {"lte": "9999-12-31T00:01:00-23:59"}}),
    ],
)  # fmt: skip
def test_a_rectangle_is_shown_in_the_words_of_a_filter(filter_: Any, shown: dict[str, Any]) -> None:
    rects = Filter.parse(filter_).bind(SCHEMA).rects()
    assert len(rects) == 1
    assert shown_rect(SCHEMA.to_wire(), rects.lo[0], rects.hi[0]) == shown
