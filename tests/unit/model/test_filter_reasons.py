"""The clauses that decide whether a filter matches an event."""

from __future__ import annotations

from typing import Any

import pytest

from edn.model.filter import Filter
from edn.model.filter.reasons import reasons
from edn.model.schema import Schema

SCHEMA = Schema.parse({"price": "number", "symbol": "string", "volume": "integer"})
MATCHING: dict[str, Any] = {"price": 5.0, "symbol": "GE", "volume": 1}
OTHER: dict[str, Any] = {"price": 1.0, "symbol": "IBM", "volume": 2}

CASES: list[tuple[str | None, dict[str, Any], list[str]]] = [
    (None, MATCHING, []),
    ("price > 3", MATCHING, ["price > 3"]),
    ("price > 3", OTHER, ["price > 3"]),
    ('price > 3 and symbol == "GE"', MATCHING, ["price > 3", 'symbol == "GE"']),
    ('price > 0 and symbol == "GE"', OTHER, ['symbol == "GE"']),
    ("price > 9 or volume == 1 or price > 3", MATCHING, ["volume == 1"]),
    ("price > 9 or volume == 1", OTHER, ["price > 9", "volume == 1"]),
    ('(price > 9 or volume == 1) and symbol == "GE"', MATCHING, ["volume == 1", 'symbol == "GE"']),
    ('(price > 9 or volume == 1) and symbol == "IBM"', OTHER, ["price > 9", "volume == 1"]),
    ("not (price > 3 and volume == 1)", MATCHING, ["not (price > 3 and volume == 1)"]),
    ('xpath "price > 3" and volume == 2', OTHER, ['xpath "price > 3"']),
]


@pytest.mark.parametrize(("text", "values", "clauses"), CASES)
def test_a_verdict_names_the_clauses_that_decide_it(
    text: str | None, values: dict[str, Any], clauses: list[str]
) -> None:
    assert reasons(Filter.parse(text).bind(SCHEMA), values) == clauses
