"""Expands a bound filter into a union of boxes, for rectangles, covering and overlap.

Theory of operation
-------------------
`normal` pushes negations down to the tests, where they vanish: the complement of a set of values is a set of
values, and missing counts as a value. The result are conjunctions and disjunctions of *cells*: sets of values
of one column. A *box* is a conjunction of cells of different columns; its sides may be any sets, not only
intervals.

Multiplying out can grow exponentially. Beyond its `room`, `expand` joins boxes into larger ones, which are no
longer `exact` but still contain all matches; or, if larger boxes are useless to the caller, it raises
`TooMuchWork` (`Expansion.joins`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from edn.model.filter.ast import All, AnyOf
from edn.model.filter.cells import Cell


@dataclass(frozen=True, slots=True)
class Leaf:
    column: int
    cell: Cell


Normal = Leaf | All["Normal"] | AnyOf["Normal"]


@dataclass(frozen=True, slots=True)
class Box:
    """A conjunction of cells. Columns without a cell are unconstrained."""

    cells: Mapping[int, Cell]
    #: whether everything inside matches; otherwise the box is the hull of boxes that match
    exact: bool = True

    def meet(self, other: Box) -> Box | None:
        """Returns the intersection with another box; None if it is empty."""
        cells = dict(self.cells)
        for column, cell in other.cells.items():
            mine = cells.get(column)
            narrowed = cell if mine is None else mine.meet(cell)
            if narrowed.empty:
                return None
            cells[column] = narrowed
        return Box(cells, self.exact and other.exact)

    def work(self, cells: Mapping[int, Cell]) -> int:
        """Estimates the comparisons of an intersection with these cells."""
        mine = self.cells
        return sum(mine[column].work(cell) for column, cell in cells.items() if column in mine)

    def join(self, other: Box) -> Box:
        """Returns a box that contains both; exact if it contains nothing else."""
        differing = 0
        same_patterns = True
        cells: dict[int, Cell] = {}
        for column in self.cells.keys() | other.cells.keys():
            mine, theirs = self.cells.get(column), other.cells.get(column)
            if mine == theirs:
                assert mine is not None
                cells[column] = mine
                continue
            differing += 1
            if mine is not None and theirs is not None:
                same_patterns = same_patterns and mine.patterns == theirs.patterns
                cells[column] = mine.join(theirs)
        return Box(cells, self.exact and other.exact and differing <= 1 and same_patterns)


class TooMuchWork(Exception):
    """The expansion exceeds its room and must not join boxes."""


@dataclass(slots=True)
class Expansion:
    #: maximal number of boxes
    room: int
    #: whether to join boxes beyond the room; otherwise raise `TooMuchWork`
    joins: bool
    #: remaining intersections; wide ones and those of large sets count more. At 0 an expansion that joins
    #: ignores the rest of a conjunction, another one raises `TooMuchWork`
    steps: int

    def expand(self, node: Normal) -> list[Box]:
        """Returns boxes that contain the node's values, and nothing else if all are exact."""
        match node:
            case Leaf(column, cell):
                return [] if cell.empty else [Box({column: cell})]
            case AnyOf(parts):
                return self._fit([box for part in _grouped(parts) for box in self.expand(part)], self.room)
            case All(parts):
                return self._product(parts)

    def _product(self, parts: tuple[Normal, ...]) -> list[Box]:
        flat = list(_flat(parts))
        cells: dict[int, list[Cell]] = {}
        for part in flat:
            if isinstance(part, Leaf):
                cells.setdefault(part.column, []).append(part.cell)
        plain: dict[int, Cell] = {}
        for column, given in cells.items():
            common = plain[column] = Cell.common(given)
            if common.empty:
                return []
            self._pay(0, common.work(common) if len(given) > 1 else 0)
        boxes = [Box(plain)]
        # Few alternatives first: they narrow most per box.
        splits = sorted((part for part in flat if isinstance(part, AnyOf)), key=lambda one: len(one.parts))
        for split in splits:
            if self.steps < 0:  # ignore the remaining parts
                return [Box(box.cells, exact=False) for box in boxes]
            boxes = self._fit(list(self._split(boxes, split)), self.room)
        return boxes

    def _split(self, boxes: list[Box], either: AnyOf[Normal]) -> Iterator[Box]:
        """Yields the parts of the boxes in which an alternative holds."""
        alternatives = _grouped(either.parts)
        leaves = [part for part in alternatives if isinstance(part, Leaf)]
        if not self.joins and len(leaves) == len(alternatives):
            for box in boxes:
                yield from self._cut(box, leaves)
            return
        others = self.expand(AnyOf(tuple(alternatives)))
        if self.joins and len(boxes) * len(others) > 4 * self.room:
            others = self._fit(others, max(1, self.room // len(boxes)))
        for box in boxes:
            for other in others:
                if self.steps < 0:  # ignore the remaining alternatives
                    yield Box(box.cells, exact=False)
                    break
                self._pay(len(box.cells) + len(other.cells), box.work(other.cells))
                if (common := box.meet(other)) is not None:
                    yield common

    def _cut(self, box: Box, leaves: list[Leaf]) -> Iterator[Box]:
        """Yields disjoint parts of a box, one per leaf that holds in it.

        Disjoint parts keep the number of boxes small when many filters are subtracted from one.
        """
        rest: Box | None = box
        for leaf in leaves:
            if rest is None:
                return
            self._pay(2 * len(rest.cells), 2 * rest.work({leaf.column: leaf.cell}))
            if (part := rest.meet(Box({leaf.column: leaf.cell}))) is not None:
                yield part
            rest = rest.meet(Box({leaf.column: leaf.cell.complement()}))

    def _pay(self, cells: int, comparisons: int) -> None:
        self.steps -= 1 + cells // 8 + comparisons // 64
        if self.steps < 0 and not self.joins:
            raise TooMuchWork

    def _fit(self, boxes: list[Box], room: int) -> list[Box]:
        """Joins boxes until at most `room` are left: neighbours by shape and lower corner."""
        if len(boxes) <= room:
            return boxes
        if not self.joins:
            raise TooMuchWork
        boxes = sorted(boxes, key=_corner)
        fitted: list[Box] = []
        for run in range(room):
            start, stop = run * len(boxes) // room, (run + 1) * len(boxes) // room
            joined = boxes[start]
            for box in boxes[start + 1 : stop]:
                joined = joined.join(box)
            fitted.append(joined)
        return fitted


def _corner(box: Box) -> tuple[tuple[int, ...], tuple[float, ...]]:
    columns = tuple(sorted(box.cells))
    return columns, tuple(box.cells[column].lowest for column in columns)


def _flat(parts: Iterable[Normal]) -> Iterator[Normal]:
    for part in parts:
        if isinstance(part, All) or (isinstance(part, AnyOf) and len(part.parts) == 1):
            yield from _flat(part.parts)
        else:
            yield part


def _grouped(parts: tuple[Normal, ...]) -> list[Normal]:
    """Joins alternatives on the same column into one cell, unless they have patterns."""
    cells: dict[int, Cell] = {}
    rest: list[Normal] = []
    pending = list(reversed(parts))
    while pending:
        part = pending.pop()
        if isinstance(part, AnyOf):
            pending.extend(reversed(part.parts))
        elif isinstance(part, Leaf) and not part.cell.patterns:
            known = cells.get(part.column)
            cells[part.column] = part.cell if known is None else known.join(part.cell)
        else:
            rest.append(part)
    return [*(Leaf(column, cell) for column, cell in cells.items()), *rest]
