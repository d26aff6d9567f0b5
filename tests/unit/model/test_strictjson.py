"""Ambiguous JSON is refused with the place of the error."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edn.errors import MalformedJson, TooLarge
from edn.formats.strict_json import MAX_DEPTH, decode

REFUSED = {
    "empty": (b"", "empty"),
    "blank": (b" \n", "empty"),
    "cut short": (b'{"a": 1', "unexpected end at byte 7"),
    "trailing": (b"[1] x", "trailing characters"),
    "NaN": (b"[NaN]", "byte 1"),
    "Infinity": (b"[-Infinity]", "byte"),
    "byte order mark": (b"\xef\xbb\xbf{}", "byte 0"),
    "invalid UTF-8": (b'{"a": "\xff"}', "not UTF-8 at byte 7"),
    "surrogate in UTF-8": (b'"\xed\xa0\x80"', "not UTF-8 at byte 1"),
    "lone high surrogate": (b'{"a": "\\ud800"}', "lone surrogate"),
    "lone low surrogate": (b'{"a": "\\udc00x"}', "lone surrogate"),
    "repeated key": (b'{"a": 1, "b": 2, "a": 1}', '"a" is repeated'),
    "repeated key inside": (b'[{"x": {"k:": 1, "k:": 2}}]', '"k:" is repeated'),
    "repeated by escapes": (b'{"a": 1, "\\u0061": 2}', '"a" is repeated'),
    "repeated, hidden by an escaped colon": (b'{"a": ":", "a": "\\u003a"}', '"a" is repeated'),
    "repeated, hidden by an escaped capital": (b'{"a": 1, "a": "\\u003A"}', '"a" is repeated'),
    "leading zero": (b"[01]", "byte"),
    "beyond a double": (b'{"a": [0, -1e999]}', "within the range"),
}


@pytest.mark.parametrize(("body", "said"), REFUSED.values(), ids=REFUSED.keys())
def test_ambiguous_json_is_refused_with_its_place(body: bytes, said: str) -> None:
    with pytest.raises(MalformedJson) as caught:
        decode(body)
    assert said in caught.value.detail


def test_a_number_beyond_a_double_is_pointed_at() -> None:
    with pytest.raises(MalformedJson) as caught:
        decode(b'{"x": 1, "a/b": [0, {"~": -1e999}]}')
    assert caught.value.pointer == "/a~1b/1/~0"


@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 5_000, 200_000])
def test_nesting_beyond_the_limit_is_too_large(opening: bytes, depth: int) -> None:
    closing = b"]" if opening == b"[" else b"}"
    inner = b"" if opening == b"[" else b"1"
    with pytest.raises(TooLarge):
        decode(opening * depth + inner + closing * depth)


def test_nesting_up_to_the_limit_is_read() -> None:
    assert decode(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH) is not None


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(":ab\\u", max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(":ab", max_size=3), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(json_values, st.booleans())
def test_what_no_two_readers_disagree_about_is_read_as_the_standard_reader_does(
    value: Any, ascii_only: bool
) -> None:
    body = json.dumps(value, ensure_ascii=ascii_only).encode()
    assert decode(body) == json.loads(body)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a", "b", ":", "\\u003a", "c"]), st.sampled_from(["1", '":"', '"\\u003A"', "{}"])
        ),
        max_size=5,
    )
)
def test_objects_are_refused_exactly_when_a_key_is_repeated(pairs: list[tuple[str, str]]) -> None:
    body = ("{" + ",".join(f'"{key}":{value}' for key, value in pairs) + "}").encode()
    keys = [json.loads(f'"{key}"') for key, _ in pairs]
    if len(set(keys)) == len(keys):
        assert list(decode(body)) == keys
    else:
        with pytest.raises(MalformedJson, match="repeated"):
            decode(body)
