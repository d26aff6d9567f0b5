"""Indexes the subscriptions of one topic: matcher, maximal rectangles, and the version of each entry.

An **entry** is one rectangle of one version, with its own id in matcher and maximal set; ids are reused. Only
the writer's thread changes a topic.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from edn.index import Matcher, new_matcher
from edn.model.rect import MISSING
from edn.model.schema import Schema
from edn.summary import Maximal

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Matrix = npt.NDArray[np.float64]
Number = TypeVar("Number", bound=np.generic)


def grown(column: npt.NDArray[Number], more: int, fill: int = 0) -> npt.NDArray[Number]:
    """Copies a column into a longer one."""
    return np.concatenate([column, np.full(more, fill, dtype=column.dtype)])


class Topic:
    """A topic on this server.

    Matcher and maximal set exist only while there are entries, so a topic without subscriptions costs no more
    than its columns. `SubscriptionRegistry` forgets the topic once nothing names one of its versions.
    """

    def __init__(
        self, uid: int, tenant: str, name: str, columns: Sequence[tuple[str, str]], engine: str
    ) -> None:
        self.uid = uid
        #: empty is the operator
        self.tenant = tenant
        self.name = name
        self.columns = list(columns)
        self.engine = engine
        # A space without columns still has one point; a column that is always missing stands for it.
        self.width = max(1, len(columns))
        #: versions in the database, ended ones included: outbox rows may need the topic's name
        self.versions = 0
        self._clear()

    def _clear(self) -> None:
        self._matcher: Matcher | None = None
        self._maximal: Maximal | None = None
        #: columns by entry
        self.number: Int32s = np.empty(0, dtype=np.int32)
        self.exact: Flags = np.empty(0, dtype=np.bool_)
        #: whether the version has more than one rectangle, so that a point may match it more than once
        self.multi_rect: Flags = np.empty(0, dtype=np.bool_)
        #: the role of an entry in a sequence (`edn.model.sequence`), -1 for none; None without sequences
        self.role: Int32s | None = None
        self._free: list[int] = []
        self._schemas: dict[int, Schema] = {}

    @property
    def path(self) -> str:
        """The tenant and the name; unique on this server."""
        return f"{self.tenant}/{self.name}" if self.tenant else self.name

    @property
    def rectangles(self) -> int:
        """The number of entries; any thread may read it."""
        maximal = self._maximal
        return 0 if maximal is None else maximal.total

    @property
    def maximal(self) -> int:
        """The number of maximal rectangles; any thread may read it."""
        maximal = self._maximal
        return 0 if maximal is None else len(maximal)

    def rects(self) -> tuple[Matrix, Matrix]:
        """Copies the maximal rectangles: the summary of the topic."""
        if self._maximal is None:
            return np.empty((0, self.width)), np.empty((0, self.width))
        return self._maximal.rects()

    def insert(self, entries: Sequence[int], lo: Matrix, hi: Matrix) -> None:
        """Adds rectangles under allocated entries."""
        if self._matcher is None or self._maximal is None:
            self._matcher, self._maximal = new_matcher(self.engine, self.width), Maximal(self.width)
        ids = np.array(entries, dtype=np.int64)
        self._matcher.insert(ids, lo, hi)
        self._maximal.insert(ids, lo, hi)

    def delete(self, entries: Sequence[int]) -> None:
        """Removes rectangles and frees their entries."""
        if self._matcher is None or self._maximal is None:
            return
        if len(entries) == self._maximal.total:
            self._clear()
            return
        ids = np.array(entries, dtype=np.int64)
        self._matcher.delete(ids)
        self._maximal.delete(ids)
        self._free.extend(entries)

    def match(self, points: Matrix, rows: int) -> tuple[Int64s, Int64s]:
        """Finds the entries around each point: those of point i are entries[starts[i]:starts[i + 1]]."""
        if self._matcher is None:
            return np.zeros(rows + 1, dtype=np.int64), np.empty(0, dtype=np.int64)
        return self._matcher.match(self._fit(points, rows))

    def evolve(self, columns: Sequence[tuple[str, str]]) -> None:
        """Adds columns; a list that is not longer is an old one and changes nothing."""
        if len(columns) <= len(self.columns):
            return
        self.columns = list(columns)
        if len(columns) > self.width:
            self.width = len(columns)
            if self._matcher is not None and self._maximal is not None:
                self._matcher.grow(self.width)
                self._maximal.grow(self.width)

    def schema(self, width: int) -> Schema:
        """Returns the schema of the first `width` columns."""
        if width not in self._schemas:
            self._schemas[width] = Schema.from_wire(self.columns[:width])
        return self._schemas[width]

    def _fit(self, points: Matrix, rows: int) -> Matrix:
        """Fits points to the matcher's width: absent columns are missing, columns beyond it are cut off."""
        if points.shape == (rows, self.width):
            return points
        fitted = np.full((rows, self.width), MISSING)
        shared = min(self.width, points.shape[1])
        fitted[:, :shared] = points[:, :shared]
        return fitted

    def set_roles(self, entries: Sequence[int], role: int) -> None:
        """Sets the role of allocated entries; -1 for none."""
        if self.role is None:
            if role < 0:
                return
            self.role = np.full(len(self.number), -1, dtype=np.int32)
        self.role[entries] = role

    def allocate_entries(self, count: int) -> list[int]:
        allocated = [self._free.pop() for _ in range(min(count, len(self._free)))]
        more = count - len(allocated)
        if more:
            size = len(self.number)
            extra = max(16, size, more)
            self.number = grown(self.number, extra)
            self.exact = grown(self.exact, extra)
            self.multi_rect = grown(self.multi_rect, extra)
            if self.role is not None:
                self.role = grown(self.role, extra, -1)
            allocated.extend(range(size, size + more))
            self._free.extend(range(len(self.number) - 1, size + more - 1, -1))
        return allocated
