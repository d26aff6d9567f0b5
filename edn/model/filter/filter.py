"""`Filter`, what a subscriber writes, and `BoundFilter`, the same under a topic's schema."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from edn.model.filter import jsonform, textform
from edn.model.filter.ast import Node, check_depth, count_predicates, identity, tests, xpaths
from edn.model.filter.binding import BoundNode, Predicate, bind, normal, predicate
from edn.model.filter.boxes import Both, Expansion, Normal, TooMuchWork
from edn.model.filter.cost import Cost, cost_of, patterns_of
from edn.model.filter.rectangles import MAX_RECTS, rectangles
from edn.model.rect import Rects
from edn.model.schema import Schema

#: boxes at a time, and intersections in all, before a comparison of two filters gives up
_COMPARED_BOXES = 2_048
_COMPARED_STEPS = 10_000
#: intersections before rectangles stop narrowing
_RECTANGLE_STEPS = 4_096


class Filter:
    """A condition on the content of events. Immutable; equal if the two say the same in the same way."""

    __slots__ = ("_identity", "_root")

    def __init__(self, root: Node | None) -> None:
        """Use `parse`; `root` is a canonical tree, or None for everything."""
        self._root = root
        self._identity: Hashable = identity(root)

    @classmethod
    def parse(cls, given: object) -> Filter:
        """A filter from its JSON form, its text form (a string) or None, which is everything.

        Raises `InvalidFilter` with a pointer into the JSON form or a column of the text, or `TooLarge`.
        """
        if given is None:
            return cls(None)
        root = textform.read(given) if isinstance(given, str) else jsonform.read(given)
        check_depth(root)
        return cls(root)

    def to_json(self) -> dict[str, Any] | None:
        """The JSON form, None for everything. Parsing it gives an equal filter."""
        return None if self._root is None else jsonform.write(self._root)

    def to_text(self) -> str | None:
        """The text form, None for everything. Parsing it gives an equal filter."""
        return None if self._root is None else textform.write(self._root)

    @property
    def attributes(self) -> frozenset[str]:
        return (
            frozenset(test.attribute for test in tests(self._root)) if self._root is not None else frozenset()
        )

    @property
    def predicates(self) -> int:
        """How many comparisons it makes, as a quota counts them; each value of an `in` counts."""
        return 0 if self._root is None else count_predicates(self._root)

    @property
    def uses_xpath(self) -> bool:
        return self._root is not None and any(xpaths(self._root))

    def bind(self, schema: Schema) -> BoundFilter:
        """The filter under a schema; raises `InvalidFilter` if it does not fit it."""
        root = bind(self._root, schema)
        return BoundFilter(filter=self, schema=schema, root=root, matches=predicate(root))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Filter) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    def __repr__(self) -> str:
        return f"Filter({self.to_text()!r})"


@dataclass(frozen=True, eq=False)  # without slots: rectangles and sets are made once, when first needed
class BoundFilter:
    """A filter that knows its columns. Two are compared under one schema, or one and what it evolved to."""

    filter: Filter
    schema: Schema
    root: BoundNode
    #: whether an event with these values (`Schema.values`) matches; exact
    matches: Predicate

    @property
    def attributes(self) -> frozenset[str]:
        """Those that must stay as they are: an XPath may see all of them."""
        return frozenset(self.schema.attributes) if self.filter.uses_xpath else self.filter.attributes

    @cached_property
    def cost(self) -> Cost:
        """What `matches` may take."""
        return cost_of(self.root)

    @cached_property
    def patterns(self) -> dict[str, set[str]]:
        """What `matches` searches for in the text of each attribute."""
        return patterns_of(self.root)

    def rects(self) -> Rects:
        """At most 64 rectangles that contain every point that matches."""
        return self._rects

    def covers(self, other: BoundFilter) -> bool:
        """Whether everything that the other matches this one does, too: never wrongly True.

        It holds if nothing is left of the other without this one. False may also mean that finding out took
        too much work, or hung on substrings of which nothing is known.
        """
        if not self._comparable(other):
            return False
        if self.filter == other.filter:
            return True
        try:
            return not _expanded(Both((other._normal, self._complement)))
        except TooMuchWork:
            return False

    def overlaps(self, other: BoundFilter) -> bool:
        """Whether some event may match both: never wrongly False."""
        if not self._comparable(other):
            return True
        try:
            return bool(_expanded(Both((self._normal, other._normal))))
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
        if self.filter.uses_xpath:
            return Rects(found.lo, found.hi, np.zeros_like(found.exact))
        return found

    @cached_property
    def _normal(self) -> Normal:
        return normal(self.root)

    @cached_property
    def _complement(self) -> Normal:
        return normal(self.root, holds=False)


def _expanded(node: Normal) -> list[Any]:
    return list(Expansion(_COMPARED_BOXES, joins=False, steps=_COMPARED_STEPS).expand(node))
