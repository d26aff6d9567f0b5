"""The filter dialects of the CloudEvents Subscriptions API: read into our filter language, and written back.

An expression is an object with one key, its dialect:

    {"exact": {"type": "sold"}}      {"prefix": {"source": "/shops/"}}      {"suffix": {"subject": ".jpg"}}
    {"all": [ … ]}                   {"any": [ … ]}                         {"not": { … }}
    {"urn:edn:filter": "price > 30"}, or the JSON form: our own dialect, over data and context attributes

The first six are about the context attributes of the CloudEvent that would be delivered, as text. Two things
follow. An event that came without `source` or `type` has those of its topic (`Context.assumed`), and a test
that these pass holds of it, too. And on a topic that does not keep `source` or `type` at all, a test of one
is true of all events or of none, and is folded away.

What is written back says the same as what was read, in its simplest form: conditions that the dialects can
say in them, the rest in ours; a test of `source` and one of `type` as the fields of that name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

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
#: context attributes that are not kept as attributes, and what to do instead
_NOT_KEPT = {
    "id": "an event's id is no attribute here",
    "time": "an event's time is no attribute here",
    "specversion": f"every event is of specversion {cloudevents.SPECVERSION}",
    "datacontenttype": "it is not kept",
    "data": f'the data is what "{OURS}" is about',
}

#: a condition in the JSON form of our language, or what it always is
Condition = dict[str, Any] | bool


@dataclass(frozen=True, slots=True)
class Context:
    """What the events of a topic are as CloudEvents."""

    schema: Schema
    #: context attributes of an event that came without them
    assumed: Mapping[str, str]

    @classmethod
    def of(cls, topic: str, schema: Schema) -> Context:
        return cls(schema, cloudevents.defaults(topic))

    def kind(self, name: str) -> str | None:
        """The type that a context attribute is kept as; None: it is not kept."""
        return self.schema.attributes.get(PREFIX + name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A filter as the Subscriptions API has it; None where a field has nothing to say."""

    source: str | None = None
    types: list[str] | None = None
    filters: list[dict[str, Any]]


# -- reading ----------------------------------------------------------------------------------------------


def read(
    context: Context, *, source: str | None = None, types: list[str] | None = None, filters: object = None
) -> dict[str, Any] | None:
    """The filter in the JSON form of our language, None for everything.

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
            raise InvalidFilter("filters is an array of expressions", pointer="/filters")
        parts += [reader.expression(one, f"/filters/{place}", 0) for place, one in enumerate(filters)]
    whole = _all(parts)
    if whole is False:
        assumed = ", ".join(f'{name} "{value}"' for name, value in context.assumed.items())
        raise InvalidFilter(f"no event of this topic can match; events that came without have {assumed}")
    return None if whole is True else whole


class _Reader:
    def __init__(self, context: Context) -> None:
        self._context = context

    def expression(self, given: object, pointer: str, depth: int) -> Condition:
        if depth > MAX_DEPTH:
            raise too_deep()
        if not isinstance(given, dict) or len(given) != 1:
            raise InvalidFilter(
                'an expression is an object with one key, its dialect: {"exact": {"type": "…"}}',
                pointer=pointer,
            )
        [(dialect, value)] = given.items()
        pointer += "/" + token(dialect)
        match dialect:
            case "exact" | "prefix" | "suffix":
                return self._tests(dialect, value, pointer)
            case "all" | "any":
                if not isinstance(value, list) or not value:
                    raise InvalidFilter(f"{dialect} has an array of one expression or more", pointer=pointer)
                inner = [
                    self.expression(one, f"{pointer}/{place}", depth + 1) for place, one in enumerate(value)
                ]
                return _all(inner) if dialect == "all" else _any(inner)
            case "not":
                return _not(self.expression(value, pointer, depth + 1))
            case _ if dialect == OURS:
                return self._content(value, pointer)
        raise InvalidFilter(
            f'filters in the dialect "{dialect[:200]}" are not supported; {", ".join(DIALECTS)} are',
            pointer=pointer,
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
            raise InvalidFilter(f'{dialect} has an object of texts: {{"type": "…"}}', pointer=pointer)
        return _all(
            self.test(dialect, name, text, f"{pointer}/{token(name)}") for name, text in value.items()
        )

    def test(self, dialect: str, name: str, text: object, pointer: str) -> Condition:
        """One attribute and a text."""
        if not isinstance(text, str) or not text:
            raise InvalidFilter(f'"{name[:60]}" is compared with a text, which is not empty', pointer=pointer)
        if name in _NOT_KEPT:
            raise InvalidFilter(f'no filter can ask for "{name}": {_NOT_KEPT[name]}', pointer=pointer)
        if not _NAME.match(name):
            raise InvalidFilter(
                f'"{name[:60]}" is no context attribute: their names are lower-case letters and digits; '
                f'what is in the data can be asked in the dialect "{OURS}"',
                pointer=pointer,
            )
        assumed = self._context.assumed.get(name)
        holds_without = assumed is not None and _HOLDS[dialect](assumed, text)
        kind = self._context.kind(name)
        if kind is None:
            if assumed is not None:
                return holds_without
            raise InvalidFilter(
                f'the topic does not keep the context attribute "{name}": PUT it with the attribute '
                f'"{PREFIX}{name}": "string"',
                pointer=pointer,
            )
        attribute = PREFIX + name
        value = _value(dialect, name, text, kind, pointer)
        found: Condition = False if value is None else {attribute: {_OPERATORS[dialect]: value}}
        return _any((found, {attribute: {"exists": False}})) if holds_without else found


def _value(dialect: str, name: str, text: str, kind: str, pointer: str) -> Literal | None:
    """What an attribute of this type is whose text is given; None if none is."""
    if kind == "string":
        return text
    if dialect == "exact":
        if kind == "boolean":
            return {"true": True, "false": False}.get(text)
        if kind == "integer":
            whole = int(text) if _INTEGER.match(text) else None
            return whole if whole is not None and -(2**63) <= whole < 2**63 else None
    raise InvalidFilter(
        f'the topic keeps "{name}" as {kind}, which {dialect} cannot compare with "{text[:60]}" as a text; '
        f'the dialect "{OURS}" compares it as what it is',
        pointer=pointer,
    )


def _all(parts: Iterable[Condition]) -> Condition:
    left = [part for part in parts if part is not True]
    if False in left:
        return False
    return True if not left else left[0] if len(left) == 1 else {"$all": left}


def _any(parts: Iterable[Condition]) -> Condition:
    left = [part for part in parts if part is not False]
    if True in left:
        return True
    return False if not left else left[0] if len(left) == 1 else {"$any": left}


def _not(part: Condition) -> Condition:
    return not part if isinstance(part, bool) else {"$not": part}


# -- writing ----------------------------------------------------------------------------------------------


def write(context: Context, filter: object) -> Written:
    """A filter in the JSON form of our language as the Subscriptions API has it."""
    if filter is None:
        return Written(filters=[])
    root = jsonform.read(filter)
    parts = root.parts if isinstance(root, All) else (root,)
    writer = _Writer(context)
    filters = writer.side_by_side(parts, all_of)
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
    """The texts of which a context attribute must be one, if that is all that an expression says."""
    alternatives = expression.get("any", [expression])
    tests = [one.get("exact", {}) for one in alternatives]
    return [test[name] for test in tests] if all(test.keys() == {name} for test in tests) else None


class _Writer:
    """Each part of the tree as an expression; what the dialects cannot say stays a part of ours."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def side_by_side(
        self,
        parts: Iterable[Node],
        combined: Callable[[Iterable[Node]], Node],
        forgiven: frozenset[str] = frozenset(),
    ) -> list[dict[str, Any]]:
        """Expressions of parts that are combined; those of ours together, as the last one."""
        made: list[dict[str, Any]] = []
        ours: list[Node] = []
        for part in parts:
            expression = self._expression(part, forgiven)
            if expression is None:
                ours.append(part)
            else:
                made.append(expression)
        return [*made, {OURS: jsonform.write(combined(ours))}] if ours else made

    def _expression(self, node: Node, forgiven: frozenset[str] = frozenset()) -> dict[str, Any] | None:
        """None: all of it is ours. `forgiven`: attributes that may be missing as well, as the parent says."""
        match node:
            case Test():
                return self._test(node, forgiven)
            case Not(part):
                inner = self._expression(part)
                return None if inner is None else {"not": inner}
            case All(parts):
                return _joined("all", self.side_by_side(parts, all_of))
            case AnyOf(parts):
                forgiven = self._forgiven(parts)
                said = [part for part in parts if not _absent(part, forgiven)]
                return _joined("any", self.side_by_side(said, any_of, forgiven))
        return None

    def _forgiven(self, alternatives: Iterable[Node]) -> frozenset[str]:
        """Attributes whose absence is an alternative that another one implies in the API's terms: a test that
        what is assumed of the attribute passes."""
        parts = list(alternatives)
        absent = {part.attribute for part in parts if isinstance(part, Test) and _exists_not(part)}
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

    def _test(self, test: Test, forgiven: frozenset[str]) -> dict[str, Any] | None:
        texts = self._texts(test)
        # Where what is assumed passes, the API's test is wider than ours: it holds without the attribute.
        if texts is None or (self._assumed_passes(test) and test.attribute not in forgiven):
            return None
        dialect, values = texts
        name = test.attribute.removeprefix(PREFIX)
        alternatives = [{dialect: {name: text}} for text in values]
        return alternatives[0] if len(alternatives) == 1 else {"any": alternatives}

    def _texts(self, test: Test) -> tuple[str, list[str]] | None:
        """The dialect and the texts of a test that it can say; None: it cannot."""
        name = test.attribute.removeprefix(PREFIX)
        dialect = {"eq": "exact", "in": "exact", "prefix": "prefix", "suffix": "suffix"}.get(test.operator)
        if dialect is None or test.negated or PREFIX + name != test.attribute or not _NAME.match(name):
            return None
        if name in _NOT_KEPT:
            return None
        kind = self._context.kind(name)
        texts = [_text(literal, kind) for literal in test.literals]
        if any(not text for text in texts):
            return None
        return dialect, [text for text in texts if text is not None]


def _exists_not(test: Test) -> bool:
    return test.operator == "exists" and test.operand is False and not test.negated


def _absent(part: Node, attributes: frozenset[str]) -> bool:
    """Whether a part says of one of these attributes that it is missing."""
    return isinstance(part, Test) and _exists_not(part) and part.attribute in attributes


def _text(literal: Literal, kind: str | None) -> str | None:
    """The text of a value that an attribute of this type may have; None: as a text it says something else."""
    match kind, literal:
        case "string", str():
            return literal
        case "boolean", bool():
            return "true" if literal else "false"
        case ("integer", int()) if not isinstance(literal, bool):
            return str(literal)
    return None


def _joined(dialect: str, expressions: list[dict[str, Any]]) -> dict[str, Any] | None:
    """None if nothing but ours is there."""
    flat = [inner for one in expressions for inner in one.get(dialect, [one])]
    if len(flat) == 1:
        return None if OURS in flat[0] else flat[0]
    return {dialect: flat}
