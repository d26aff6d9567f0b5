"""Routing time and hit ratio as they are at some precision, measured and not guessed.

A bundle of covers (see `edn.summary`) is asked about a sample of events; the thread's own CPU time counts,
so that other work on the machine does not. `offline` does so for every precision of a set of subscriptions,
which is how a precision can be chosen before a network runs.
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
from selftune.throughput import Model, Operating, Parameters

#: the precisions of the published experiments
GRID = tuple(round(step / 10, 1) for step in range(11))
#: without summaries nothing is asked and everything is sent
NONE = Operating(routing=0.0, hit_ratio=1.0)
#: events asked about between two looks at the clock
_CHUNK = 16


@dataclass(frozen=True, slots=True)
class Effort:
    """How much a measurement may cost."""

    #: CPU seconds after which no further events are asked about
    seconds: float = 0.05
    #: events
    most: int = 512


def measure(bundle: Bundle, columns: int, points: Floats, effort: Effort) -> Operating:
    """T_d and R of a bundle that answers for so many servers. `points` must not be empty."""
    hits = asked = 0
    spent = 0.0
    times = []
    bundle.mark(points[:1], np.zeros((1, columns), dtype=np.bool_))  # the first call finds cold caches
    for begin in range(0, min(len(points), effort.most), _CHUNK):
        part = np.ascontiguousarray(points[begin : begin + _CHUNK])
        out = np.zeros((len(part), columns), dtype=np.bool_)
        began = time.thread_time()
        bundle.mark(part, out)
        took = time.thread_time() - began
        spent += took
        times.append(took / len(part))
        hits += int(out.sum())
        asked += len(part)
        if spent > effort.seconds:
            break
    # The median: beside other threads some parts find the caches cold, which says nothing of the bundle.
    return Operating(routing=median(times) / columns, hit_ratio=hits / (asked * columns))


def rectangles(count: int, precision: float) -> int:
    """How many rectangles a summary of `count` has at a precision above 0."""
    # The subtrahend keeps 0.1 × 30 from becoming 4 by its last bit.
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
    """The model of a network that would host these subscriptions: the rectangles of each server, and events.

    `Model.best` then is the precision to begin with.
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
