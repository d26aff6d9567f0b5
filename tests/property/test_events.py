"""Bodies of events, valid and invalid: the fast decoder against an independent slow one."""

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
from edn.protocol.documents import cut_events
from edn.protocol.flat_events import read_flat_events
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
CLOSED = Schema.parse(ATTRIBUTES, closed=True)

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


def _flatten(given: dict[str, Any], found: dict[str, Any], closed: bool) -> None:
    """The attributes are flat, in the object `a`, or have the dotted names of those."""
    inside = given.get("a")
    if inside is not None and not isinstance(inside, dict):
        raise Refused
    for place, names in ((given, ATTRIBUTES), (inside or {}, {"b": "a.b", "c": "a.c"})):
        for key, value in place.items():
            name = names[key] if place is not given and key in names else key
            if key not in names:
                if closed and not (place is given and key == "a"):
                    raise Refused
            elif value is not None:
                if name in found:
                    raise Refused
                found[name] = value


def slow(body: str, closed: bool) -> list[dict[str, Any]]:
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
        if any(key.startswith("$") for key in event):
            raise Refused
        _flatten(event, found, closed)
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
@given(bodies(), st.booleans())
@example('{"i": 5.0}', False)
@example('{"i": 1e2}', False)
@example('{"i": 9223372036854775808}', False)
@example('{"i": -9223372036854775808}', False)
@example('{"n": 123456789012345678901234567890}', False)
@example('{"n": 1e309}', False)
@example('{"n": -0.0}', False)
@example('{"a": null}', False)
@example('{"a": {}}', False)
@example('{"a": {"b": "x"}, "a.c": 1}', False)
@example('{"a": {"b": "x"}, "a.b": "y"}', False)
@example('{"s": "\\u003a", "n": 1}', False)
@example('{"s": "x", "\\u0073": "y"}', False)
@example('{"$id": "a:b", "s": ":"}', False)
@example(' [ {"n" : 1 } , {} ] ', False)
@example("[]", True)
def test_the_fast_reader_takes_what_the_slow_one_takes(body: str, closed: bool) -> None:
    schema = CLOSED if closed else SCHEMA
    try:
        expected = slow(body, closed)
    except Refused:
        expected = None
    if expected is None:
        with pytest.raises(InvalidInput):
            schema.decode_events(body.encode(), cut_events, read_flat_events)
        with pytest.raises(InvalidInput):
            schema.decode_events(body.encode())
        return
    batch = schema.decode_events(body.encode(), cut_events, read_flat_events)
    assert batch.lines == schema.decode_events(body.encode()).lines
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
        SCHEMA.decode_events(body, cut_events, read_flat_events)
