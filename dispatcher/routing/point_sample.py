"""The youngest events of a topic, a few of each batch: what cuts and surveys are tried with."""

from __future__ import annotations

import numpy as np

from edn.arrays import Floats


class Recent:
    """A ring of points. One writes; who copies it meanwhile may find some that are younger than others."""

    __slots__ = ("_of_batch", "_points", "seen")

    def __init__(self, width: int, *, size: int, of_batch: int) -> None:
        """`size` points are kept, and one batch replaces `of_batch` of them at most."""
        self._points = np.empty((size, width))
        self._of_batch = of_batch
        #: points that were ever kept
        self.seen = 0

    @property
    def width(self) -> int:
        return self._points.shape[1]

    def add(self, points: Floats) -> None:
        chosen = points[:: max(1, -(-len(points) // self._of_batch))]
        self._points[(self.seen + np.arange(len(chosen))) % len(self._points)] = chosen
        self.seen += len(chosen)

    def points(self) -> Floats:
        """A copy, in no order."""
        return self._points[: self.seen].copy()
