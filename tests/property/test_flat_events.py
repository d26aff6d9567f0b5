"""The compiled pass over flat events agrees with the general path, and reads numbers like Python."""

from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from edn.errors import EdnError
from edn.model.event import EventBatch
from edn.model.schema import Schema
from edn.protocol.documents import cut_events
from edn.protocol.flat_events import read_flat_events

TYPES = {"symbol": "string", "price": "number", "volume": "integer", "hot": "boolean", "at": "time"}
SCHEMA = Schema.parse(TYPES)
CLOSED = Schema.parse(TYPES, closed=True)
NUMBERS = Schema.parse({"x": "number"})


def outcome(schema: Schema, body: bytes, *, compiled: bool) -> EventBatch | str:
    try:
        if compiled:
            return schema.decode_events(body, cut_events, read_flat_events)
        return schema.decode_events(body)
    except EdnError as error:
        return f"{type(error).__name__}: {error}"


def check(schema: Schema, body: bytes) -> None:
    expected, got = (outcome(schema, body, compiled=compiled) for compiled in (False, True))
    if isinstance(expected, str) or isinstance(got, str):
        assert got == expected
        return
    np.testing.assert_array_equal(got.points, expected.points)
    assert not np.signbit(got.points[got.points == 0]).any()
    assert got.lines == expected.lines
    assert (got.ids, got.stamps, got.availabilities) == (
        expected.ids,
        expected.stamps,
        expected.availabilities,
    )


def is_read(schema: Schema, body: bytes) -> bool:
    """Whether the compiled pass accepts the body itself."""
    layout = schema._decoder._flat
    return layout is not None and read_flat_events(body, layout) is not None


numbers = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.integers(-(10**20), 10**20).map(str),
    st.from_regex(r"-?(0|[1-9][0-9]{0,22})(\.[0-9]{1,22})?([eE][+-]?[0-9]{1,3})?", fullmatch=True),
    st.sampled_from(["-0", "-0.0", "0e5", "01", "1.", ".5", "+1", "1e", "NaN", "1e400", "0.1e-70", "- 1"]),
)
texts = st.one_of(
    st.sampled_from(['"GE"', '""', '"a b"', '"{}"', '"},{"', '"é"', '"\\n"', '"\\u0041"', '"$"', '"tab\t"']),
    st.text(max_size=8).map(json.dumps),
)
times = st.sampled_from(['"2024-05-01T12:00:00Z"', '"2024-05-01T12:00:00.5+01:00"', '"yesterday"', '""'])
values = st.one_of(
    numbers, texts, times, st.sampled_from(["true", "false", "null", "tru", "nul", "[1]", "{}", ""])
)
fitting: dict[str, st.SearchStrategy[str]] = {
    "symbol": texts,
    "price": numbers,
    "volume": st.integers(-(10**16), 10**16).map(str),
    "hot": st.sampled_from(["true", "false"]),
    "at": times,
}
blanks = st.sampled_from(["", "", "", " ", "\t", "  ", "\n"])


@st.composite
def events(draw: st.DrawFn) -> str:
    """An object that is mostly an event: declared keys in any order, seldom something else."""
    members = []
    for name in draw(st.permutations(list(TYPES)))[: draw(st.integers(0, 5))]:
        value = draw(st.one_of(fitting[name], fitting[name], fitting[name], st.just("null"), values))
        parts = (f'"{name}"', ":", value)
        members.append("".join(draw(blanks) + part + draw(blanks) for part in parts))
    strange = st.sampled_from(
        ['"other":1', '"price":2', '"$id":"a"', '"$time":1', "", "1", '"symbol"', '"pri":1']
    )
    if draw(st.integers(0, 5)) == 0:
        members.insert(draw(st.integers(0, len(members))), draw(strange))
    return "{" + draw(blanks) + ",".join(members) + draw(blanks) + "}"


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    found = draw(st.lists(events(), max_size=4))
    shape = draw(st.integers(0, 9))
    if shape == 0 and found:
        text = found[0]
    else:
        text = "[" + draw(blanks) + ("," + draw(blanks)).join(found) + draw(blanks) + "]"
    if shape == 1:  # damaged
        at = draw(st.integers(0, len(text)))
        text = text[:at] + draw(st.sampled_from(["", ",", "}", "]", '"', "\0", "x"])) + text[at + 1 :]
    return (draw(blanks) + text + draw(blanks)).encode()


@settings(max_examples=600, deadline=None)
@given(bodies())
@example(b"")
@example(b"[")
@example(b"[]")
@example(b"{}")
@example(b"[{}")
@example(b"[{}]x")
@example(b'{"price":1}{"price":1}')
@example(b'[{"price":1},]')
@example(b'[{"price":1,}]')
@example(b'{"price":1')
@example(b'{"price":nul')
@example(b'{"symbol":"GE')
@example(b'{"price":12345678901234567890123}')
@example(b'{"volume":9007199254740993}')
@example(b'{"volume":5.0}')
@example(b'{"price":1,"price":2}')
def test_the_compiled_pass_agrees_with_the_exact_reading(body: bytes) -> None:
    check(SCHEMA, body)
    check(CLOSED, body)


def expect_number(text: str) -> None:
    """Compares the value that the pass reads with Python's; a doubt is no difference."""
    body = b'{"x":%b}' % text.encode()
    layout = NUMBERS._decoder._flat
    assert layout is not None
    found = read_flat_events(body, layout)
    if found is not None:
        assert struct.pack("d", found.points[0, 0]) == struct.pack("d", float(text) + 0.0), text


@settings(max_examples=1000, deadline=None)
@given(
    st.one_of(
        st.floats(allow_nan=False, allow_infinity=False).map(repr),
        st.tuples(st.integers(0, 10**19), st.integers(-70, 70)).map(lambda pair: f"{pair[0]}e{pair[1]}"),
        st.tuples(st.integers(0, 10**6), st.integers(0, 10**13)).map(lambda pair: f"{pair[0]}.{pair[1]}"),
    )
)
def test_numbers_are_the_nearest_doubles(text: str) -> None:
    expect_number(text)


def middles() -> list[str]:
    """Decimals in and beside the middle between two doubles, where rounding is hardest."""
    rng = np.random.default_rng(5)
    found = []
    for _ in range(4000):
        mantissa = int(rng.integers(1 << 52, 1 << 53)) * 2 + 1  # odd in bit 54: the middle
        for step in (-1, 0, 1):
            shift = int(rng.integers(0, 10))
            found.append(str((mantissa << shift) + step))
            found.append(f"{mantissa * 5 + step}e-{int(rng.integers(1, 40))}")
    return found


def test_numbers_beside_the_middle_of_two_doubles() -> None:
    for text in middles():
        expect_number(text)


@pytest.mark.slow
def test_a_million_numbers() -> None:
    rng = np.random.default_rng(7)
    bits = rng.integers(0, 1 << 63, 600_000, dtype=np.int64).view(np.float64)
    plain = rng.random(400_000) * 10.0 ** rng.integers(-20, 20, 400_000)
    for value in [*bits.tolist(), *plain.tolist()]:
        if value == value:
            expect_number(repr(value))


def test_usual_bodies_take_the_compiled_pass() -> None:
    event: dict[str, Any] = {
        "symbol": "GE",
        "price": 32.517,
        "volume": 100,
        "hot": True,
        "at": "2024-05-01T12:00:00Z",
    }
    for body in (json.dumps(event), json.dumps([event] * 3), json.dumps([event], separators=(",", ":"))):
        assert is_read(SCHEMA, body.encode())
    values = np.random.default_rng(3).random(2000).tolist()
    body = json.dumps([{"x": value} for value in values]).encode()
    assert is_read(NUMBERS, body)


@pytest.mark.parametrize(
    "types",
    [
        {"a.b": "number"},
        {"tags": ["string"]},
        {"é": "number"},
        {f"a{number}": "number" for number in range(65)},
    ],
)
def test_other_schemas_take_the_general_path(types: dict[str, Any]) -> None:
    schema = Schema.parse(types)
    assert schema._decoder._flat is None
    check(schema, b"[{}]")
