"""Online placement: chooses the server of a new subscription.

A policy gets the loads of the candidates and the subscription's rectangle, and returns a server. It learns
summaries (`summarise`) and its own decisions at once, so that subscriptions created together are spread like
single ones, however old the summaries are. One policy object serves one topic, because rectangles of
different topics are in different spaces.

| policy | chosen server |
|---|---|
| `random` | any |
| `least-loaded` | the one with the fewest subscriptions |
| `rtree` | the one with the rectangle that shares the largest volume with the new one |
| `kmeans` | the one with the nearest mean centre |
| `traffic` | the one whose traffic grows least, weighted by its distance |

`Limits` exclude servers first; if all are excluded, the least loaded is chosen, because placement does not
refuse subscriptions. Ties go to the less loaded server, then to a random one. While some servers have only a
few subscriptions of the topic, the least loaded of them is chosen without regard to content: otherwise the
server with the first subscription would attract the others.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np

from edn.errors import InvalidInput
from partitioning.placement import Limits, Loads, Place, Placement, Settings, Side, least_loaded
from partitioning.similarity import KMeans, LeastTraffic, RTree

__all__ = [
    "KMeans",
    "LeastLoaded",
    "LeastTraffic",
    "Limits",
    "Placement",
    "RTree",
    "Random",
    "Settings",
    "new_placement",
    "warm",
]


class Random(Placement):
    """Chooses any server within the limits: the published baseline."""

    def __init__(self, rng: random.Random | None = None, settings: Settings | None = None) -> None:
        self._rng = rng or random.Random()
        self._settings = settings or Settings()

    def place(self, loads: Loads, lo: Side = None, hi: Side = None, *, location: Place = None) -> str:
        return self._rng.choice(self._settings.limits.candidates(loads))


class LeastLoaded(Random):
    """Chooses the server with the fewest subscriptions; of equals, a random one."""

    def place(self, loads: Loads, lo: Side = None, hi: Side = None, *, location: Place = None) -> str:
        return self._rng.choice(least_loaded(loads, sorted(loads)))


POLICIES: dict[str, Callable[[random.Random | None, Settings | None], Placement]] = {
    "random": Random,
    "least-loaded": LeastLoaded,
    "rtree": RTree,
    "kmeans": KMeans,
    "traffic": LeastTraffic,
}


def new_placement(
    name: str, *, settings: Settings | None = None, rng: random.Random | None = None
) -> Placement:
    try:
        return POLICIES[name](rng, settings)
    except KeyError:
        known = ", ".join(sorted(POLICIES))
        raise InvalidInput(f'placement policy must be one of {known}, got "{name}"') from None


def warm() -> None:
    """Compile or load the kernels of the policies, so that a service's first placement is fast."""
    for name in POLICIES:
        placement = new_placement(name, settings=Settings(spread=0))
        for _ in range(2):
            placement.place({"a": 0, "b": 0}, np.zeros(2), np.ones(2))
        placement.summarise("a", np.zeros((1, 2)), np.ones((1, 2)))


if __name__ == "__main__":  # `make setup` compiles the kernels with it
    warm()
