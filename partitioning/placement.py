"""The interface of placement policies, their settings, and the limits of the servers' loads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from edn.arrays import Floats

#: server → number of subscriptions
Loads = Mapping[str, int]
#: bounds of a rectangle (d,), or of several (k, d); None: unknown
Side = Floats | None
#: coordinates of a location; None: unknown
Place = Sequence[float] | None

#: limit of rectangles per server (N_b)
BOUND = 64
#: subscriptions of the topic that each server gets before content decides
SPREAD = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    #: limit of subscriptions
    threshold: int | None = None
    #: limit as a multiple of the average load
    factor: float | None = None

    def candidates(self, loads: Loads) -> list[str]:
        """Return the servers within the limits, sorted; if there is none, the least loaded."""
        most = float("inf") if self.threshold is None else float(self.threshold)
        if self.factor is not None:
            most = min(most, self.factor * (sum(loads.values()) + 1) / len(loads))
        allowed = sorted(server for server, load in loads.items() if load + 1 <= most)
        return allowed or least_loaded(loads, sorted(loads))


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    limits: Limits = Limits()
    #: limit of rectangles per server; None: no limit
    bound: int | None = BOUND
    spread: int = SPREAD
    #: how ties are broken; `random` is for comparison, it costs traffic
    ties: Literal["least-loaded", "random"] = "least-loaded"
    #: server → network distance from the dispatcher; default 1
    distances: Mapping[str, float] = field(default_factory=dict)
    #: server → its location; subscribers' locations become dimensions
    affinity: Mapping[str, Sequence[float]] = field(default_factory=dict)


class Placement:
    """A policy for one topic. This base learns nothing."""

    def place(self, loads: Loads, lo: Side = None, hi: Side = None, *, location: Place = None) -> str:
        """Choose one of the servers in `loads`, which is not empty, and learn the choice.

        `lo`, `hi` are one rectangle (d,), or several (k, d), of which the bounding rectangle is used. Without
        them the least loaded server is chosen.
        """
        raise NotImplementedError

    def suggest(self, loads: Loads, lo: Floats, hi: Floats, *, location: Place = None) -> str | None:
        """Return the choice of `place` by content, without learning it; None if content does not decide."""
        return None

    def placed(self, server: str, lo: Side = None, hi: Side = None, *, location: Place = None) -> None:
        """Learn a choice that was made elsewhere."""

    def summarise(self, server: str, lo: Floats, hi: Floats) -> None:
        """Replace everything known of a server by rectangles (n, d)."""

    def forget(self, server: str) -> None:
        """Forget a server that was removed, or is empty."""


def least_loaded(loads: Loads, among: Sequence[str]) -> list[str]:
    """Return the servers with the fewest subscriptions, in the given order."""
    least = min(loads[server] for server in among)
    return [server for server in among if loads[server] == least]
