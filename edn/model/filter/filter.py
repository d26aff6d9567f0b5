"""`Filter`, as subscribers write it, and `BoundFilter`, bound to a topic's schema."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from edn.model.coordinates import Array
from edn.model.filter import jsonform, textform
from edn.model.filter.ast import (
    All,
    Each,
    Node,
    XPath,
    check_depth,
    count_predicates,
    identity,
    tests,
    walk,
    xpaths,
)
from edn.model.filter.binding import BoundNode, Predicate, bind, intervals_of, normal, predicate
from edn.model.filter.boxes import Expansion, Normal, TooMuchWork
from edn.model.filter.cells import Cell
from edn.model.filter.cost import Cost, cost_of, patterns_of
from edn.model.filter.intervals import Intervals, intersection
from edn.model.filter.rectangles import MAX_RECTS, Segment, Sides, rectangles, segments_of, sides_of
from edn.model.rect import Rects
from edn.model.schema import Schema

#: limits of a comparison of two filters: boxes, and intersections
_COMPARED_BOXES = 2_048
_COMPARED_STEPS = 10_000
#: limit of intersections for rectangles
_RECTANGLE_STEPS = 4_096


class Filter:
    """A condition on the content of events. Immutable; equal if the trees are (`ast.identity`)."""

    __slots__ = ("_identity", "root")

    def __init__(self, root: Node | None) -> None:
        """`root` is a canonical tree, or None for everything."""
        self.root = root
        self._identity: Hashable = identity(root)

    @classmethod
    def parse(cls, given: object) -> Filter:
        """Parses a filter in JSON form or text form (a string); None matches everything.

        Raises `InvalidFilter` with a pointer into the JSON form or a column of the text, or `TooLarge`.
        """
        if given is None:
            return cls(None)
        root = textform.read(given) if isinstance(given, str) else jsonform.read(given)
        check_depth(root)
        return cls(root)

    def to_json(self) -> dict[str, Any] | None:
        """Writes the JSON form, None for everything. Parsing it gives an equal filter."""
        return None if self.root is None else jsonform.write(self.root)

    def to_text(self) -> str | None:
        """Writes the text form, None for everything. Parsing it gives an equal filter."""
        return None if self.root is None else textform.write(self.root)

    @property
    def attributes(self) -> frozenset[str]:
        return (
            frozenset(test.attribute for test in tests(self.root)) if self.root is not None else frozenset()
        )

    @property
    def predicates(self) -> int:
        """Number of comparisons, as quotas count them; each value of an `in` counts."""
        return 0 if self.root is None else count_predicates(self.root)

    @property
    def uses_xpath(self) -> bool:
        return self.root is not None and any(xpaths(self.root))

    @property
    def is_covered(self) -> bool:
        """Whether rectangles only cover it: it has an XPath, or a condition on elements of an array."""
        return self.root is not None and any(isinstance(node, XPath | Each) for node in walk(self.root))

    def bind(self, schema: Schema) -> BoundFilter:
        """Binds the filter to a schema; raises `InvalidFilter` if it does not fit."""
        root = bind(self.root, schema)
        return BoundFilter(filter=self, schema=schema, root=root, matches=predicate(root))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Filter) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    def __repr__(self) -> str:
        return f"Filter({self.to_text()!r})"


@dataclass(frozen=True, eq=False)  # no slots: `cached_property` needs a `__dict__`
class BoundFilter:
    """A filter bound to a schema. Comparisons need the same schema, or one that evolved from the other's."""

    filter: Filter
    schema: Schema
    root: BoundNode
    #: exact predicate on the values of an event (`Schema.values`)
    matches: Predicate

    @property
    def attributes(self) -> frozenset[str]:
        """Attributes that must not change; an XPath may read all of them."""
        return frozenset(self.schema.attributes) if self.filter.uses_xpath else self.filter.attributes

    @cached_property
    def cost(self) -> Cost:
        return cost_of(self.root)

    @cached_property
    def patterns(self) -> dict[str, set[str]]:
        """Strings that `matches` searches for in each attribute."""
        return patterns_of(self.root)

    def rects(self) -> Rects:
        """Returns at most 64 rectangles that contain every matching point."""
        return self._rects

    def covers(self, other: BoundFilter) -> bool:
        """Tells whether this filter matches every event that the other matches; never wrongly True.

        False may also mean that the comparison was too expensive or depends on substrings.
        """
        if not self._comparable(other):
            return False
        if self.filter == other.filter:
            return True
        try:
            return not _expanded(All((other._normal, self._complement)))
        except TooMuchWork:
            return False

    def overlaps(self, other: BoundFilter) -> bool:
        """Tells whether some event may match both; never wrongly False."""
        if not self._comparable(other):
            return True
        try:
            return bool(_expanded(All((self._normal, other._normal))))
        except TooMuchWork:
            return True

    def _comparable(self, other: BoundFilter) -> bool:
        if self.schema is other.schema:
            return True
        return all(
            (mine.name, mine.type) == (theirs.name, theirs.type)
            for mine, theirs in zip(self.schema.columns, other.schema.columns, strict=False)
        )

    @cached_property
    def _rects(self) -> Rects:
        boxes = Expansion(MAX_RECTS, joins=True, steps=_RECTANGLE_STEPS).expand(self._normal)
        found = rectangles(boxes, self.schema.width)
        if self.filter.is_covered:
            return Rects(found.lo, found.hi, np.zeros_like(found.exact))
        return found

    @cached_property
    def _normal(self) -> Normal:
        return normal(self.root)

    @cached_property
    def _complement(self) -> Normal:
        return normal(self.root, holds=False)


#: operators of one set of intervals
_PLAIN = frozenset({"eq", "in", "lt", "lte", "gt", "gte", "between", "prefix"})


def boxes_of(given: dict[str, Any] | None, schema: Schema) -> list[Sides]:
    """Returns at most 64 boxes that contain every point that a filter in JSON form matches.

    Several times as fast as `bind` and `rects`, for reports that read all filters: it builds no predicate and
    multiplies no sides, and most filters need no tree. The filter must be valid; raises `InvalidFilter` if it
    does not fit the schema.
    """
    if given is None:
        return [{}]
    found = _plain_boxes(given, schema)
    if found is None:
        filter = Filter.parse(given)
        found = expanded_sides(bind(filter.root, schema), exact=not filter.is_covered)
    return found


def _plain_boxes(given: dict[str, Any], schema: Schema) -> list[Sides] | None:
    """Converts a conjunction of plain operators; None for another filter."""
    sides: Sides = {}
    for name, condition in given.items():
        column = schema.column_of(name)
        if column is None:
            return None
        domain = schema.columns[column].domain
        operators = condition if type(condition) is dict else {"in": condition}
        if isinstance(domain, Array) or not _PLAIN.issuperset(operators):
            return None
        values: Intervals | None = None
        for operator, operand in operators.items():
            literals = operand if type(operand) is list else (operand,)
            try:
                found = intervals_of(domain, operator, [domain.key(literal) for literal in literals])
            except ValueError:
                return None  # the other way says what is wrong
            values = found if values is None else intersection(values, found)
        if not values:
            return []
        if len(values) == 1:  # most are; `segments_of` takes four times as long
            sides[column] = [Segment(*domain.closed(*values[0]))]
        else:
            sides[column] = segments_of(Cell(domain, values, False))
    return [sides]


def expanded_sides(root: BoundNode, *, exact: bool) -> list[Sides]:
    """Returns boxes that contain what a tree matches; `exact`: whether its cells are not only covers."""
    boxes = Expansion(MAX_RECTS, joins=True, steps=_RECTANGLE_STEPS).expand(normal(root))
    return [
        sides if exact and box.exact else _covers(sides)
        for box, sides in ((box, sides_of(box)) for box in boxes)
    ]


def _covers(sides: Sides) -> Sides:
    return {
        column: [segment._replace(exact=False) for segment in segments] for column, segments in sides.items()
    }


def _expanded(node: Normal) -> list[Any]:
    return list(Expansion(_COMPARED_BOXES, joins=False, steps=_COMPARED_STEPS).expand(node))
