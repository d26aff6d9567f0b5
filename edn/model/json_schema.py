"""Writes topics and advertisements as JSON Schema (2020-12), so that publishers can validate events.

The schema of a topic accepts every event that the topic accepts. `anyOf` has one schema per advertisement,
which accepts every event that the advertisement covers. Where JSON Schema can express all operators, it
accepts no other event; elsewhere it is wider and says so: `"x-exact": false`.

Inexact are: order, suffixes of nothing, and equality of times, because an instant has many texts; order of
strings and bytes; literals of numbers from 2^53 on, where integers in JSON are rounded. Inside `not`, what
cannot be expressed exactly is left out, because a wider part would make the whole narrower.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from edn.model.coordinates import element_of, is_array
from edn.model.event_check import MAX_ELEMENTS, MAX_ID
from edn.model.filter.advertisement import BoundAdvertisement
from edn.model.filter.ast import All, AnyOf, Each, Literal, Node, Not, Test, XPath
from edn.model.schema import Schema

DIALECT = "https://json-schema.org/draft/2020-12/schema"
#: whether a schema accepts nothing but what it describes
EXACT = "x-exact"

_TYPES: dict[str, dict[str, Any]] = {
    "number": {"type": "number"},
    "integer": {"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1},
    "string": {"type": "string"},
    "boolean": {"type": "boolean"},
    "time": {"type": "string", "format": "date-time"},
    "bytes": {"type": "string", "contentEncoding": "base64", "pattern": "^[A-Za-z0-9+/]*={0,2}(?![\\s\\S])"},
}
#: the network's own keys of an event
_OWN: dict[str, dict[str, Any]] = {
    "$id": {"type": "string", "minLength": 1, "maxLength": MAX_ID},
    "$time": {"type": "string", "format": "date-time"},
    "$availability": {"anyOf": [{"type": "number", "minimum": 0}, {"const": "forever"}]},
}
_NOTHING: dict[str, Any] = {"type": "null"}
#: integers below are exact doubles
_EXACT_INTEGER = 2**53

#: a schema, and whether it accepts nothing else
Written = tuple[dict[str, Any], bool]


def topic_schema(
    schema: Schema, *, title: str, advertisements: Mapping[str, BoundAdvertisement] | None = None
) -> dict[str, Any]:
    """Writes the schema of a topic's events; `advertisements`: alternatives by id, None: no restriction."""
    written: dict[str, Any] = {
        "$schema": DIALECT,
        "title": title,
        "type": "object",
        "properties": {
            **_OWN,
            **_tree(schema, {name: _typed(type_) for name, type_ in schema.types.items()}),
        },
    }
    if schema.closed:
        _close(written, schema)
    if advertisements is not None:
        parts = [_advertisement(id, one) for id, one in advertisements.items()]
        # Nothing is valid if nothing is advertised.
        if parts:
            written["anyOf"] = parts
        else:
            written["not"] = {}
        written[EXACT] = all(part[EXACT] for part in parts)
    return written


def advertisement_schema(id: str, bound: BoundAdvertisement) -> dict[str, Any]:
    """Writes the schema of one advertisement, without the types of the topic."""
    return _advertisement(id, bound)


def _advertisement(id: str, bound: BoundAdvertisement) -> dict[str, Any]:
    properties: dict[str, dict[str, Any]] = {}
    exact = True
    for name, type_ in bound.schema.types.items():
        some = bound.advertisement.alternatives.get(name)
        if name not in bound.advertisement.alternatives:
            if not bound.advertisement.is_open:
                properties[name] = _NOTHING
        elif some is not None:
            parts = [_node(node, type_) for node in some]
            exact = exact and all(sure for _, sure in parts)
            properties[name] = {"anyOf": [_NOTHING, *(part for part, _ in parts)]}
    return {"title": id, "properties": _tree(bound.schema, properties), EXACT: exact}


def _typed(type_: str) -> dict[str, Any]:
    return {"anyOf": [_NOTHING, _type(type_)]}


def _type(type_: str) -> dict[str, Any]:
    if is_array(type_):
        return {"type": "array", "items": _TYPES[element_of(type_)], "maxItems": MAX_ELEMENTS}
    return _TYPES[type_]


def _tree(schema: Schema, leaves: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """Builds properties: an attribute with dots is nested, or under its dotted name."""
    properties: dict[str, Any] = {}
    for name, leaf in leaves.items():
        *parents, last = name.split(".")
        place = properties
        for parent in parents:
            inner = place.setdefault(parent, {"type": ["object", "null"], "properties": {}})
            place = inner["properties"]
        place[last] = leaf
        if parents:
            properties[name] = leaf
    return properties


def _close(written: dict[str, Any], schema: Schema) -> None:
    """Refuses undeclared fields, also inside the parents of attributes."""
    parents = {name[:at] for name in schema.types for at, letter in enumerate(name) if letter == "."}
    written["additionalProperties"] = False
    for parent in parents:
        place = written
        for part in parent.split("."):
            place = place["properties"][part]
        place["additionalProperties"] = False


# -- conditions -------------------------------------------------------------------------------------------


def _node(node: Node, type_: str) -> Written:
    """Writes a condition on a value that is there."""
    match node:
        case Test():
            return _test(node, type_)
        case Each():
            return _each(node, element_of(type_))
        case All(parts):
            return _joined("allOf", [_node(part, type_) for part in parts])
        case AnyOf(parts):
            return _joined("anyOf", [_node(part, type_) for part in parts])
        case Not(part):
            return _negated(_node(part, type_), type_)
        case XPath():
            return _type(type_), False


def _joined(key: str, parts: list[Written]) -> Written:
    return {key: [part for part, _ in parts]}, all(exact for _, exact in parts)


def _negated(part: Written, type_: str) -> Written:
    written, exact = part
    if not exact:
        return _type(type_), False
    return {"allOf": [_type(type_), {"not": written}]}, True


def _each(node: Each, type_: str) -> Written:
    part, exact = _node(node.part, type_)
    array = {"type": "array", "contains" if node.quantifier == "any" else "items": part}
    if not node.negated:
        return array, exact
    if not exact:
        return {"type": "array"}, False
    return {"type": "array", "not": array}, True


def _test(test: Test, type_: str) -> Written:
    if test.operator == "exists":
        # Of a value that is there, as every other condition.
        return (_type(type_), True) if test.operand else ({"not": {}}, True)
    written = _operator(test.operator, test.literals, type_)
    if written is None:
        return _type(type_), False
    whole = {**_type(type_), **written} if not is_array(type_) else written
    if "minimum" in written or "maximum" in written:
        # The bounds of the type itself must stay.
        whole = {"allOf": [_type(type_), written]}
    return _negated((whole, True), type_) if test.negated else (whole, True)


_BOUNDS = {
    "lt": "exclusiveMaximum",
    "lte": "maximum",
    "gt": "exclusiveMinimum",
    "gte": "minimum",
}


def _operator(operator: str, literals: tuple[Literal, ...], type_: str) -> dict[str, Any] | None:
    """Writes one operator; None if JSON Schema cannot express it for this type."""
    if type_ == "time" or (type_ == "number" and not all(map(_is_small, literals))):
        return None
    value = literals[0] if literals else None
    match operator:
        case "eq":
            return {"const": value}
        case "ne":
            return {"not": {"const": value}}
        case "in":
            return {"enum": list(_distinct(literals))}
        case "prefix":
            return {"pattern": "^" + _escaped(str(value))}
        case "suffix":
            # Not $, which in some dialects also matches before a last line break.
            return {"pattern": _escaped(str(value)) + "(?![\\s\\S])"}
        case "contains":
            return {"pattern": _escaped(str(value))}
    if type_ not in ("number", "integer"):
        return None
    if operator == "between":
        return {"minimum": literals[0], "maximum": literals[1]}
    return {_BOUNDS[operator]: value}


def _is_small(literal: Literal) -> bool:
    """Tells whether all integers that are written like this number are this number."""
    return isinstance(literal, int | float) and abs(literal) < _EXACT_INTEGER


def _distinct(literals: Iterable[Literal]) -> list[Literal]:
    """Returns literals without repetitions, which `enum` should not have; True is not 1."""
    found: dict[Any, Literal] = {}
    for literal in literals:
        found.setdefault((isinstance(literal, bool), literal), literal)
    return list(found.values())


_SYNTAX = frozenset("^$\\.*+?()[]{}|/")


def _escaped(text: str) -> str:
    """Escapes the characters that ECMA-262 gives a meaning."""
    return "".join(f"\\{letter}" if letter in _SYNTAX else letter for letter in text)
