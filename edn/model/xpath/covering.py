"""Derives conditions on single attributes from an XPath: its rectangles are made of them.

A *cover* is a filter of the ordinary kind that holds wherever the expression does; it may hold elsewhere.
None is the cover that says nothing. Covers are found by following the expression's paths through the tree of
the topic's attributes; an event has at most one node for each node of that tree:

    price > 30, 30 < price, /e:event/price > 30, //price > 30       price above 30, a little less
    e:event[price > 30]/symbol                                      that, and symbol is there
    symbol = 'GE', starts-with(symbol, 'G'), contains(symbol, 'E')  the same of symbol
    a and b, a or b, not(a), count(…) …                             both, either, the negation; nothing

Numbers are covered *a little* wider than they are written: libxml2 does not round what it reads to the
nearest double, and is off by some units in the last place; the verdict is its, so the cover contains it.
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

#: what reading a number of up to 400 digits digit by digit can be off by, and more
_RELATIVE = 1e-11
#: what is read as nothing because its power of ten overflows
_ABSOLUTE = 1e-280

_FLIPPED = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
#: the comparison that holds where one does not, of two numbers
_OPPOSITE = {"=": "!=", "!=": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
_NUMBER = re.compile(r"[ \t\r\n]*-?(?:\d+(?:\.\d*)?|\.\d+)[ \t\r\n]*", re.ASCII)
_INTEGER = re.compile(r"-?\d{1,19}", re.ASCII)
_LEAST, _MOST = -(2**63), 2**63 - 1


@dataclass(slots=True)
class Tree:
    """A node that an event may have: the document, the event, an inner element or an attribute's leaf."""

    kind: Literal["document", "event", "inner", "leaf"]
    parent: Tree | None = None
    #: by the name of their element
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
        """The elements inside, at any depth."""
        for child in self.children.values():
            yield child
            yield from child.below()


def tree_of(attributes: Mapping[str, str]) -> Tree:
    """The document of an event that has all of these attributes (name → type)."""
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
    """Elements and their texts, and the document."""
    return 1 + sum(2 if node.kind == "leaf" else 1 for node in document.below())


def cover(expression: Expression, document: Tree) -> Node | None:
    """A filter that holds of every event of which the expression holds; None says nothing."""
    return _cover(expression, document.children["event"], True)


# -- truth --------------------------------------------------------------------------------------------------


def _cover(expression: Expression, context: Tree, holds: bool) -> Node | None:
    """The cover of an expression in a context, or with `holds` unset of its negation."""
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
            return _of_nodes(expression, context, _there) if holds else _none_of(expression, context)
    return None


def _both(parts: Iterable[Node | None]) -> Node | None:
    told = [part for part in parts if part is not None]
    return all_of(told) if told else None


def _either(parts: Iterable[Node | None]) -> Node | None:
    told: list[Node] = []
    for part in parts:
        if part is None:
            return None
        told.append(part)
    return any_of(told) if told else None


def _there(leaf: Tree) -> Node:
    return Test(leaf.attribute, "exists", True)


def _missing(leaf: Tree) -> Node:
    return Test(leaf.attribute, "exists", False)


# -- paths --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Target:
    """Where a path may lead, and what its predicates imply on the way."""

    node: Tree
    conditions: tuple[Node, ...] = ()
    #: an event that has the node has it here, whatever else: nothing on the way was left out
    exact: bool = True
    #: it may be the text of the node instead, whose parent is the node
    text: bool = False


def _targets(expression: Expression, context: Tree) -> list[_Target] | None:
    """Every node of the tree that a set of nodes may hold; None where that is not known."""
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
            # Over a parent, the way leads through a node that an event may lack.
            exact = one.exact and step.test != "text()" and step.axis != "parent"
            text = step.test in ("text()", "node()") and (one.text or step.axis != "self")
            stepped += [
                _narrowed(_Target(node, one.conditions, exact, text), step.predicates) for node in reached
            ]
        found = stepped
    return found


def _narrowed(target: _Target, predicates: tuple[Expression, ...]) -> _Target:
    """The target as far as the predicates hold of it; what they imply is known where they are no numbers."""
    if not predicates:
        return target
    implied = [_cover(one, target.node, True) for one in predicates]
    told = tuple(one for one in implied if one is not None)
    return _Target(target.node, target.conditions + told, exact=False, text=target.text)


def _root(node: Tree) -> Tree:
    while node.parent is not None:
        node = node.parent
    return node


def _reached(node: Tree, step: Step) -> list[Tree] | None:
    """The nodes of the tree that a step leads to; None for an axis that is not followed."""
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
        # The text of a leaf has its value, and is there only if the leaf is.
        holders = [node] if step.axis == "child" else candidates
        return None if step.axis in ("self", "parent") else [one for one in holders if one.kind == "leaf"]
    if step.test == "node()":
        # Texts are nodes, too; those of leaves stand for the leaf, and lead nowhere that it does not.
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
    """The cover of "some node passes a test that implies `test` of its attribute"."""
    found = _targets(expression, context)
    if found is None:
        return None
    parts: list[Node | None] = []
    for target in found:
        if target.node.kind == "leaf":
            own = test(target.node)
        else:
            # An inner element is there if something in it is; the event always is.
            own = _either(map(_there, target.node.leaves())) if target.node.kind == "inner" else None
        parts.append(_both([own, *target.conditions]))
    return _either(parts)


def _none_of(expression: Expression, context: Tree) -> Node | None:
    """The cover of "the set is empty"."""
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
        # Whatever it is compared with: a set that passes a comparison with no boolean is not empty.
        strict = gives_nodes(right) or (isinstance(right, Call) and right.name in _PLAIN)
        return _of_nodes(left, context, _there) if holds and strict else None
    if holds:
        return _of_nodes(left, context, lambda leaf: _value_test(leaf, operator, value))
    found = _targets(left, context)
    if not found or not all(target.exact and target.node.kind == "leaf" for target in found):
        return None
    return _both(_refused_test(target.node, operator, value) for target in found)


#: functions that give a number or a string
_PLAIN = frozenset(
    {"concat", "string", "normalize-space", "translate", "substring", "number", "string-length"}
)


def _constant(expression: Expression) -> float | str | None:
    """The value of a literal; of arithmetic with literals it is not known how far libxml2 is off."""
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
    """What a leaf's comparison with a literal implies."""
    if isinstance(value, str):
        if operator == "=":
            return _equal_text(leaf, value)
        if operator == "!=" or not _NUMBER.fullmatch(value):
            return _there(leaf)
        value = float(value)
    return _number_test(leaf, operator, value) or _there(leaf)


def _refused_test(leaf: Tree, operator: str, value: float | str) -> Node | None:
    """What it implies that a leaf's comparison with a literal does not hold: perhaps it is not there."""
    if isinstance(value, str):
        if operator == "!=":
            return any_of([_missing(leaf), _equal_text(leaf, value)])
        if operator == "=" or not _NUMBER.fullmatch(value):
            return None
        value = float(value)
    implied = _number_test(leaf, _OPPOSITE[operator], value)
    return None if implied is None else any_of([_missing(leaf), implied])


def _number_test(leaf: Tree, operator: str, value: float) -> Node | None:
    """Of a leaf that is always a number; None if nothing can be said."""
    if leaf.type not in ("number", "integer") or operator == "!=" or not math.isfinite(value):
        return None
    slack = abs(value) * _RELATIVE + _ABSOLUTE
    lower, upper = value - slack, value + slack
    if not math.isfinite(lower) or not math.isfinite(upper):
        return None
    name = leaf.attribute
    parts: list[Node] = []
    if operator in (">", ">=", "="):
        least = lower if leaf.type == "number" else math.floor(lower)
        if leaf.type == "integer" and not _LEAST <= least <= _MOST:
            return None
        parts.append(Test(name, "gte", least))
    if operator in ("<", "<=", "="):
        most = upper if leaf.type == "number" else math.ceil(upper)
        if leaf.type == "integer" and not _LEAST <= most <= _MOST:
            return None
        parts.append(Test(name, "lte", most))
    return all_of(parts)


def _equal_text(leaf: Tree, text: str) -> Node:
    """That the text of a leaf is this one."""
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
                return _there(leaf)
            return Test(leaf.attribute, "eq", text)
    return _there(leaf)


def _string_test(leaf: Tree, name: str, text: str) -> Node:
    if leaf.type != "string" or REPLACEMENT in text:
        return _there(leaf)
    return Test(leaf.attribute, "prefix" if name == "starts-with" else "contains", text)
