"""The routes of one topic to one server: its summary, the cut in use, and the widenings.

Widenings come one by one and must be cheap, so they are kept like the levels of a log-structured store: the
latest in a short tail that is scanned, the others packed into covers of which each is at least twice as
large as the next. A rectangle is packed again at most as often as its cover doubles.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np

from edn.arrays import Bools, Floats, Ints
from edn.summary import Cover, Router, Summary

#: (epoch, seq): when a server stored something, or began to read a snapshot
Instant = tuple[int, int]

#: widenings scanned one by one before they are packed
TAIL = 256


class TopicRouting(msgspec.Struct, frozen=True):
    """Describes the routes of one topic to one server."""

    #: maximal rectangles in the accepted snapshot
    maximal: int
    #: rectangles in use for them at the present precision
    rectangles: int
    #: rectangles of widenings that no snapshot contains yet
    widenings: int
    #: memory of all that
    bytes: int


@dataclass(frozen=True, slots=True)
class How:
    """How a summary is cut, the same for all servers and topics of a table."""

    #: `level`, `waste`, or `weighted`: by waste, with the topic's recent events as its sample
    cut: str
    #: whether nodes carry Bloom filters of the values that are asked for by equality
    bloom: bool


@dataclass(frozen=True, slots=True)
class Widenings:
    """Rectangles, each with the instant at which its server stored it."""

    #: (n, 2): epoch and seq
    at: Ints
    lo: Floats
    hi: Floats

    def __len__(self) -> int:
        return len(self.at)

    @property
    def nbytes(self) -> int:
        return int(self.at.nbytes + self.lo.nbytes + self.hi.nbytes)

    def later_than(self, instant: Instant) -> Bools:
        """Which of them a snapshot begun at that instant need not contain."""
        epoch, seq = self.at[:, 0], self.at[:, 1]
        later: Bools = (epoch > instant[0]) | ((epoch == instant[0]) & (seq > instant[1]))
        return later

    def only(self, kept: Bools) -> Widenings:
        return Widenings(self.at[kept], self.lo[kept], self.hi[kept])


@dataclass(frozen=True, slots=True)
class Layer:
    widenings: Widenings
    cover: Cover


@dataclass(slots=True)
class Holding:
    summary: Summary | None = None
    #: None where there is nothing to cut, or nobody would ask
    cut: Cover | None = None
    #: together all widenings that no accepted snapshot contains, covered by the summary or not
    packed: list[Layer] = field(default_factory=list)
    tail: Layer | None = None

    @property
    def layers(self) -> list[Layer]:
        return [*self.packed, self.tail] if self.tail is not None else self.packed

    @property
    def empty(self) -> bool:
        return self.summary is None and not self.layers

    def cut_to(self, router: Router, precision: float, how: How, sample: Floats | None) -> None:
        self.cut = None if self.summary is None else cut_of(self.summary, router, precision, how, sample)

    def widen(self, router: Router, coming: Widenings) -> bool:
        """Lay them on top; True if the tail became long and was packed."""
        if self.tail is not None:
            coming = _stacked([self.tail.widenings, coming])
        if len(coming) <= TAIL:
            self.tail = Layer(coming, router.tail(coming.lo, coming.hi))
            return False
        self.tail = None
        while self.packed and len(self.packed[-1].widenings) < 2 * len(coming):
            coming = _stacked([self.packed.pop().widenings, coming])
        self.packed.append(Layer(coming, router.cover(coming.lo, coming.hi)))
        return True

    def rebase(self, router: Router, summary: Summary | None, outlives: Callable[[Widenings], Bools]) -> None:
        """Another summary, and on top of it only the widenings that outlive it."""
        left = [layer.widenings.only(outlives(layer.widenings)) for layer in self.layers]
        self.summary = summary
        self.packed = []
        self.tail = None
        if any(len(widenings) for widenings in left):
            self.widen(router, _stacked(left))

    def describe(self) -> TopicRouting:
        covers = [layer.cover for layer in self.layers] + ([self.cut] if self.cut is not None else [])
        return TopicRouting(
            maximal=self.summary.count if self.summary else 0,
            rectangles=self.cut.count if self.cut is not None else 0,
            widenings=sum(len(layer.widenings) for layer in self.layers),
            bytes=sum(cover.nbytes for cover in covers)
            + sum(layer.widenings.nbytes for layer in self.layers)
            + (self.summary.nbytes if self.summary else 0),
        )


def cut_of(
    summary: Summary, router: Router, precision: float, how: How, sample: Floats | None
) -> Cover | None:
    """A summary at a precision, ready to be asked; None where nobody would ask."""
    if summary.count == 0 or precision == 0:
        return None
    # The subtrahend keeps 0.1 × 30 from becoming 4 by its last bit.
    k = max(1, math.ceil(precision * summary.count - 1e-9))
    nodes = summary.choose(k, by="level") if how.cut == "level" else summary.choose(k, weights=sample)
    masks = summary.masks(nodes) if how.bloom else None
    return router.cover(*summary.bounds(nodes), masks)


def _stacked(parts: Sequence[Widenings]) -> Widenings:
    """One set from several; narrower rectangles are unconstrained in the columns that they lack."""
    width = max(part.lo.shape[1] for part in parts)
    rows = sum(len(part) for part in parts)
    lo, hi = np.full((rows, width), -np.inf), np.full((rows, width), np.inf)
    begin = 0
    for part in parts:
        lo[begin : begin + len(part), : part.lo.shape[1]] = part.lo
        hi[begin : begin + len(part), : part.hi.shape[1]] = part.hi
        begin += len(part)
    return Widenings(np.concatenate([part.at for part in parts]), lo, hi)
