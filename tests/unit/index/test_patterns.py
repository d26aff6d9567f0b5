"""Searching many patterns in one pass finds the same as searching each of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edn.index.patterns import Patterns, Searched

#: few letters, so that patterns overlap, contain and begin each other; more bytes a letter; combining marks
LETTERS = st.sampled_from(
    ["a", "b", "é", "e\u0301", "\u0301", "𝄞", "😀", "\U0001f468\u200d\U0001f469", "ß", "\0"]
)
TEXTS = st.lists(LETTERS, max_size=12).map("".join)


@given(patterns=st.lists(TEXTS, max_size=12), text=TEXTS)
def test_patterns_occur_as_searching_one_by_one_says(patterns: list[str], text: str) -> None:
    assert Patterns(patterns).search(text) == {pattern for pattern in patterns if pattern in text}


@given(patterns=st.lists(TEXTS, max_size=6), others=st.lists(TEXTS, max_size=6), text=TEXTS)
def test_a_searched_text_is_the_text(patterns: list[str], others: list[str], text: str) -> None:
    searched = Searched.of(text, Patterns(patterns), frozenset(patterns))
    assert searched == text
    assert hash(searched) == hash(text)
    for pattern in [*patterns, *others, ""]:
        assert (pattern in searched) == (pattern in text)
        assert searched.startswith(pattern) == text.startswith(pattern)
        assert searched.endswith(pattern) == text.endswith(pattern)


@pytest.mark.parametrize(
    ("patterns", "text", "found"),
    [
        (["he", "she", "his", "hers"], "ushers", {"she", "he", "hers"}),
        (["a", "aa", "aaa", "aaaa"], "aaa", {"a", "aa", "aaa"}),
        (["abcde", "bcd", "c", "cde"], "xabcdx", {"bcd", "c"}),
        (["", "x"], "", {""}),
        ([], "text", set()),
        (["\u00e9"], "e\u0301", set()),  # composed or not are different strings
        (["\U0001f600"], "\U0001f601", set()),  # three of four bytes are the same
    ],
)
def test_what_overlaps_is_found(patterns: list[str], text: str, found: set[str]) -> None:
    assert Patterns(patterns).search(text) == found


def test_patterns_that_repeat_one_letter_take_linear_work() -> None:
    """All occurrences would be 900 for each of a million letters."""
    patterns = Patterns("a" * length for length in range(1, 901))
    assert len(patterns.search("a" * (1 << 20))) == 900
