"""Decoding events: points, bodies and $ keys, or the first invalid event with its place."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edn.errors import EdnError, InvalidEvent, MalformedJson, TooLarge
from edn.model.coordinates import DOMAINS, instant
from edn.model.event import EventBatch
from edn.model.event_check import check_events
from edn.model.rect import MISSING
from edn.model.schema import Schema
from edn.protocol.documents import cut_events
from edn.protocol.flat_events import read_flat_events

TYPES = {"symbol": "string", "price": "number", "volume": "integer", "up": "boolean", "at": "time",
         "book.bid": "number", "book.deep.ask": "number"}  # fmt: skip
SCHEMA = Schema.parse(TYPES)
NOON = "2024-05-01T12:00:00Z"


CLOSED = Schema.parse(TYPES, closed=True)


def read(schema: Schema, body: bytes) -> EventBatch:
    """Decodes a body as the publish path does."""
    return schema.decode_events(body, cut_events, read_flat_events)


def decode(*events: Any, schema: Schema = SCHEMA) -> EventBatch:
    return read(schema, json.dumps(list(events), separators=(",", ":")).encode())


def test_an_event_becomes_a_point_and_a_body() -> None:
    batch = decode({"symbol": "GE", "price": 30, "volume": 7, "up": True, "at": NOON, "book": {"bid": 1.5}})
    assert batch.points.tolist() == [
        [DOMAINS["string"].coordinate("GE"), 30.0, 7.0, 1.0, float(instant(NOON)), 1.5, MISSING]
    ]
    assert json.loads(batch.bodies[0]) == {
        "symbol": "GE", "price": 30.0, "volume": 7, "up": True, "at": NOON, "book": {"bid": 1.5}
    }  # fmt: skip
    assert (batch.ids, batch.stamps, batch.availabilities) == ([None], [None], [None])


def test_an_object_alone_is_a_batch_of_one() -> None:
    assert read(SCHEMA, b' {"price": 1}').points[0, 1] == 1.0


def test_an_empty_array_is_an_empty_batch() -> None:
    batch = read(SCHEMA, b"[]")
    assert len(batch) == 0
    assert batch.points.shape == (0, SCHEMA.width)


def test_the_networks_own_keys_are_taken_out_of_the_body() -> None:
    batch = decode(
        {"$id": "a:1", "$time": NOON, "$availability": "forever", "price": 1.0},
        {"$availability": 2},
        {"$availability": "1h30m"},
        {"$availability": "P1D"},
        {"$availability": 0, "symbol": "x:y"},
        {},
    )
    assert batch.ids == ["a:1", *[None] * 5]
    assert batch.stamps == [instant(NOON), *[None] * 5]
    assert batch.availabilities == [math.inf, 2.0, 5400.0, 86_400.0, 0.0, None]
    assert batch.bodies == [b'{"price":1.0}', b"{}", b"{}", b"{}", b'{"symbol":"x:y"}', b"{}"]


@pytest.mark.parametrize(
    "event",
    [
        {},
        {"price": None},
        {"book": None},
        {"book": {}},
        {"book": {"bid": None, "deep": None}},
        {"book.bid": None},
    ],
)
def test_null_and_absent_are_missing(event: dict[str, Any]) -> None:
    batch = decode(event, {"price": 1.0, "book": {"bid": 2.0, "deep": {"ask": 3.0}}})
    assert batch.points[0].tolist() == [MISSING] * SCHEMA.width
    assert SCHEMA.values(batch.bodies[0]) == {}
    assert SCHEMA.values(batch.bodies[1]) == {"price": 1.0, "book.bid": 2.0, "book.deep.ask": 3.0}


def test_dotted_keys_of_the_event_mean_the_nested_attribute() -> None:
    dotted = decode({"book.bid": 1, "book.deep.ask": 2})
    nested = decode({"book": {"bid": 1, "deep": {"ask": 2}}})
    mixed = decode({"book": {"bid": 1, "deep": None}, "book.deep.ask": 2})
    assert dotted.points.tolist() == nested.points.tolist() == mixed.points.tolist()
    values = {"book.bid": 1.0, "book.deep.ask": 2.0}
    assert [SCHEMA.values(one.bodies[0]) for one in (dotted, nested, mixed)] == [values] * 3
    assert dotted.bodies == [b'{"book.bid":1,"book.deep.ask":2}']


def test_a_dotted_key_inside_an_object_is_a_field_like_any_other() -> None:
    halfway = {"book": {"bid": 1, "deep.ask": 2}}
    assert SCHEMA.values(decode(halfway).bodies[0]) == {"book.bid": 1.0}
    with pytest.raises(InvalidEvent, match="is not an attribute"):
        decode(halfway, schema=CLOSED)


def test_whole_numbers_may_be_written_as_floats_and_stay_so() -> None:
    batch = decode({"volume": 5.0})
    assert batch.bodies == [b'{"volume":5.0}']
    assert SCHEMA.values(batch.bodies[0]) == {"volume": 5}


OPEN = [
    b'{"price":31,"n":1e2,"big":123456789012345678901234567890,"s":"\\u00e9\\/","x":[1,{"y":null}]}',
    b'{ "z" : [ ] ,\t"price" : 1 , "a.b" : { "$ref" : "#" } }',
    b'{"book":{"bid":1,"more":{"deep":[[1.50]]}},"pric":true}',
    b'{"s":"},{","t":"[{\\"","u":"\\\\"}',
    '{"é":"日本","":0}'.encode(),
]


@pytest.mark.parametrize("body", OPEN)
def test_undeclared_fields_are_kept_as_they_were_sent(body: bytes) -> None:
    assert read(SCHEMA, body).bodies == [body]
    assert SCHEMA.decode_events(body).bodies == [body]
    assert read(SCHEMA, b"[" + body + b" , " + body + b"]").bodies == [body, body]
    with pytest.raises(InvalidEvent, match="is not an attribute"):
        read(CLOSED, body)


def test_line_breaks_between_tokens_become_spaces() -> None:
    assert read(SCHEMA, b'{\r\n  "x": [\n1]}').bodies == [b'{    "x": [ 1]}']


LISTS: dict[str, str | list[str]] = {"tags": ["string"], "a.n": ["integer"], "at": ["time"], "x": "number"}
LISTED = Schema.parse(LISTS)


def test_arrays_are_there_or_missing() -> None:
    batch = decode(
        {"tags": ["b", "a"], "a": {"n": [1, 2.0]}, "at": [NOON]},
        {"tags": [], "a.n": [3]},
        {"tags": None, "a": {}},
        schema=LISTED,
    )
    assert batch.points.tolist() == [
        [0.0, 0.0, 0.0, MISSING],
        [0.0, 0.0, MISSING, MISSING],
        [MISSING] * 4,
    ]
    assert [LISTED.values(body) for body in batch.bodies] == [
        {"tags": ("b", "a"), "a.n": (1, 2), "at": (instant(NOON),)},
        {"tags": (), "a.n": (3,)},
        {},
    ]


@pytest.mark.parametrize(
    ("event", "pointer", "said"),
    [
        ({"tags": "a"}, "/tags", 'attribute "tags" must be an array of strings, got the string "a"'),
        ({"tags": {"a": 1}}, "/tags", "an object"),
        (
            {"tags": ["a", 1]},
            "/tags/1",
            'each element of attribute "tags" must be a string, got the number 1',
        ),
        ({"tags": ["a", None]}, "/tags/1", "got null"),
        ({"tags": [["a"]]}, "/tags/0", "an array"),
        ({"a": {"n": [1, 1.5]}}, "/a/n/1", "must be an integer"),
        ({"a": [{"n": [1]}]}, "/a", "must be an object with a.n, got an array"),
        ({"at": ["now"]}, "/at/0", "RFC 3339"),
        ({"x": [1]}, "/x", "must be a number, got an array"),
        ({"tags": ["a"] * 1001}, "/tags", "must have at most 1000 elements, got 1001"),
    ],
)
def test_what_does_not_fit_an_array_is_refused_with_its_place(event: Any, pointer: str, said: str) -> None:
    with pytest.raises(InvalidEvent) as caught:
        decode(event, schema=LISTED)
    assert caught.value.pointer == "/0" + pointer
    assert said in caught.value.detail


def test_what_was_missing_when_the_event_was_accepted_stays_missing() -> None:
    batch = decode({"price": 1.0, "later": "x"})
    later = SCHEMA.evolve({**TYPES, "later": "string"})
    assert later.values(batch.bodies[0]) == {"price": 1.0, "later": "x"}
    assert later.values(batch.bodies[0], batch.points[0].tolist()) == {"price": 1.0}


def test_minus_zero_has_the_coordinate_of_zero() -> None:
    assert math.copysign(1, decode({"price": -0.0}).points[0, 1]) == 1


@pytest.mark.parametrize(
    "digits", ["9007199254740993", "36893488147419103233", "1" * 300, "1e-400", "123456789.123e-5"]
)
def test_a_number_is_the_nearest_double(digits: str) -> None:
    body = f'{{"price": {digits}}}'.encode()
    expected = float(digits)
    batch = read(SCHEMA, body)
    assert batch.points[0, 1] == expected
    assert SCHEMA.values(batch.bodies[0])["price"] == expected


REFUSED: dict[str, tuple[Any, str, str]] = {
    "wrong type": ({"price": "abc"}, "/price", 'attribute "price" must be a number, got the string "abc"'),
    "boolean for number": ({"price": True}, "/price", "got true"),
    "number for boolean": ({"up": 1}, "/up", "must be a boolean, got the number 1"),
    "fraction": ({"volume": 5.5}, "/volume", "must be an integer, got the number 5.5"),
    "65 bits": ({"volume": 2**63}, "/volume", "64 bits"),
    "negative 65 bits": ({"volume": -(2**63) - 1}, "/volume", "64 bits"),
    "huge integer": ({"price": 10**400}, "/price", "range"),
    "array": ({"price": [1]}, "/price", "an array"),
    "object for a leaf": ({"price": {"x": 1}}, "/price", "an object"),
    "leaf for an object": ({"book": 1}, "/book", "book.bid, book.deep.ask"),
    "local time": ({"at": "2024-05-01T12:00:00"}, "/at", "RFC 3339 with an offset"),
    "no such day": ({"at": "2024-02-30T12:00:00Z"}, "/at", "day is out of range"),
    "unknown": ({"pric": 1}, "/pric", 'did you mean "price"? its attributes are symbol, price'),
    "unknown inside": ({"book": {"bit": 1}}, "/book/bit", 'did you mean "book.bid"'),
    "given twice": ({"book": {"bid": 1}, "book.bid": 2}, "/book.bid", "twice"),
    "unknown own key": ({"$ids": "x"}, "/$ids", "must be $id, $time or $availability, got"),
    "empty id": ({"$id": ""}, "/$id", "1 to 256"),
    "long id": ({"$id": "x" * 257}, "/$id", "257 characters"),
    "id that is none": ({"$id": 5}, "/$id", "the number 5"),
    "bad time": ({"$time": "now"}, "/$time", "RFC 3339"),
    "numeric time": ({"$time": 5}, "/$time", "the number 5"),
    "negative availability": (
        {"$availability": -1},
        "/$availability",
        'must be a number of seconds, at least 0, a duration such as 1h, 90s or P30D, or "forever", '
        "got the number -1",
    ),
    "odd availability": ({"$availability": "always"}, "/$availability", "always"),
    "boolean availability": ({"$availability": True}, "/$availability", "got true"),
    "null availability": ({"$availability": None}, "/$availability", "got null"),
    "pointer escapes": ({"a/b~": 1}, "/a~1b~0", "is not an attribute of this topic"),
}


@pytest.mark.parametrize(("event", "pointer", "said"), REFUSED.values(), ids=REFUSED.keys())
def test_the_first_offender_is_named_with_its_place(event: Any, pointer: str, said: str) -> None:
    with pytest.raises(InvalidEvent) as caught:
        decode({"price": 1}, {}, event, {"nonsense": 1}, schema=CLOSED)
    assert (caught.value.index, caught.value.pointer) == (2, "/2" + pointer)
    assert said in caught.value.detail
    with pytest.raises(InvalidEvent) as caught:
        read(CLOSED, json.dumps(event).encode())
    assert (caught.value.index, caught.value.pointer) == (0, pointer)
    if "is not an attribute" not in caught.value.detail:
        with pytest.raises(InvalidEvent) as in_open:
            decode(event)
        assert in_open.value.detail == caught.value.detail


@pytest.mark.parametrize(
    ("body", "index", "pointer"),
    [
        (b"3", 0, ""),
        (b"null", 0, ""),
        (b'[{}, "x"]', 1, "/1"),
        (b"[{}, []]", 1, "/1"),
        (b'[{}, {"price": 1e999}]', 1, "/1/price"),
        (b'[{}, {"other": [1, 1e999]}]', 1, "/1/other/1"),
        (b'{"other": ' + b"9" * 400 + b"}", 0, "/other"),
    ],
)
def test_what_is_no_event_is_refused(body: bytes, index: int, pointer: str) -> None:
    with pytest.raises(InvalidEvent) as caught:
        read(SCHEMA, body)
    assert (caught.value.index, caught.value.pointer) == (index, pointer)


@pytest.mark.parametrize(
    "body",
    [
        b'{"price": 1, "price": 1}',
        b'{"book": {"bid": 1}, "book": {"deep": {"ask": 1}}}',
        b'[{}, {"symbol": ":", "symbol": "\\u003a"}]',
        b'{"$id": "a", "$id": "b"}',
        b'{"price": null, "price": 1}',
        b'{"price": NaN}',
        b'{"other": {"a": 1, "b": {}, "a": 1}}',
        b'{"other": [NaN]}',
        b'{"other": "\\ud800"}',
        b'{"other": "\xff"}',
        b'{"\\u0061": 1, "a": 2}',
        b'{"other": [1,]}',
        b'{"other": 01}',
        b'{"symbol": "\\ud800"}',
        b'{"symbol": "\xff"}',
        b'{"price": 1',
        b"",
    ],
)
def test_ambiguous_or_broken_json_is_malformed(body: bytes) -> None:
    for given_schema in (SCHEMA, CLOSED):
        with pytest.raises(MalformedJson):
            read(given_schema, body)


@pytest.mark.parametrize("depth", [40, 20_000])
def test_deep_nesting_is_too_large(depth: int) -> None:
    with pytest.raises(TooLarge):
        read(SCHEMA, b'{"book":' * depth + b"1" + b"}" * depth)
    with pytest.raises(TooLarge):
        read(SCHEMA, b'{"other":' + b"[" * depth + b"]" * depth + b"}")


def test_values_ignore_what_the_schema_no_longer_has() -> None:
    later = SCHEMA.evolve({"price": "string", "volume": "integer", "book": "number", "at": "time"})
    body = decode({"symbol": "GE", "price": 1.0, "volume": 3, "book": {"bid": 1.0}, "at": NOON}).bodies[0]
    assert later.values(body) == {"volume": 3, "at": instant(NOON)}


def test_remembered_strings_are_bounded_and_forgotten_without_harm() -> None:
    for start in range(0, 70_000, 10_000):
        names = [f"s{number}" for number in range(start, start + 10_000)]
        batch = decode(*({"symbol": name} for name in names), {}, {"symbol": None})
        expected = [DOMAINS["string"].coordinate(name) for name in names]
        assert batch.points[:, 0].tolist() == [*expected, MISSING, MISSING]


attribute_values: dict[str, st.SearchStrategy[Any]] = {
    "symbol": st.text(st.sampled_from('a:"\\\0\n\u2028é\U0010ffff'), max_size=8),
    "price": st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(10**20), 10**20),
    "volume": st.integers(-(2**63), 2**63 - 1) | st.sampled_from([5.0, 2**63]),
    "up": st.booleans() | st.just(0),
    "at": st.sampled_from([NOON, "2024-05-01T12:00:00.1234567+01:00", "yesterday"]),
    "book": st.fixed_dictionaries(
        {}, optional={"bid": st.none() | st.floats(0, 1), "deep": st.none() | st.just({"ask": 2.5})}
    ),
    "book.bid": st.just(1),
    "$id": st.text(":ab", max_size=3),
    "$time": st.just(NOON),
    "$availability": st.sampled_from([0, 1.5, "forever", -1]),
}
events = st.fixed_dictionaries(
    {}, optional={key: st.none() | value for key, value in attribute_values.items()}
)


def _outcome(of: Callable[[], Any]) -> tuple[Any, Any]:
    """What it gives, or what it says is wrong and where."""
    try:
        return of(), None
    except EdnError as error:
        return None, (type(error), error.detail, error.pointer)


@given(st.lists(events, max_size=3), st.booleans())
def test_the_fast_way_and_the_careful_way_agree(given_events: list[dict[str, Any]], ascii_only: bool) -> None:
    body = json.dumps(given_events, ensure_ascii=ascii_only).encode()
    found, problem = _outcome(lambda: check_events(body, TYPES))
    fast, same_problem = _outcome(lambda: read(SCHEMA, body))
    assert problem == same_problem
    if found is None or fast is None:
        return
    careful, lines = found
    assert fast.lines == lines
    assert fast.ids == [event.id for event in careful]
    assert fast.stamps == [event.stamp for event in careful]
    assert fast.availabilities == [event.availability for event in careful]
    assert [SCHEMA.values(stored) for stored in fast.bodies] == [event.values for event in careful]
    expected = np.full(fast.points.shape, MISSING)
    for row, event in enumerate(careful):
        for column, name in enumerate(TYPES):
            if name in event.values:
                expected[row, column] = DOMAINS[TYPES[name]].coordinate(event.values[name])
    assert fast.points.tolist() == expected.tolist()


PLANE = Schema.parse({"x": "number", "y": "number"})


@pytest.mark.parametrize(
    ("body", "lines"),
    [
        (b'[{"x":1.50,"y":2e1},{"y":-0.0,"x":3}]', b'{"x":1.50,"y":2e1}\n{"y":-0.0,"x":3}\n'),
        (b'{"x":1,"y":2}', b'{"x":1,"y":2}\n'),
        (b'[{"x":1,"y":2}]', b'{"x":1,"y":2}\n'),
        (b'[{"x":1,"y":2}, {"x":3,"y":4}]', b'{"x":1,"y":2}\n{"x":3,"y":4}\n'),
        (b'[{"x":1,\n"y":2},{"x":3,"y":4}]', b'{"x":1, "y":2}\n{"x":3,"y":4}\n'),
        (b'[\n{"x":1,"y":2}\n]', b'{"x":1,"y":2}\n'),
        (b'[{"x":1,"y":2},{"x":3}]', b'{"x":1,"y":2}\n{"x":3}\n'),
        (b'[{"x":1,"y":2},{"x":3,"$id":"a","y":4}]', b'{"x":1,"y":2}\n{"x":3,"y":4}\n'),
        (b'[{"x":1,"y":2,"z":"},{"},{"x":3,"y":4}]', b'{"x":1,"y":2,"z":"},{"}\n{"x":3,"y":4}\n'),
    ],
)
def test_events_of_numbers_are_lines_whichever_way_they_are_written(body: bytes, lines: bytes) -> None:
    batch = read(PLANE, body)
    assert batch.lines == lines
    kept = [json.loads(line) for line in lines.splitlines()]
    expected = [[event["x"], event.get("y", np.nan)] for event in kept]
    found = np.where(batch.points == MISSING, np.nan, batch.points)
    np.testing.assert_array_equal(found, np.array(expected))


@pytest.mark.parametrize(
    "body", [b'[{"x":1,"y":2,"x":3},{"x":3}]', b'[{"x":1,"x":1,"y":2}]', b'{"x":1,"y":2,"y":2}']
)
def test_a_repeated_attribute_is_refused_however_many_others_are_absent(body: bytes) -> None:
    with pytest.raises(MalformedJson, match="is repeated"):
        read(PLANE, body)


@pytest.mark.parametrize("blank", ["\n", "\r", "\r\n", "\t", " "])
@pytest.mark.parametrize("form", ['{{"a":1,{0}"b":2}}', '[{{"a":1,{0}"b":2}},{{"a":3,"b":4}}]'])
def test_no_body_holds_what_ends_a_line_however_it_was_written(blank: str, form: str) -> None:
    """A stream of events has a line each, and takes a carriage return for its end, too."""
    batch = read(Schema.parse({"a": "number", "b": "integer"}), form.format(blank).encode())
    assert json.loads(batch.bodies[0]) == {"a": 1, "b": 2}
    assert not any(ending in body for body in batch.bodies for ending in (b"\n", b"\r"))


def test_a_topic_of_many_strings_remembers_no_more_of_them_than_one_of_few() -> None:
    schema = Schema.parse({f"s{column}": "string" for column in range(64)})
    for start in range(0, 2000, 100):
        events = [{f"s{column}": f"{row}" for column in range(64)} for row in range(start, start + 100)]
        read(schema, json.dumps(events).encode())
    remembered = [len(field.coordinates or ()) for field in schema._decoder._fields]
    assert 64 < sum(remembered) <= 65_536
