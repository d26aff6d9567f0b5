"""Finds the events that match a filter, for many events at once: the checker's own implementation of filters.

A column has the sorted distinct values of one attribute and, for each event, the **rank** of its value. A
condition on one attribute is then a set of ranks, found by bisection with Python's exact comparisons: no
value is rounded. Equality, comparisons and prefixes are ranges of ranks; `ne` and lists are tables of ranks;
`suffix`, `contains` and `matches` test the values, but only of events that passed all cheaper conditions.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import re2

from edn.tools.checker.values import Attributes, AttributeType, read_literal

Indices = npt.NDArray[np.intp]
Mask = npt.NDArray[np.bool_]

#: a range of ranks with more than this share of the events does not speed up a search
_WORTHWHILE = 0.25
_COMBINATORS = frozenset({"$any", "$all", "$not"})


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on one attribute: its rank is in [low, high) and in the table, and passes all looks."""

    low: int
    high: int
    table: Mask | None = None
    looks: tuple[Callable[[Any], bool], ...] = ()

    def and_(self, other: Condition) -> Condition:
        tables = [table for table in (self.table, other.table) if table is not None]
        table = (tables[0] & tables[1] if len(tables) == 2 else tables[0]) if tables else None
        return Condition(
            max(self.low, other.low), min(self.high, other.high), table, (*self.looks, *other.looks)
        )


class Column:
    """One attribute of all events of a topic. Rank -1 is "missing"."""

    def __init__(self, kind: str, values: Sequence[Any]) -> None:
        """`values`: one per event, None if missing."""
        self.kind = kind
        self.distinct: list[Any] = sorted({value for value in values if value is not None})
        rank_of: dict[Any, int] = {value: rank for rank, value in enumerate(self.distinct)}
        rank_of[None] = -1
        self.ranks = np.fromiter((rank_of[value] for value in values), dtype=np.int32, count=len(values))
        self._order = np.argsort(self.ranks, kind="stable")
        # Per rank, missing first: where its events begin in the order.
        self._begins = np.searchsorted(self.ranks[self._order], np.arange(-1, len(self.distinct) + 1))

    def condition(self, written: Any) -> Condition:
        if isinstance(written, list):
            written = {"in": written}
        elif not isinstance(written, Mapping):
            written = {"eq": written}
        if not written:
            raise ValueError("a condition has no operator")
        found: Condition | None = None
        for operator, operand in written.items():
            part = self._operator(operator, operand)
            found = part if found is None else found.and_(part)
        assert found is not None
        return found

    def _operator(self, operator: str, operand: Any) -> Condition:
        end = len(self.distinct)
        if operator == "exists":
            return Condition(0, end) if operand else Condition(-1, 0)
        if operator == "not":
            return self._refused(self.condition(operand))
        if operator == "in":
            table = np.zeros(end, dtype=np.bool_)
            for literal in operand:
                same = self._operator("eq", literal)
                table[same.low : same.high] = True
            return Condition(0, end, table)
        if operator == "between":
            low, high = operand
            return self._operator("gte", low).and_(self._operator("lte", high))
        value = read_literal(self.kind, operand)
        if operator in ("prefix", "suffix", "contains", "matches"):
            return self._piece(operator, value)
        below, through = bisect_left(self.distinct, value), bisect_right(self.distinct, value)
        match operator:
            case "eq":
                return Condition(below, through)
            case "ne":
                table = np.ones(end, dtype=np.bool_)
                table[below:through] = False
                return Condition(0, end, table)
            case "lt":
                return Condition(0, below)
            case "lte":
                return Condition(0, through)
            case "gt":
                return Condition(through, end)
            case "gte":
                return Condition(below, end)
        raise ValueError(f"{operator!r} is not an operator")

    def _piece(self, operator: str, piece: str) -> Condition:
        end = len(self.distinct)
        if not isinstance(piece, str):
            raise ValueError(f"{operator} needs a string")
        if operator == "prefix":
            low = bisect_left(self.distinct, piece)
            # Truncated to the prefix's length, the values are still sorted.
            return Condition(
                low, bisect_right(self.distinct, piece, lo=low, key=lambda text: text[: len(piece)])
            )
        if operator == "suffix":
            return Condition(0, end, looks=(lambda text: text.endswith(piece),))
        if operator == "matches":
            search = re2.compile(piece).search
            return Condition(0, end, looks=(lambda text: search(text) is not None,))
        return Condition(0, end, looks=(lambda text: piece in text,))

    def _refused(self, inner: Condition) -> Condition:
        """The complement among the values that are there."""
        table = np.ones(len(self.distinct), dtype=np.bool_)
        inside = slice(max(inner.low, 0), max(inner.high, 0))
        table[inside] = False if inner.table is None else ~inner.table[inside]
        for rank in np.flatnonzero(~table) if inner.looks else ():
            table[rank] = not all(look(self.distinct[rank]) for look in inner.looks)
        return Condition(0, len(self.distinct), table)

    def size(self, condition: Condition) -> int:
        """Returns the number of events in the condition's range, an upper bound of its matches."""
        return max(0, int(self._begins[condition.high + 1] - self._begins[condition.low + 1]))

    def within(self, condition: Condition) -> Indices:
        """Returns the events in the condition's range, unordered."""
        return self._order[self._begins[condition.low + 1] : self._begins[condition.high + 1]]

    def narrow(self, condition: Condition, events: Indices) -> Indices:
        ranks = self.ranks[events]
        kept = (ranks >= condition.low) & (ranks < condition.high)
        if condition.table is not None:
            # A missing value is not in a table; only a range can allow it.
            kept &= (ranks >= 0) & condition.table[np.maximum(ranks, 0)] if len(condition.table) else False
        events, ranks = events[kept], ranks[kept]
        for look in condition.looks:
            seen = np.fromiter(
                (rank >= 0 and look(self.distinct[rank]) for rank in ranks.tolist()),
                np.bool_,
                count=len(ranks),
            )
            events, ranks = events[seen], ranks[seen]
        return events


class ArrayColumn(Column):
    """An attribute whose values are arrays, here tuples. A condition is a table of ranks.

    The distinct elements of all arrays are a column of their own, which decides conditions on elements.
    """

    def __init__(self, kind: str, values: Sequence[tuple[Any, ...] | None]) -> None:
        super().__init__(kind, values)
        elements = {element for array in self.distinct for element in array}
        self._elements = Column(kind, sorted(elements))
        self._place = {element: place for place, element in enumerate(self._elements.distinct)}

    def _operator(self, operator: str, operand: Any) -> Condition:
        if operator in ("exists", "not"):
            return super()._operator(operator, operand)
        if operator not in ("any", "all"):
            raise ValueError(f"{operator!r} is not an operator for arrays")
        holds = self._holding(operand)
        decide = any if operator == "any" else all
        table = [decide(bool(holds[self._place[one]]) for one in array) for array in self.distinct]
        return Condition(0, len(self.distinct), np.array(table, dtype=np.bool_))

    def _holding(self, written: Any) -> Mask:
        """Returns which of the distinct elements satisfy a condition."""
        count = len(self._elements.distinct)
        found = np.ones(count, dtype=np.bool_)
        if not isinstance(written, Mapping):
            written = {"in" if isinstance(written, list) else "eq": written}
        if not written:
            raise ValueError("a condition has no operator")
        for operator, operand in written.items():
            if operator in ("$any", "$all"):
                parts = np.array([self._holding(part) for part in operand]).reshape(len(operand), count)
                found &= parts.any(axis=0) if operator == "$any" else parts.all(axis=0)
            elif operator == "not":
                found &= ~self._holding(operand)
            elif operator == "exists":
                raise ValueError("exists is not an operator for elements")
            else:
                part = self._elements.condition({operator: operand})
                passed = np.zeros(count, dtype=np.bool_)
                passed[self._elements.narrow(part, np.arange(count))] = True
                found &= passed
        return found


def _column(kind: AttributeType, values: Sequence[Any]) -> Column:
    return ArrayColumn(kind[0], values) if isinstance(kind, list) else Column(kind, values)


class Columns:
    """All events of one topic."""

    def __init__(self, attributes: Attributes, events: Sequence[Mapping[str, Any]]) -> None:
        """`events`: from `values.read_event`."""
        self.count = len(events)
        self._columns = {
            name: _column(kind, [event.get(name) for event in events]) for name, kind in attributes.items()
        }

    def matching(self, written: Mapping[str, Any] | None, begin: int, end: int) -> Indices:
        """Returns the matching events of [begin, end), ascending; raises ValueError for an invalid filter."""
        if written is None:
            return np.arange(begin, end)
        conditions, combined = self._conjunction(written)
        conditions.sort(key=lambda found: (len(found[1].looks), found[0].size(found[1])))
        events: Indices | None = None
        if conditions:
            column, condition = conditions[0]
            if column.size(condition) < min(end - begin, self.count * _WORTHWHILE):
                events = column.within(condition)
                events = np.sort(events[(events >= begin) & (events < end)])
        if events is None:
            events = np.arange(begin, end)
        return self._narrow(conditions, combined, events)

    def _conjunction(self, written: Any) -> tuple[list[tuple[Column, Condition]], list[tuple[str, Any]]]:
        """Returns the conditions on attributes, and the combined filters."""
        conditions: list[tuple[Column, Condition]] = []
        combined: list[tuple[str, Any]] = []
        if not isinstance(written, Mapping) or not written:
            raise ValueError("a filter must be an object with at least one condition")
        for key, part in written.items():
            if key == "$all":
                for found in map(self._conjunction, part):
                    conditions += found[0]
                    combined += found[1]
            elif key in _COMBINATORS:
                combined.append((key, part))
            elif key not in self._columns:
                raise ValueError(f'"{key}" is not an attribute of the topic')
            else:
                column = self._columns[key]
                try:
                    conditions.append((column, column.condition(part)))
                except (TypeError, ValueError) as error:
                    raise ValueError(f'condition on "{key}": {error}') from None
        return conditions, combined

    def _narrow(
        self, conditions: Sequence[tuple[Column, Condition]], combined: list[tuple[str, Any]], events: Indices
    ) -> Indices:
        for column, condition in conditions:
            events = column.narrow(condition, events)
        for key, part in combined:
            if key == "$not":
                events = np.setdiff1d(events, self._narrowed(part, events), assume_unique=True)
            else:
                if not part:
                    raise ValueError("$any needs at least one filter")
                branches = [self._narrowed(branch, events) for branch in part]
                events = np.unique(np.concatenate(branches))
        return events

    def _narrowed(self, written: Any, events: Indices) -> Indices:
        conditions, combined = self._conjunction(written)
        conditions.sort(key=lambda found: len(found[1].looks))
        return self._narrow(conditions, combined, events)
