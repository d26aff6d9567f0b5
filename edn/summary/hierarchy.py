"""A summary for every precision: a packed hierarchy whose prefixes are the cuts.

The hierarchy is a binary tree over the maximal rectangles. Opening a node replaces its bounding rectangle by
those of its two children, so a cut of k rectangles is the root after k - 1 openings. The inner nodes are
stored *in opening order*: number 0 is the root, and the cut of k rectangles consists of the children of the
first k - 1 nodes that are not opened themselves. `edn.summary.shaping` chooses tree and order by the measure
of `edn.summary.measure`.

The memory is the wire format. All numbers are little-endian, without gaps between sections:

    offset  bytes
    0       4           magic "EDNS"
    4       1           version
    5       1           reserved, 0
    6       2           dimensions d
    8       4           count n of maximal rectangles
    12      4           CRC-32 of everything else: bytes 0 … 11, then 16 … end
    16      8 (n-1)     children of the inner nodes, two uint32 each; inner nodes are 0 … n - 2, then leaves
            8 d (2n-1)  lower bounds of all nodes, row by row
            8 d (2n-1)  upper bounds
"""

from __future__ import annotations

import struct
import zlib
from typing import Literal

import numpy as np
import numpy.typing as npt

from edn.arrays import Floats, Ints, Words
from edn.errors import CorruptMessage
from edn.summary import marking, opening, shaping, tree
from edn.summary.cover import widened
from edn.summary.measure import EVEN_SHARE, unit_rects

By = Literal["waste", "level"]

MAGIC = b"EDNS"
VERSION = 1
_HEADER = struct.Struct("<4sBBHI")
_CRC = struct.Struct("<I")
_BODY = _HEADER.size + _CRC.size


class Summary:
    """An immutable summary: built on the server, read from bytes on the dispatcher, cut in any thread."""

    __slots__ = ("_children", "_count", "_dimensions", "_hi", "_level", "_lo", "_masks", "_weighted")

    def __init__(self, children: Ints, lo: Floats, hi: Floats, count: int) -> None:
        self._children = children
        self._lo = lo
        self._hi = hi
        self._count = count
        self._dimensions: int = lo.shape[1]
        self._level: Ints | None = None
        self._masks: Words | None = None
        self._weighted: tuple[Floats, Ints] | None = None

    @classmethod
    def build(
        cls, lo: npt.ArrayLike, hi: npt.ArrayLike, *, split_only: bool = False, even: float = EVEN_SHARE
    ) -> Summary:
        """Builds a summary of maximal rectangles; others are allowed and only waste bytes.

        For comparisons, `split_only` builds the hierarchy only from the top, as it was first published, and
        `even` is the share of events that are expected anywhere.
        """
        low = np.array(lo, dtype=np.float64, order="C")
        high = np.array(hi, dtype=np.float64, order="C")
        if low.ndim != 2 or low.shape != high.shape:
            raise ValueError(f"bounds must be two matrices of one shape, got {low.shape} and {high.shape}")
        if not (low <= high).all():
            raise ValueError("lower bounds must be at most their upper bounds, and not NaN")
        n = len(low)
        if n < 2:
            return cls(np.empty((0, 2), dtype=np.int64), low, high, n)
        a, b = unit_rects(low, high, even) if low.shape[1] else (np.zeros((n, 1)), np.ones((n, 1)))
        children, closing = shaping.shape(a, b, split_only=split_only)
        low, high = tree.bound_nodes(children, low, high)
        # From "leaves first" to "inner nodes first, in opening order".
        number = np.empty(2 * n - 1, dtype=np.int64)
        order = closing[::-1]
        number[n + order] = np.arange(n - 1)
        number[:n] = np.arange(n - 1, 2 * n - 1)
        back = np.argsort(number)
        return cls(number[children[order]], low[back], high[back], n)

    @property
    def count(self) -> int:
        return self._count

    @property
    def dimensions(self) -> int:
        return self._dimensions

    @property
    def nbytes(self) -> int:
        return int(_BODY + 8 * len(self._children) + self._lo.nbytes + self._hi.nbytes)

    def rects(self) -> tuple[Floats, Floats]:
        inner = len(self._children)
        return self._lo[inner:], self._hi[inner:]

    def cut(self, k: int, by: By = "waste", weights: Floats | None = None) -> tuple[Floats, Floats]:
        """Returns at most k >= 1 rectangles that contain all maximal rectangles.

        `level` opens the tree level by level, like a depth-limited tree, as a baseline. `waste` opens the
        node with the most false positives first, measured with `weights`, recent events (m, d), if given.
        """
        chosen = self.choose(k, by, weights)
        return self._lo[chosen], self._hi[chosen]

    def choose(self, k: int, by: By = "waste", weights: Floats | None = None) -> Ints:
        """Returns the nodes of a cut, for `masks`."""
        if k < 1:
            raise ValueError(f"a cut must have at least 1 rectangle, got {k}")
        inner = len(self._children)
        if k >= self._count:
            return np.arange(inner, inner + self._count)
        opened = k - 1
        if not opened:
            return np.zeros(1, dtype=np.int64)
        if by == "level":
            order = self._level_order()
        elif weights is not None:
            order = self._weighted_order(weights)
        else:
            below = self._children[:opened].ravel()
            return below[below >= opened]
        is_open = np.zeros(inner + self._count, dtype=np.bool_)
        is_open[order[:opened]] = True
        below = self._children[order[:opened]].ravel()
        return below[~is_open[below]]

    def bounds(self, nodes: Ints) -> tuple[Floats, Floats]:
        return self._lo[nodes], self._hi[nodes]

    def masks(self, nodes: Ints) -> Words:
        """Returns a Bloom filter of 64 bits per node and dimension: values that filters test for equality.

        An event whose value has no bit matches nothing below the node, even if it lies within the bounds. All
        bits are set if a rectangle below the node has a range.
        """
        if self._masks is None:
            bits = marking.as_bits(self._lo)
            self._masks = marking.node_masks(self._children, self._lo, self._hi, bits)
        return self._masks[nodes]

    def _level_order(self) -> Ints:
        if self._level is None:
            self._level = np.argsort(opening.depths(self._children), kind="stable")
        return self._level

    def _weighted_order(self, points: Floats) -> Ints:
        """Returns the opening order for points; caches it for the last array of points."""
        known = self._weighted
        if known is not None and known[0] is points:
            return known[1]
        fitted = widened(points, self._dimensions)
        order = opening.weighted_order(self._children, self._lo, self._hi, fitted)
        self._weighted = (points, order)
        return order

    def to_bytes(self) -> bytes:
        head = _HEADER.pack(MAGIC, VERSION, 0, self._dimensions, self._count)
        body = b"".join(
            (
                self._children.astype("<u4").tobytes(),
                self._lo.astype("<f8", copy=False).tobytes(),
                self._hi.astype("<f8", copy=False).tobytes(),
            )
        )
        return b"".join((head, _CRC.pack(zlib.crc32(body, zlib.crc32(head))), body))

    @classmethod
    def from_bytes(cls, data: bytes) -> Summary:
        """Reads the result of `to_bytes`; raises `CorruptMessage`."""
        if len(data) < _BODY:
            raise CorruptMessage(f"a summary must have at least {_BODY} bytes, got {len(data)}")
        magic, version, reserved, d, n = _HEADER.unpack_from(data)
        if magic != MAGIC:
            raise CorruptMessage(f"a summary must begin with {MAGIC!r}, got {magic!r}")
        if version != VERSION:
            raise CorruptMessage(f"a summary must have version {VERSION}, got {version}")
        inner = max(0, n - 1)
        nodes = inner + n
        size = _BODY + 8 * inner + 16 * d * nodes
        if len(data) != size:
            raise CorruptMessage(
                f"a summary of {n} rectangles in {d} dimensions must have {size} bytes, got {len(data)}"
            )
        (crc,) = _CRC.unpack_from(data, _HEADER.size)
        view = memoryview(data)
        if crc != zlib.crc32(view[_BODY:], zlib.crc32(view[: _HEADER.size])):
            raise CorruptMessage("the CRC-32 of a summary is wrong: bytes were changed in transit")
        if reserved:
            raise CorruptMessage(f"byte 5 of a summary must be 0, got {reserved}")
        children = np.frombuffer(data, "<u4", 2 * inner, _BODY).astype(np.int64).reshape(inner, 2)
        at = _BODY + 8 * inner
        # Copies are aligned and do not reference the message.
        lo = np.frombuffer(data, "<f8", d * nodes, at).astype(np.float64).reshape(nodes, d)
        hi = np.frombuffer(data, "<f8", d * nodes, at + 8 * d * nodes).astype(np.float64).reshape(nodes, d)
        _verify(children, lo, hi)
        return cls(children, lo, hi, n)

    def check(self) -> None:
        """Checks the invariants; raises `CorruptMessage`."""
        _verify(self._children, self._lo, self._hi)


def _verify(children: Ints, lo: Floats, hi: Floats) -> None:
    inner = len(children)
    if not (lo <= hi).all():
        at = int(np.argmin((lo <= hi).all(axis=1)))
        raise CorruptMessage(f"node {at} of a summary has a lower bound above its upper bound, or NaN")
    if not inner:
        return
    number = np.arange(inner)
    late = (children <= number[:, None]) | (children >= len(lo))
    if late.any():
        at = int(np.argmax(late.any(axis=1)))
        raise CorruptMessage(
            f"the children of node {at} of a summary must be in {at + 1} … {len(lo) - 1}, "
            f"got {children[at].tolist()}"
        )
    parents = np.bincount(children.ravel(), minlength=len(lo))
    if (parents[1:] != 1).any():
        at = int(np.argmax(parents[1:] != 1)) + 1
        raise CorruptMessage(f"node {at} of a summary must have one parent, got {parents[at]}")
    for side in range(2):
        below = children[:, side]
        outside = (lo[below] < lo[:inner]).any(axis=1) | (hi[below] > hi[:inner]).any(axis=1)
        if outside.any():
            at = int(np.argmax(outside))
            raise CorruptMessage(f"node {at} of a summary does not contain its child {int(below[at])}")
