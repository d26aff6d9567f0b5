"""Translates filters of the CloudEvents Subscriptions API into our filter language and back.

An expression is an object with one key, its dialect:

    {"exact": {"type": "sold"}}      {"prefix": {"source": "/shops/"}}      {"suffix": {"subject": ".jpg"}}
    {"all": [ … ]}                   {"any": [ … ]}                         {"not": { … }}
    {"urn:edn:filter": "price > 30"}, or the JSON form: our own dialect, over data and context attributes

The first six test the context attributes of the CloudEvent that would be delivered, as text. An event
published without `source` or `type` gets the topic's (`Context.assumed`), so a test that these pass holds for
it, too. If a topic does not store `source` or `type`, a test of it is constant and is folded away.

A filter that is written back is equivalent to the one that was read, in its simplest form: in the six
dialects where possible, otherwise in ours; a test of `source` and one of `type` become the fields of that
name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

from edn.errors import EdnError, InvalidFilter
from edn.formats import cloudevents
from edn.formats.cloudevents import PREFIX
from edn.formats.strict_json import token
from edn.model.filter import jsonform
from edn.model.filter.ast import MAX_DEPTH, All, AnyOf, Literal, Node, Not, Test, all_of, any_of, too_deep
from edn.model.filter.filter import Filter
from edn.model.schema import Schema

#: our own dialect
OURS = "urn:edn:filter"
_OPERATORS = {"exact": "eq", "prefix": "prefix", "suffix": "suffix"}
_HOLDS: dict[str, Callable[[str, str], bool]] = {
    "exact": str.__eq__,
    "prefix": str.startswith,
    "suffix": str.endswith,
}
DIALECTS = (*_OPERATORS, "all", "any", "not", OURS)

_NAME = re.compile(r"[a-z0-9]{1,64}\Z")
_INTEGER = re.compile(r"(0|-?[1-9][0-9]{0,18})\Z")
#: context attributes that are not stored as attributes, and why
_NOT_STORED = {
    "id": "the id of an event is not an attribute",
    "time": "the time of an event is not an attribute",
    "specversion": f"every event has specversion {cloudevents.SPECVERSION}",
    "datacontenttype": "it is not stored",
    "data": f'use the dialect "{OURS}" to filter by data',
}

#: a condition in the JSON form of our language, or a constant
Condition = dict[str, Any] | bool


@dataclass(frozen=True, slots=True)
class Context:
    """The events of a topic as CloudEvents."""

    schema: Schema
    #: context attributes of an event that was published without them
    assumed: Mapping[str, str]

    @classmethod
    def of(cls, topic: str, schema: Schema) -> Context:
        return cls(schema, cloudevents.defaults(topic))

    def kind(self, name: str) -> str | None:
        """Returns the type of a context attribute; None if it is not stored."""
        return self.schema.types.get(PREFIX + name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A filter in the form of the Subscriptions API; None for an unused field."""

    source: str | None = None
    types: list[str] | None = None
    filters: list[dict[str, Any]]


# -- reading ----------------------------------------------------------------------------------------------


def read(
    context: Context, *, source: str | None = None, types: list[str] | None = None, filters: object = None
) -> dict[str, Any] | None:
    """Translates a filter into the JSON form of our language; None for everything.

    Raises `InvalidFilter` with a pointer into the subscription, or `TooLarge`.
    """
    reader = _Reader(context)
    parts: list[Condition] = []
    if source is not None:
        parts.append(reader.test("exact", "source", source, "/source"))
    if types is not None:
        parts.append(
            _any(reader.test("exact", "type", one, f"/types/{place}") for place, one in enumerate(types))
        )
    if filters is not None:
        if not isinstance(filters, list):
            raise InvalidFilter("filters must be an array of expressions", pointer="/filters")
        parts += [reader.expression(one, f"/filters/{place}", 0) for place, one in enumerate(filters)]
    whole = _all(parts)
    if whole is False:
        assumed = ", ".join(f'{name} "{value}"' for name, value in context.assumed.items())
        raise InvalidFilter(f"no event of this topic can match; events without their own have {assumed}")
    return None if whole is True else whole


class _Reader:
    def __init__(self, context: Context) -> None:
        self._context = context

    def expression(self, given: object, pointer: str, depth: int) -> Condition:
        if depth > MAX_DEPTH:
            raise too_deep()
        if not isinstance(given, dict) or len(given) != 1:
            raise InvalidFilter(
                'an expression must be an object with one key, its dialect, such as {"exact": {"type": "…"}}',
                pointer=pointer,
            )
        [(dialect, value)] = given.items()
        pointer += "/" + token(dialect)
        match dialect:
            case "exact" | "prefix" | "suffix":
                return self._tests(dialect, value, pointer)
            case "all" | "any":
                if not isinstance(value, list) or not value:
                    raise InvalidFilter(
                        f"{dialect} must be a non-empty array of expressions", pointer=pointer
                    )
                inner = [
                    self.expression(one, f"{pointer}/{place}", depth + 1) for place, one in enumerate(value)
                ]
                return _all(inner) if dialect == "all" else _any(inner)
            case "not":
                return _not(self.expression(value, pointer, depth + 1))
            case _ if dialect == OURS:
                return self._content(value, pointer)
        raise InvalidFilter(
            f'the dialect must be one of {", ".join(DIALECTS)}, got "{dialect[:200]}"', pointer=pointer
        )

    def _content(self, value: object, pointer: str) -> Condition:
        try:
            parsed = Filter.parse(value)
            parsed.bind(self._context.schema)
        except EdnError as error:
            error.pointer = pointer + (error.pointer or "")
            raise
        written = parsed.to_json()
        return True if written is None else written

    def _tests(self, dialect: str, value: object, pointer: str) -> Condition:
        if not isinstance(value, dict) or not value:
            raise InvalidFilter(
                f'{dialect} must be an object of strings, such as {{"type": "…"}}', pointer=pointer
            )
        return _all(
            self.test(dialect, name, text, f"{pointer}/{token(name)}") for name, text in value.items()
        )

    def test(self, dialect: str, name: str, text: object, pointer: str) -> Condition:
        """Translates the test of one context attribute."""
        if not isinstance(text, str) or not text:
            raise InvalidFilter(f'the value for "{name[:60]}" must be a non-empty string', pointer=pointer)
        if name in _NOT_STORED:
            raise InvalidFilter(f'"{name}" cannot be filtered: {_NOT_STORED[name]}', pointer=pointer)
        if not _NAME.match(name):
            raise InvalidFilter(
                "the name of a context attribute must be lower-case letters and digits, got "
                f'"{name[:60]}"; use the dialect "{OURS}" to filter by data',
                pointer=pointer,
            )
        assumed = self._context.assumed.get(name)
        holds_without = assumed is not None and _HOLDS[dialect](assumed, text)
        kind = self._context.kind(name)
        if kind is None:
            if assumed is not None:
                return holds_without
            raise InvalidFilter(
                f'the topic does not store the context attribute "{name}": PUT the topic with the attribute '
                f'"{PREFIX}{name}": "string"',
                pointer=pointer,
            )
        attribute = PREFIX + name
        value = _value(dialect, name, text, kind, pointer)
        found: Condition = False if value is None else {attribute: {_OPERATORS[dialect]: value}}
        return _any((found, {attribute: {"exists": False}})) if holds_without else found


def _value(dialect: str, name: str, text: str, kind: str, pointer: str) -> Literal | None:
    """Converts a text into a value of the attribute's type; None if no value has this text."""
    if kind == "string":
        return text
    if dialect == "exact":
        if kind == "boolean":
            return {"true": True, "false": False}.get(text)
        if kind == "integer":
            whole = int(text) if _INTEGER.match(text) else None
            return whole if whole is not None and -(2**63) <= whole < 2**63 else None
    raise InvalidFilter(
        f'{dialect} compares strings, but the topic stores "{name}" as {kind}, got "{text[:60]}"; use the '
        f'dialect "{OURS}" instead',
        pointer=pointer,
    )


def _all(parts: Iterable[Condition]) -> Condition:
    return _combined("$all", parts, True)


def _any(parts: Iterable[Condition]) -> Condition:
    return _combined("$any", parts, False)


def _combined(key: str, parts: Iterable[Condition], neutral: bool) -> Condition:
    left = [part for part in parts if part is not neutral]
    if (not neutral) in left:
        return not neutral
    return neutral if not left else left[0] if len(left) == 1 else {key: left}


def _not(part: Condition) -> Condition:
    return not part if isinstance(part, bool) else {"$not": part}


# -- writing ----------------------------------------------------------------------------------------------


def write(context: Context, filter: object) -> Written:
    """Translates a filter in the JSON form of our language into the form of the Subscriptions API."""
    if filter is None:
        return Written(filters=[])
    root = jsonform.read(filter)
    parts = root.parts if isinstance(root, All) else (root,)
    writer = _Writer(context)
    filters = writer.expressions(parts, all_of)
    source: str | None = None
    types: list[str] | None = None
    left = []
    for one in filters:
        if source is None and (found := _choices(one, "source")) is not None and len(found) == 1:
            [source] = found
        elif types is None and (found := _choices(one, "type")) is not None:
            types = found
        else:
            left.append(one)
    return Written(source=source, types=types, filters=left)


def _choices(expression: dict[str, Any], name: str) -> list[str] | None:
    """Returns the accepted texts of a context attribute if the expression tests nothing else."""
    alternatives = expression.get("any", [expression])
    tests = [one.get("exact", {}) for one in alternatives]
    return [test[name] for test in tests] if all(test.keys() == {name} for test in tests) else None


class _Writer:
    """Writes parts of a tree as expressions, in our dialect where the others cannot express them."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def expressions(
        self,
        parts: Iterable[Node],
        combined: Callable[[Iterable[Node]], Node],
        optional: frozenset[str] = frozenset(),
    ) -> list[dict[str, Any]]:
        """Writes parts as expressions; the parts in our dialect form one expression, the last."""
        made: list[dict[str, Any]] = []
        ours: list[Node] = []
        for part in parts:
            expression = self._expression(part, optional)
            if expression is None:
                ours.append(part)
            else:
                made.append(expression)
        return [*made, {OURS: jsonform.write(combined(ours))}] if ours else made

    def _expression(self, node: Node, optional: frozenset[str] = frozenset()) -> dict[str, Any] | None:
        """Writes a node; None if it needs our dialect. `optional`: attributes that may also be missing."""
        match node:
            case Test():
                return self._test(node, optional)
            case Not(part):
                inner = self._expression(part)
                return None if inner is None else {"not": inner}
            case All(parts):
                return _joined("all", self.expressions(parts, all_of))
            case AnyOf(parts):
                optional = self._optional(parts)
                rest = [part for part in parts if not (_is_absence(part) and part.attribute in optional)]
                return _joined("any", self.expressions(rest, any_of, optional))
        return None

    def _optional(self, parts: tuple[Node, ...]) -> frozenset[str]:
        """Returns attributes with `exists: false` beside a test that the assumed value passes.

        In the API's terms that test includes the absence of the attribute.
        """
        absent = {part.attribute for part in parts if _is_absence(part)}
        return frozenset(
            part.attribute
            for part in parts
            if isinstance(part, Test) and part.attribute in absent and self._assumed_passes(part)
        )

    def _assumed_passes(self, test: Test) -> bool:
        assumed = self._context.assumed.get(test.attribute.removeprefix(PREFIX))
        texts = self._texts(test)
        if assumed is None or texts is None:
            return False
        dialect, values = texts
        return any(_HOLDS[dialect](assumed, text) for text in values)

    def _test(self, test: Test, optional: frozenset[str]) -> dict[str, Any] | None:
        texts = self._texts(test)
        # If the assumed value passes, the API's test also holds without the attribute, unlike ours.
        if texts is None or (self._assumed_passes(test) and test.attribute not in optional):
            return None
        dialect, values = texts
        name = test.attribute.removeprefix(PREFIX)
        alternatives = [{dialect: {name: text}} for text in values]
        return alternatives[0] if len(alternatives) == 1 else {"any": alternatives}

    def _texts(self, test: Test) -> tuple[str, list[str]] | None:
        """Returns dialect and texts of a test; None if no dialect can express it."""
        name = test.attribute.removeprefix(PREFIX)
        dialect = {"eq": "exact", "in": "exact", "prefix": "prefix", "suffix": "suffix"}.get(test.operator)
        if dialect is None or test.negated or PREFIX + name != test.attribute or not _NAME.match(name):
            return None
        if name in _NOT_STORED:
            return None
        kind = self._context.kind(name)
        texts = [text for literal in test.literals if (text := _text(literal, kind))]
        return (dialect, texts) if len(texts) == len(test.literals) else None


def _is_absence(part: Node) -> TypeGuard[Test]:
    return isinstance(part, Test) and part.operator == "exists" and part.operand is False and not part.negated


def _text(literal: Literal, kind: str | None) -> str | None:
    """Converts a literal of the attribute's type into its text; None if the types differ."""
    match kind, literal:
        case "string", str():
            return literal
        case "boolean", bool():
            return "true" if literal else "false"
        case ("integer", int()) if not isinstance(literal, bool):
            return str(literal)
    return None


def _joined(dialect: str, expressions: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Joins expressions; None if all of them are in our dialect."""
    flat = [inner for one in expressions for inner in one.get(dialect, [one])]
    if len(flat) == 1:
        return None if OURS in flat[0] else flat[0]
    return {dialect: flat}
