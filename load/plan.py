"""The phases of a run, which the driver and Locust share."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import msgspec


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A period with one kind of load."""

    name: str
    seconds: float
    #: Locust users at its beginning and at its end
    users: int
    users_at_end: int
    #: all events are of a few symbols
    crowded: bool = False
    #: limit of the dispatcher's outgoing link; None for no limit
    bytes_per_second: float | None = None
    #: subscriptions at the end, without those of `users.Subscriber`
    subscriptions: int = 0
    #: one of `FORMS`; empty for a mix of single events and batches over REST
    form: str = ""


#: ways to publish, whose cost per message (T_f) is compared
FORMS = ("REST single", "REST batch", "SOAP 1.1", "SOAP 1.2")
SHAPES = ("steady", "ramp", "events", "link", "subscriptions", "messaging", "all")


def phases(shape: str, *, seconds: float, users: int, subscriptions: int, narrow: float) -> list[Phase]:
    """Returns the phases of a shape; `seconds`: of all phases; `narrow`: width of a narrow link."""
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
    """Returns phase and number of users at a time since the beginning; None after the end."""
    for phase in plan:
        if seconds < phase.seconds:
            share = seconds / phase.seconds
            return phase, round(phase.users + share * (phase.users_at_end - phase.users))
        seconds -= phase.seconds
    return None


def write(plan: list[Phase], path: Path) -> None:
    path.write_bytes(msgspec.json.encode(plan))


def read(path: Path) -> list[Phase]:
    return msgspec.json.decode(path.read_bytes(), type=list[Phase])
