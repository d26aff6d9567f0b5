"""Explains why a filter matches an event or not: the deciding clauses, in text form.

For a match these are all parts of a conjunction and the first alternative of a disjunction that holds. For a
mismatch these are the failing parts of a conjunction and all alternatives of a disjunction.
"""

from __future__ import annotations

from collections.abc import Iterator

from edn.model.filter.ast import All, AnyOf, Node
from edn.model.filter.binding import BoundNode, Values, predicate
from edn.model.filter.filter import BoundFilter
from edn.model.filter.textform import write


def reasons(bound: BoundFilter, values: Values) -> list[str]:
    """Returns the clauses by which these values match or do not match; none for a filter without clauses."""
    root = bound.filter.root
    if root is None:
        return []
    return [write(node) for node in _deciding(root, bound.root, values, bound.matches(values))]


def _deciding(node: Node, bound: BoundNode, values: Values, holds: bool) -> Iterator[Node]:
    match node, bound:
        case (All(nodes), All(parts)) | (AnyOf(nodes), AnyOf(parts)):
            for inner, part in zip(nodes, parts, strict=True):
                if predicate(part)(values) == holds:
                    yield from _deciding(inner, part, values, holds)
                    if holds and isinstance(node, AnyOf):
                        return
        case _:
            yield node
