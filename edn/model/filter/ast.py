"""The tree of a filter: tests of attributes, of their elements, and XPaths, combined by all, any and not.

The JSON form and the text form are parsed into this tree and written from it. The tree is canonical: an `All`
contains no `All` and an `AnyOf` no `AnyOf`, and both have at least two parts. Two filters are equal if their
trees are equal up to the order and repetition of parts (`identity`).
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from edn.errors import InvalidFilter, TooLarge
from edn.model.coordinates import instant, is_encodable
from edn.model.messages import describe

#: nesting of combinators
MAX_DEPTH = 32
#: tests of a filter; each value of an `in` counts
MAX_PREDICATES = 1_000

Literal = str | int | float | bool
#: operand of a test: a tuple for `between` and `in`, a boolean for `exists`
Operand = Literal | tuple[Literal, ...]

ORDER_OPERATORS = ("lt", "lte", "gt", "gte", "between")
STRING_OPERATORS = ("prefix", "suffix", "contains", "matches")
#: operators of a test; the JSON form has also `not`, which is a flag of the negated test
OPERATORS = ("eq", "ne", "lt", "lte", "gt", "gte", "between", *STRING_OPERATORS, "exists", "in")
#: operators of arrays, whose operand is a condition on an element
QUANTIFIERS = ("any", "all")


@dataclass(frozen=True, slots=True)
class Place:
    """The position of a test in the filter, for errors that are found with a schema."""

    #: JSON pointers to the attribute and to the operator; None in the text form
    attribute: str | None = None
    operator: str | None = None
    #: columns of the attribute and of the literals; empty in the JSON form
    columns: tuple[int, ...] = ()

    @property
    def group(self) -> str | None:
        """Pointer to the object with the operator; None for a literal and in the text form."""
        if self.operator is None or self.operator == self.attribute:
            return None
        return self.operator.rpartition("/")[0]

    def wrong(self, detail: str) -> InvalidFilter:
        return InvalidFilter(detail, pointer=self.attribute, column=self.columns[0] if self.columns else None)

    def wrong_operand(self, detail: str, index: int | None = None) -> InvalidFilter:
        """Makes an error that points to the operator, or to a literal in its list."""
        if self.columns:
            return InvalidFilter(detail, column=self.columns[min(1 + (index or 0), len(self.columns) - 1)])
        return InvalidFilter(detail, pointer=self.operator if index is None else f"{self.operator}/{index}")


@dataclass(frozen=True, slots=True)
class Test:
    """A condition on one attribute. Only `exists: false` holds if the attribute is missing."""

    attribute: str
    operator: str
    operand: Operand
    #: whether the attribute must be present and the condition must not hold
    negated: bool = False
    place: Place = field(default=Place(), compare=False)

    @property
    def literals(self) -> tuple[Literal, ...]:
        return self.operand if isinstance(self.operand, tuple) else (self.operand,)


Part = TypeVar("Part")


@dataclass(frozen=True, slots=True)
class All(Generic[Part]):
    """A conjunction, of nodes here and of bound nodes elsewhere; without parts it is everything."""

    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class AnyOf(Generic[Part]):
    """A disjunction; without parts it is nothing."""

    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Not(Generic[Part]):
    """The complement of a part, also for missing attributes."""

    part: Part


@dataclass(frozen=True, slots=True)
class XPath:
    """A condition in XPath 1.0 on the XML form of the event (`edn.model.xpath`)."""

    text: str
    #: JSON pointer; None in the text form
    pointer: str | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Each:
    """A condition on the elements of an array: some element, or every one, satisfies a part.

    The tests of the part have the attribute's name, and none is `exists`. It does not hold if the array is
    missing; every element of an empty array satisfies everything.
    """

    attribute: str
    #: any or all
    quantifier: str
    part: Node
    #: whether the array must be present and the condition must not hold
    negated: bool = False
    place: Place = field(default=Place(), compare=False)


Node = Test | Each | XPath | All["Node"] | AnyOf["Node"] | Not["Node"]


def all_of(parts: Iterable[Node]) -> Node:
    """Builds the canonical conjunction of at least one part."""
    flat = [inner for part in parts for inner in (part.parts if isinstance(part, All) else (part,))]
    return flat[0] if len(flat) == 1 else All(tuple(flat))


def any_of(parts: Iterable[Node]) -> Node:
    """Builds the canonical disjunction of at least one part."""
    flat = [inner for part in parts for inner in (part.parts if isinstance(part, AnyOf) else (part,))]
    return flat[0] if len(flat) == 1 else AnyOf(tuple(flat))


def negate_conditions(attribute: str, conditions: Node, place: Place) -> Node:
    """Builds `not` inside an attribute: the attribute is present and the conditions do not all hold."""
    if isinstance(conditions, Test) and not conditions.negated:
        if conditions.operator != "exists":
            return Test(attribute, conditions.operator, conditions.operand, True, conditions.place)
        if conditions.operand is False:
            return Test(attribute, "exists", True, place=conditions.place)
    if isinstance(conditions, Each) and not conditions.negated:
        return replace(conditions, negated=True)
    return All((Test(attribute, "exists", True, place=place), Not(conditions)))


def negate_element(condition: Node) -> Node:
    """Builds `not` of a condition on an element, which is never missing."""
    if isinstance(condition, Test) and not condition.negated:
        return replace(condition, negated=True)
    return Not(condition)


def children(node: Any) -> tuple[Any, ...]:
    match node:
        case All(parts) | AnyOf(parts):
            return parts
        case Not(part) | Each(part=part):
            return (part,)
    return ()


def walk(node: Part) -> Iterator[Part]:
    """Yields every node of a tree, bound or not, in written order."""
    yield node
    for child in children(node):
        yield from walk(child)


def tests(node: Node) -> Iterator[Test]:
    return (one for one in walk(node) if isinstance(one, Test))


def xpaths(node: Node) -> Iterator[XPath]:
    return (one for one in walk(node) if isinstance(one, XPath))


#: operators of an XPath, and its functions by their opening parenthesis
_XPATH_PREDICATES = re.compile(r"[(\[|]|!=|<=|>=|[=<>+*-]|\b(?:and|or|div|mod)\b")


def count_predicates(node: Node) -> int:
    """Counts comparisons: each test, each value of an `in`, each operator of an XPath."""
    return sum(max(1, len(test.literals)) for test in tests(node)) + sum(
        1 + len(_XPATH_PREDICATES.findall(path.text)) for path in xpaths(node)
    )


def check_depth(node: Node) -> None:
    """Rejects a tree deeper than `MAX_DEPTH`. Goes level by level, as recursion could overflow."""
    level: tuple[Node, ...] = (node,)
    for _ in range(MAX_DEPTH + 1):
        level = tuple(child for parent in level for child in children(parent))
        if not level:
            return
    raise too_deep()


def too_deep() -> TooLarge:
    return TooLarge(f"a filter must be nested at most {MAX_DEPTH} levels deep")


def too_many_predicates() -> TooLarge:
    return TooLarge(f"a filter must have at most {MAX_PREDICATES} predicates")


def identity(node: Node | None) -> Hashable:
    """Returns a value that is the same for equal filters only."""
    match node:
        case Test():
            literals: Hashable = tuple(map(_literal_identity, node.literals))
            if node.operator == "in":
                literals = frozenset(map(_literal_identity, node.literals))
            return (node.attribute, node.operator, literals, node.negated)
        case All(parts) | AnyOf(parts):
            distinct = frozenset(map(identity, parts))
            return (type(node).__name__, distinct) if len(distinct) > 1 else next(iter(distinct))
        case Not(part):
            return ("not", identity(part))
        case Each():
            return (node.attribute, node.quantifier, identity(node.part), node.negated)
        case XPath(text):
            return ("xpath", text)
    return None


def _literal_identity(literal: Literal) -> Hashable:
    return ("boolean", literal) if isinstance(literal, bool) else literal  # True == 1 in Python


def exclude(lower: str, lo: Literal | bytes, upper: str, hi: Literal | bytes) -> bool:
    """Tells whether no value satisfies both a lower and an upper bound, by the order of the literals."""
    if isinstance(lo, str) != isinstance(hi, str):
        return False  # no schema accepts literals of different types
    is_strict = lower == "gt" or upper == "lt"
    return lo > hi or (is_strict and lo == hi)  # type: ignore[operator]  # both are strings, or neither


def contradiction(lower: str, lo: object, upper: str, hi: object) -> str:
    """Describes bounds that exclude each other."""
    relation = "at most" if (lower, upper) == ("gte", "lte") else "below"
    return f"{lower} must be {relation} {upper}, got {lower} {lo!r} and {upper} {hi!r}"


def surely_exclude(lower: str, lo: Literal, upper: str, hi: Literal) -> bool:
    """Tells whether bounds exclude each other for every attribute type; strings may be times."""
    if isinstance(lo, str) or isinstance(hi, str):
        return False
    return exclude(lower, lo, upper, hi) and exclude(lower, float(lo), upper, float(hi))


def surely_agree(lower: str, lo: Literal, upper: str, hi: Literal) -> bool:
    """Tells whether bounds do not exclude each other for any attribute type."""
    if isinstance(lo, str) and isinstance(hi, str):
        return not exclude(lower, lo, upper, hi) and not (_is_time(lo) and _is_time(hi))
    if isinstance(lo, str) or isinstance(hi, str):
        return True
    return not exclude(lower, lo, upper, hi) and not exclude(lower, float(lo), upper, float(hi))


def _is_time(text: str) -> bool:
    try:
        instant(text)
    except ValueError:
        return False
    return True


def check_literal(given: object, *, pointer: str | None = None, column: int | None = None) -> Literal:
    """Checks a literal before a schema is known; raises `InvalidFilter` at the given place."""
    match given:
        case bool():
            return given
        case str():
            if is_encodable(given):
                return given
            rule = "a string must not contain a lone surrogate"
        case int() | float():
            with contextlib.suppress(OverflowError):
                if math.isfinite(float(given)):
                    # Messages carry integers of up to 64 bits.
                    return given if isinstance(given, float) or -(2**63) <= given < 2**63 else float(given)
            rule = "a number must be in the range of a 64-bit double"
        case None:
            rule = "null is not allowed in a filter; for a missing attribute write exists: false"
        case _:
            rule = f"a literal must be a string, a number or a boolean, got {describe(given)}"
    raise InvalidFilter(rule, pointer=pointer, column=column)


def check_name(given: object, *, pointer: str | None = None, column: int | None = None) -> str:
    """Checks the name of an attribute before a schema is known; raises `InvalidFilter` at the given place."""
    if isinstance(given, str) and given and is_encodable(given):
        return given
    rule = f"the name of an attribute must be a non-empty string, got {describe(given)}"
    raise InvalidFilter(rule, pointer=pointer, column=column)
