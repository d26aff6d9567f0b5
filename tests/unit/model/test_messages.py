"""Parts of error messages are short, and suggestions are cheap."""

from __future__ import annotations

import math
from typing import Any

import pytest

from edn.model.messages import describe, name_list, quote, suggestion


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "null"),
        (True, "true"),
        (0.5, "the number 0.5"),
        (10**299, f"the number {10**299}"),
        (10**400, "a huge number"),
        (-math.inf, "a huge number"),
        (math.nan, "the number nan"),
        ("GE", 'the string "GE"'),
        ([], "an array"),
        ({}, "an object"),
        (b"", "a Python bytes"),
    ],
)
def test_a_value_is_shown_with_its_type(value: Any, words: str) -> None:
    assert describe(value) == words


def test_a_string_is_cut_and_can_be_encoded() -> None:
    assert quote("x" * 41) == '"' + "x" * 39 + '…"'
    assert quote("a\ud800b") == '"a?b"'


def test_a_long_list_ends_with_how_many_more_there_are() -> None:
    assert name_list(["a", "b"]) == "a, b"
    assert name_list([f"a{number}" for number in range(12)]).endswith("a9 and 2 more")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("prise", 'did you mean "price"? '),
        ("colour", ""),
        ("a" * 40, 'did you mean "' + "a" * 39 + '"? '),
        ("a" * 41, ""),  # as near, but it would take long to find that out of many
    ],
)
def test_a_name_that_is_near_is_asked_for(name: str, hint: str) -> None:
    assert suggestion(name, ["symbol", "price", "a" * 39, "a" * 42]) == hint
