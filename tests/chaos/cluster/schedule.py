"""Which fault comes when: kinds in rounds, each round shuffled, so that a long run has every kind often."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal[
    "kill server",
    "kill dispatcher",
    "kill both",
    "stop server",
    "stop dispatcher",
    "stop server in transaction",
    "stop dispatcher in transaction",
    "lose answers of server",
    "lose answers of dispatcher",
    "cut server from database",
    "cut dispatcher from database",
    "cut replication",
    "cut primary from etcd",
    "kill postgres",
    "kill node",
    "kill standby",
    "stop node",
    "hang replication and kill node",
    "fill disk of primary",
    "fill disk of standby",
    "jump clock",
    "vanish",
]


@dataclass(frozen=True, slots=True)
class Pace:
    #: how long it lasts, in seconds
    lasting: tuple[float, float] = (0.0, 0.0)
    #: seconds until the next fault, after the end of this one
    gap: tuple[float, float] = (3.0, 6.0)


#: longer than the lease of 6 s: what is stopped so long is replaced
_BEYOND_LEASE = (8.0, 13.0)
#: until the nodes of the database are whole again, the next fault waits anyway
PACES: dict[Kind, Pace] = {
    "kill server": Pace(gap=(8.0, 12.0)),
    "kill dispatcher": Pace(gap=(8.0, 12.0)),
    "kill both": Pace(gap=(10.0, 14.0)),
    "stop server": Pace(_BEYOND_LEASE),
    "stop dispatcher": Pace(_BEYOND_LEASE),
    "stop server in transaction": Pace(_BEYOND_LEASE),
    "stop dispatcher in transaction": Pace(_BEYOND_LEASE),
    "lose answers of server": Pace((0.5, 3.0)),
    "lose answers of dispatcher": Pace((0.5, 3.0)),
    "cut server from database": Pace((3.0, 12.0)),
    "cut dispatcher from database": Pace((3.0, 12.0)),
    "cut replication": Pace((3.0, 10.0)),
    "cut primary from etcd": Pace((24.0, 30.0)),
    "kill postgres": Pace(gap=(6.0, 10.0)),
    "kill node": Pace((22.0, 26.0)),
    "kill standby": Pace((4.0, 10.0)),
    "stop node": Pace((26.0, 30.0)),
    "hang replication and kill node": Pace((22.0, 26.0)),
    "fill disk of primary": Pace((3.0, 8.0)),
    "fill disk of standby": Pace((3.0, 8.0)),
    "jump clock": Pace((5.0, 15.0), gap=(1.0, 2.0)),
    "vanish": Pace((3.0, 8.0), gap=(0.5, 1.0)),
}
#: kinds of a quick run
QUICK: tuple[Kind, ...] = (
    "kill server",
    "kill dispatcher",
    "stop server",
    "stop dispatcher in transaction",
    "lose answers of dispatcher",
    "lose answers of server",
    "hang replication and kill node",
    "kill postgres",
    "jump clock",
    "vanish",
)


@dataclass(frozen=True, slots=True)
class Fault:
    kind: Kind
    seconds: float
    #: seconds of rest after it
    gap: float
    #: chooses a target, a direction, a sign
    choice: float

    @property
    def what(self) -> str:
        return f"{self.kind} for {self.seconds:.1f} s" if self.seconds else self.kind


def draw(seed: int, seconds: float, kinds: Sequence[Kind]) -> list[Fault]:
    """Faults of a run: as many rounds of all kinds as fit into the time."""
    chance = random.Random(f"faults of {seed}")
    faults: list[Fault] = []
    spent = 0.0
    while spent < seconds:
        for kind in chance.sample(list(kinds), len(kinds)):
            pace = PACES[kind]
            fault = Fault(
                kind,
                round(chance.uniform(*pace.lasting), 2),
                round(chance.uniform(*pace.gap), 2),
                chance.random(),
            )
            faults.append(fault)
            spent += fault.seconds + fault.gap
            if spent >= seconds:
                break
    return faults
