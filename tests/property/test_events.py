"""Valid bodies of events: the fast decoder against an independent slow one."""

from __future__ import annotations

import contextlib
import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from edn.errors import InvalidInput
from edn.model.schema import Schema
from tests.oracle.values import read

ATTRIBUTES = {
    "n": "number",
    "i": "integer",
    "s": "string",
    "b": "boolean",
    "t": "time",
    "a.b": "string",
    "a.c": "number",
}
SCHEMA = Schema.parse(ATTRIBUTES)

names = st.sampled_from([*ATTRIBUTES, "a", "b", "c", "x", "$id", "$x", "A.b", ""])
texts = st.text(st.characters(codec="utf-8"), max_size=4) | st.sampled_from(
    [
        "2024-01-01T00:00:00Z",
        "2024-01-01T00:00:00.5+02:00",
        "2024-13-01T00:00:00Z",
        "2024-01-01",
        ":",
        '"a":1',
    ]
)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**65), 2**65)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.integers(-9, 9).map(float)
    | texts
)
values = scalars | st.lists(scalars, max_size=2) | st.dictionaries(names, scalars, max_size=2)


class Refused(Exception):
    """The slow reader takes no such event."""


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({key for key, _ in pairs}) < len(pairs):
        raise Refused
    return dict(pairs)


def _constant(_: str) -> Any:
    raise Refused


def _flatten(given: dict[str, Any], prefix: str, found: dict[str, Any]) -> None:
    for key, value in given.items():
        name = prefix + key
        parent = any(known.startswith(name + ".") for known in ATTRIBUTES)
        if isinstance(value, dict) and parent:
            _flatten(value, name + ".", found)
        elif name in ATTRIBUTES:
            if name in found:
                raise Refused
            found[name] = value
        elif not (parent and value is None):
            raise Refused


def slow(body: str) -> list[dict[str, Any]]:
    """The values of each event, or Refused."""
    decoded = json.loads(body, object_pairs_hook=_pairs, parse_constant=_constant)
    events = []
    for event in decoded if isinstance(decoded, list) else [decoded]:
        if not isinstance(event, dict):
            raise Refused
        identity = event.pop("$id", "none")
        if not isinstance(identity, str) or not identity:
            raise Refused
        found: dict[str, Any] = {}
        _flatten(event, "", found)
        try:
            events.append(
                {name: read(ATTRIBUTES[name], value) for name, value in found.items() if value is not None}
            )
        except (ValueError, OverflowError):
            raise Refused from None
    return events


@st.composite
def bodies(draw: st.DrawFn) -> str:
    """JSON text of one event or several, now and then with a key written twice."""

    def event() -> str:
        fields = draw(st.lists(st.tuples(names, values), max_size=4))
        return "{" + ", ".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in fields) + "}"

    if draw(st.booleans()):
        return event()
    return "[" + ",".join(event() for _ in range(draw(st.integers(0, 3)))) + "]"


@settings(max_examples=3000, deadline=None)
@given(bodies())
@example('{"i": 5.0}')
@example('{"i": 1e2}')
@example('{"i": 9223372036854775808}')
@example('{"i": -9223372036854775808}')
@example('{"n": 123456789012345678901234567890}')
@example('{"n": 1e309}')
@example('{"n": -0.0}')
@example('{"a": null}')
@example('{"a": {}}')
@example('{"a": {"b": "x"}, "a.c": 1}')
@example('{"a": {"b": "x"}, "a.b": "y"}')
@example('{"s": "\\u003a", "n": 1}')
@example('{"s": "x", "\\u0073": "y"}')
@example('{"$id": "a:b", "s": ":"}')
@example(' [ {"n" : 1 } , {} ] ')
@example("[]")
def test_the_fast_reader_takes_what_the_slow_one_takes(body: str) -> None:
    try:
        expected = slow(body)
    except Refused:
        expected = None
    if expected is None:
        with pytest.raises(InvalidInput):
            SCHEMA.decode_events(body.encode())
        return
    batch = SCHEMA.decode_events(body.encode())
    assert [SCHEMA.values(stored) for stored in batch.bodies] == expected
    assert batch.points.shape == (len(expected), SCHEMA.width)
    for point, found in zip(batch.points, expected, strict=True):
        for column, name in enumerate(ATTRIBUTES):
            assert (point[column] == -math.inf) == (name not in found)
            assert not np.isnan(point[column])
            assert point[column] < math.inf


@settings(max_examples=500, deadline=None)
@given(st.binary(max_size=60))
@example(b"\xef\xbb\xbf{}")
@example(b'{"s": "\xed\xa0\x80"}')
@example(b"[" * 5000)
@example(b'{"a":' * 5000)
@example(b"\x00")
def test_any_bytes_are_events_or_a_clear_refusal(body: bytes) -> None:
    with contextlib.suppress(InvalidInput):
        SCHEMA.decode_events(body)
