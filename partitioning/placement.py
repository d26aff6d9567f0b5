"""What every placement policy is asked and told, and which servers it may consider.

Equal answers of a policy go to the less loaded server.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from edn.arrays import Floats

#: subscriptions of each server
Loads = Mapping[str, int]
#: a bound of a rectangle (d,), or of several (k, d), where it is known
Side = Floats | None
#: coordinates of a location, where it is known
Place = Sequence[float] | None

#: rectangles kept a server (N_b)
BOUND = 64
#: subscriptions of the topic that a server gets before content decides: with nothing placed, all overlaps
#: are equal
SPREAD = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Which servers are too loaded to be considered."""

    #: subscriptions that a server may have
    threshold: int | None = None
    #: the same, in parts of the average load
    factor: float | None = None

    def candidates(self, loads: Loads) -> list[str]:
        """Servers that may take one more; the least loaded where none may. Sorted."""
        most = float("inf") if self.threshold is None else float(self.threshold)
        if self.factor is not None:
            most = min(most, self.factor * (sum(loads.values()) + 1) / len(loads))
        allowed = sorted(server for server, load in loads.items() if load + 1 <= most)
        return allowed or least_loaded(loads, sorted(loads))


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a policy can be told."""

    limits: Limits = Limits()
    #: the most rectangles remembered a server; None remembers all
    bound: int | None = BOUND
    spread: int = SPREAD
    #: who gets what several servers suit equally well; `random` is for comparison, it costs traffic
    ties: Literal["least-loaded", "random"] = "least-loaded"
    #: server → network distance from the dispatcher; 1 where it is not named
    distances: Mapping[str, float] = field(default_factory=dict)
    #: server → the location that it is near to: subscribers' locations become dimensions of their own
    affinity: Mapping[str, Sequence[float]] = field(default_factory=dict)


class Placement(Protocol):
    def place(self, loads: Loads, lo: Side = None, hi: Side = None, *, location: Place = None) -> str:
        """One of `loads`' servers, which is never empty; `loads` counts subscriptions.

        `lo`, `hi` are the rectangle (d,), or several (k, d), whose bounding rectangle counts. Without them
        content cannot decide, and the least loaded server is taken.
        """
        ...

    def suggest(self, loads: Loads, lo: Floats, hi: Floats, *, location: Place = None) -> str | None:
        """What `place` would answer by content; None where content says nothing, so that somebody who knows
        more, or newer things, should be asked. Nothing is counted as placed.
        """
        ...

    def placed(self, server: str, lo: Side = None, hi: Side = None, *, location: Place = None) -> None:
        """Somebody else chose: the server has got this one, which counts for what is placed next."""
        ...

    def summarise(self, server: str, lo: Floats, hi: Floats) -> None:
        """What the server's subscriptions look like now: its rectangles, (n, d). Replaces all that was
        known."""
        ...

    def forget(self, server: str) -> None:
        """The server is gone, or empty."""
        ...


def least_loaded(loads: Loads, among: Sequence[str]) -> list[str]:
    """Those with the fewest subscriptions, in the order given."""
    least = min(loads[server] for server in among)
    return [server for server in among if loads[server] == least]
