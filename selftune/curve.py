"""Measures routing time and hit ratio at a precision.

A bundle of covers (see `edn.summary`) is tested with a sample of events. The thread's CPU time is measured,
so that other work on the machine has no effect. `offline` measures all precisions for a set of
subscriptions, to choose a precision before a network runs.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from edn.arrays import Floats
from edn.summary import Bundle, Maximal, Summary, new_router
from selftune.throughput import Model, OperatingPoint, Parameters

#: the precisions of the published experiments
GRID = tuple(round(step / 10, 1) for step in range(11))
#: precision 0: nothing is tested, everything is sent
NONE = OperatingPoint(routing=0.0, hit_ratio=1.0)
#: events between two readings of the clock
_CHUNK = 16


@dataclass(frozen=True, slots=True)
class Effort:
    #: CPU seconds after which no further events are tested
    seconds: float = 0.05
    #: events
    most: int = 512


def measure(bundle: Bundle, columns: int, points: Floats, effort: Effort) -> OperatingPoint:
    """Measure T_d and R of a bundle for `columns` servers. `points` must not be empty."""
    hits = tested = 0
    spent = 0.0
    times = []
    bundle.mark(points[:1], np.zeros((1, columns), dtype=np.bool_))  # warms the caches
    for begin in range(0, min(len(points), effort.most), _CHUNK):
        part = np.ascontiguousarray(points[begin : begin + _CHUNK])
        out = np.zeros((len(part), columns), dtype=np.bool_)
        began = time.thread_time()
        bundle.mark(part, out)
        took = time.thread_time() - began
        spent += took
        times.append(took / len(part))
        hits += int(out.sum())
        tested += len(part)
        if spent > effort.seconds:
            break
    # The median ignores parts that other threads slowed down.
    return OperatingPoint(routing=median(times) / columns, hit_ratio=hits / (tested * columns))


def rectangles(count: int, precision: float) -> int:
    """Return the number of rectangles of a summary of `count` at a precision above 0."""
    # The subtraction keeps the rounding error of 0.1 × 30 from making it 4.
    return max(1, math.ceil(precision * count - 1e-9))


def offline(
    parts: Iterable[tuple[Floats, Floats]],
    events: Floats,
    parameters: Parameters,
    *,
    router: str = "bitmap",
    precisions: Sequence[float] = GRID,
    effort: Effort | None = None,
) -> Model:
    """Return the model of a network with these rectangles per server and events.

    `Model.best` is the precision to start with.
    """
    summaries = []
    for lo, hi in parts:
        maximal = Maximal(lo.shape[1])
        maximal.insert(range(len(lo)), lo, hi)
        summaries.append(Summary.build(*maximal.rects()))
    kind = new_router(router)
    curve = {}
    for precision in precisions:
        if precision == 0:
            curve[precision] = NONE
            continue
        covers = [
            (column, kind.cover(*summary.cut(rectangles(summary.count, precision))))
            for column, summary in enumerate(summaries)
            if summary.count
        ]
        curve[precision] = measure(kind.bundle(covers), len(summaries), events, effort or Effort())
    return Model(parameters, curve)
