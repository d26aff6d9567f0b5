"""Observed routing cost and hit ratio per precision.

A survey (`probe`) asks cuts about a sample in a thread of its own; the table does more than that: it has
single rectangles beside its cuts, and every call has its price. So what was lived at a precision counts for
that one, and elsewhere corrects what was surveyed: times by the difference, hit ratios by the ratio, both as
they are at the nearest precision of which both are known. And a finer cut takes no less time than a coarser
one that was lived, and lets no more through.

When the hit ratio at a precision is not what it was, events or subscriptions have changed, and what was lived
before tells nothing any more. Nor does what was lived long ago.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from selftune.throughput import Operating

#: a hit ratio that differs by such a share is another situation
CHANGE = 0.1
#: intervals for which an experience counts
LASTS = 100
#: weight of the newest interval
WEIGHT = 0.5


class Lived:
    def __init__(self) -> None:
        self._interval = 0
        #: precision → what was seen there, and in which interval last
        self._seen: dict[float, tuple[Operating, int]] = {}

    def add(self, precision: float, now: Operating) -> None:
        """One interval at this precision."""
        self._interval += 1
        before = self._seen.get(precision)
        if before is not None and abs(now.hit_ratio - before[0].hit_ratio) > CHANGE * max(
            before[0].hit_ratio, 0.05
        ):
            self._seen.clear()
            before = None
        if before is not None:
            now = Operating(
                routing=before[0].routing + WEIGHT * (now.routing - before[0].routing),
                hit_ratio=before[0].hit_ratio + WEIGHT * (now.hit_ratio - before[0].hit_ratio),
            )
        self._seen[precision] = now, self._interval
        oldest = self._interval - LASTS
        self._seen = {at: known for at, known in self._seen.items() if known[1] > oldest}

    def curve(self, surveyed: Mapping[float, Operating]) -> dict[float, Operating]:
        """Return the expected cost and hit ratio of each probed or observed precision."""
        lived = {at: known for at, (known, _) in self._seen.items()}
        both = [at for at in lived if at in surveyed]
        curve = dict(lived)
        for at, one in surveyed.items():
            if at in lived:
                continue
            extra, ratio = 0.0, 1.0
            if both:
                nearest = min(both, key=lambda near: abs(near - at))
                extra = lived[nearest].routing - surveyed[nearest].routing
                if surveyed[nearest].hit_ratio:
                    ratio = min(2.0, max(0.5, lived[nearest].hit_ratio / surveyed[nearest].hit_ratio))
            coarser = [known for near, known in lived.items() if near < at]
            finer = [known for near, known in lived.items() if near > at]
            curve[at] = Operating(
                routing=_between(
                    one.routing + extra,
                    max((known.routing for known in coarser), default=0.0),
                    min((known.routing for known in finer), default=math.inf),
                ),
                hit_ratio=_between(
                    1.0 if at == 0 else one.hit_ratio * ratio,
                    max((known.hit_ratio for known in finer), default=0.0),
                    min((known.hit_ratio for known in coarser), default=1.0),
                ),
            )
        return dict(sorted(curve.items()))


def _between(value: float, least: float, most: float) -> float:
    return max(least, min(most, value))
