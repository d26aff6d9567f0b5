"""JSON Schemas of topics and advertisements against the package `jsonschema`."""

from __future__ import annotations

import random
from typing import Any

import jsonschema
import msgspec
import pytest

from edn.errors import EdnError
from edn.model.filter.advertisement import Advertisement, BoundAdvertisement
from edn.model.json_schema import topic_schema
from edn.model.schema import Schema
from tests.workload.advertisements import Drawing

ATTRIBUTES = {"what": "string", "level": "integer", "price": "number", "on": "boolean", "at.city": "string"}


def valid(schema: dict[str, Any], event: Any) -> bool:
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema).is_valid(event)


def written(given: dict[str, Any], *, closed: bool = False, attributes: Any = ATTRIBUTES) -> dict[str, Any]:
    schema = Schema.parse(attributes, closed=closed)
    bound = Advertisement.parse(given).bind(schema)
    return topic_schema(schema, title="t", advertisements={"a": bound})


@pytest.mark.parametrize(
    ("given", "good", "bad", "exact"),
    [
        ({"what": ["a", "b"]}, [{"what": "a"}, {}, {"what": None}], [{"what": "c"}, {"level": 1}], True),
        ({"level": [{"gt": 3, "lt": 7}]}, [{"level": 4}, {"level": 4.0}], [{"level": 3}, {"level": 7}], True),
        ({"price": [{"between": [1, 2]}]}, [{"price": 1}, {"price": 2.0}], [{"price": 2.1}], True),
        ({"what": [{"prefix": "a.b"}]}, [{"what": "a.bc"}], [{"what": "axb"}, {"what": "ca.b"}], True),
        ({"what": [{"suffix": "z"}]}, [{"what": "az"}], [{"what": "az\n"}, {"what": "za"}], True),
        ({"what": [{"contains": "$^"}]}, [{"what": "a$^b"}], [{"what": "ab"}], True),
        ({"what": [{"not": {"prefix": "a"}}]}, [{"what": "b"}], [{"what": "ab"}], True),
        ({"what": [{"ne": "a"}]}, [{"what": "b"}], [{"what": "a"}], True),
        ({"on": [True]}, [{"on": True}], [{"on": False}], True),
        ({"level": [1]}, [{"level": 1}], [{"level": True}, {"level": "1"}], True),
        ({"at.city": ["x"]}, [{"at": {"city": "x"}}, {"at.city": "x"}], [{"at": {"city": "y"}}], True),
        ({"level": [1]}, [{"level": 1, "free": {"a": 1}}], [{"level": 1, "at": {"city": "y"}}], True),
        ({"level": [1], "$others": "any"}, [{"level": 1, "what": "x"}], [{"level": 2}], True),
        # Wider where JSON Schema has no words: an order of strings, large numbers.
        ({"what": [{"gt": "m"}]}, [{"what": "n"}, {"what": "a"}], [{"level": 1}], False),
        ({"price": [{"lte": 2**53}]}, [{"price": 2**53 + 1}], [{"what": "a"}], False),
        ({"what": [{"not": {"gt": "m"}}]}, [{"what": "a"}, {"what": "z"}], [{"level": 1}], False),
    ],
)
def test_the_schema_of_an_advertisement_accepts_what_it_covers(
    given: dict[str, Any], good: list[Any], bad: list[Any], exact: bool
) -> None:
    schema = written(given)
    assert schema["x-exact"] is exact
    for event in good:
        assert valid(schema, event), event
    for event in bad:
        assert not valid(schema, event), event


def test_only_closed_topics_refuse_undeclared_fields() -> None:
    given = {"level": [1], "at.city": "any"}
    assert "additionalProperties" not in msgspec.json.encode(written(given)).decode()
    closed = written(given, closed=True)
    assert closed["additionalProperties"] is False
    assert valid(closed, {"level": 1, "$id": "e", "at": {"city": "x"}})
    assert not valid(closed, {"level": 1, "free": 1})
    assert not valid(closed, {"level": 1, "at": {"street": "x"}})


def test_a_topic_without_advertisements_has_no_alternatives() -> None:
    schema = Schema.parse(ATTRIBUTES)
    assert "anyOf" not in topic_schema(schema, title="t")
    assert valid(topic_schema(schema, title="t"), {"what": "x", "free": 1})
    assert not valid(topic_schema(schema, title="t", advertisements={}), {})


def compare(seed: int, advertisements: int, events: int) -> tuple[int, int, int]:
    """Compare with `matches`; return the pairs of exact schemas, of others, and the wider answers."""
    drawing = Drawing(random.Random(seed))
    schema = Schema.parse(drawing.schema)
    exact = inexact = wider = 0
    drawn = [drawing.event() for _ in range(events)]
    values = [schema.values(msgspec.json.encode(event)) for event in drawn]
    while advertisements:
        try:
            bound: BoundAdvertisement = Advertisement.parse(drawing.advertisement()).bind(schema)
        except EdnError:
            continue
        advertisements -= 1
        document = topic_schema(schema, title="t", advertisements={"a": bound})
        validator = jsonschema.Draft202012Validator(document)
        for event, value in zip(drawn, values, strict=True):
            accepted, covered = validator.is_valid(event), bound.matches(value)
            assert accepted or not covered, (bound.advertisement, event)
            if document["x-exact"]:
                assert accepted is covered, (bound.advertisement, event)
                exact += 1
            else:
                inexact += 1
                wider += accepted and not covered
    return exact, inexact, wider


def test_exported_schemas_agree_with_advertisements() -> None:
    exact, inexact, _ = compare(1, 30, 60)
    assert exact > 300
    assert inexact > 300


@pytest.mark.slow
def test_50_000_events_agree_with_exported_schemas() -> None:
    exact, inexact, wider = compare(2, 500, 250)
    print(f"{exact} pairs of exact schemas without a difference; {inexact} of others, {wider} of them wider")
    assert exact >= 50_000
