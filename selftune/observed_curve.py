"""Corrects probed routing cost and hit ratios by observed ones.

A probe tests cuts with a sample, in its own thread. The routing table does more: it has single rectangles
beside the cuts, and each call has a fixed cost. So an observation replaces the probe at its precision. At
other precisions it corrects the probe: times by the difference, hit ratios by the ratio of observation and
probe at the nearest precision that has both. Besides, a finer cut is never faster than an observed coarser
one, and its hit ratio never larger.

All observations are dropped when the hit ratio at one precision changes, because then events or subscriptions
have changed. Old observations are dropped, too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from selftune.throughput import OperatingPoint

#: relative change of the hit ratio that drops all observations
CHANGE = 0.1
#: intervals for which an observation is used
LASTS = 100
#: weight of the newest interval
WEIGHT = 0.5


class ObservedCurve:
    def __init__(self) -> None:
        self._interval = 0
        #: precision → observation, and the last interval that it is from
        self._seen: dict[float, tuple[OperatingPoint, int]] = {}

    def add(self, precision: float, now: OperatingPoint) -> None:
        self._interval += 1
        before = self._seen.get(precision)
        if before is not None and abs(now.hit_ratio - before[0].hit_ratio) > CHANGE * max(
            before[0].hit_ratio, 0.05
        ):
            self._seen.clear()
            before = None
        if before is not None:
            now = OperatingPoint(
                routing=before[0].routing + WEIGHT * (now.routing - before[0].routing),
                hit_ratio=before[0].hit_ratio + WEIGHT * (now.hit_ratio - before[0].hit_ratio),
            )
        self._seen[precision] = now, self._interval
        oldest = self._interval - LASTS
        self._seen = {at: known for at, known in self._seen.items() if known[1] > oldest}

    def curve(self, probed: Mapping[float, OperatingPoint]) -> dict[float, OperatingPoint]:
        """Return the expected cost and hit ratio of each probed or observed precision."""
        observed = {at: known for at, (known, _) in self._seen.items()}
        both = [at for at in observed if at in probed]
        curve = dict(observed)
        for at, one in probed.items():
            if at in observed:
                continue
            extra, ratio = 0.0, 1.0
            if both:
                nearest = min(both, key=lambda near: abs(near - at))
                extra = observed[nearest].routing - probed[nearest].routing
                if probed[nearest].hit_ratio:
                    ratio = _between(observed[nearest].hit_ratio / probed[nearest].hit_ratio, 0.5, 2.0)
            coarser = [known for near, known in observed.items() if near < at]
            finer = [known for near, known in observed.items() if near > at]
            curve[at] = OperatingPoint(
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
