"""The routes of one topic to one server, and their rebuild at another precision.

`TopicRoutes` holds the server's summary, its cut in use, and the widenings. Widenings are added one by one
and must be cheap, so they are stored like the levels of a log-structured merge tree: the latest in a short
tail that is scanned, the others packed into covers, each at least twice as large as the next. A rectangle is
packed again at most as often as its cover doubles.

`TableRebuild` cuts all summaries of the table to another precision. That takes long (0.1 s for 10,000
rectangles with 8 attributes), so it is planned on the event loop, run in a thread, and applied on the event
loop, where it only replaces references. Summaries are immutable; one that was replaced meanwhile is cut again
when the rebuild is applied.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np

from edn.arrays import Bools, Floats, Ints
from edn.runtime.ownership import owned
from edn.summary import Bundle, Cover, Router, Summary

#: (epoch, seq): when a server stored a subscription, or began a snapshot
Instant = tuple[int, int]

#: limit of widenings that are scanned one by one
TAIL = 256


class TopicRouting(msgspec.Struct, frozen=True):
    #: maximal rectangles in the accepted snapshot
    maximal: int
    #: rectangles of the cut in use
    rectangles: int
    #: rectangles of widenings that no snapshot contains yet
    widenings: int
    #: memory of summary, cut and widenings
    bytes: int


@dataclass(frozen=True, slots=True)
class CutOptions:
    """How summaries are cut, the same for all servers and topics of a table."""

    #: `level`, `waste`, or `weighted`: by waste, with the topic's recent events as a sample
    cut: str
    #: whether nodes have Bloom filters of the values that filters compare for equality
    bloom: bool


class PointSample:
    """A ring of a topic's recent points, a few per batch.

    One thread adds; a copy made meanwhile in another may mix older and newer points.
    """

    __slots__ = ("_of_batch", "_points", "seen")

    def __init__(self, width: int, *, size: int, of_batch: int) -> None:
        """One batch replaces at most `of_batch` of the `size` points."""
        self._points = np.empty((size, width))
        self._of_batch = of_batch
        #: number of points ever added
        self.seen = 0

    @property
    def width(self) -> int:
        return self._points.shape[1]

    def add(self, points: Floats) -> None:
        chosen = points[:: max(1, -(-len(points) // self._of_batch))]
        self._points[(self.seen + np.arange(len(chosen))) % len(self._points)] = chosen
        self.seen += len(chosen)

    def points(self) -> Floats:
        """Return a copy, in no particular order."""
        return self._points[: self.seen].copy()


@dataclass(frozen=True, slots=True)
class Widenings:
    """Rectangles, each with the instant when its server stored it."""

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
        """Mark the widenings that a snapshot begun at that instant need not contain."""
        epoch, seq = self.at[:, 0], self.at[:, 1]
        later: Bools = (epoch > instant[0]) | ((epoch == instant[0]) & (seq > instant[1]))
        return later

    def only(self, kept: Bools) -> Widenings:
        return Widenings(self.at[kept], self.lo[kept], self.hi[kept])


@dataclass(frozen=True, slots=True)
class Layer:
    widenings: Widenings
    cover: Cover


@owned("loop")
@dataclass(slots=True)
class TopicRoutes:
    summary: Summary | None = None
    #: None if the summary is empty or the precision is 0
    cut: Cover | None = None
    #: widenings that no accepted snapshot contains, covered by the summary or not
    packed: list[Layer] = field(default_factory=list)
    tail: Layer | None = None

    @property
    def layers(self) -> list[Layer]:
        return [*self.packed, self.tail] if self.tail is not None else self.packed

    @property
    def empty(self) -> bool:
        return self.summary is None and not self.layers

    def recut(self, router: Router, precision: float, options: CutOptions, sample: Floats | None) -> None:
        self.cut = (
            None if self.summary is None else cut_summary(self.summary, router, precision, options, sample)
        )

    def widen(self, router: Router, added: Widenings) -> bool:
        """Add widenings; return whether the tail became too long and was packed."""
        if self.tail is not None:
            added = _concatenate([self.tail.widenings, added])
        if len(added) <= TAIL:
            self.tail = Layer(added, router.tail(added.lo, added.hi))
            return False
        self.tail = None
        while self.packed and len(self.packed[-1].widenings) < 2 * len(added):
            added = _concatenate([self.packed.pop().widenings, added])
        self.packed.append(Layer(added, router.cover(added.lo, added.hi)))
        return True

    def replace_summary(self, router: Router, summary: Summary | None, at: Instant) -> None:
        """Set the summary of a snapshot begun at an instant, and drop the widenings that it contains."""
        left = [layer.widenings.only(layer.widenings.later_than(at)) for layer in self.layers]
        self.summary = summary
        self.packed = []
        self.tail = None
        if any(len(widenings) for widenings in left):
            self.widen(router, _concatenate(left))

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


@dataclass(slots=True)
class RebuildPart:
    """One server's summary of one topic."""

    server: str
    column: int
    topic: int
    summary: Summary
    sample: Floats | None
    cover: Cover | None = None


@owned("any")
@dataclass(slots=True)
class TableRebuild:
    """The cuts of all summaries at another precision. Made by `RoutingTable.plan`."""

    precision: float
    #: the table's columns when the rebuild was planned
    servers: tuple[str, ...]
    parts: list[RebuildPart]
    router: Router
    options: CutOptions
    bundles: dict[int, Bundle] = field(default_factory=dict)
    done: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self) -> None:
        """Cut the summaries, once. In any thread."""
        with self._lock:
            if self.done:
                return
            for part in self.parts:
                part.cover = cut_summary(part.summary, self.router, self.precision, self.options, part.sample)
            for topic in {part.topic for part in self.parts}:
                self.bundles[topic] = self.router.bundle(
                    [
                        (part.column, part.cover)
                        for part in self.parts
                        if part.topic == topic and part.cover is not None
                    ]
                )
            self.done = True

    def covers(self) -> dict[tuple[str, int], tuple[Summary, Cover | None]]:
        """Return (server, topic) → the summary and its cut."""
        return {(part.server, part.topic): (part.summary, part.cover) for part in self.parts}


def cut_summary(
    summary: Summary, router: Router, precision: float, options: CutOptions, sample: Floats | None
) -> Cover | None:
    """Cut a summary to a precision; None if it is empty or the precision is 0."""
    if summary.count == 0 or precision == 0:
        return None
    # The subtraction keeps the rounding error of 0.1 × 30 from making it 4.
    k = max(1, math.ceil(precision * summary.count - 1e-9))
    nodes = summary.choose(k, by="level") if options.cut == "level" else summary.choose(k, weights=sample)
    masks = summary.masks(nodes) if options.bloom else None
    return router.cover(*summary.bounds(nodes), masks)


def _concatenate(parts: Sequence[Widenings]) -> Widenings:
    """Concatenate widenings; narrower rectangles are unconstrained in the columns that they lack."""
    width = max(part.lo.shape[1] for part in parts)
    rows = sum(len(part) for part in parts)
    lo, hi = np.full((rows, width), -np.inf), np.full((rows, width), np.inf)
    begin = 0
    for part in parts:
        lo[begin : begin + len(part), : part.lo.shape[1]] = part.lo
        hi[begin : begin + len(part), : part.hi.shape[1]] = part.hi
        begin += len(part)
    return Widenings(np.concatenate([part.at for part in parts]), lo, hi)
