"""Which fault comes when: drawn from a seed before anything starts, so that a run can be replayed.

A schedule fixes faults, targets, times and durations. What the processes are doing at those times is not
fixed: a replay meets the same faults under the same load, not the same interleaving.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal[
    "kill",
    "kill both",
    "stop",
    "long stop",
    "cut",
    "half-close",
    "delay",
    "blackhole",
    "vanish",
    "step clock",
    "jump clock",
    "fill disk",
]

#: the name of the dispatcher as a target, and of the second where there are two; servers are s1, s2, …
DISPATCHER = "dispatcher"
SECOND = "dispatcher2"

#: how often each fault is drawn, relative to the others
_WEIGHTS: dict[Kind, float] = {
    "kill": 96,
    "kill both": 8,
    "stop": 7,
    "long stop": 4,
    "cut": 7,
    "half-close": 5,
    "delay": 4,
    "blackhole": 4,
    "vanish": 4,
    "step clock": 4,
    "jump clock": 10,
    "fill disk": 4,
}
#: how long a fault lasts, in seconds; one that is not here is over at once
_LASTING: dict[Kind, tuple[float, float]] = {
    "stop": (1.0, 5.0),
    # Longer than every lease, and than the silence after which a server is away.
    "long stop": (9.0, 15.0),
    # Shorter than what makes a wrong clock a trusted one.
    "jump clock": (2.0, 12.0),
    "delay": (2.0, 6.0),
    "blackhole": (1.0, 6.0),
    "vanish": (4.0, 10.0),
    "fill disk": (1.5, 4.0),
}
#: a stepped clock differs by at most so many seconds from the true one
FURTHEST_STEP = 1.5
#: a clock that jumps is so far off: further than a row or a failing address may be old
JUMP = 5.2 * 86_400


@dataclass(frozen=True, slots=True)
class Fault:
    #: seconds after the beginning
    at: float
    kind: Kind
    #: a process, or the link to it; empty where the fault has none
    target: str = ""
    #: how long it lasts; 0 for one that is over at once
    seconds: float = 0.0
    #: what the kind makes of it: the clock's new offset, a link's delay, the direction of a half-close
    amount: float = 0.0

    @property
    def what(self) -> str:
        """Everything but the time, for people."""
        parts = [self.kind, self.target]
        if self.seconds:
            parts.append(f"for {self.seconds:.1f} s")
        if self.amount:
            parts.append(f"({self.amount:+.2f})")
        return " ".join(part for part in parts if part)


def draw(
    seed: int,
    *,
    seconds: float,
    every: float,
    servers: Sequence[str],
    dispatchers: Sequence[str] = (DISPATCHER,),
    insistent: bool = False,
) -> list[Fault]:
    """Faults in the order of their times, about one `every` so many seconds.

    `insistent`: every other one kills, the dispatcher and a server in turn, and every eighth is a clock that
    jumps, so that a short run has enough of what shows most.
    """
    chance = random.Random(f"faults of {seed}")
    kinds, weights = list(_WEIGHTS), list(_WEIGHTS.values())
    if insistent:  # between the kills other things shall happen, and the network come to work at all
        weights[kinds.index("kill")] /= 2
    faults: list[Fault] = []
    at = every
    while at < seconds:
        dispatcher = dispatchers[0] if len(dispatchers) == 1 else chance.choice(dispatchers)
        fault = _fault(chance, at, chance.choices(kinds, weights)[0], servers, dispatcher)
        if insistent and len(faults) % 2 == 0:
            victim = chance.choice(servers) if len(faults) % 4 else dispatcher
            fault = Fault(at, "kill", victim)
        elif insistent and len(faults) % 8 == 3:
            # The dispatcher's and a server's in turn, ahead above all: that is what ages and ends.
            turn = len(faults) // 8
            victim = chance.choice(servers) if turn % 2 else dispatcher
            ahead = -JUMP if turn % 4 == 2 else JUMP
            fault = Fault(at, "jump clock", victim, float(chance.randint(4, 8)), ahead)
        faults.append(fault)
        at += chance.uniform(0.3, 1.7) * every
    return faults


def _fault(chance: random.Random, at: float, kind: Kind, servers: Sequence[str], dispatcher: str) -> Fault:
    server = chance.choice(servers)
    lasting = round(chance.uniform(*_LASTING[kind]), 2) if kind in _LASTING else 0.0
    # The dispatcher is one, the servers are several: each of them shall die often.
    anyone = dispatcher if chance.random() < 0.4 else server
    match kind:
        case "kill" | "stop" | "long stop":
            return Fault(at, kind, anyone, lasting)
        case "kill both" | "blackhole":
            return Fault(at, kind, server, lasting)
        case "cut":
            return Fault(at, kind, anyone)
        case "half-close":
            return Fault(at, kind, anyone, amount=chance.choice([-1.0, 1.0]))
        case "delay":
            return Fault(at, kind, anyone, lasting, round(chance.uniform(0.05, 0.5), 3))
        case "vanish" | "fill disk":
            return Fault(at, kind, "", lasting)
        case "step clock":
            return Fault(at, kind, anyone, amount=round(chance.uniform(-FURTHEST_STEP, FURTHEST_STEP), 3))
        case "jump clock":
            return Fault(at, kind, anyone, lasting, chance.choice([-JUMP, JUMP]))
