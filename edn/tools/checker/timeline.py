"""When an operation can have taken effect, and which states an event can have met.

The network's log gives every operation and every event one place. An observer knows only that the place of an
operation lies between its request (`begin`) and its answer (`end`): if one operation was answered before the
other was requested, it has the earlier place. An event whose place lies in [low, high]
can have met the state after operation X exactly if

    X.begin <= high                                 X can precede the event, and
    no sure operation Y with X.end < Y.begin        no operation that is known to follow X
        has Y.end < low                             is known to precede the event.

The second half is one number per X: the smallest `end` of all certain operations that certainly followed X;
`lasts` computes it. Equal times decide nothing: clocks are coarse, and a false alarm is worse than a missed
one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

SECOND = 1_000_000_000
#: later than any time
NEVER = 1 << 61

Times = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Effect:
    """One operation on one subscription, and the state after it."""

    kind: Literal["none", "subscribe", "change", "renew", "pause", "resume", "unsubscribe"]
    begin: int
    #: NEVER if it is unknown whether it happened
    end: int
    #: whether it is known to have happened
    sure: bool
    topic: str = ""
    filter: dict[str, Any] | str | None = None
    address: str | None = None
    recipient: str | None = None
    #: earliest and latest time of the expiry, by the recording's clock
    expires: tuple[int, int] = (NEVER, NEVER)
    #: of request and answer
    places: tuple[int, ...] = ()
    #: in place of a filter
    sequence: dict[str, Any] | None = None

    @property
    def alive(self) -> bool:
        return self.kind in ("subscribe", "change")


#: the state before everything: no subscription
NOTHING = Effect("none", -NEVER, -NEVER, True)


def lasts(effects: Sequence[Effect]) -> list[int]:
    """Returns for each effect the time after which no event can meet it."""
    sure = sorted((effect.begin, effect.end) for effect in effects if effect.sure)
    begins = [begin for begin, _ in sure]
    least = [NEVER] * (len(sure) + 1)
    for place in range(len(sure) - 1, -1, -1):
        least[place] = min(least[place + 1], sure[place][1])
    return [least[bisect_right(begins, effect.end)] for effect in effects]


def can_meet(effect: Effect, last: int, low: Times, high: Times) -> Mask:
    """Returns which events can have met the state after an effect."""
    return (high >= effect.begin) & (low <= last)
