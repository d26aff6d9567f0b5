"""Documents: kept byte for byte, and filters on their paths and arrays against the oracle."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edn.formats import documents
from edn.model.filter import Filter
from edn.model.schema import Schema
from edn.protocol.documents import cut_events
from tests.oracle.meaning import matches
from tests.oracle.values import read_event
from tests.property.spaces import SEED
from tests.workload.documents import Writer, typed

KINDS = ["number", "integer", "string", "boolean", "time"]
NAMES = ["a", "b.c", "b.d", "e.f.g", "e.f.h", "any", "all", "deep.er.and.deeper", "x-y"]
OPEN = Schema.parse({"n": "integer", "deep.tags": ["string"]})

texts = st.text(st.characters(codec="utf-8"), max_size=6)
leaves = (
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts
)
trees = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)
objects = st.dictionaries(
    texts.filter(lambda key: not key.startswith("$") and key not in ("n", "deep")), trees
)


def _are_kept(given_objects: list[dict[str, Any]], ascii_only: bool, indent: int | None) -> None:
    written = [json.dumps(one, ensure_ascii=ascii_only, indent=indent).encode() for one in given_objects]
    body = b"[" + b" ,\n".join(written) + b"]"
    batch = OPEN.decode_events(body, cut_events)
    assert batch.bodies == [one.replace(b"\n", b" ") for one in written]
    assert batch.lines == OPEN.decode_events(body).lines


@settings(max_examples=60, deadline=None)
@given(st.lists(objects, max_size=4), st.booleans(), st.sampled_from([None, 0, 1]))
def test_random_objects_are_kept_byte_for_byte(
    given_objects: list[dict[str, Any]], ascii_only: bool, indent: int | None
) -> None:
    _are_kept(given_objects, ascii_only, indent)


@pytest.mark.slow
@settings(max_examples=2_500, deadline=None)
@given(st.lists(objects, min_size=4, max_size=4), st.booleans(), st.sampled_from([None, 0, 1]))
def test_ten_thousand_random_objects_are_kept_byte_for_byte(
    given_objects: list[dict[str, Any]], ascii_only: bool, indent: int | None
) -> None:
    _are_kept(given_objects, ascii_only, indent)


def test_ten_thousand_documents_are_kept_byte_for_byte_however_they_are_written() -> None:
    chance = random.Random(SEED)
    writer = Writer(chance)
    quick = 0
    for _ in range(100):
        plain = [writer.document({"n": str(number)}) for number in range(100)]
        body = "[" + ",".join(plain) + "]"
        batch = OPEN.decode_events(body.encode(), cut_events)
        assert batch.bodies == [one.encode() for one in plain]
        assert batch.points[:, 0].tolist() == list(range(100))
        for one in plain:  # the compiled pass and the reader in Python agree, and one does most of the work
            found = cut_events(one.encode())
            quick += found is not None
            assert found in (None, documents.cut_events(one.encode()))
            assert documents.cut_events(one.encode()).text == one.encode() + b"\n"
    assert quick > 1_000


def _condition(chance: random.Random, kind: str, depth: int = 0) -> Any:
    """A condition on a scalar, or on an element of an array (`depth` > 0)."""
    constant = lambda: typed(chance, kind)  # noqa: E731 - as short as what it replaces
    operators = ["eq", "ne", "in", "not"] + ["lt", "lte", "gt", "gte"] * (kind != "boolean")
    operators += ["prefix", "suffix", "contains"] * (kind == "string") + ["exists"] * (not depth)
    operators += ["$any", "$all"] * bool(depth)
    shape = chance.random()
    if shape < 0.2:
        return constant()
    if shape < 0.3:
        return [constant() for _ in range(chance.randint(1, 3))]
    operator = chance.choice(operators)
    if operator in ("$any", "$all"):
        return (
            {operator: [_condition(chance, kind, depth + 1) for _ in range(chance.randint(1, 2))]}
            if depth < 3
            else constant()
        )
    if operator == "not":
        return {"not": _condition(chance, kind, max(depth, 1)) if depth < 3 else constant()}
    if operator == "exists":
        return {"exists": chance.random() < 0.5}
    if operator == "in":
        return {"in": [constant() for _ in range(chance.randint(1, 3))]}
    made = {operator: constant()}
    if depth and chance.random() < 0.3 and operator not in ("lt", "lte", "gt", "gte"):
        made["ne"] = constant()
    return made


def _array_condition(chance: random.Random, kind: str) -> dict[str, Any]:
    shape = chance.random()
    if shape < 0.1:
        return {"exists": chance.random() < 0.5}
    quantified = {chance.choice(["any", "all"]): _condition(chance, kind, 1)}
    if shape < 0.25:
        return {"not": quantified}
    if shape < 0.35:
        return {"any": _condition(chance, kind, 1), "all": _condition(chance, kind, 1)}
    return quantified


def _filter(chance: random.Random, schema: dict[str, Any], depth: int = 0) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for name in chance.sample(sorted(schema), chance.randint(1, 2)):
        kind = schema[name]
        made[name] = (
            _array_condition(chance, kind[0]) if isinstance(kind, list) else _scalar_condition(chance, kind)
        )
    if depth < 2 and chance.random() < 0.3:
        made["$not"] = _filter(chance, schema, depth + 1)
    if depth < 2 and chance.random() < 0.3:
        made["$any"] = [_filter(chance, schema, depth + 1) for _ in range(2)]
    return made


def _scalar_condition(chance: random.Random, kind: str) -> Any:
    made = _condition(chance, kind)
    while "$" in json.dumps(made):  # those are for elements
        made = _condition(chance, kind)
    return made


def _document(chance: random.Random, schema: dict[str, Any]) -> dict[str, Any]:
    event: dict[str, Any] = {"undeclared": {"a": [1]}, "b": {"more": 1}} if chance.random() < 0.5 else {}
    for name, kind in schema.items():
        if chance.random() < 0.2:
            continue
        value = (
            [typed(chance, kind[0]) for _ in range(chance.randrange(4))]
            if isinstance(kind, list)
            else typed(chance, kind)
        )
        if "." in name and chance.random() < 0.3:
            event[name] = value
            continue
        place = event
        *parents, leaf = name.split(".")
        for parent in parents:
            place = place.setdefault(parent, {})
        place[leaf] = value
    return event


def test_filters_on_paths_and_arrays_are_what_the_oracle_says() -> None:
    chance = random.Random(SEED + 25)
    compared = matched = outside = 0
    for _ in range(40):
        names = chance.sample(NAMES, chance.randint(2, 5))
        types: dict[str, Any] = {
            name: [chance.choice(KINDS)] if chance.random() < 0.5 else chance.choice(KINDS) for name in names
        }
        schema = Schema.parse(types)
        events = [_document(chance, types) for _ in range(60)]
        batch = schema.decode_events(json.dumps(events).encode(), cut_events)
        values = [schema.values(body) for body in batch.bodies]
        expected_values = [read_event(event, types) for event in events]
        assert values == expected_values
        assert [
            schema.values(body, point.tolist())
            for body, point in zip(batch.bodies, batch.points, strict=True)
        ] == expected_values
        for _ in range(45):
            written = _filter(chance, types)
            parsed = Filter.parse(written)
            text = parsed.to_text()
            assert Filter.parse(text) == parsed, (written, text)
            assert Filter.parse(parsed.to_json()) == parsed, (written, parsed.to_json())
            bound = parsed.bind(schema)
            expected = np.array([matches(written, one, types) for one in expected_values])
            found = np.array([bound.matches(one) for one in values])
            assert found.tolist() == expected.tolist(), (types, written)
            rects = bound.rects()
            contained = rects.contain(batch.points)
            assert not (expected & ~contained.any(axis=1)).any(), (types, written)
            assert not (~expected & (contained & rects.exact[None]).any(axis=1)).any(), (types, written)
            compared += len(events)
            matched += int(expected.sum())
            outside += int((~contained.any(axis=1)).sum())
    assert compared >= 100_000
    assert 0.1 < matched / compared < 0.9
    assert outside > 1_000  # rectangles still narrow what they can
