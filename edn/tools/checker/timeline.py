"""When an operation can have taken effect, and what an event can have met, seen from outside.

The network's log gives every operation and every event one place. An observer knows only that the place of an
operation lies between its request (`begin`) and its answer (`end`), so that of two operations the one that
was answered before the other was asked for has the earlier place. An event whose place lies in [low, high]
can have met the state that operation X left behind exactly if

    X.begin <= high                                 X can have come before the event, and
    no sure operation Y with X.end < Y.begin        nothing that is known to have followed X
        has Y.end < low                             is known to have preceded the event.

The second half is one number for each X: the least `end` of all sure operations that surely followed X, which
`lasts` finds. Equal times decide nothing: clocks tick coarsely, and a wrong alarm is worse than a missed one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

SECOND = 1_000_000_000
#: later than everything
NEVER = 1 << 61

Times = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Effect:
    """One operation on one subscription, and the state that it leaves behind."""

    kind: Literal["none", "subscribe", "change", "renew", "pause", "resume", "unsubscribe"]
    begin: int
    #: NEVER while it is unknown whether it happened
    end: int
    #: whether it is known to have happened
    sure: bool
    topic: str = ""
    filter: dict[str, Any] | str | None = None
    address: str | None = None
    recipient: str | None = None
    #: between which times of the recording's clock the expiry lies
    expires: tuple[int, int] = (NEVER, NEVER)
    #: of its request and its answer
    places: tuple[int, ...] = ()

    @property
    def alive(self) -> bool:
        return self.kind in ("subscribe", "change")


#: what was before everything: no subscription
NOTHING = Effect("none", -NEVER, -NEVER, True)


def lasts(effects: Sequence[Effect]) -> list[int]:
    """For each effect, the time after which no event can have met it any more."""
    sure = sorted((effect.begin, effect.end) for effect in effects if effect.sure)
    begins = [begin for begin, _ in sure]
    least = [NEVER] * (len(sure) + 1)
    for place in range(len(sure) - 1, -1, -1):
        least[place] = min(least[place + 1], sure[place][1])
    return [least[bisect_right(begins, effect.end)] for effect in effects]


def can_meet(effect: Effect, last: int, low: Times, high: Times) -> Mask:
    """Which events can have met what the effect left behind."""
    return (high >= effect.begin) & (low <= last)
