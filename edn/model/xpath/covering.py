"""Derives conditions on attributes from an XPath, for its rectangles.

A *cover* is an ordinary filter that holds wherever the expression holds, and possibly elsewhere. None is the
cover without a condition. Covers are found by following the expression's paths through the tree of the
topic's attributes; an event has at most one node per node of that tree:

    price > 30, 30 < price, /e:event/price > 30, //price > 30       price above slightly less than 30
    e:event[price > 30]/symbol                                      the same, and symbol exists
    symbol = 'GE', starts-with(symbol, 'G'), contains(symbol, 'E')  the same on symbol
    a and b, a or b, not(a), count(…) …                             both, either, the negation; no condition

Numbers are covered slightly wider than written, because libxml2 decides and does not round them to the
nearest double.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from edn.formats.event_xml import element_name
from edn.formats.xml import REPLACEMENT
from edn.model.coordinates import instant
from edn.model.filter.ast import Node, Test, all_of, any_of
from edn.model.xpath.expression import (
    Binary,
    Call,
    Expression,
    Negative,
    Number,
    Path,
    Step,
    String,
    gives_nodes,
)

#: upper bound of libxml2's relative error for numbers of up to 400 digits
_RELATIVE = 1e-11
#: upper bound of numbers that libxml2 reads as 0 because their power of ten overflows
_ABSOLUTE = 1e-280

_FLIPPED = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
#: negation of a comparison of two numbers
_OPPOSITE = {"=": "!=", "!=": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
_NUMBER = re.compile(r"[ \t\r\n]*-?(?:\d+(?:\.\d*)?|\.\d+)[ \t\r\n]*", re.ASCII)
_INTEGER = re.compile(r"-?\d{1,19}", re.ASCII)
_LEAST, _MOST = -(2**63), 2**63 - 1


@dataclass(slots=True)
class Tree:
    """A possible node of an event: the document, the event, an inner element or an attribute's leaf."""

    kind: Literal["document", "event", "inner", "leaf"]
    parent: Tree | None = None
    #: by element name
    children: dict[str, Tree] = field(default_factory=dict)
    #: of a leaf: the attribute and its type
    attribute: str = ""
    type: str = ""

    def leaves(self) -> Iterator[Tree]:
        if self.kind == "leaf":
            yield self
        for child in self.children.values():
            yield from child.leaves()

    def below(self) -> Iterator[Tree]:
        """Yields the elements inside, at any depth."""
        for child in self.children.values():
            yield child
            yield from child.below()


def tree_of(attributes: Mapping[str, str]) -> Tree:
    """Builds the document of an event with all attributes (name → type)."""
    document = Tree("document")
    event = document.children["event"] = Tree("event", document)
    for name, type_ in attributes.items():
        *outer, last = map(element_name, name.split("."))
        place = event
        for part in outer:
            place = place.children.setdefault(part, Tree("inner", place))
        place.children[last] = Tree("leaf", place, attribute=name, type=type_)
    return document


def count_nodes(document: Tree) -> int:
    return 1 + sum(2 if node.kind == "leaf" else 1 for node in document.below())


def cover(expression: Expression, document: Tree) -> Node | None:
    """Returns a filter that holds for every event that satisfies the expression; None: no condition."""
    return _cover(expression, document.children["event"], True)


# -- truth --------------------------------------------------------------------------------------------------


def _cover(expression: Expression, context: Tree, holds: bool) -> Node | None:
    """Returns the cover of an expression in a context, or of its negation if `holds` is False."""
    match expression:
        case Binary("and" | "or" as operator, left, right):
            parts = [_cover(left, context, holds), _cover(right, context, holds)]
            return _both(parts) if (operator == "and") == holds else _either(parts)
        case Binary("=" | "!=" | "<" | "<=" | ">" | ">=" as operator, left, right):
            return _comparison(operator, left, right, context, holds)
        case Call("not", (part,)):
            return _cover(part, context, not holds)
        case Call("boolean", (part,)) if gives_nodes(part) or isinstance(part, Binary | Call):
            return _cover(part, context, holds)
        case Call("starts-with" | "contains" as name, (part, String(text))) if holds and text:
            return _of_nodes(part, context, lambda leaf: _string_test(leaf, name, text))
        case Binary("|") | Path():
            return _of_nodes(expression, context, _present) if holds else _none_of(expression, context)
    return None


def _both(parts: Iterable[Node | None]) -> Node | None:
    known = [part for part in parts if part is not None]
    return all_of(known) if known else None


def _either(parts: Iterable[Node | None]) -> Node | None:
    known: list[Node] = []
    for part in parts:
        if part is None:
            return None
        known.append(part)
    return any_of(known) if known else None


def _present(leaf: Tree) -> Node:
    return Test(leaf.attribute, "exists", True)


def _missing(leaf: Tree) -> Node:
    return Test(leaf.attribute, "exists", False)


# -- paths --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Target:
    """A node that a path may select, and the conditions of its predicates."""

    node: Tree
    conditions: tuple[Node, ...] = ()
    #: whether the path selects the node in every event that has it
    exact: bool = True
    #: whether the path may select the node's text instead
    text: bool = False


def _targets(expression: Expression, context: Tree) -> list[_Target] | None:
    """Returns every node that a set of nodes may contain; None if unknown."""
    if isinstance(expression, Binary) and expression.operator == "|":
        left, right = _targets(expression.left, context), _targets(expression.right, context)
        return None if left is None or right is None else left + right
    if not isinstance(expression, Path):
        return None
    if expression.start is not None:
        found = _targets(expression.start, context)
        if found is None:
            return None
        found = [_narrowed(one, expression.predicates) for one in found]
    else:
        found = [_Target(_root(context) if expression.absolute else context)]
    for step in expression.steps:
        stepped: list[_Target] = []
        for one in found:
            reached = None if one.text and step.axis == "parent" else _reached(one.node, step)
            if reached is None:
                return None
            # A path over a parent passes a node that an event may lack.
            exact = one.exact and step.test != "text()" and step.axis != "parent"
            text = step.test in ("text()", "node()") and (one.text or step.axis != "self")
            stepped += [
                _narrowed(_Target(node, one.conditions, exact, text), step.predicates) for node in reached
            ]
        found = stepped
    return found


def _narrowed(target: _Target, predicates: tuple[Expression, ...]) -> _Target:
    """Adds the conditions that predicates imply to a target."""
    if not predicates:
        return target
    implied = [_cover(one, target.node, True) for one in predicates]
    known = tuple(one for one in implied if one is not None)
    return _Target(target.node, target.conditions + known, exact=False, text=target.text)


def _root(node: Tree) -> Tree:
    while node.parent is not None:
        node = node.parent
    return node


def _reached(node: Tree, step: Step) -> list[Tree] | None:
    """Returns the nodes that a step leads to; None for an unsupported axis."""
    match step.axis:
        case "self":
            candidates = [node]
        case "child":
            candidates = list(node.children.values())
        case "descendant":
            candidates = list(node.below())
        case "descendant-or-self":
            candidates = [node, *node.below()]
        case "parent":
            candidates = [] if node.parent is None else [node.parent]
        case _:
            return None
    if step.test == "text()":
        # The text of a leaf has its value, and exists only if the leaf does.
        holders = [node] if step.axis == "child" else candidates
        return None if step.axis in ("self", "parent") else [one for one in holders if one.kind == "leaf"]
    if step.test == "node()":
        # Texts are nodes, too. The leaf stands for its text.
        if step.axis == "child" and node.kind == "leaf":
            return None
        return candidates
    return [one for one in candidates if _named(one, step)]


def _named(node: Tree, step: Step) -> bool:
    if node.kind == "document":
        return False
    if node.kind == "event":
        return step.test in ("event", "*") if step.qualified else step.test == "*"
    if step.qualified:
        return False
    return step.test == "*" or (node.parent is not None and node.parent.children.get(step.test) is node)


def _of_nodes(expression: Expression, context: Tree, test: Callable[[Tree], Node | None]) -> Node | None:
    """Returns the cover of "some node passes a test that implies `test` on its attribute"."""
    found = _targets(expression, context)
    if found is None:
        return None
    parts: list[Node | None] = []
    for target in found:
        if target.node.kind == "leaf":
            own = test(target.node)
        else:
            # An inner element exists if one of its leaves does; the event always exists.
            own = _either(map(_present, target.node.leaves())) if target.node.kind == "inner" else None
        parts.append(_both([own, *target.conditions]))
    return _either(parts)


def _none_of(expression: Expression, context: Tree) -> Node | None:
    """Returns the cover of "the set is empty"."""
    found = _targets(expression, context)
    if not found or not all(target.exact for target in found):
        return None
    return _both(_missing(leaf) for target in found for leaf in target.node.leaves())


# -- comparisons --------------------------------------------------------------------------------------------


def _comparison(
    operator: str, left: Expression, right: Expression, context: Tree, holds: bool
) -> Node | None:
    if not gives_nodes(left):
        left, right, operator = right, left, _FLIPPED[operator]
    if not gives_nodes(left):
        return None
    value = _constant(right)
    if value is None:
        # A set that satisfies a comparison with a non-boolean is not empty.
        strict = gives_nodes(right) or (isinstance(right, Call) and right.name in _PLAIN)
        return _of_nodes(left, context, _present) if holds and strict else None
    if holds:
        return _of_nodes(left, context, lambda leaf: _value_test(leaf, operator, value))
    found = _targets(left, context)
    if not found or not all(target.exact and target.node.kind == "leaf" for target in found):
        return None
    return _both(_negated_test(target.node, operator, value) for target in found)


#: functions that return a number or a string
_PLAIN = frozenset(
    {"concat", "string", "normalize-space", "translate", "substring", "number", "string-length"}
)


def _constant(expression: Expression) -> float | str | None:
    """Returns the value of a literal; None for arithmetic, as libxml2's rounding error is unknown."""
    match expression:
        case Number(text):
            return float(text)
        case String(text):
            return text
        case Negative(part):
            value = _constant(part)
            return -value if isinstance(value, float) else None
    return None


def _value_test(leaf: Tree, operator: str, value: float | str) -> Node:
    """Returns the condition that a leaf's comparison with a literal implies."""
    if isinstance(value, str):
        if operator == "=":
            return _equal_text(leaf, value)
        if operator == "!=" or not _NUMBER.fullmatch(value):
            return _present(leaf)
        value = float(value)
    return _number_test(leaf, operator, value) or _present(leaf)


def _negated_test(leaf: Tree, operator: str, value: float | str) -> Node | None:
    """Returns the condition that a failed comparison of a leaf implies, including a missing leaf."""
    if isinstance(value, str):
        if operator == "!=":
            return any_of([_missing(leaf), _equal_text(leaf, value)])
        if operator == "=" or not _NUMBER.fullmatch(value):
            return None
        value = float(value)
    implied = _number_test(leaf, _OPPOSITE[operator], value)
    return None if implied is None else any_of([_missing(leaf), implied])


def _number_test(leaf: Tree, operator: str, value: float) -> Node | None:
    """Returns the condition on a numeric leaf; None if there is none."""
    if leaf.type not in ("number", "integer") or operator == "!=" or not math.isfinite(value):
        return None
    slack = abs(value) * _RELATIVE + _ABSOLUTE
    lower, upper = value - slack, value + slack
    if not math.isfinite(lower) or not math.isfinite(upper):
        return None
    if leaf.type == "integer":
        lower, upper = math.floor(lower), math.ceil(upper)
    bounds: list[tuple[str, float]] = []
    if operator in (">", ">=", "="):
        bounds.append(("gte", lower))
    if operator in ("<", "<=", "="):
        bounds.append(("lte", upper))
    if leaf.type == "integer" and not all(_LEAST <= bound <= _MOST for _, bound in bounds):
        return None
    return all_of([Test(leaf.attribute, bound, limit) for bound, limit in bounds])


def _equal_text(leaf: Tree, text: str) -> Node:
    match leaf.type:
        case "string" if REPLACEMENT not in text:
            return Test(leaf.attribute, "eq", text)
        case "boolean" if text in ("true", "false"):
            return Test(leaf.attribute, "eq", text == "true")
        case "number" if _NUMBER.fullmatch(text) and text == text.strip() and math.isfinite(float(text)):
            return Test(leaf.attribute, "eq", float(text))
        case "integer" if _INTEGER.fullmatch(text) and _LEAST <= int(text) <= _MOST:
            return Test(leaf.attribute, "eq", int(text))
        case "time":
            try:
                instant(text)
            except ValueError:
                return _present(leaf)
            return Test(leaf.attribute, "eq", text)
    return _present(leaf)


def _string_test(leaf: Tree, name: str, text: str) -> Node:
    if leaf.type != "string" or REPLACEMENT in text:
        return _present(leaf)
    return Test(leaf.attribute, "prefix" if name == "starts-with" else "contains", text)
