"""One topic on a server: its matcher, its maximal rectangles, and whose each entry is.

An **entry** is one rectangle of one version, under its own id in matcher and maximal set; ids are used again.
Only the writer's thread changes any of this.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from edn.index import Matcher, new_matcher
from edn.rect import MISSING
from edn.schema import Schema
from edn.summary import Maximal

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Matrix = npt.NDArray[np.float64]


class Topic:
    """One topic: its matcher, its maximal rectangles, and whose each entry is."""

    def __init__(self, uid: int, name: str, columns: Sequence[tuple[str, str]], engine: str) -> None:
        self.uid = uid
        self.name = name
        self.columns = list(columns)
        # A space without columns still has its one point; one column that is always missing stands for it.
        self.width = max(1, len(columns))
        self.matcher: Matcher = new_matcher(engine, self.width)
        self.maximal = Maximal(self.width)
        #: columns by entry
        self.number: Int32s = np.empty(0, dtype=np.int32)
        self.exact: Flags = np.empty(0, dtype=np.bool_)
        #: whether the version has more than one rectangle, so that a point may lie in several
        self.several: Flags = np.empty(0, dtype=np.bool_)
        self._free: list[int] = []
        self._schemas: dict[int, Schema] = {}

    def evolve(self, columns: Sequence[tuple[str, str]]) -> None:
        """Columns are only ever added; a shorter list is an older one."""
        if len(columns) <= len(self.columns):
            return
        self.columns = list(columns)
        if len(columns) > self.width:
            self.width = len(columns)
            self.matcher.grow(self.width)
            self.maximal.grow(self.width)

    def schema(self, width: int) -> Schema:
        """The schema as it was with its first `width` columns."""
        if width not in self._schemas:
            self._schemas[width] = Schema.from_wire(self.columns[:width])
        return self._schemas[width]

    def fit(self, points: Matrix, rows: int) -> Matrix:
        """Points as wide as the matcher: what older ones lack is missing, newer columns bind nobody."""
        if points.shape == (rows, self.width):
            return points
        fitted = np.full((rows, self.width), MISSING)
        shared = min(self.width, points.shape[1])
        fitted[:, :shared] = points[:, :shared]
        return fitted

    def take_entries(self, count: int) -> list[int]:
        taken = [self._free.pop() for _ in range(min(count, len(self._free)))]
        more = count - len(taken)
        if more:
            size = len(self.number)
            self._extend(max(1024, size, more))
            taken.extend(range(size, size + more))
            self._free.extend(range(len(self.number) - 1, size + more - 1, -1))
        return taken

    def free_entries(self, entries: Iterable[int]) -> None:
        self._free.extend(entries)

    def _extend(self, more: int) -> None:
        self.number = np.concatenate([self.number, np.zeros(more, dtype=np.int32)])
        self.exact = np.concatenate([self.exact, np.zeros(more, dtype=np.bool_)])
        self.several = np.concatenate([self.several, np.zeros(more, dtype=np.bool_)])
