"""What the routing table holds of one topic of one server: its summary, the cut in use, and the widenings.

Widenings come one by one and must be cheap, so they are kept like the levels of a log-structured store: the
latest in a short tail that is scanned, the others packed into covers of which each is at least twice as
large as the next. A rectangle is packed again at most as often as its cover doubles.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np
import numpy.typing as npt

from edn.summary import Cover, Router, Summary

Floats = npt.NDArray[np.float64]
#: (epoch, seq): when a server stored something, or began to read a snapshot
Instant = tuple[int, int]

#: widenings scanned one by one before they are packed
TAIL = 256


class TopicRouting(msgspec.Struct, frozen=True):
    """What the table holds of one topic of one server, for people."""

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
class Widening:
    at: Instant
    lo: Floats
    hi: Floats


@dataclass(slots=True)
class Packed:
    lo: Floats
    hi: Floats
    cover: Cover


@dataclass(slots=True)
class Holding:
    summary: Summary | None = None
    #: None where there is nothing to cut, or nobody would ask
    cut: Cover | None = None
    #: all of them, in the order in which they came, covered or not
    remembered: list[Widening] = field(default_factory=list)
    packed: list[Packed] = field(default_factory=list)
    tail: Packed | None = None

    @property
    def empty(self) -> bool:
        return self.summary is None and not self.remembered

    def cut_to(self, router: Router, precision: float, how: How, sample: Floats | None) -> None:
        summary = self.summary
        if summary is None or summary.count == 0 or precision == 0:
            self.cut = None
            return
        # The subtrahend keeps 0.1 × 30 from becoming 4 by its last bit.
        k = max(1, math.ceil(precision * summary.count - 1e-9))
        nodes = summary.choose(k, by="level") if how.cut == "level" else summary.choose(k, weights=sample)
        masks = summary.masks(nodes) if how.bloom else None
        self.cut = router.cover(*summary.bounds(nodes), masks)

    def widen(self, router: Router, widening: Widening) -> bool:
        """Remember it and lay it on top; True if the tail became long and was packed."""
        self.remembered.append(widening)
        return self._lay(router, widening.lo, widening.hi)

    def rebase(self, router: Router, summary: Summary | None, widenings: list[Widening]) -> None:
        """Another summary, and only these widenings on top of it."""
        self.summary = summary
        self.remembered = widenings
        self.packed = []
        self.tail = None
        if widenings:
            self._lay(router, *_stacked([(widening.lo, widening.hi) for widening in widenings]))

    def _lay(self, router: Router, lo: Floats, hi: Floats) -> bool:
        if self.tail is not None:
            lo, hi = _stacked([(self.tail.lo, self.tail.hi), (lo, hi)])
        if len(lo) <= TAIL:
            self.tail = Packed(lo, hi, router.tail(lo, hi))
            return False
        self.tail = None
        while self.packed and len(self.packed[-1].lo) < 2 * len(lo):
            former = self.packed.pop()
            lo, hi = _stacked([(former.lo, former.hi), (lo, hi)])
        self.packed.append(Packed(lo, hi, router.cover(lo, hi)))
        return True

    def describe(self) -> TopicRouting:
        covers = [self.cut] if self.cut is not None else []
        covers += [packed.cover for packed in self.packed]
        covers += [self.tail.cover] if self.tail is not None else []
        held = sum(cover.nbytes for cover in covers) + (self.summary.nbytes if self.summary else 0)
        return TopicRouting(
            maximal=self.summary.count if self.summary else 0,
            rectangles=self.cut.count if self.cut is not None else 0,
            widenings=sum(len(widening.lo) for widening in self.remembered),
            bytes=held + sum(widening.lo.nbytes + widening.hi.nbytes for widening in self.remembered),
        )


def _stacked(parts: Sequence[tuple[Floats, Floats]]) -> tuple[Floats, Floats]:
    """One set of rectangles from several; narrower ones are unconstrained in the columns that they lack."""
    width = max(lo.shape[1] for lo, _ in parts)
    rows = sum(len(lo) for lo, _ in parts)
    all_lo, all_hi = np.full((rows, width), -np.inf), np.full((rows, width), np.inf)
    at = 0
    for lo, hi in parts:
        all_lo[at : at + len(lo), : lo.shape[1]] = lo
        all_hi[at : at + len(lo), : lo.shape[1]] = hi
        at += len(lo)
    return all_lo, all_hi
