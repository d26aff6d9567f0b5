"""Explains why a filter matches an event or not: the deciding clauses, in text form.

For a match these are all parts of a conjunction and the first alternative of a disjunction that holds. For a
mismatch these are the failing parts of a conjunction and all alternatives of a disjunction.
"""

from __future__ import annotations

from edn.model.filter.ast import All, AnyOf, Node, Not
from edn.model.filter.binding import (
    BoundAll,
    BoundAny,
    BoundNode,
    BoundNot,
    BoundTest,
    BoundXPath,
    Values,
    predicate,
)
from edn.model.filter.filter import BoundFilter
from edn.model.filter.textform import write


def reasons(bound: BoundFilter, values: Values) -> list[str]:
    """Returns the clauses by which these values match or do not match; none for a filter without clauses."""
    return [write(_unbound(node)) for node in _deciding(bound.root, values, predicate(bound.root)(values))]


def _deciding(node: BoundNode, values: Values, holds: bool) -> list[BoundNode]:
    match node:
        case BoundAll(parts):
            chosen = [part for part in parts if predicate(part)(values) == holds]
            return [deep for part in chosen for deep in _deciding(part, values, holds)]
        case BoundAny(parts) if holds:
            first = next(part for part in parts if predicate(part)(values))
            return _deciding(first, values, True)
        case BoundAny(parts):
            return [deep for part in parts for deep in _deciding(part, values, False)]
    return [node]


def _unbound(node: BoundNode) -> Node:
    match node:
        case BoundTest(test=test):
            return test
        case BoundXPath(path=path):
            return path
        case BoundNot(part):
            return Not(_unbound(part))
        case BoundAll(parts):
            return All(tuple(map(_unbound, parts)))
        case BoundAny(parts):
            return AnyOf(tuple(map(_unbound, parts)))
