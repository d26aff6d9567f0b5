"""The filter as a tree: tests of one attribute each and XPaths, combined by all, any and not.

Both forms of a filter, JSON and text, are read into this tree and written from it. It is kept in a
canonical shape: no `All` directly inside an `All`, no `AnyOf` inside an `AnyOf`, neither with a single
part. Two filters are equal if their trees are, whatever the order of the parts and however often one is
repeated (`identity`).
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field

from edn.errors import InvalidFilter, TooLarge
from edn.model.coordinates import instant

#: combinators inside one another
MAX_DEPTH = 32
#: tests in all; each value of an `in` counts
MAX_PREDICATES = 1_000

Literal = str | int | float | bool
#: the operand of a test: `between` and `in` have several literals, `exists` a boolean
Operand = Literal | tuple[Literal, ...]

ORDER_OPERATORS = ("lt", "lte", "gt", "gte", "between")
STRING_OPERATORS = ("prefix", "suffix", "contains")
#: of a test; `not`, the twelfth operator of the JSON form, is a flag of the test that it negates
OPERATORS = ("eq", "ne", "lt", "lte", "gt", "gte", "between", *STRING_OPERATORS, "exists", "in")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a test was written, for the errors that show only when a schema is at hand."""

    #: JSON pointers to the attribute and to the operator; None in a text
    attribute: str | None = None
    operator: str | None = None
    #: columns of the attribute and of the literals; empty in JSON
    columns: tuple[int, ...] = ()

    @property
    def group(self) -> str | None:
        """The object that the operator stands in, or None for a literal and in a text."""
        if self.operator is None or self.operator == self.attribute:
            return None
        return self.operator.rpartition("/")[0]

    def wrong(self, detail: str) -> InvalidFilter:
        """The attribute is at fault."""
        return InvalidFilter(detail, pointer=self.attribute, column=self.columns[0] if self.columns else None)

    def wrong_operand(self, detail: str, index: int | None = None) -> InvalidFilter:
        """The operator is at fault, or the literal with this index in its list."""
        if self.columns:
            return InvalidFilter(detail, column=self.columns[min(1 + (index or 0), len(self.columns) - 1)])
        return InvalidFilter(detail, pointer=self.operator if index is None else f"{self.operator}/{index}")


@dataclass(frozen=True, slots=True)
class Test:
    """One condition on one attribute. Only `exists: false` holds where the attribute is missing."""

    attribute: str
    operator: str
    operand: Operand
    #: the attribute is there and the condition does not hold
    negated: bool = False
    place: Place = field(default=Place(), compare=False)

    @property
    def literals(self) -> tuple[Literal, ...]:
        return self.operand if isinstance(self.operand, tuple) else (self.operand,)


@dataclass(frozen=True, slots=True)
class All:
    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """The complement: it holds exactly where the part does not, missing attributes or not."""

    part: Node


@dataclass(frozen=True, slots=True)
class XPath:
    """A condition in XPath 1.0 on the XML form of the event (`edn.model.xpath`)."""

    text: str
    #: JSON pointer to it; None in a text
    pointer: str | None = field(default=None, compare=False)


Node = Test | All | AnyOf | Not | XPath


def all_of(parts: Iterable[Node]) -> Node:
    """The canonical conjunction of at least one part."""
    flat = [inner for part in parts for inner in (part.parts if isinstance(part, All) else (part,))]
    return flat[0] if len(flat) == 1 else All(tuple(flat))


def any_of(parts: Iterable[Node]) -> Node:
    """The canonical disjunction of at least one part."""
    flat = [inner for part in parts for inner in (part.parts if isinstance(part, AnyOf) else (part,))]
    return flat[0] if len(flat) == 1 else AnyOf(tuple(flat))


def refused(attribute: str, conditions: Node, place: Place) -> Node:
    """`not` inside an attribute: it is there, and the conditions do not hold together."""
    if isinstance(conditions, Test) and not conditions.negated:
        if conditions.operator != "exists":
            return Test(attribute, conditions.operator, conditions.operand, True, conditions.place)
        if conditions.operand is False:
            return Test(attribute, "exists", True, place=conditions.place)
    return All((Test(attribute, "exists", True, place=place), Not(conditions)))


def children(node: Node) -> tuple[Node, ...]:
    match node:
        case All(parts) | AnyOf(parts):
            return parts
        case Not(part):
            return (part,)
    return ()


def tests(node: Node) -> Iterator[Test]:
    """Every test in the tree, in the order in which they were written."""
    if isinstance(node, Test):
        yield node
    for child in children(node):
        yield from tests(child)


def xpaths(node: Node) -> Iterator[XPath]:
    """Every XPath in the tree."""
    if isinstance(node, XPath):
        yield node
    for child in children(node):
        yield from xpaths(child)


#: in an XPath, what compares or computes: operators, and functions by their opening parenthesis
_XPATH_PREDICATES = re.compile(r"[(\[|]|!=|<=|>=|[=<>+*-]|\b(?:and|or|div|mod)\b")


def count_predicates(node: Node) -> int:
    """Count the comparisons of a tree; each value of an `in`, and each operator of an XPath, is one."""
    return sum(max(1, len(test.literals)) for test in tests(node)) + sum(
        1 + len(_XPATH_PREDICATES.findall(path.text)) for path in xpaths(node)
    )


def check_depth(node: Node) -> None:
    """Refuse a tree deeper than `MAX_DEPTH`, level by level, so that no tree is too deep to be looked at."""
    level: tuple[Node, ...] = (node,)
    for _ in range(MAX_DEPTH + 1):
        level = tuple(child for parent in level for child in children(parent))
        if not level:
            return
    raise too_deep()


def too_deep() -> TooLarge:
    return TooLarge(f"the filter is nested deeper than {MAX_DEPTH}")


def identity(node: Node | None) -> Hashable:
    """What two equal filters have in common, and no other."""
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
        case XPath(text):
            return ("xpath", text)
    return None


def _literal_identity(literal: Literal) -> Hashable:
    return ("boolean", literal) if isinstance(literal, bool) else literal  # for True == 1 in Python


def exclude(lower: str, lo: Literal, upper: str, hi: Literal) -> bool:
    """Whether gt or gte `lo` leaves nothing for lt or lte `hi`, by the plain order of the two."""
    if isinstance(lo, str) != isinstance(hi, str):
        return False  # of two types: no schema will take both
    strict = lower == "gt" or upper == "lt"
    if isinstance(lo, str) and isinstance(hi, str):
        return lo > hi or (strict and lo == hi)
    assert not isinstance(lo, str)
    assert not isinstance(hi, str)
    return lo > hi or (strict and lo == hi)


def surely_exclude(lower: str, lo: Literal, upper: str, hi: Literal) -> bool:
    """`exclude` whatever the attribute's type will be: numbers as integers and as doubles; strings may be
    times."""
    if isinstance(lo, str) or isinstance(hi, str):
        return False
    return exclude(lower, lo, upper, hi) and exclude(lower, float(lo), upper, float(hi))


def surely_agree(lower: str, lo: Literal, upper: str, hi: Literal) -> bool:
    """Not `exclude`, whatever the attribute's type will be."""
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
