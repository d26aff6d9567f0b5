"""What happens when: the phases of a run, as data that the driver and Locust share."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A while in which the load is of one kind."""

    name: str
    seconds: float
    #: Locust users at its beginning and at its end
    users: int
    users_at_end: int
    #: everybody trades the same few symbols
    crowded: bool = False
    #: bytes a second that may leave the dispatcher; None: no limit
    bytes_per_second: float | None = None
    #: subscriptions that are there in the end, besides those that come and go
    subscriptions: int = 0
    #: how everybody publishes, one of `FORMS`; empty: some single events, some batches, over REST
    form: str = ""


#: ways to publish, whose cost of a message (T_f) is compared
FORMS = ("REST single", "REST batch", "SOAP 1.1", "SOAP 1.2")
SHAPES = ("steady", "ramp", "events", "link", "subscriptions", "messaging", "all")


def phases(shape: str, *, seconds: float, users: int, subscriptions: int, narrow: float) -> list[Phase]:
    """The phases of a shape; `seconds` is the length of the whole, `narrow` the width of a narrow link."""
    steady = Phase(name="steady", seconds=1.0, users=users, users_at_end=users, subscriptions=subscriptions)
    changes = {
        "steady": [],
        "ramp": [replace(steady, name="ramp", users_at_end=4 * users)],
        "events": [replace(steady, name="other events", crowded=True)],
        "link": [replace(steady, name="narrow link", bytes_per_second=narrow)],
        "subscriptions": [replace(steady, name="more subscriptions", subscriptions=3 * subscriptions)],
        "messaging": [replace(steady, name=form, form=form) for form in FORMS],
    }
    changes["all"] = [phase for shape in SHAPES[1:-1] for phase in changes[shape]]
    chosen = [steady, *changes[shape]]
    return [replace(phase, seconds=seconds / len(chosen)) for phase in chosen]


def at(plan: list[Phase], seconds: float) -> tuple[Phase, int] | None:
    """The phase and the number of users so many seconds after the beginning; None after the end."""
    for phase in plan:
        if seconds < phase.seconds:
            share = seconds / phase.seconds
            return phase, round(phase.users + share * (phase.users_at_end - phase.users))
        seconds -= phase.seconds
    return None


def write(plan: list[Phase], path: Path) -> None:
    path.write_text(json.dumps([asdict(phase) for phase in plan]))


def read(path: Path) -> list[Phase]:
    told: list[dict[str, Any]] = json.loads(path.read_text())
    return [Phase(**phase) for phase in told]
