"""A bound filter as a union of boxes: the one expansion behind rectangles, covering and overlap.

Theory of operation
-------------------
Negations are pushed down to the tests (`normal`), where they vanish: the complement of a set of values is a
set of values, and missing is a value of its own here. What is left are conjunctions and disjunctions of
*cells*: a column and what it may hold. A *box* is a conjunction of cells of different columns; unlike a
rectangle's, its sides may be any sets.

Multiplying out can grow exponentially. `expand` never lets it: over its `room` it joins boxes into larger
ones, which are then no longer `exact` but still contain everything that matches; or, where a larger box
would be of no use, gives up (`Expansion.joins`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from edn.model.filter.cells import Cell


@dataclass(frozen=True, slots=True)
class Leaf:
    column: int
    cell: Cell


@dataclass(frozen=True, slots=True)
class Both:
    """All parts hold; without parts it is everything."""

    parts: tuple[Normal, ...]


@dataclass(frozen=True, slots=True)
class Either:
    """Some part holds; without parts it is nothing."""

    parts: tuple[Normal, ...]


Normal = Leaf | Both | Either


@dataclass(frozen=True, slots=True)
class Box:
    """Columns that it has no cell for are unconstrained."""

    cells: Mapping[int, Cell]
    #: everything inside matches; otherwise it is the hull of boxes that do
    exact: bool = True

    def meet(self, column: int, cell: Cell) -> Box | None:
        """The part of the box that has such a cell; None if there is nothing."""
        mine = self.cells.get(column)
        narrowed = cell if mine is None else mine.meet(cell)
        if narrowed.empty:
            return None
        return Box({**self.cells, column: narrowed}, self.exact)

    def meet_box(self, other: Box) -> Box | None:
        cells = dict(self.cells)
        for column, cell in other.cells.items():
            mine = cells.get(column)
            narrowed = cell if mine is None else mine.meet(cell)
            if narrowed.empty:
                return None
            cells[column] = narrowed
        return Box(cells, self.exact and other.exact)

    def work(self, cells: Mapping[int, Cell]) -> int:
        """About how many comparisons it takes to meet these cells."""
        mine = self.cells
        return sum(mine[column].work(cell) for column, cell in cells.items() if column in mine)

    def join(self, other: Box) -> Box:
        """A box that contains both; exact if it contains nothing else."""
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
    """The expansion would not fit its room, and must not join boxes."""


@dataclass(slots=True)
class Expansion:
    """How to expand, and how far."""

    #: boxes at a time
    room: int
    #: join boxes when there is no room, else raise `TooMuchWork`
    joins: bool
    #: intersections left to make, wide ones and those of large sets counted more; then the rest of a
    #: conjunction is left out by what joins, and the others give up
    steps: int

    def expand(self, node: Normal) -> list[Box]:
        """Boxes that together contain what the node does, and if all are exact nothing else."""
        match node:
            case Leaf(column, cell):
                return [] if cell.empty else [Box({column: cell})]
            case Either(parts):
                return self._fit([box for part in _grouped(parts) for box in self.expand(part)], self.room)
            case Both(parts):
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
        # Those with few alternatives first: they narrow most for the boxes that they cost.
        splits = sorted((part for part in flat if isinstance(part, Either)), key=lambda one: len(one.parts))
        for split in splits:
            if self.steps < 0:  # what is left narrows no more
                return [Box(box.cells, exact=False) for box in boxes]
            boxes = self._fit(list(self._split(boxes, split)), self.room)
        return boxes

    def _split(self, boxes: list[Box], either: Either) -> Iterator[Box]:
        """The boxes as far as some alternative holds in them."""
        alternatives = _grouped(either.parts)
        leaves = [part for part in alternatives if isinstance(part, Leaf)]
        if not self.joins and len(leaves) == len(alternatives):
            for box in boxes:
                yield from self._cut(box, leaves)
            return
        others = self.expand(Either(tuple(alternatives)))
        if self.joins and len(boxes) * len(others) > 4 * self.room:
            others = self._fit(others, max(1, self.room // len(boxes)))
        for box in boxes:
            for other in others:
                if self.steps < 0:  # what is left narrows no more
                    yield Box(box.cells, exact=False)
                    break
                self._pay(len(box.cells) + len(other.cells), box.work(other.cells))
                if (common := box.meet_box(other)) is not None:
                    yield common

    def _cut(self, box: Box, leaves: list[Leaf]) -> Iterator[Box]:
        """The parts of a box in which some leaf holds, each without what the leaves before it took.

        Disjoint parts are what keeps the number of boxes small when many filters are taken from one.
        """
        rest: Box | None = box
        for leaf in leaves:
            if rest is None:
                return
            self._pay(2 * len(rest.cells), 2 * rest.work({leaf.column: leaf.cell}))
            if (part := rest.meet(leaf.column, leaf.cell)) is not None:
                yield part
            rest = rest.meet(leaf.column, leaf.cell.complement())

    def _pay(self, cells: int, comparisons: int) -> None:
        self.steps -= 1 + cells // 8 + comparisons // 64
        if self.steps < 0 and not self.joins:
            raise TooMuchWork

    def _fit(self, boxes: list[Box], room: int) -> list[Box]:
        """At most `room` boxes: neighbours in the order of their shapes and lower corners are joined."""
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
        if isinstance(part, Both) or (isinstance(part, Either) and len(part.parts) == 1):
            yield from _flat(part.parts)
        else:
            yield part


def _grouped(parts: tuple[Normal, ...]) -> list[Normal]:
    """The alternatives with those on one column made one cell, where that loses nothing."""
    cells: dict[int, Cell] = {}
    rest: list[Normal] = []
    pending = list(reversed(parts))
    while pending:
        part = pending.pop()
        if isinstance(part, Either):
            pending.extend(reversed(part.parts))
        elif isinstance(part, Leaf) and not part.cell.patterns:
            known = cells.get(part.column)
            cells[part.column] = part.cell if known is None else known.join(part.cell)
        else:
            rest.append(part)
    return [*(Leaf(column, cell) for column, cell in cells.items()), *rest]
